"""Compiling for a backend, and what makes it quicker."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import pymc as pm

from pytensor.compile.io import In, Out
from pytensor.compile.mode import Mode, get_mode
from pytensor.graph.basic import Variable

from pymc_sgmcmc.backends.jax_backend import prepare
from pymc_sgmcmc.backends.placing import on_processor
from pymc_sgmcmc.backends.workarounds import (
    HAD_BEFORE,
    NOT_INTERPRETED,
    bessel_known,
    compilations_kept,
    constants_copied,
    jax_precision,
    long_integers_allowed,
    products_in_full,
    repeatable,
    scalar_loops_known,
    softplus_vectorised,
    splines_known,
    uncollected,
    untraced,
)

__all__ = ["INTERPRETER", "building", "compiled"]

# The mode of graphs that run once a chain: they are interpreted, and nothing is compiled
INTERPRETER = Mode(linker="py", optimizer="fast_run").excluding(*NOT_INTERPRETED)

_KNOWN_TO_JAX = (
    constants_copied, softplus_vectorised, scalar_loops_known, bessel_known, splines_known,
)  # fmt: skip

_MODES = {"numba": "NUMBA", "interpreter": INTERPRETER}


@contextmanager
def building() -> Generator[None]:
    """Build and compile graphs without what costs time and serves nobody."""
    with uncollected(), untraced():
        yield


def compiled(
    inputs: Sequence[Variable],
    outputs: Sequence[Variable],
    backend: str,
    compile_kwargs: Mapping[str, Any] | None = None,
) -> Callable[..., Any]:
    """Return a compiled function that trusts its inputs and lends its outputs.

    One for JAX computes in the precision that was set when it was compiled.

    Parameters
    ----------
    inputs, outputs : sequence of Variable
        The graph; inputs may be unused.
    backend : {"jax", "numba", "interpreter"}
        The backend.
    compile_kwargs : dict, optional
        For :func:`pymc.compile`.
    """
    if backend == "jax":
        prepare()
        precision = jax_precision()
        mode = get_mode("JAX").excluding(*HAD_BEFORE)
        with ExitStack() as stack:
            for known in (*_KNOWN_TO_JAX, precision):
                stack.enter_context(known())
            function = _compiled(inputs, outputs, mode, compile_kwargs)
        # What PyTensor wraps around JAX's function costs as much as several updates
        jitted = getattr(function.vm, "jit_fn", None) or function
        traced = False

        def in_precision(*arguments: Any) -> Any:
            nonlocal traced, precision
            if traced:
                with precision():
                    return jitted(*arguments)
            if not on_processor(backend):
                precision = products_in_full(precision)
            with precision(), long_integers_allowed(), compilations_kept():
                found = jitted(*arguments)
            # Not before: the first call may be interrupted, and JAX traces again
            traced = True
            return found

        return in_precision
    with repeatable():
        return _compiled(inputs, outputs, _MODES[backend], compile_kwargs)


def _compiled(
    inputs: Sequence[Variable],
    outputs: Sequence[Variable],
    mode: Any,
    compile_kwargs: Mapping[str, Any] | None,
) -> Any:
    function = pm.compile(
        [In(variable, borrow=True) for variable in inputs],
        [Out(variable, borrow=True) for variable in outputs],
        **{"mode": mode, "on_unused_input": "ignore", **(compile_kwargs or {})},
    )
    function.trust_input = True
    return function
