"""The files of one chain: its beginning, its draws, and the states between them.

``begin`` is written once: what the run is of, and where and with which random numbers the chain
began. ``draws`` has a record of fixed size for each draw. ``state-0`` and ``state-1`` are written
in turn: all that the chain is after some number of draws, and the checksum of the draws up to
there. Records behind the last state are cut off when the chain goes on: it makes them again, with
the same bits. The module ``formats`` says what the files hold.
"""

from __future__ import annotations

import logging
import os
import zlib

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from pymc.exceptions import SamplingError

from pymc_sgmcmc._version import __version__
from pymc_sgmcmc.disk.source import sync
from pymc_sgmcmc.store import files
from pymc_sgmcmc.store.files import DamagedError, Lock
from pymc_sgmcmc.store.formats import (
    SCHEMA,
    Begin,
    Saved,
    made,
    packed,
    record_type,
    unpacked,
    values_of,
)

_log = logging.getLogger("pymc.sgmcmc")

# Bytes of records that wait in memory, and that are read at once
_BUFFER, _READ = 2**20, 2**24

# Errors that say nothing of what a file holds
_OF_OTHERS = RuntimeError, MemoryError, ImportError

_ANEW = "With the same random_seed the chain is run anew, with the same draws."


class ChainStore:
    """One chain in a folder of its own, which is made when the chain begins.

    ``begun`` is None where it has not; ``saved`` is the last whole state, after :meth:`read`.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.begun: Begin | None = None
        self.saved = Saved()
        self.states = folder / "state-0", folder / "state-1"
        self._draws = folder / "draws"
        self._digest = ""  # of the beginning
        self._next = 0  # which of the two states is written next
        self._lock: Lock | None = None
        self._file: int | None = None
        # Pending records, bytes since the last try, and length and checksum of the file
        self._pending, self._since = bytearray(), 0
        self._end = self._checksum = 0
        self._read_begin()

    def __del__(self) -> None:
        self.close()

    # ------------------------------------------------------------------ reading

    def read(self) -> None:
        """Read the files, or raise where the chain cannot go on from them."""
        self._read_begin()
        with self.reading():
            self._read_saved()

    @contextmanager
    def reading(self, name: str = "") -> Generator[None]:
        """Name a file of the chain, by default the last state, in errors of it, with a cure."""
        path = self.folder / name if name else self.states[1 - self._next]
        try:
            yield
        except OSError as error:
            raise SamplingError(
                f"'{error.filename or path}' cannot be read ({error.strerror}). The chain is left "
                "as it is: run the same line again once it can be read."
            ) from error
        except Exception as error:
            if isinstance(error, _OF_OTHERS) and not isinstance(error, DamagedError):
                raise
            kind = "folder" if self.folder.is_dir() else "file"
            raise DamagedError(
                f"{_damaged(path, error)} The chain cannot go on. Remove the {kind} "
                f"'{self.folder}'. {_ANEW}"
            ) from error

    @contextmanager
    def going_on(self) -> Generator[None]:
        """Say of an error in the first draw after the stored ones that it may be the state's."""
        try:
            yield
        except _OF_OTHERS:
            raise
        except Exception as error:
            raise SamplingError(
                f"The first draw after those in '{self.folder}' failed ({type(error).__name__}: "
                f"{error}). If it fails with another path, too, the store is sound. Else its state "
                f"is damaged: remove the folder. {_ANEW}"
            ) from error

    def records(self) -> Iterator[np.void]:
        """Return the stored draws one after the other."""
        at_once = max(1, _READ // self._record.itemsize)
        for start in range(0, self.saved.draws, at_once):
            yield from self._read_records(start, min(at_once, self.saved.draws - start))

    def last(self) -> dict[str, np.ndarray]:
        """Return all values of the last stored draw."""
        return values_of(self._read_records(self.saved.draws - 1, 1)[0])

    @property
    def _record(self) -> np.dtype:
        assert self.begun is not None
        return record_type(self.begun.layout)

    def _read_records(self, start: int, count: int) -> np.ndarray:
        with self.reading("draws"), files.to_read(self._draws) as file:
            file.seek(start * self._record.itemsize)
            records = np.fromfile(file, dtype=self._record, count=count)
            if len(records) < count:
                raise DamagedError(f"The file '{self._draws}' was cut off while it was read.")
        return records

    def _read_begin(self) -> None:
        with self.reading("begin"):
            data = files.read_whole(self.folder / "begin")
            if data is None:
                left = [path.name for path in (*self.states, self._draws) if path.exists()]
                if left:
                    raise DamagedError(
                        f"'{self.folder}' has {left[0]}, but no file 'begin'. Put it back."
                    )
                return
            tree = unpacked(data)
            schema, version = tree["schema"], tree["version"]
            if schema == SCHEMA:
                self.begun, self._digest = made(Begin, tree["begin"]), files.digest(data).hex()
                record_type(self.begun.layout)
        if schema != SCHEMA:
            raise ValueError(
                f"The store '{self.folder}' was written by another version of pymc_sgmcmc "
                f"({version}), in another format. Go on with that version, or pass another path."
            )

    def _read_saved(self) -> None:
        """Read the newer of the two states, the other one where it is damaged."""
        if self.begun is None:
            return
        states, faults = [], []
        for k, path in enumerate(self.states):
            try:
                if (data := files.read_whole(path)) is not None:
                    saved = made(Saved, unpacked(data))
                    if saved.begin != self._digest:
                        raise DamagedError(f"'{path}' is of another run than 'begin' beside it.")
                    states.append((saved.draws, k, saved))
            except (OSError, MemoryError):
                raise
            except Exception as error:
                faults.append(_damaged(path, error))
        for draws, k, saved in sorted(states, key=lambda state: -state[0]):
            if self._checksum_of(draws) == saved.checksum:
                if faults:
                    _log.warning("%s The chain goes on from draw %d.", faults[0], draws)
                self.saved, self._next = saved, 1 - k
                return
            faults.append(DamagedError(f"The file '{self._draws}' is damaged."))
        if faults:
            raise faults[0]

    def _checksum_of(self, draws: int) -> int | None:
        """Return the CRC-32 of so many records, None where there are fewer."""
        left, checksum = draws * self._record.itemsize, 0
        if left <= 0:
            return None if left else 0
        try:
            with files.to_read(self._draws) as file:
                while left and (block := file.read(min(left, _READ))):
                    left -= len(block)
                    checksum = zlib.crc32(block, checksum)
        except FileNotFoundError:
            return None
        return None if left else checksum

    # ------------------------------------------------------------------ writing

    def open(self) -> None:
        """Take the chain for this thread, and read again what another one may have written."""
        with self._on_disk():
            self.folder.mkdir(parents=True, exist_ok=True)
            self._lock = files.locked(self.folder / "lock")
        self.read()

    def begin(self, begun: Begin) -> None:
        """Write how the chain begins."""
        data = packed({"schema": SCHEMA, "version": __version__, "begin": vars(begun)})
        with self._on_disk():
            files.write_whole(self.folder / "begin", data)
        self.begun, self._digest = begun, files.digest(data).hex()

    def add(self, record: bytes) -> None:
        """Take the record of a draw; some wait in memory, a MiB at most."""
        self._pending += record
        self._since += len(record)
        if self._since > _BUFFER:
            self._write_pending()

    def save(self, draws: int, warnings: list[Any], state: Any) -> None:
        """Flush all draws so far to the disk, and write the state after them."""
        self._write_pending()
        assert self._file is not None
        saved = Saved(draws, self._checksum, self._digest, list(warnings), state)
        with self._on_disk():
            sync(self._file)
            files.write_whole(self.states[self._next], packed(vars(saved)))
        self._next = 1 - self._next
        self.saved = replace(saved, state=None)

    def close(self) -> None:
        """Release the chain for other processes."""
        if self._file is not None:
            os.close(self._file)
        if self._lock is not None:
            self._lock.close()
        self._file = self._lock = None

    def _write_pending(self) -> None:
        """Write the pending records; they stay pending where that fails."""
        self._since, block = 0, bytes(self._pending)
        with self._on_disk():
            if self._file is None:
                self._file = files.opened(self._draws, os.O_WRONLY)
                # Records that the state does not know of are cut off
                self._end = self.saved.draws * self._record.itemsize
                self._checksum = self.saved.checksum
                os.ftruncate(self._file, self._end)
            # A failed write may have left a part, which is overwritten
            os.lseek(self._file, self._end, os.SEEK_SET)
            files.append(self._file, block)
        self._end += len(block)
        self._checksum = zlib.crc32(block, self._checksum)
        self._pending.clear()

    @contextmanager
    def _on_disk(self) -> Generator[None]:
        try:
            yield
        except OSError as error:
            kept = f"The store '{self.folder}' keeps the first {self.saved.draws} draws."
            raise files.explained(error, self.folder, kept) from error


def _damaged(path: Path, error: Exception) -> DamagedError:
    """Return an error that names the file which does not hold what was written."""
    if isinstance(error, DamagedError):
        return error
    return DamagedError(
        f"'{path}' is damaged, or of another version ({type(error).__name__}: {error})."
    )
