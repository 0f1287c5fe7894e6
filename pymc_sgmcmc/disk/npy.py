"""Rows of a ``.npy`` file."""

from __future__ import annotations

import hashlib
import os

from pathlib import Path
from typing import Any

import numpy as np

from pymc_sgmcmc.disk.dtypes import dtype_read
from pymc_sgmcmc.disk.pread import read_places
from pymc_sgmcmc.disk.source import DiskError, Source, state_of

__all__ = ["NpySource"]

# Blocks of a file that its fingerprint is taken of, and their bytes: all of a file of 16 MiB
_PRINTED, _PRINTED_BYTES = 256, 2**16

# Bytes of rows that are read where all are asked for
_READ = 2**27


class NpySource(Source):
    """Rows of a ``.npy`` file, read with ``pread``.

    The file is not mapped into memory, so that nothing of it counts as the process's own; what
    was read lately stays in the system's page cache, which all processes share.
    """

    def __init__(self, path: Path, dtype: Any = None) -> None:
        self._file: int | None = None
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
        stored = mapped.dtype
        super().__init__(f"'{path}'", mapped.shape, stored, dtype_read(str(path), stored, dtype))
        self._offset = int(mapped.offset)

    def read(self, start: int, out: np.ndarray) -> None:
        """Fill ``out`` with the rows from ``start`` on."""
        direct = self.stored == out.dtype and out.flags.c_contiguous
        raw = out if direct else np.empty(out.shape, dtype=self.stored)
        view = memoryview(raw.reshape(-1)).cast("B")
        place, file = self._offset + start * self.row_bytes, self._opened()
        done = 0
        while done < len(view):
            try:
                count = os.preadv(file, [view[done:]], place + done)
            except OSError as error:
                raise DiskError(f"{self.name} cannot be read: {error.strerror}.") from error
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
        count = len(offsets)
        if not count or self.stored != out.dtype or not out.flags.c_contiguous:
            super().read_blocks(offsets, size, out)
            return
        places = self._offset + offsets.astype(np.int64) * self.row_bytes
        raw = out.reshape(-1).view(np.uint8).reshape(count, -1)
        full = read_places(self._opened(), places, raw)
        if full < count:
            # Fails in the same place, and says why
            super().read_blocks(offsets[full:], size, out[full * size :])

    def check(self) -> None:
        """Raise where the file was written to since the model was made."""
        found = state_of(self.path, self._opened())
        if found != self._state:
            cut = "cut off" if found[0] < self._state[0] else "written to"
            raise DiskError(
                f"{self.name} was {cut} since the model was made: chains would see other data "
                "than before. Make the model anew."
            )

    def whole(self) -> np.ndarray:
        """Return all rows; many are mapped into memory."""
        self.check()
        if self.size * self.stored.itemsize <= _READ:
            # Of what is mapped a part that is cut off later would end the process
            return self.rows(0, len(self))
        # The file that is open, whatever has its name now. Compiled graphs write into what an
        # operation returned: into copies of these pages
        with os.fdopen(os.dup(self._opened()), "rb") as file:
            mapped: np.ndarray = np.memmap(file, self.stored, "c", self._offset, self.shape)
        return mapped if self.dtype == self.stored else mapped.astype(self.dtype)

    def fingerprint(self) -> tuple[Any, ...]:
        """Return shape, type, and a hash of some blocks of the file."""
        self.check()
        found, file = hashlib.blake2b(digest_size=16), self._opened()
        last = max(self._state[0] - _PRINTED_BYTES, 0)
        for place in np.linspace(0, last, _PRINTED).astype(int).tolist():
            found.update(os.pread(file, _PRINTED_BYTES, place))
        return self.shape, str(self.stored), found.hexdigest()

    def _opened(self) -> int:
        # Processes that are forked may share the descriptor: pread moves no position
        if self._file is None:
            try:
                self._file = os.open(self.path, os.O_RDONLY)
            except OSError as error:
                raise DiskError(
                    f"{self.name} cannot be opened: {error.strerror}. It was there when the model "
                    "was made."
                ) from error
            self.check()
        return self._file

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_file": None}

    def __del__(self) -> None:
        if self._file is not None:
            os.close(self._file)
