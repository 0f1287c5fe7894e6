"""Tables of rows in the order of batches, and memory in which all chains of a machine find them."""

from __future__ import annotations

import mmap
import os
import sys
import tempfile
import weakref

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np

from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant
from pytensor.graph.traversal import graph_inputs

from pymc_sgmcmc.backends.placing import ALIGNMENT
from pymc_sgmcmc.disk.fetch import has_source
from pymc_sgmcmc.kernel.joined import LARGEST_JOINED
from pymc_sgmcmc.model.minibatch import Minibatch

__all__ = ["SHARED_ORDER", "RowMemory", "arrange", "is_large", "shape_of_table"]

# Bytes of rows from which chains share one order of them. Fewer are copied at no cost, and chains
# with orders of their own then show the effect of the order on the draws
_LARGE = 2**26

# Seed of the order that chains share: their batches differ by offsets
SHARED_ORDER = 0


def is_large(minibatches: Sequence[Minibatch]) -> bool:
    """Whether all chains share one order of the rows and one memory."""
    return sum(array.nbytes for array in _in_memory(minibatches)) >= _LARGE


def shape_of_table(array: np.ndarray, batch_size: int) -> tuple[int, ...]:
    """Return the shape of a table: the first rows follow the last, so that a batch is a slice."""
    appended = min(max(batch_size, LARGEST_JOINED) - 1, len(array))
    return len(array) + appended, *array.shape[1:]


def arrange(array: np.ndarray, rng: np.random.Generator, table: np.ndarray) -> None:
    """Fill a table with the permuted rows; the same ``rng`` gives the same order."""
    rows = len(array)
    # In this mode NumPy writes to the table itself
    np.take(array, rng.permutation(rows), axis=0, out=table[:rows], mode="clip")
    table[rows:] = table[: len(table) - rows]


class RowMemory:
    """Tables of rows, but for those on disk, in memory that forked processes share.

    The process that makes the step method reserves it, else OSError. The first chain that needs
    the tables fills them while others wait.
    """

    def __init__(self, minibatches: Sequence[Minibatch]) -> None:
        self._leaves = [weakref.ref(leaf) for leaf in _leaves(minibatches)]
        self._places: list[tuple[int, tuple[int, ...], Any]] = []
        size = ALIGNMENT  # the first byte says whether the tables are written
        for batch in minibatches:
            for array in _in_memory([batch]):
                shape = shape_of_table(array, batch.batch_size)
                self._places.append((size, shape, array.dtype))
                size += -(-int(np.prod(shape)) * array.dtype.itemsize // ALIGNMENT) * ALIGNMENT
        self._memory = mmap.mmap(-1, size)
        with suppress(OSError, AttributeError):
            self._memory.madvise(mmap.MADV_HUGEPAGE)
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
        """Return the tables; ``write`` fills them where no process has done so."""
        found: list[np.ndarray] = [
            np.ndarray(shape, dtype, self._memory, offset) for offset, shape, dtype in self._places
        ]
        with self._alone():
            if self._memory[0] == 0:
                write(found)
                self._memory[0] = 1
        return found

    @contextmanager
    def _alone(self) -> Generator[None]:
        """Hold a lock between processes, which the system releases if this one is killed."""
        if sys.platform == "win32":  # where processes are not forked, and nothing is shared
            yield
            return
        import fcntl

        fcntl.lockf(self._lock, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.lockf(self._lock, fcntl.LOCK_UN)


def _in_memory(minibatches: Sequence[Minibatch]) -> list[np.ndarray]:
    """Return the arrays from which rows are drawn, but for those beside rows on disk."""
    groups = [batch.arrays() for batch in minibatches]
    return [array for group in groups if not has_source([group]) for array in group]


def _leaves(minibatches: Sequence[Minibatch]) -> list[np.ndarray]:
    """Return the arrays that the model holds and from which rows are drawn."""
    inputs = graph_inputs([source for batch in minibatches for source in batch.sources])
    values = [
        leaf.data if isinstance(leaf, Constant) else leaf.get_value(borrow=True)
        for leaf in inputs
        if isinstance(leaf, Constant | SharedVariable)
    ]
    return [value for value in values if getattr(value, "ndim", 0)]
