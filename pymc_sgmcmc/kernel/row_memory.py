"""Memory for the rows of minibatches: one copy for all chains of a machine."""

from __future__ import annotations

import mmap
import os
import sys
import tempfile
import weakref

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager

import numpy as np

from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.traversal import graph_inputs

from pymc_sgmcmc.disk.fetch import has_source
from pymc_sgmcmc.kernel.joined import LARGEST_JOINED
from pymc_sgmcmc.model.minibatch import Minibatch

__all__ = ["ROW_ORDER", "RowMemory"]

# Seed of the order that all chains have in common: their batches differ by random offsets
ROW_ORDER = 0

# JAX reads an array where it is, without a copy, if it begins at a multiple of so many bytes
_ALIGNMENT = 64


class RowMemory:
    """Tables of rows in memory that forked processes share.

    It is reserved in the process that makes the step method, where nothing is written. The
    first chain that needs the tables writes them, and others wait for it.

    Parameters
    ----------
    minibatches : sequence of Minibatch
        Whose rows they are.
    """

    def __init__(self, minibatches: Sequence[Minibatch]) -> None:
        self._leaves = [weakref.ref(leaf) for leaf in _leaves(minibatches)]
        self._places: list[tuple[int, tuple[int, ...], np.dtype[np.generic]]] = []
        size = _ALIGNMENT  # the first byte says whether the tables are written
        for batch in minibatches:
            arrays = batch.arrays()
            for array in () if has_source([arrays]) else arrays:  # what is on disk stays there
                rows = len(array) + min(appended_rows(batch.batch_size), len(array))
                shape = rows, *array.shape[1:]
                self._places.append((size, shape, array.dtype))
                taken = int(np.prod(shape, dtype=np.int64)) * array.dtype.itemsize
                size += -(-taken // _ALIGNMENT) * _ALIGNMENT
        self._memory = mmap.mmap(-1, size)
        self._lock, name = tempfile.mkstemp()
        weakref.finalize(self, os.close, self._lock)
        if sys.platform != "win32":
            os.unlink(name)

    def is_of(self, minibatches: Sequence[Minibatch]) -> bool:
        """Whether these are the minibatches, and their arrays were not set anew."""
        leaves = _leaves(minibatches)
        return len(leaves) == len(self._leaves) and all(
            reference() is leaf for reference, leaf in zip(self._leaves, leaves, strict=True)
        )

    def tables(self, write: Callable[[list[np.ndarray]], None]) -> list[np.ndarray]:
        """Return the tables; ``write`` fills them in where no process has done so."""
        found = [
            np.ndarray(shape, dtype, self._memory, offset) for offset, shape, dtype in self._places
        ]
        with self._alone():
            if self._memory[0] == 0:
                write(found)
                self._memory[0] = 1
        return found

    @contextmanager
    def _alone(self) -> Generator[None]:
        """Keep other processes out; the system lets them in, should this one be killed."""
        if sys.platform == "win32":  # where processes are not forked, and nothing is shared
            yield
            return
        import fcntl

        fcntl.lockf(self._lock, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.lockf(self._lock, fcntl.LOCK_UN)


def appended_rows(batch_size: int) -> int:
    """Return how many rows follow the last one once more, so that every offset is one slice."""
    return max(batch_size, LARGEST_JOINED) - 1


def _leaves(minibatches: Sequence[Minibatch]) -> list[np.ndarray]:
    """Return the arrays of the model from which rows are drawn."""
    sources: list[Variable] = [source for batch in minibatches for source in batch.sources]
    return [
        leaf.data if isinstance(leaf, Constant) else leaf.get_value(borrow=True)
        for leaf in graph_inputs(sources)
        if isinstance(leaf, Constant | SharedVariable) and leaf.type.ndim
    ]
