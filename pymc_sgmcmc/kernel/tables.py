"""The data where a backend reads them: rows in the order of batches, which chains may share."""

from __future__ import annotations

import mmap
import os
import sys
import tempfile
import weakref

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from typing import Any

import numpy as np

from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant
from pytensor.graph.traversal import graph_inputs

from pymc_sgmcmc.backends.placing import ALIGNMENT, aligned, place
from pymc_sgmcmc.disk.fetch import gather, has_source
from pymc_sgmcmc.model.minibatch import Minibatch
from pymc_sgmcmc.model.posterior import Posterior

# Most rows of joined blocks: enough to outweigh the fixed cost of a batch, and few enough for all
# that is computed from them to stay in a processor's cache
LARGEST_JOINED = 4096

# Bytes of rows from which chains share one order of them. Fewer are copied at no cost, and chains
# with orders of their own then show the effect of the order on the draws
_LARGE = 2**26

# Seed of the order that chains share: their batches differ by offsets
SHARED_ORDER = 0


def sizes_of(posterior: Posterior) -> list[tuple[int, int]]:
    """Return the numbers of rows of the data and of a batch, for each minibatch."""
    return [
        (len(arrays[0]), batch.batch_size)
        for batch, arrays in zip(posterior.minibatches, posterior.arrays, strict=True)
    ]


def read_batches(
    posterior: Posterior,
    tables: Sequence[Any],
    offsets: Sequence[np.ndarray],
    new: Callable[[tuple[int, ...], Any], np.ndarray],
) -> tuple[list[np.ndarray], list[Any]]:
    """Return where batches begin, and tables in which rows on disk are replaced by those read.

    ``new`` makes an empty array of a shape and a dtype.
    """
    begins: list[np.ndarray] = []
    read: list[Any] = []
    rest = iter(tables)
    sizes = sizes_of(posterior)
    for arrays, at, (rows, size) in zip(posterior.arrays, offsets, sizes, strict=True):
        group = list(islice(rest, len(arrays)))
        if not has_source([group]):
            begins.append(at)
            read += group
            continue
        unique, which = np.unique(at, return_inverse=True)
        for source in group:
            source.check()
            out = new((at.size * size, *source.shape[1:]), source.held)
            gather(source, unique, rows, size, out)
            read.append(out)
        begins.append((which * size).astype(at.dtype).reshape(at.shape))
    return begins, read


def is_large(minibatches: Sequence[Minibatch]) -> bool:
    """Whether all chains share one order of the rows and one memory."""
    return sum(array.nbytes for array in _in_memory(minibatches)) >= _LARGE


def arrange(array: np.ndarray, rng: np.random.Generator, table: np.ndarray) -> None:
    """Fill a table with the permuted rows; the same ``rng`` gives the same order."""
    rows = len(array)
    # In this mode NumPy writes to the table itself
    np.take(array, rng.permutation(rows), axis=0, out=table[:rows], mode="clip")
    table[rows:] = table[: len(table) - rows]


class Tables:
    """The data of a posterior, placed for a backend: rows of minibatches, and other arrays.

    Forked processes share ``memory``. The last layout of the rows is kept, so that tuning and
    sampling read the same copy.
    """

    def __init__(self, posterior: Posterior, memory: RowMemory | None) -> None:
        self._posterior = posterior
        self._memory = memory
        self._rows: tuple[Any, list[Any]] | None = None
        self._data: tuple[str, list[Any]] | None = None

    def data(self, backend: str) -> list[Any]:
        """Return the data lifted out of the model's graph."""
        if self._data is None or self._data[0] != backend:
            self._data = backend, place(list(self._posterior.data.values()), backend)
        return self._data[1]

    def rows(self, backend: str, row_order: int, *, contiguous: bool) -> list[Any]:
        """Return the rows as a batch scheme reads them; of rows on disk the sources."""
        key = backend, row_order, contiguous
        if self._rows is None or self._rows[0] != key:
            self._rows = None
            groups = self._posterior.arrays
            arrays = [array for group in groups for array in group]
            placed = self._in_order(backend, row_order) if contiguous else place(arrays, backend)
            self._rows = key, placed
        return self._rows[1]

    def _in_order(self, backend: str, row_order: int) -> list[Any]:
        """Return the rows permuted, with the first rows once more after the last."""
        minibatches, groups = self._posterior.minibatches, self._posterior.arrays
        in_memory = [
            (array, i, _shape_of_table(array, batch.batch_size))
            for i, (batch, arrays) in enumerate(zip(minibatches, groups, strict=True))
            if not has_source([arrays])
            for array in arrays
        ]

        def write(tables: list[np.ndarray]) -> None:
            for (array, i, _), table in zip(in_memory, tables, strict=True):
                arrange(array, np.random.default_rng([row_order, i]), table)

        memory = self._memory
        if memory is not None and row_order == SHARED_ORDER and memory.is_of(minibatches):
            tables = memory.tables(write)
        else:
            tables = [aligned(shape, array.dtype) for array, _, shape in in_memory]
            write(tables)
        placed = iter(place(tables, backend))
        return [
            array if has_source([arrays]) else next(placed) for arrays in groups for array in arrays
        ]


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
                shape = _shape_of_table(array, batch.batch_size)
                self._places.append((size, shape, array.dtype))
                size += -(-int(np.prod(shape)) * array.dtype.itemsize // ALIGNMENT) * ALIGNMENT
        self._memory = mmap.mmap(-1, size)
        with suppress(OSError, AttributeError):
            self._memory.madvise(mmap.MADV_HUGEPAGE)
        if sys.platform != "win32":
            self._lock, name = tempfile.mkstemp()
            weakref.finalize(self, os.close, self._lock)
            os.unlink(name)

    def is_of(self, minibatches: Sequence[Minibatch]) -> bool:
        """Whether these are the minibatches, and their arrays were not set anew."""
        leaves = _leaves(minibatches)
        return len(leaves) == len(self._leaves) and all(
            reference() is leaf for reference, leaf in zip(self._leaves, leaves, strict=True)
        )

    def tables(self, write: Callable[[list[np.ndarray]], None]) -> list[np.ndarray]:
        """Return the tables; ``write`` fills them where no process has done so."""
        tables: list[np.ndarray] = [
            np.ndarray(shape, dtype, self._memory, offset) for offset, shape, dtype in self._places
        ]
        with self._alone():
            if self._memory[0] == 0:
                write(tables)
                self._memory[0] = 1
        return tables

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


def _shape_of_table(array: np.ndarray, batch_size: int) -> tuple[int, ...]:
    """Return the shape of a table: the first rows follow the last, so that a batch is a slice."""
    appended = min(max(batch_size, LARGEST_JOINED) - 1, len(array))
    return len(array) + appended, *array.shape[1:]


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
