"""Compiling for a backend, and what makes it quicker."""

from __future__ import annotations

import warnings

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import pymc as pm

from pytensor.compile.io import In, Out
from pytensor.compile.mode import get_mode
from pytensor.graph.basic import Variable

from pymc_sgmcmc.backends import jax_backend, numba_backend
from pymc_sgmcmc.backends.errors import named
from pymc_sgmcmc.backends.interpreting import INTERPRETER
from pymc_sgmcmc.backends.jax_missing import completed
from pymc_sgmcmc.backends.placing import on_processor
from pymc_sgmcmc.backends.workarounds import (
    HAD_BEFORE,
    compilations_kept,
    jax_precision,
    long_integers_allowed,
    products_in_full,
    repeatable,
    uncollected,
    untraced,
)

_MODES = {"numba": "NUMBA", "interpreter": INTERPRETER}


@contextmanager
def building() -> Generator[None]:
    """Build and compile graphs without costly steps that have no use here."""
    with uncollected(), untraced():
        yield


def compiled(
    inputs: Sequence[Variable],
    outputs: Sequence[Variable],
    backend: str,
    compile_kwargs: Mapping[str, Any] | None = None,
) -> Callable[..., Any]:
    """Return a compiled function that trusts its inputs and lends its outputs, else BackendError.

    JAX computes in the precision that was set at compilation, and may raise in the first call.
    Inputs may be unused.
    """
    if backend == "jax":
        jax_backend.prepare()
        precision = jax_precision()
        mode = get_mode("JAX").excluding(*HAD_BEFORE)
        with completed(), precision(), named(backend), warnings.catch_warnings():
            # PyTensor warns of each check of a parameter, all of which JAX leaves out
            warnings.filterwarnings("ignore", "Skipping Check", UserWarning)
            function = _compiled(inputs, outputs, mode, compile_kwargs)
        # PyTensor's wrapper of JAX's function costs as much as several updates
        jitted = function.vm.jit_fn
        traced = False

        def in_precision(*arguments: Any) -> Any:
            nonlocal traced, precision
            if traced:
                with precision():
                    return jitted(*arguments)
            if not on_processor(backend):
                precision = products_in_full(precision)
            with named(backend), precision(), long_integers_allowed(), compilations_kept():
                outputs = jitted(*arguments)
            # Not before: the first call may be interrupted, and JAX traces again
            traced = True
            return outputs

        return in_precision
    if backend == "numba":
        numba_backend.prepare()
    with repeatable(), named(backend) if backend == "numba" else nullcontext():
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
