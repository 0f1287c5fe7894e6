"""Compiling for a backend, and what makes it quicker."""

from __future__ import annotations

import gc

from collections.abc import Generator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pymc as pm
import pytensor

from pytensor.compile.io import In, Out
from pytensor.compile.mode import Mode, get_mode
from pytensor.graph.basic import Variable

from pymc_sgmcmc import jax_backend

__all__ = ["INTERPRETER", "compiled", "uncollected"]

# For what runs once a chain: nothing is compiled, and no BLAS library is looked for
# Fused operations would run in Python element by element, and take 32 operands at most
INTERPRETER = Mode(linker="py", optimizer="fast_run").excluding("BlasOpt", "fusion", "inplace")

_MODES = {"numba": "NUMBA", "interpreter": INTERPRETER}

# Rewrites of loops that cost compile time and make JAX's no quicker; scan_push_out_non_seq does
_LEFT_TO_XLA = "scan_push_out_seq", "scan_push_out_dot1", "scan_push_out_add"


def compiled(
    inputs: Sequence[Variable],
    outputs: Sequence[Variable],
    backend: str,
    compile_kwargs: Mapping[str, Any] | None = None,
) -> Any:
    """Return a compiled function that trusts its inputs and lends its outputs.

    Parameters
    ----------
    inputs, outputs : sequence of Variable
        The graph; inputs may be unused.
    backend : {"jax", "numba", "interpreter"}
        The backend.
    compile_kwargs : dict, optional
        For :func:`pymc.compile`.
    """
    jax = backend == "jax"
    mode = get_mode("JAX").excluding(*_LEFT_TO_XLA) if jax else _MODES[backend]
    with jax_backend.constants_copied() if jax else _repeatable():
        function = pm.compile(
            [In(variable, borrow=True) for variable in inputs],
            [Out(variable, borrow=True) for variable in outputs],
            **{"mode": mode, "on_unused_input": "ignore", **(compile_kwargs or {})},
        )
    function.trust_input = True
    return function


def _repeatable() -> AbstractContextManager[Any]:
    """Have numba keep to the order of operations, so that a seed gives the same bits again.

    Allowed to change it, as PyTensor allows by default, numba makes of functions compiled
    just now another program than of the same functions from its cache.
    """
    return pytensor.config.change_flags(numba__fastmath=False)


@contextmanager
def uncollected() -> Generator[None]:
    """Put off Python's search for cyclic garbage.

    A compiler makes hundreds of thousands of objects that stay. The search is started by
    their number, goes through those of all imported packages too, and finds next to nothing.
    """
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
