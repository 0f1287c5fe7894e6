"""What JAX needs of the process that samples. Imports JAX inside its functions only."""

from __future__ import annotations

import os
import sys

from collections.abc import Callable
from typing import Any

from pymc_sgmcmc.backends.jax_loop import Loop, funcified
from pymc_sgmcmc.backends.once import Once
from pymc_sgmcmc.backends.placing import on_processor
from pymc_sgmcmc.backends.row_block import RowBlock
from pymc_sgmcmc.backends.workarounds import jax_is_running, run_jax_in_calling_thread, start_jax
from pymc_sgmcmc.centring.recurrence import Recurrence, earlier


def prepare() -> None:
    """Start JAX, ready to compile transitions."""
    from pytensor.link.jax.dispatch import jax_funcify

    run_jax_in_calling_thread()
    start_jax()
    if jax_funcify.dispatch(RowBlock) is jax_funcify.dispatch(object):
        jax_funcify.register(RowBlock)(_row_block)
        jax_funcify.register(Once)(_once)
        jax_funcify.register(Loop)(funcified)
        jax_funcify.register(Recurrence)(_recurrence)


def _row_block(op: RowBlock, **kwargs: Any) -> Callable[..., Any]:
    from jax.lax import dynamic_slice_in_dim

    def row_block(table: Any, offset: Any) -> Any:
        return dynamic_slice_in_dim(table, offset, op.size)

    return row_block


def _once(op: Once, **kwargs: Any) -> Callable[..., Any]:
    from jax.lax import optimization_barrier

    return optimization_barrier


def _recurrence(op: Recurrence, **kwargs: Any) -> Callable[..., Any]:
    import jax.numpy as jnp

    from jax.lax import associative_scan, scan

    def step(before: Any, at: Any) -> Any:
        y = at[0] + at[1] * before
        return y, y

    def both(first: Any, second: Any) -> Any:
        return first[0] * second[0], second[1] + second[0] * first[1]

    def recurrence(x: Any, kept: Any) -> Any:
        if not op.ahead:
            kept = earlier(kept, jnp)
        if not on_processor("jax"):
            # A GPU starts a kernel for each step of a loop
            return associative_scan(both, (kept, x), reverse=not op.ahead, axis=x.ndim - 1)[1]
        along = jnp.moveaxis(x, -1, 0), jnp.moveaxis(kept, -1, 0)
        _, y = scan(step, jnp.zeros_like(x[..., 0]), along, reverse=not op.ahead)
        return jnp.moveaxis(y, 0, -1)

    return recurrence


# Whether JAX was running where this process was forked from
_inherited = False


def _look_after_fork() -> None:
    global _inherited  # noqa: PLW0603
    _inherited = "jax" in sys.modules and jax_is_running()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_look_after_fork)


def refuse_inherited(cure: str) -> None:
    """Raise RuntimeError where JAX was running before this process was forked: it would hang."""
    if _inherited:
        raise RuntimeError(
            "JAX was already running in the process that was forked to make this one, and would "
            f"hang here. {cure}"
        )
