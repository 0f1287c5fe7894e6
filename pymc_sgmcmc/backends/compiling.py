"""Compiling for a backend, and what makes it quicker."""

from __future__ import annotations

import warnings

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from textwrap import shorten
from typing import Any

import pymc as pm

from pytensor.compile.io import In, Out
from pytensor.compile.mode import get_mode
from pytensor.graph.basic import Variable

from pymc_sgmcmc.backends import jax_backend, numba_backend
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

# What backends raise where they lack an operation, or cannot trace a graph at its first call
_UNTRACEABLE = (IndexError, NotImplementedError, TypeError, ValueError, AttributeError)


class BackendError(NotImplementedError):
    """A backend cannot compile or run a model; its own exception is the cause."""


def first_line(error: BaseException | None) -> str:
    """Return the first line of a backend's message, which can hold a whole graph."""
    lines = str(error).splitlines() or [type(error).__name__]
    return shorten(lines[0], 300)


@contextmanager
def _named(backend: str) -> Generator[None]:
    """Let what a backend raises name the backend and the cure."""
    try:
        yield
    except _UNTRACEABLE as error:
        name, other = {"jax": ("JAX", "numba"), "numba": ("numba", "jax")}[backend]
        raise BackendError(
            f"{name} cannot run this model: {first_line(error).rstrip('.')}. "
            f"Pass backend='{other}', or register the operation with "
            f"pytensor.link.{backend}.dispatch."
        ) from error


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
        with completed(), precision(), _named(backend), warnings.catch_warnings():
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
            with _named(backend), precision(), long_integers_allowed(), compilations_kept():
                outputs = jitted(*arguments)
            # Not before: the first call may be interrupted, and JAX traces again
            traced = True
            return outputs

        return in_precision
    if backend == "numba":
        numba_backend.prepare()
    with repeatable(), _named(backend) if backend == "numba" else nullcontext():
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
