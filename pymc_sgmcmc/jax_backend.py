"""What JAX needs of the process that samples. Imports JAX inside its functions only."""

from __future__ import annotations

import os
import sys

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import numpy as np

from pymc_sgmcmc.row_block import RowBlock

__all__ = ["constants_copied", "prepare", "refuse_inherited"]


def prepare() -> None:
    """Make JAX ready to compile transitions, without starting it.

    Where nobody has started JAX yet, it is told to run CPU computations in the calling
    thread: each call is waited for anyway, and handing it to another thread and back costs
    as much as twenty updates of a small model.
    """
    import jax

    from jax._src import xla_bridge
    from pytensor.link.jax.dispatch import jax_funcify

    if not xla_bridge.backends_are_initialized():
        jax.config.update("jax_cpu_enable_async_dispatch", False)  # type: ignore[no-untyped-call]
    if jax_funcify.dispatch(RowBlock) is jax_funcify.dispatch(object):
        jax_funcify.register(RowBlock)(_row_block)


def _row_block(op: RowBlock, **kwargs: Any) -> Callable[..., Any]:
    from jax.lax import dynamic_slice_in_dim

    def row_block(table: Any, offset: Any) -> Any:
        return dynamic_slice_in_dim(table, offset, op.size)

    return row_block


@contextmanager
def constants_copied() -> Generator[None]:
    """Give JAX a graph's constants by copying them.

    PyTensor has JAX compile a program for every shape among them, which does no more.
    """
    import jax

    from pytensor.link.jax.dispatch.basic import jax_typify

    def copied(data: np.ndarray, **kwargs: Any) -> Any:
        return jax.device_put(data) if data.ndim else data.item()

    usual = jax_typify.dispatch(np.ndarray)
    jax_typify.register(np.ndarray)(copied)
    try:
        yield
    finally:
        jax_typify.register(np.ndarray)(usual)


def refuse_inherited(constructed_in: int) -> None:
    """Raise where JAX was running before this process was forked: it would hang.

    Parameters
    ----------
    constructed_in : int
        Number of the process in which the step was constructed or unpickled.

    Raises
    ------
    RuntimeError
        With the cure.
    """
    if os.getpid() == constructed_in or "jax" not in sys.modules:
        return
    from jax._src import xla_bridge

    if xla_bridge.backends_are_initialized():
        raise RuntimeError(
            "JAX was already running in the process that was forked to sample this chain, and "
            "would hang here. Pass backend='jax' or mp_ctx='forkserver' to pm.sample, for which a "
            "script needs the guard `if __name__ == '__main__':`, or pass cores=1."
        )
