"""What holds rows that are read when they are needed."""

from __future__ import annotations

import errno
import hashlib
import math
import os
import stat

from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from pymc_sgmcmc.disk.dtypes import dtype_held

__all__ = [
    "MOST_CHUNKS", "ArraySource", "ChunkedSource", "DiskError", "Source", "aligned", "state_of",
    "sync",
]  # fmt: skip

# Bytes of decoded chunks that a source keeps
_LARGEST_CACHE = 2**26

# Bytes of a chunk, and number of chunks, of which a source takes more from no file
_LARGEST_CHUNK, MOST_CHUNKS = 2**32, 2**24

# Bytes of decoded chunks, and their number, of which a fingerprint is taken at most
_PRINTED_BYTES, _PRINTED = 2**28, 64

# Of file systems that do not sync
_UNSYNCED = {errno.EINVAL, errno.ENOTSUP, errno.ENOSYS, errno.EBADF}

# Bytes of a part of the rows
_PART = 2**22


class DiskError(RuntimeError):
    """Rows on disk cannot be read, or are not those that the model was written with."""


class Source(ABC):
    """Rows of an array, stored as one type, that are read on demand as another.

    ``held`` is the type of what is read, no longer than that in the model; of ``chunk_rows`` rows
    none can be read without the others.
    """

    chunk_rows = 1

    def __init__(self, name: str, shape: Sequence[int], stored: Any, dtype: Any) -> None:
        self.name = name
        self.shape = tuple(int(n) for n in shape)
        self.stored = np.dtype(stored)
        self.dtype = np.dtype(dtype)
        self.held = dtype_held(self.stored, self.dtype)

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def size(self) -> int:
        """Numbers in all rows."""
        return math.prod(self.shape)

    @property
    def row_bytes(self) -> int:
        """Bytes of a row where it is stored."""
        return math.prod(self.shape[1:]) * self.stored.itemsize

    @abstractmethod
    def read(self, start: int, out: np.ndarray) -> None:
        """Fill ``out`` with the rows from ``start`` on, or raise DiskError."""

    def read_blocks(self, offsets: np.ndarray, size: int, out: np.ndarray) -> None:
        """Put the blocks of ``size`` rows at sorted offsets one after the other."""
        apart = np.flatnonzero(np.diff(offsets) != size) + 1
        for part in np.split(np.arange(len(offsets)), apart) if len(offsets) else []:
            begin = int(part[0]) * size
            self.read(int(offsets[part[0]]), out[begin : begin + len(part) * size])

    @abstractmethod
    def whole(self) -> np.ndarray:
        """Return all rows as an array, mapped into memory where that can be done."""

    @abstractmethod
    def fingerprint(self) -> tuple[Any, ...]:
        """Return what tells these rows from others, at the cost of reading a few of them."""

    @abstractmethod
    def check(self) -> None:
        """Raise DiskError where what is stored was changed since the model was made."""

    def parts(self) -> Iterator[np.ndarray]:
        """Return all rows, some at a time."""
        each = max(1, _PART // max(self.row_bytes, 1))
        for start in range(0, len(self), each):
            yield self.rows(start, min(start + each, len(self)))

    def rows(self, start: int, stop: int) -> np.ndarray:
        """Return rows as a new array, as the model takes them."""
        out = np.empty((stop - start, *self.shape[1:]), dtype=self.held)
        self.read(start, out)
        return out.astype(self.dtype, copy=False)

    def assign(self, out: np.ndarray, values: np.ndarray) -> None:
        """Convert what was read; numbers that the new type cannot hold are refused."""
        with np.errstate(all="ignore"):
            out[...] = values
        whole = self.held.kind in "iub" and not np.can_cast(self.stored, self.held)
        if whole and not np.array_equal(out, values):
            raise DiskError(
                f"{self.name} has numbers that are beyond the range of {self.dtype}, or not whole, "
                f"such as {values[out != values][0]}. Leave dtype= out, or write them as floats: "
                "PyMC takes whole numbers as int32."
            )


class ArraySource(Source):
    """An array in memory that is drawn together with rows on disk."""

    def __init__(self, array: np.ndarray) -> None:
        super().__init__("an array in memory", array.shape, array.dtype, array.dtype)
        self._array = array

    def read(self, start: int, out: np.ndarray) -> None:
        """Fill ``out`` with the rows from ``start`` on."""
        out[...] = self._array[start : start + len(out)]

    def check(self) -> None:
        """Do nothing: the array is the model's own."""

    def whole(self) -> np.ndarray:
        """Return the array."""
        return self._array

    def fingerprint(self) -> tuple[Any, ...]:
        """Return shape and type: what a model holds in memory is told apart elsewhere."""
        return self.shape, str(self.dtype)


class ChunkedSource(Source):
    """Rows that are stored in chunks which are decoded as a whole.

    Those decoded last are kept. The chunks' boundaries are rows, ``starts[k]`` the first of
    chunk k and ``starts[-1]`` the number of all.
    """

    # Of all sources, and a new one in a forked child
    _lock = Lock()

    def __init__(
        self, name: str, shape: Sequence[int], stored: Any, dtype: Any, starts: np.ndarray
    ) -> None:
        super().__init__(name, shape, stored, dtype)
        if (size := int(np.diff(starts).max()) * self.row_bytes) > _LARGEST_CHUNK:
            raise ValueError(
                f"{name} has chunks of {size / 1e9:.3g} GB, each of which is decoded as a whole. "
                "Write it with smaller ones."
            )
        self._starts = starts
        self._kept: OrderedDict[int, np.ndarray] = OrderedDict()
        self.chunk_rows = int(np.diff(starts).max())

    @abstractmethod
    def decode(self, k: int) -> np.ndarray:
        """Return the rows of a chunk as they are stored."""

    def read(self, start: int, out: np.ndarray) -> None:
        """Fill ``out`` with the rows from ``start`` on."""
        done = 0
        while done < len(out):
            k = int(np.searchsorted(self._starts, start + done, side="right")) - 1
            first = start + done - int(self._starts[k])
            with self._lock:
                chunk = self._chunk(k)
            part = chunk[first : first + len(out) - done]
            out[done : done + len(part)] = part
            done += len(part)

    def _chunk(self, k: int) -> np.ndarray:
        if k in self._kept:
            self._kept.move_to_end(k)
            return self._kept[k]
        values = self.decode(k)
        rows = int(self._starts[k + 1] - self._starts[k])
        if values.shape != (rows, *self.shape[1:]):
            raise DiskError(
                f"{self.name} has changed: rows {self._starts[k]} to {self._starts[k + 1]} now "
                f"have shape {values.shape}. Leave data alone while they are sampled from."
            )
        found = np.empty(values.shape, dtype=self.held)
        self.assign(found, values)
        self._kept[k] = found
        while len(self._kept) > 1 and sum(x.nbytes for x in self._kept.values()) > _LARGEST_CACHE:
            self._kept.popitem(last=False)
        return found

    def fingerprint(self) -> tuple[Any, ...]:
        """Return shape, type, and a hash of chunks that are evenly spread, of all where few."""
        found, last = hashlib.blake2b(digest_size=16), len(self._starts) - 2
        most = _PRINTED_BYTES // max(self.chunk_rows * self.row_bytes, 1)
        spread = np.linspace(0, last, max(2, min(most, _PRINTED)))
        for k in np.unique(spread.astype(int)).tolist():
            found.update(np.ascontiguousarray(self.decode(k)).tobytes())
        return self.shape, str(self.stored), found.hexdigest()

    def whole(self) -> np.ndarray:
        """Return all rows, decoded."""
        return self.rows(0, len(self))

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_kept": OrderedDict()}


if hasattr(os, "register_at_fork"):
    # A thread that reads while the process is forked is not in the child, and unlocks nothing there
    os.register_at_fork(after_in_child=lambda: setattr(ChunkedSource, "_lock", Lock()))


def aligned(arrays: Sequence[Any]) -> list[Any]:
    """Return arrays that are drawn together, all as sources where one of them is on disk."""
    if not any(isinstance(array, Source) for array in arrays):
        return list(arrays)
    return [a if isinstance(a, Source) else ArraySource(np.asarray(a)) for a in arrays]


def state_of(path: Path, descriptor: int | None = None) -> tuple[int, int]:
    """Return size and time of the last change of a file, of the one that is open if it is."""
    try:
        found = os.stat(path if descriptor is None else descriptor)
    except OSError as error:
        raise DiskError(f"'{path}' cannot be read: {error.strerror}.") from error
    if not stat.S_ISREG(found.st_mode):
        raise DiskError(f"'{path}' is no file.")
    return found.st_size, found.st_mtime_ns


def sync(descriptor: int) -> None:
    """Make what was written last, where the file system can."""
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _UNSYNCED:
            raise
