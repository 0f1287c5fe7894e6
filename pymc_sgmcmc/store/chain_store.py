"""The files of one chain: its beginning, its draws, and the states between them.

``begin`` is written once: what the run is of, and where and with which random numbers the chain
began. ``draws`` has a record of fixed size for each draw, one after the other, each with all of
PyMC's values and statistics. ``state-0`` and ``state-1`` are written in turn: all that the chain
is after some number of draws, and the checksum of the file of draws up to there. Records behind
the last state are cut off when the chain goes on: it makes them again, with the same bits.
"""

from __future__ import annotations

import logging
import os
import zlib

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from pymc.util import RandomGeneratorState

from pymc_sgmcmc.store.encoding import packed, unpacked
from pymc_sgmcmc.store.files import (
    DamagedError,
    append,
    explained,
    locked,
    read_whole,
    write_whole,
)
from pymc_sgmcmc.store.records import Layout, record_type, values_of

__all__ = ["Begin", "ChainStore", "Saved"]

_log = logging.getLogger("pymc.sgmcmc")

# Changes whenever files of before cannot be read any more
_SCHEMA = 1

_BUFFER = 2**20
_READ = 2**24


@dataclass
class Begin:
    """How a chain began.

    Attributes
    ----------
    fingerprint : dict of str
        What the run is of.
    rng : RandomGeneratorState
        That of the chain's generator and its seed, before the first draw.
    tune : int
        Draws of burn-in.
    start : dict of ndarray
        Where it began, all of the model's values.
    after : str or None
        The run whose end this is, None for a start that is to be jittered.
    layout : list
        Names, types and shapes of the numbers in a record.
    """

    fingerprint: dict[str, str]
    rng: RandomGeneratorState
    tune: int
    start: dict[str, np.ndarray]
    after: str | None
    layout: Layout


@dataclass
class Saved:
    """A chain after some draws.

    Attributes
    ----------
    draws : int
        How many there are.
    checksum : int
        CRC-32 of their records.
    warnings : list
        Number of the draw, index of the step method, name of the statistic, and the warning's
        kind, message and level, of each that was given.
    state : DataClassState or None
        The sampling state; None once it is in use.
    """

    draws: int = 0
    checksum: int = 0
    warnings: list[Any] = field(default_factory=list)
    state: Any = None


class ChainStore:
    """One chain in a folder of its own.

    Parameters
    ----------
    folder : Path
        The folder; it is made when the chain begins.

    Attributes
    ----------
    begun : Begin or None
        None where the chain has not begun.
    saved : Saved
        The last state that is whole, after :meth:`read`.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.begun: Begin | None = None
        self.saved = Saved()
        self._lock: Any = None
        self._file: int | None = None
        self._pending: list[bytes] = []
        self._size = 0
        self._running = 0
        # Which of the two states is written next
        self._next = 0
        self._explained(self._read_begin)

    def __del__(self) -> None:
        self.close()

    # ------------------------------------------------------------------ reading

    def read(self) -> None:
        """Read what there is.

        Raises
        ------
        DamagedError
            If nothing can go on from it.
        """
        self._explained(self._read_begin)
        self._explained(self._read_saved)

    def _explained(self, read: Callable[[], None]) -> None:
        try:
            read()
        except DamagedError as error:
            kind = "folder" if self.folder.is_dir() else "file"
            raise DamagedError(
                f"{error} The chain cannot go on. Remove the {kind} '{self.folder}': with the "
                "same random_seed the chain is run anew, with the same draws."
            ) from None

    def records(self) -> Iterator[np.void]:
        """Return the stored draws one after the other."""
        assert self.begun is not None
        record = record_type(self.begun.layout)
        at_once = max(1, _READ // record.itemsize)
        with open(self.folder / "draws", "rb") as file:
            for start in range(0, self.saved.draws, at_once):
                count = min(at_once, self.saved.draws - start)
                yield from np.fromfile(file, dtype=record, count=count)

    def last(self) -> dict[str, np.ndarray]:
        """Return all values of the last stored draw."""
        assert self.begun is not None
        record = record_type(self.begun.layout)
        data = np.fromfile(
            self.folder / "draws",
            dtype=record,
            count=1,
            offset=(self.saved.draws - 1) * record.itemsize,
        )
        return values_of(data[0])

    def _read_begin(self) -> None:
        data = read_whole(self.folder / "begin")
        if data is None:
            return
        found = unpacked(data)
        if found["schema"] != _SCHEMA:
            raise ValueError(
                f"The store '{self.folder}' was written by another version of pymc_sgmcmc "
                f"({found['version']}), in another format. Go on with that version, or pass "
                "another path."
            )
        self.begun = Begin(**found["begin"])

    def _read_saved(self) -> None:
        """Read the newer of the two states, the other one where it is damaged."""
        if self.begun is None:
            return
        found, faults = [], []
        for k, path in enumerate(self._states()):
            try:
                data = read_whole(path)
            except DamagedError as error:
                faults.append(error)
                continue
            if data is not None:
                found.append((k, Saved(**unpacked(data))))
        for k, saved in sorted(found, key=lambda one: -one[1].draws):
            if self._checksum(saved.draws) == saved.checksum:
                if faults:
                    _log.warning("%s The chain goes on from draw %d.", faults[0], saved.draws)
                self.saved, self._next = saved, 1 - k
                return
            faults.append(DamagedError(f"The file '{self.folder / 'draws'}' is damaged."))
        if faults:
            raise faults[0]

    def _checksum(self, draws: int) -> int | None:
        """Return the CRC-32 of so many records, None where there are fewer."""
        assert self.begun is not None
        left, found = draws * record_type(self.begun.layout).itemsize, 0
        if not left:
            return 0
        try:
            with open(self.folder / "draws", "rb") as file:
                while left:
                    block = file.read(min(left, _READ))
                    if not block:
                        return None
                    left -= len(block)
                    found = zlib.crc32(block, found)
        except (FileNotFoundError, IsADirectoryError):
            return None
        return found

    def _states(self) -> list[Path]:
        return [self.folder / f"state-{k}" for k in (0, 1)]

    # ------------------------------------------------------------------ writing

    def open(self) -> None:
        """Take the chain for this process, and read again what another one may have written.

        Raises
        ------
        SamplingError
            If another process is at it.
        """
        with self._on_disk():
            self.folder.mkdir(parents=True, exist_ok=True)
            self._lock = locked(self.folder / "lock")
        self.read()

    def begin(self, begun: Begin, version: str) -> None:
        """Write how the chain begins."""
        content = {"schema": _SCHEMA, "version": version, "begin": _fields(begun)}
        with self._on_disk():
            write_whole(self.folder / "begin", packed(content))
        self.begun = begun

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
        saved = Saved(draws, self._running, list(warnings), state)
        with self._on_disk():
            os.fsync(self._file)
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
        with self._on_disk():
            if self._file is None:
                self._file = self._opened()
            block = b"".join(self._pending)
            append(self._file, block)
        self._running = zlib.crc32(block, self._running)
        self._pending, self._size = [], 0

    def _opened(self) -> int:
        """Open the draws at the end of those that the state knows of, and cut off the others."""
        assert self.begun is not None
        file = os.open(self.folder / "draws", os.O_CREAT | os.O_WRONLY, 0o644)
        length = self.saved.draws * record_type(self.begun.layout).itemsize
        os.ftruncate(file, length)
        os.lseek(file, length, os.SEEK_SET)
        self._running = self.saved.checksum
        return file

    @contextmanager
    def _on_disk(self) -> Generator[None]:
        try:
            yield
        except OSError as error:
            raise explained(
                error, f"The store '{self.folder}' keeps the first {self.saved.draws} draws."
            ) from error


def _fields(of: Any) -> dict[str, Any]:
    return {f.name: getattr(of, f.name) for f in fields(of)}
