"""Compiling for a backend, and what makes it quicker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pymc as pm

from pytensor.compile.io import In, Out
from pytensor.compile.mode import Mode, get_mode
from pytensor.graph.basic import Variable

from pymc_sgmcmc.backends.workarounds import (
    LEFT_TO_XLA,
    NOT_INTERPRETED,
    constants_copied,
    repeatable,
    uncollected,
)

__all__ = ["INTERPRETER", "compiled", "uncollected"]

# The mode of graphs that run once a chain: they are interpreted, and nothing is compiled
INTERPRETER = Mode(linker="py", optimizer="fast_run").excluding(*NOT_INTERPRETED)

_MODES = {"numba": "NUMBA", "interpreter": INTERPRETER}


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
    mode = get_mode("JAX").excluding(*LEFT_TO_XLA) if jax else _MODES[backend]
    with constants_copied() if jax else repeatable():
        function = pm.compile(
            [In(variable, borrow=True) for variable in inputs],
            [Out(variable, borrow=True) for variable in outputs],
            **{"mode": mode, "on_unused_input": "ignore", **(compile_kwargs or {})},
        )
    function.trust_input = True
    return function
