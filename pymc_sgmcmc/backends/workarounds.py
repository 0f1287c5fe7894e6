"""What is private to JAX, set for the whole process, or patched: here and nowhere else.

Each function says why it is there. ``tests/backends/test_workarounds.py`` has a test for each
that fails when it is no longer needed.
"""

from __future__ import annotations

import gc
import logging
import multiprocessing
import os
import warnings

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import cache, partial
from typing import Any
from weakref import WeakSet

import numpy as np
import pytensor

from pymc import initial_point
from pymc.backends import arviz
from pymc.logprob.transforms import IntervalTransform
from pymc.model import Model, modelcontext
from pymc.sampling import mcmc
from pymc.stats import log_density
from pymc.step_methods.compound import flatten_steps
from pymc.util import get_untransformed_name, is_transformed_name
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import io_toposort
from scipy.sparse import issparse

from pymc_sgmcmc.backends.interpreting import UNSIMPLIFIED

# ----------------------------------------------------------------------------- JAX

# Rewrites of products, which ask of each matrix whether it is diagonal or selects, and of all that
# it is made of, which takes long. Gradients have had them before
HAD_BEFORE = "dot_diag_to_elemwise", "selection_dot_to_indexing"


def jax_is_running() -> bool:
    """Whether JAX has started its threads in this process, after which it must not be forked.

    Private: every public function that could answer this starts them.
    """
    from jax._src import xla_bridge

    return xla_bridge.backends_are_initialized()


def run_jax_in_calling_thread() -> None:
    """Have JAX run CPU computations in the calling thread, in this process from now on.

    Another thread would cost as much as twenty updates of a small model for each call, which is
    waited for anyway. JAX reads the setting when it starts: one already started stays as it is.
    """
    import jax

    if not jax_is_running():
        # Otherwise the first chain's process would take three quarters of a GPU's memory, and
        # others find too little
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
        jax.config.update("jax_cpu_enable_async_dispatch", False)  # type: ignore[no-untyped-call]


def start_jax() -> None:
    """Start JAX; with a missing platform it fails later, sometimes silently."""
    import jax

    try:
        jax.devices()
    except (AssertionError, RuntimeError) as error:
        reason = (str(error).splitlines() or ["it has no such device"])[0]
        raise RuntimeError(
            f"JAX cannot start on the platform {jax.config.jax_platforms!r}, which JAX_PLATFORMS "
            f"or jax.config names: {reason[:200]}. Set JAX_PLATFORMS=cpu before JAX is imported, "
            "or pass backend='numba'."
        ) from error


def jax_precision() -> Callable[[], AbstractContextManager[Any]]:
    """Return a context in which JAX has the precision of PyTensor's floatX at this moment.

    PyTensor sets JAX's precision once, at its first compilation. After a change of floatX a model
    in double precision would silently be computed in single precision.
    """
    import jax

    return partial(jax.enable_x64, pytensor.config.floatX == "float64")


def products_in_full(
    context: Callable[[], AbstractContextManager[Any]],
) -> Callable[[], AbstractContextManager[Any]]:
    """Return that context, in which a GPU also computes matrix products in the arrays' precision.

    By default factors in single precision are rounded to eleven bits, which loses differences of
    gradients at near positions.
    """
    import jax

    @contextmanager
    def both() -> Generator[None]:
        with context(), jax.default_matmul_precision("highest"):
            yield

    return both


@contextmanager
def long_integers_allowed() -> Generator[None]:
    """Keep JAX from warning of each integer of 64 bits that it traces in single precision.

    PyTensor's graphs have them for any floatX. JAX uses 32 bits instead, and data that need more
    are refused.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Explicitly requested dtype")
        yield


@contextmanager
def compilations_kept() -> Generator[None]:
    """Have JAX keep XLA's compilations beside PyTensor's compiled functions, for other processes.

    Private: JAX's public setting is process-wide and keeps nothing that took less than a second. A
    user's own cache stays as it is. An unreadable entry, half written, is compiled again.
    """
    from jax._src import config
    from jax.experimental.compilation_cache.compilation_cache import reset_cache

    if config.compilation_cache_dir.value is not None:
        yield
        return
    folder = str(pytensor.config.compiledir / "jax")
    # JAX looks for its setting once a process
    reset_cache()
    try:
        with (
            warnings.catch_warnings(),
            config.compilation_cache_dir(folder),
            config.persistent_cache_min_compile_time_secs(0.0),
        ):
            warnings.filterwarnings("ignore", message="Error .* persistent compilation cache")
            yield
    finally:
        reset_cache()


# ----------------------------------------------------------------------------- PyTensor

# Operations one after another from which on a graph is a recursion that was written out, as of a
# differential equation. The deepest other graphs of tried models have 148
_RECURSION = 200


def slow_rewrites(outputs: Sequence[Variable]) -> tuple[str, ...]:
    """Return the names of PyTensor's rewrites to leave out for a graph.

    For a recursion written out step by step PyTensor expands all products and looks for terms that
    cancel in each again, which takes minutes.
    """
    depths: dict[Variable, int] = {}
    for node in io_toposort([], list(outputs)):
        depth = 1 + max((depths.get(x, 0) for x in node.inputs), default=0)
        if depth > _RECURSION:
            return ("local_greedy_distributor",)
        depths.update(dict.fromkeys(node.outputs, depth))
    return ()


def repeatable() -> AbstractContextManager[Any]:
    """Have numba keep the order of operations, so that a seed gives the same bits again.

    PyTensor allows numba to change it, and numba then makes different programs of a function that
    it compiles and of the same function from its cache.
    """
    return pytensor.config.change_flags(numba__fastmath=False)


def interpreted() -> AbstractContextManager[Any]:
    """Have PyMC interpret graphs that it computes once, such as a model's initial point.

    Its functions for that take no mode, and compile in the default one.
    """
    return pytensor.config.change_flags(mode=UNSIMPLIFIED, cxx="")


def untraced() -> AbstractContextManager[Any]:
    """Keep PyTensor from recording for each variable which lines of code made it.

    That takes a sixth of the time in which graphs are built, and the lines are this package's.
    """
    return pytensor.config.change_flags(traceback__limit=0)


# ----------------------------------------------------------------------------- PyMC


def in_process_of_a_chain() -> bool:
    """Return whether PyMC started this process to sample a chain, by the name that it gives it."""
    return multiprocessing.current_process().name.startswith("worker_chain_")


def settings_of_process() -> tuple[str, int]:
    """Return what a chain's process has to be set to: only a fork inherits it."""
    return str(pytensor.config.floatX), logging.getLogger("pymc").level


def take_settings(floatX: str, level: int) -> None:
    """Set the process of a chain as the one that handed it the step method."""
    if in_process_of_a_chain():
        pytensor.config.floatX = floatX
        logging.getLogger("pymc").setLevel(level)


_CHECKED: WeakSet[Model] = WeakSet()
_converted = initial_point.convert_str_to_rv_dict


def hook_into_pymc(model: Model, notify: Callable[[Model], None]) -> None:
    """Have PyMC call what a step method of this model has no hook for, in this process.

    ``notify`` is called with a model before PyMC computes its log likelihood.
    """
    _CHECKED.add(model)
    initial_point.convert_str_to_rv_dict = _convert
    _hook_into_results()
    _hook_into_log_likelihood(notify)


def _convert(model: Model, start: Any) -> Any:
    """Refuse ``initvals`` that name no free variable of a model, or are of another shape.

    PyMC raises a bare KeyError, or ignores them, before it calls any hook of a step method.
    """
    if model in _CHECKED:
        free = {rv.name: rv for rv in model.free_RVs}
        checked = list(start)
        if free.keys() <= set(checked):
            # A whole point, as of pm.find_MAP, has deterministics, too, which PyMC leaves aside
            checked = [key for key in checked if key not in {x.name for x in model.deterministics}]
        named = {key: _named(model, free, key) for key in checked}
        for key, rv in named.items():
            if rv not in free.values():
                raise ValueError(
                    f"initvals names '{key}', which is no free variable of the model. Choose from "
                    f"{', '.join(map(repr, free))}."
                )
        shapes = cache(partial(_shapes, model))
        for key, rv in named.items():
            _check_shape(model, rv, key, start[key], shapes)
    return _converted(model, start)


def _named(model: Model, free: Mapping[str, Any], key: Any) -> Any:
    """Return the free variable that a key of ``initvals`` names, or what it is instead."""
    name = get_untransformed_name(key) if is_transformed_name(str(key)) else key
    return free.get(name, free.get(model.name_for(name))) if isinstance(name, str) else name


def _check_shape(
    model: Model, rv: Any, key: Any, value: Any, shapes: Callable[[], Mapping[str, Any]]
) -> None:
    """Refuse an initial value of another shape than its variable's, or its transformed one's."""
    of_value = isinstance(key, str) and is_transformed_name(key)
    transform = model.rvs_to_transforms[rv]
    # PyMC stretches numbers where the bounds are arrays
    stretched = np.ndim(value) == 0 and isinstance(transform, IntervalTransform)
    if value is None or isinstance(value, str | Variable) or stretched:
        return
    variable = model.rvs_to_values[rv] if of_value else rv
    shape = variable.type.shape
    if None in shape:
        shape = shapes().get(variable.name, shape)
    if np.shape(value) != shape and None not in shape:
        raise ValueError(
            f"The initial value given to '{rv.name}' has the shape {np.shape(value)}, and the "
            f"variable has {shape}. Pass one of that shape."
        )


def _shapes(model: Model) -> dict[str, tuple[int, ...]]:
    """Return the shapes of free variables and of their transformed ones, by name."""
    # A density of the user's own may have no draws
    with suppress(NotImplementedError, TypeError, ValueError), interpreted():
        shapes = model.eval_rv_shapes()
        return {name: tuple(int(n) for n in shape) for name, shape in shapes.items()}
    return {}


_init_traces = mcmc.init_traces


def _hook_into_results() -> None:
    """Have PyMC keep what a step method names in ``left_out`` only where ``var_names`` has it.

    A step method has no hook for what PyMC computes at each draw, nor for its result, which sparse
    data would end, nor for checks, which draws of deterministics alone would. ``let_go`` and
    ``look_again`` are called before a run, and ``check_kept`` gets the names, the first also what
    PyMC's steps sample.
    """
    mcmc.init_traces = _traces
    arviz.find_constants = _dense_constants
    mcmc.run_convergence_checks = _checks


_run_checks = mcmc.run_convergence_checks


def _checks(idata: Any, model: Model) -> list[Any]:
    """Return what PyMC's checks say, nothing where ``var_names`` leaves no free variable."""
    kept = idata["posterior"].data_vars if "posterior" in idata.children else ()
    if kept and not any(rv.name in kept for rv in model.free_RVs):
        return []
    return _run_checks(idata, model)


_find_constants = arviz.find_constants


def _dense_constants(model: Model) -> dict[str, Any]:
    """Return the data of a model without sparse ones, of which xarray has no array."""
    return {name: x for name, x in _find_constants(model).items() if not issparse(x)}


def _traces(
    *, step: Any, model: Model, trace_vars: list[Variable] | None = None, **others: Any
) -> Any:
    parts = flatten_steps(step)
    getattr(step, "let_go", lambda: None)()
    for part in parts:
        getattr(part, "look_again", lambda: None)()
    names = {name for part in parts for name in getattr(part, "left_out", ())}
    if trace_vars is None and names:
        trace_vars = [x for x in model.unobserved_value_vars if x.name not in names]
    kept = [x.name for x in (model.unobserved_value_vars if trace_vars is None else trace_vars)]
    ours = [part for part in parts if hasattr(part, "check_kept")]
    theirs = [value for part in parts if not hasattr(part, "check_kept") for value in part.vars]
    temperatures = {part.options.temperature for part in ours} | ({1.0} if theirs else set())
    for part in ours:
        if part.model is not model:
            raise ValueError(
                f"The step method {type(part).__name__} was made for another model than the one "
                "that is sampled. Make it in the context of the whole model, after all variables."
            )
        is_first = part is ours[0]
        part.check_kept(kept, theirs if is_first else (), temperatures if is_first else ())
    return _init_traces(step=step, model=model, trace_vars=trace_vars, **others)


_compute_log_density = log_density.compute_log_density


def _hook_into_log_likelihood(notify: Callable[[Model], None]) -> None:
    """Have PyMC call ``notify`` with the model before it computes a log likelihood.

    Meanwhile the model has no initial values, with which PyMC refuses it. A step method has no hook
    for ``idata_kwargs``, nor for :func:`pymc.compute_log_likelihood`.
    """

    def notifying(
        *args: Any, model: Model | None = None, kind: str = "likelihood", **others: Any
    ) -> Any:
        of = modelcontext(model)
        if kind == "likelihood":
            notify(of)
        starts = dict(of.rvs_to_initial_values)
        # PyMC copies no model with starts, and a density needs none
        of.rvs_to_initial_values.update(dict.fromkeys(starts))
        try:
            return _compute_log_density(*args, model=model, kind=kind, **others)
        finally:
            of.rvs_to_initial_values.update(starts)

    log_density.compute_log_density = notifying


# ----------------------------------------------------------------------------- numba


def unkept() -> None:
    """Have numba continue where it cannot cache a compilation, in this process from now on.

    Private: a full or read-only disk would end the run.
    """
    from numba.core import caching

    warn_once = cache(partial(warnings.warn, category=UserWarning, stacklevel=2))

    @contextmanager
    def guarded(self: Any) -> Generator[None]:
        try:
            yield
        except OSError as error:
            warn_once(
                f"What numba compiled cannot be kept in '{self._cache_path}' ({error.strerror}): "
                "each process compiles it again. Make room there, or set base_compiledir in the "
                "environment's PYTENSOR_FLAGS, and NUMBA_CACHE_DIR, to another folder."
            )

    kept: Any = caching.Cache
    kept._guard_against_spurious_io_errors = guarded


unkept()

# ----------------------------------------------------------------------------- Python


@contextmanager
def uncollected() -> Generator[None]:
    """Postpone Python's garbage collection of cycles.

    A compiler makes hundreds of thousands of lasting objects, whose number starts collections over
    all imported packages too, which find next to nothing.
    """
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
