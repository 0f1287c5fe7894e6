"""Rows of a ``.npy`` file."""

from __future__ import annotations

import os

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Any

import numba
import numpy as np

from numba import types

from pymc_sgmcmc.disk.source import DiskError, Source, reading, state_of

# Blocks of a file that its fingerprint is taken of, and their bytes: all of a file of 16 MiB
_PRINTED, _PRINTED_BYTES = 256, 2**16

# Bytes of rows that are read where all are asked for; more are mapped
_READ = 2**27

# Without pread, as on Windows, a descriptor has one position for all threads
_POSITION = Lock()

# ssize_t pread(int, void *, size_t, off_t)
_pread: Any = types.ExternalFunction(
    "pread", types.int64(types.int32, types.int64, types.int64, types.int64)
)


@numba.njit(nogil=True)
def _read_places(file: int, places: np.ndarray, out: np.ndarray) -> int:
    """Fill the rows of ``out``, bytes (n, size), with what a file holds from places (n,) on.

    Return how many are full: fewer than n where reading failed or the file ended. Python's lock is
    not held.
    """
    count, size = out.shape
    for k in range(count):
        done = 0
        while done < size:
            read = _pread(file, out[k, done:].ctypes.data, size - done, places[k] + done)
            if read <= 0:
                return k
            done += read
    return count


# Where there is no folder to keep it, or nothing is compiled
with suppress(AttributeError, RuntimeError):
    _read_places.enable_caching()


def _read_at(file: int, out: memoryview, place: int) -> int:
    """Fill as much of ``out`` as one read gives, and return how many bytes."""
    if hasattr(os, "preadv"):
        return os.preadv(file, [out], place)
    with _POSITION:
        os.lseek(file, place, os.SEEK_SET)
        data = os.read(file, len(out))
    out[: len(data)] = data
    return len(data)


class NpySource(Source):
    """Rows of a ``.npy`` file, read with ``pread`` where the system has it.

    The file is not mapped into memory, so that nothing of it counts as the process's own; what
    was read lately stays in the system's page cache, which all processes share.
    """

    def __init__(self, path: Path, dtype: Any = None) -> None:
        self.handles = {}  # for __del__ where the next lines raise
        self.path = path.resolve()
        self._state = state_of(self.path)
        try:
            mapped = np.load(self.path, mmap_mode="r", allow_pickle=False)
        except Exception as error:
            # A header may hold anything
            raise ValueError(
                f"'{path}' is no .npy file of numbers, or not a whole one: {error}. Write it with "
                "numpy.save or numpy.lib.format.open_memmap."
            ) from error
        if mapped.ndim > 1 and not mapped.flags.c_contiguous:
            raise ValueError(
                f"'{path}' is stored column by column (Fortran order), so that a row is not in one "
                "piece. Save numpy.ascontiguousarray(x), or pass numpy.load(path, mmap_mode='r') "
                "to sg.shuffle_to_disk."
            )
        super().__init__(f"'{path}'", mapped.shape, mapped.dtype, dtype)
        self._offset = int(mapped.offset)

    def read(self, start: int, out: np.ndarray) -> None:
        """Fill ``out`` with the rows from ``start`` on."""
        raw = out if self._is_direct(out) else np.empty(out.shape, dtype=self.stored)
        view = memoryview(raw.reshape(-1).view(np.uint8))
        place, file, done = self._offset + start * self.row_bytes, self._descriptor(), 0
        while done < len(view):
            with reading(f"{self.name} cannot be read"):
                count = _read_at(file, view[done:], place + done)
            if not count:
                raise DiskError(
                    f"{self.name} ends before row {start + len(out)} of {len(self)}: it was cut "
                    "off while it was sampled from."
                )
            done += count
        if raw is not out:
            self.assign(out, raw)

    def read_blocks(self, offsets: np.ndarray, size: int, out: np.ndarray) -> None:
        """Put the blocks of ``size`` rows at sorted offsets one after the other."""
        full, count = 0, len(offsets)
        if count and self._is_direct(out) and hasattr(os, "preadv"):
            places = self._offset + offsets.astype(np.int64) * self.row_bytes
            raw = out.reshape(-1).view(np.uint8).reshape(count, -1)
            full = _read_places(self._descriptor(), places, raw)
        if full < count:
            # Block by block reading fails in the same place, and says why
            super().read_blocks(offsets[full:], size, out[full * size :])

    def check(self, *files: Path) -> None:
        """Raise where the file was written to since the model was made."""
        state = state_of(self.path, self._descriptor())
        if state != self._state:
            cut = "cut off" if state[0] < self._state[0] else "written to"
            raise DiskError(
                f"{self.name} was {cut} since the model was made: chains would see other data "
                "than before. Make the model anew."
            )

    def whole(self) -> np.ndarray:
        """Return all rows; many are mapped into memory."""
        self.check()
        if self.size * self.stored.itemsize <= _READ:
            # A mapped page that is cut off later would end the process that reads it
            return self.rows(0, len(self))
        # The open file is mapped, not what has its name now. Pages are copied on write: compiled
        # graphs may write into what an operation returned
        with os.fdopen(os.dup(self._descriptor()), "rb") as file:
            mapped: np.ndarray = np.memmap(file, self.stored, "c", self._offset, self.shape)
        if self.dtype == self.stored:
            return mapped
        rows = np.empty(self.shape, dtype=self.held)
        self.assign(rows, mapped)
        return rows.astype(self.dtype, copy=False)

    def _printed(self) -> Iterator[Any]:
        self.check()
        last = max(self._state[0] - _PRINTED_BYTES, 0)
        for place in np.linspace(0, last, _PRINTED).astype(int).tolist():
            block = memoryview(bytearray(_PRINTED_BYTES))
            with reading(f"{self.name} cannot be read"):
                count = _read_at(self._descriptor(), block, place)
            yield block[:count]

    def _is_direct(self, out: np.ndarray) -> bool:
        return self.stored == out.dtype and out.flags.c_contiguous

    def _descriptor(self) -> int:
        # Processes that are forked may share the descriptor: pread moves no position
        if not self.handles:
            missing = "It was there when the model was made."
            with reading(f"{self.name} cannot be opened", missing):
                flags = os.O_RDONLY | getattr(os, "O_BINARY", 0)
                self.handles[self.path] = os.open(self.path, flags)
            self.check()
        return self.handles[self.path]

    def __del__(self) -> None:
        for descriptor in self.handles.values():
            os.close(descriptor)
