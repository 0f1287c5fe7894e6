"""Rows that are read when they are needed, from files of any format."""

from __future__ import annotations

import errno
import hashlib
import importlib
import math
import os
import stat

from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock
from typing import Any, Self

import numpy as np
import pytensor

# Bytes of decoded chunks that a source keeps
_LARGEST_CACHE = 2**26

# Bytes and number of chunks beyond which a header is taken for a fault
_LARGEST_CHUNK, MOST_CHUNKS = 2**32, 2**24

# Most bytes and chunks that are decoded for a fingerprint
_PRINTED_BYTES, _PRINTED = 2**28, 64

# Bytes of a part of the rows
_PART = 2**22

# Errors of file systems that do not sync
_UNSYNCED = {errno.EINVAL, errno.ENOTSUP, errno.ENOSYS, errno.EBADF}

# Types of numbers in a model, and shorter ones that both backends compute with
_READ = "float64", "float32", "float16", "int64", "int32", "int16", "int8", "bool"
_SHORT = "float32", "int16", "int8", "uint16", "uint8"


class DiskError(RuntimeError):
    """Rows on disk cannot be read, or are not those that the model was written with."""


class Source(ABC):
    """Rows of an array, stored as one type, that are read on demand as another.

    Numbers have the type ``stored`` in the file, ``dtype`` in the model, and ``held`` where they
    were read: the shorter one of the two. Rows are decoded in groups of ``chunk_rows``.
    """

    chunk_rows = 1

    def __init__(self, name: str, shape: Sequence[int], stored: Any, dtype: Any = None) -> None:
        self.name = name
        self.shape = tuple(int(n) for n in shape)
        self.stored = np.dtype(stored)
        self.dtype = _dtype_read(name, self.stored, dtype)
        native = self.stored.newbyteorder("=")
        short = native.name in _SHORT and native.itemsize < self.dtype.itemsize
        self.held = native if short and np.can_cast(native, self.dtype) else self.dtype
        # Sizes and times of the files, and what is open of them in this process
        self.states: dict[Path, tuple[int, int]] = {}
        self.handles: dict[Path, Any] = {}

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

    def whole(self) -> np.ndarray:
        """Return all rows as an array, mapped into memory where that can be done."""
        return self.rows(0, len(self))

    def fingerprint(self) -> tuple[Any, ...]:
        """Return what tells these rows from others, at the cost of reading a few of them."""
        digest = hashlib.blake2b(digest_size=16)
        for block in self._printed():
            digest.update(block)
        return self.shape, str(self.stored), str(self.dtype), digest.hexdigest()

    @abstractmethod
    def _printed(self) -> Iterator[Any]:
        """Return bytes from all over the rows."""

    def check(self, *files: Path) -> None:
        """Raise DiskError where what is stored was changed since the model was made."""
        for file in files or self.states:
            if state_of(file) != self.states[file]:
                raise DiskError(
                    f"'{file}' was written to since the model was made. Make the model anew."
                )

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

    def as_stored(self) -> Self:
        """Read numbers as they are stored."""
        self.dtype = self.held = self.stored
        return self

    def assign(self, out: np.ndarray, values: np.ndarray) -> None:
        """Convert what was read; numbers that the new type cannot hold are refused."""
        with np.errstate(all="ignore"):
            out[...] = values
        if np.can_cast(self.stored, self.held):
            return
        why, cure = ", or not whole", "write them as floats: PyMC takes whole numbers as int32"
        wrong = out != values
        if self.held.kind == "f":
            why, cure = "", "scale them"
            wrong = np.isinf(out) & np.isfinite(values)
        if wrong.any():
            raise DiskError(
                f"{self.name} has numbers that are beyond the range of {self.dtype}{why}, such as "
                f"{values[wrong][0]}. Leave dtype= out, or {cure}."
            )

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "handles": {}}


class ArraySource(Source):
    """An array in memory that is drawn together with rows on disk."""

    def __init__(self, array: np.ndarray) -> None:
        super().__init__("an array in memory", array.shape, array.dtype)
        self.as_stored()
        self._array = array

    def read(self, start: int, out: np.ndarray) -> None:
        """Fill ``out`` with the rows from ``start`` on."""
        out[...] = self._array[start : start + len(out)]

    def _printed(self) -> Iterator[Any]:
        # Arrays of a model are compared by themselves
        return iter(())


class ChunkedSource(Source):
    """Rows in chunks that are decoded as a whole, of which the last ones are kept.

    ``starts[k]`` is the first row of chunk k, and ``starts[-1]`` the number of all rows.
    """

    # One for all sources; a forked child gets a new one
    _lock = Lock()

    def __init__(
        self, name: str, shape: Sequence[int], stored: Any, dtype: Any, starts: np.ndarray
    ) -> None:
        super().__init__(name, shape, stored, dtype)
        self.chunk_rows = int(np.diff(starts).max())
        if (size := self.chunk_rows * self.row_bytes) > _LARGEST_CHUNK:
            raise ValueError(
                f"{name} has chunks of {size / 1e9:.3g} GB, each of which is decoded as a whole. "
                "Write it with smaller ones."
            )
        self._starts = starts
        self._kept: OrderedDict[int, np.ndarray] = OrderedDict()

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
        chunk = np.empty(values.shape, dtype=self.held)
        self.assign(chunk, values)
        self._kept[k] = chunk
        while len(self._kept) > 1 and sum(x.nbytes for x in self._kept.values()) > _LARGEST_CACHE:
            self._kept.popitem(last=False)
        return chunk

    def _printed(self) -> Iterator[Any]:
        most = _PRINTED_BYTES // max(self.chunk_rows * self.row_bytes, 1)
        spread = np.linspace(0, len(self._starts) - 2, max(2, min(most, _PRINTED)))
        for k in np.unique(spread.astype(int)).tolist():
            yield np.ascontiguousarray(self.decode(k)).tobytes()

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_kept": OrderedDict()}


if hasattr(os, "register_at_fork"):
    # A forked child has no thread that would release a lock which was held during the fork
    os.register_at_fork(after_in_child=lambda: setattr(ChunkedSource, "_lock", Lock()))


def all_as_sources(arrays: Sequence[Any]) -> list[Any]:
    """Return arrays that are drawn together, all as sources where one of them is on disk."""
    if not any(isinstance(array, Source) for array in arrays):
        return list(arrays)
    return [a if isinstance(a, Source) else ArraySource(np.asarray(a)) for a in arrays]


def _dtype_read(name: str, stored: np.dtype[Any], asked: Any) -> np.dtype[Any]:
    """Return the type of numbers in a model: as of ``pm.Data`` floatX or int32 by default."""
    if stored.kind not in "biuf":
        raise ValueError(
            f"{name} holds {stored}, which are no numbers. Save floats, whole numbers or booleans."
        )
    if asked is not None:
        with suppress(TypeError):
            dtype = np.dtype(asked).newbyteorder("=")
            if dtype.name in _READ:
                return dtype
        raise ValueError(f"dtype={asked!r} is no type of numbers. Pass 'float32' or 'int32'.")
    usual = {"i": "int32", "u": "int32", "f": pytensor.config.floatX, "b": "bool"}
    return np.dtype(usual[stored.kind])


def needed(module: str, of: str) -> Any:
    """Import what reads a format, or name the package."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(f"Reading {of}: pip install 'pymc-sgmcmc[disk]'.") from error


@contextmanager
def reading(what: str, then: str = "") -> Generator[None]:
    """Raise DiskError with what cannot be done where the system or a decoder fails."""
    try:
        yield
    except DiskError:
        raise
    except Exception as error:  # decoders raise what they like
        why = getattr(error, "strerror", None) or str(error).rstrip(".")
        raise DiskError(f"{what}: {why}. {then}".rstrip()) from error


def state_of(path: Path, descriptor: int | None = None) -> tuple[int, int]:
    """Return size and time of the last change of a file, of the one that is open if it is."""
    with reading(f"'{path}' cannot be read"):
        state = os.stat(path if descriptor is None else descriptor)
    if not stat.S_ISREG(state.st_mode):
        raise DiskError(f"'{path}' is no file.")
    return state.st_size, state.st_mtime_ns


def sync(descriptor: int) -> None:
    """Flush what was written to the disk, where the file system can."""
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _UNSYNCED:
            raise
