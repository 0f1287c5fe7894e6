"""The files of one chain: its beginning, its draws, and the states between them.

``begin`` is written once: what the run is of, and where and with which random numbers the chain
began. ``draws`` has a record of fixed size for each draw, one after the other, each with all of
PyMC's values and statistics. ``state-0`` and ``state-1`` are written in turn: all that the chain
is after some number of draws, and the checksum of the file of draws up to there. Records behind
the last state are cut off when the chain goes on: it makes them again, with the same bits.
"""

from __future__ import annotations

import hashlib
import logging
import os
import zlib

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from pymc.exceptions import SamplingError
from pymc.util import RandomGeneratorState

from pymc_sgmcmc.disk.source import sync
from pymc_sgmcmc.store.encoding import made, packed, unpacked
from pymc_sgmcmc.store.files import (
    DamagedError,
    Lock,
    append,
    explained,
    locked,
    opened,
    read_whole,
    to_read,
    write_whole,
)
from pymc_sgmcmc.store.records import Layout, record_type, values_of

__all__ = ["Begin", "ChainStore", "Saved"]

_log = logging.getLogger("pymc.sgmcmc")

# Changes whenever files of before cannot be read any more
_SCHEMA = 2

_BUFFER = 2**20
_READ = 2**24


@dataclass
class Begin:
    """How a chain began."""

    fingerprint: dict[str, str]  # what the run is of
    rng: RandomGeneratorState  # with its seed, before the first draw
    tune: int
    start: dict[str, np.ndarray]
    after: str | None  # the run whose end the start is; None for one that is to be jittered
    layout: Layout


@dataclass
class Saved:
    """A chain after some draws."""

    draws: int = 0
    checksum: int = 0  # CRC-32 of their records
    begin: str = ""  # digest of the chain's beginning
    warnings: list[Any] = field(default_factory=list)  # as of Records
    state: Any = None  # the sampling state; None once it is in use


class ChainStore:
    """One chain in a folder of its own, which is made when the chain begins.

    ``begun`` is None where it has not; ``saved`` is the last whole state, after :meth:`read`.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.begun: Begin | None = None
        self.saved = Saved()
        self._lock: Lock | None = None
        self._file: int | None = None
        self._pending: list[bytes] = []
        # Bytes that wait since the last try, and that are written
        self._size = self._end = 0
        self._running = 0
        # Which of the two states is written next
        self._next = 0
        self._digest = ""
        self._read_begin()

    def __del__(self) -> None:
        self.close()

    # ------------------------------------------------------------------ reading

    def read(self) -> None:
        """Read what there is, or raise where nothing can go on from it."""
        self._read_begin()
        with self.reading():
            self._read_saved()

    @contextmanager
    def reading(self, name: str = "") -> Generator[None]:
        """Name a file of the chain, by default the last state, in errors of it, with a cure."""
        path = self.folder / name if name else self._states()[1 - self._next]
        try:
            yield
        except OSError as error:
            raise SamplingError(
                f"'{error.filename or path}' cannot be read ({error.strerror}). The chain is left "
                "as it is: run the same line again once it can be read."
            ) from error
        except Exception as error:
            # Of these none tells of what a file holds
            of_others = RuntimeError, MemoryError, ImportError
            if isinstance(error, of_others) and not isinstance(error, DamagedError):
                raise
            kind = "folder" if self.folder.is_dir() else "file"
            raise DamagedError(
                f"{_damaged(path, error)} The chain cannot go on. Remove the {kind} "
                f"'{self.folder}': with the same random_seed the chain is run anew, with the same "
                "draws."
            ) from error

    def records(self) -> Iterator[np.void]:
        """Return the stored draws one after the other."""
        at_once = max(1, _READ // self._record().itemsize)
        for start in range(0, self.saved.draws, at_once):
            yield from self._read_records(start, min(at_once, self.saved.draws - start))

    def last(self) -> dict[str, np.ndarray]:
        """Return all values of the last stored draw."""
        return values_of(self._read_records(self.saved.draws - 1, 1)[0])

    def _read_records(self, start: int, count: int) -> np.ndarray:
        record = self._record()
        with self.reading("draws"), to_read(self._draws()) as file:
            file.seek(start * record.itemsize)
            found = np.fromfile(file, dtype=record, count=count)
            if len(found) < count:
                raise DamagedError(f"The file '{self._draws()}' was cut off while it was read.")
        return found

    def _record(self) -> np.dtype:
        assert self.begun is not None
        return record_type(self.begun.layout)

    def _read_begin(self) -> None:
        with self.reading("begin"):
            data = read_whole(self.folder / "begin")
            if data is None:
                left = [path.name for path in (*self._states(), self._draws()) if path.exists()]
                if left:
                    raise DamagedError(
                        f"'{self.folder}' has {left[0]}, but no file 'begin'. Put it back."
                    )
                return
            tree = unpacked(data)
            schema, version = tree["schema"], tree["version"]
            if schema == _SCHEMA:
                self.begun, self._digest = made(Begin, tree["begin"]), _digest(data)
                self._record()
        if schema != _SCHEMA:
            raise ValueError(
                f"The store '{self.folder}' was written by another version of pymc_sgmcmc "
                f"({version}), in another format. Go on with that version, or pass another path."
            )

    def _read_saved(self) -> None:
        """Read the newer of the two states, the other one where it is damaged."""
        if self.begun is None:
            return
        found, faults = [], []
        for k, path in enumerate(self._states()):
            try:
                if (data := read_whole(path)) is None:
                    continue
                saved = made(Saved, unpacked(data))
                if saved.begin != self._digest:
                    raise DamagedError(f"'{path}' is of another run than 'begin' beside it.")
            except OSError:
                raise
            except Exception as error:
                faults.append(_damaged(path, error))
            else:
                found.append((k, saved))
        for k, saved in sorted(found, key=lambda one: -one[1].draws):
            if self._checksum(saved.draws) == saved.checksum:
                if faults:
                    _log.warning("%s The chain goes on from draw %d.", faults[0], saved.draws)
                self.saved, self._next = saved, 1 - k
                return
            faults.append(DamagedError(f"The file '{self._draws()}' is damaged."))
        if faults:
            raise faults[0]

    def _checksum(self, draws: int) -> int | None:
        """Return the CRC-32 of so many records, None where there are fewer."""
        left, found = draws * self._record().itemsize, 0
        if left <= 0:
            return None if left else 0
        try:
            with to_read(self._draws()) as file:
                while left:
                    block = file.read(min(left, _READ))
                    if not block:
                        return None
                    left -= len(block)
                    found = zlib.crc32(block, found)
        except FileNotFoundError:
            return None
        return found

    def _draws(self) -> Path:
        return self.folder / "draws"

    def _states(self) -> list[Path]:
        return [self.folder / f"state-{k}" for k in (0, 1)]

    # ------------------------------------------------------------------ writing

    def open(self) -> None:
        """Take the chain for this thread, and read again what another one may have written."""
        with self._on_disk():
            self.folder.mkdir(parents=True, exist_ok=True)
            self._lock = locked(self.folder / "lock")
        self.read()

    def begin(self, begun: Begin, version: str) -> None:
        """Write how the chain begins."""
        content = {"schema": _SCHEMA, "version": version, "begin": _fields(begun)}
        data = packed(content)
        with self._on_disk():
            write_whole(self.folder / "begin", data)
        self.begun, self._digest = begun, _digest(data)

    def add(self, record: bytes) -> None:
        """Take the record of a draw; some wait in memory, a MiB at most."""
        self._pending.append(record)
        self._size += len(record)
        if self._size > _BUFFER:
            self._write_pending()

    def save(self, draws: int, warnings: list[Any], state: Any) -> None:
        """Make all draws so far last, with the state after them."""
        self._write_pending()
        assert self._file is not None
        saved = Saved(draws, self._running, self._digest, list(warnings), state)
        with self._on_disk():
            sync(self._file)
            write_whole(self._states()[self._next], packed(_fields(saved)))
        self._next = 1 - self._next
        self.saved = replace(saved, state=None)

    def close(self) -> None:
        """Give the chain free for other processes."""
        if self._file is not None:
            os.close(self._file)
        if self._lock is not None:
            self._lock.close()
        self._file = self._lock = None

    def _write_pending(self) -> None:
        """Write what waits, which goes on waiting where that fails."""
        self._size = 0
        block = b"".join(self._pending)
        with self._on_disk():
            if self._file is None:
                self._file = self._opened()
            # Over the part that a write which failed may have left
            os.lseek(self._file, self._end, os.SEEK_SET)
            append(self._file, block)
        self._end += len(block)
        self._running = zlib.crc32(block, self._running)
        self._pending = []

    def _opened(self) -> int:
        """Open the draws at the end of those that the state knows of, and cut off the others."""
        file = opened(self._draws(), os.O_WRONLY)
        length = self.saved.draws * self._record().itemsize
        os.ftruncate(file, length)
        self._end = length
        self._running = self.saved.checksum
        return file

    @contextmanager
    def _on_disk(self) -> Generator[None]:
        try:
            yield
        except OSError as error:
            kept = f"The store '{self.folder}' keeps the first {self.saved.draws} draws."
            raise explained(error, self.folder, kept) from error


def _fields(of: Any) -> dict[str, Any]:
    return {f.name: getattr(of, f.name) for f in fields(of)}


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def _damaged(path: Path, error: Exception) -> DamagedError:
    """Return an error that names the file which does not hold what was written."""
    if isinstance(error, DamagedError):
        return error
    return DamagedError(
        f"'{path}' is damaged, or of another version ({type(error).__name__}: {error})."
    )
