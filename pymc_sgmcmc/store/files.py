"""Files that are whole or not there, and that know whether they are damaged."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import time

from contextlib import suppress
from pathlib import Path
from threading import current_thread
from typing import IO, Any, ClassVar

from pymc.exceptions import SamplingError

from pymc_sgmcmc.checks import a_path
from pymc_sgmcmc.disk.source import sync

_MAGIC = b"sgmcmc-1"
_HEAD = len(_MAGIC) + 32

# Seconds to wait for the end of a process that was killed
_PATIENCE = 30.0

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_FORBIDDEN = {errno.EACCES, errno.EPERM, errno.EROFS}
_MISPLACED = {errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ELOOP, errno.ENXIO}

# A pipe is not waited for, and a link is not written through
_AT_ONCE = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
_WRITTEN = os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)


class DamagedError(SamplingError):
    """A file is not what was written."""


class UnwrittenError(SamplingError):
    """The disk does not take what is written."""


def digest(data: bytes, size: int = 16) -> bytes:
    """Return a cryptographic digest of so many bytes."""
    return hashlib.blake2b(data, digest_size=size).digest()


def write_whole(path: Path, payload: bytes) -> None:
    """Write a file, with a checksum, under another name and rename it: it is whole or as before."""
    new = path.with_name(path.name + ".new")
    # An earlier process may have left a file of this name, or somebody a link
    new.unlink(missing_ok=True)
    file = opened(new, os.O_WRONLY | os.O_EXCL)
    try:
        append(file, _MAGIC + digest(payload, 32))
        append(file, payload)
        sync(file)
    finally:
        os.close(file)
    os.replace(new, path)
    if os.name == "posix":
        # The renaming lasts once the folder is synced, which one that may not be read cannot be
        with suppress(PermissionError):
            folder = os.open(path.parent, os.O_RDONLY)
            try:
                sync(folder)
            finally:
                os.close(folder)


def read_whole(path: Path) -> bytes | None:
    """Return what :func:`write_whole` wrote, None where there is no such file."""
    try:
        with to_read(path) as file:
            head, payload = file.read(_HEAD), file.read()
    except FileNotFoundError:
        return None
    if head != _MAGIC + digest(payload, 32):
        raise DamagedError(f"The file '{path}' is damaged: its checksum is another.")
    return payload


def append(descriptor: int, data: bytes | bytearray) -> None:
    """Write all of the data; the system may take them in parts."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def opened(path: Path, flags: int) -> int:
    """Open a file, made if it is to be written; no link is written through, no pipe waited for."""
    file = os.open(path, flags | _AT_ONCE | (_WRITTEN if flags != os.O_RDONLY else 0), 0o644)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
    return file


def to_read(path: Path) -> IO[bytes]:
    """Open a file to read it; something else of this name is an error of the chain."""
    try:
        return os.fdopen(opened(path, os.O_RDONLY), "rb")
    except OSError as error:
        if error.errno not in _MISPLACED - {errno.ENOENT}:
            raise
        raise DamagedError(f"'{path}' is no file of a chain ({error.strerror}).") from None


def explained(error: OSError, path: Path, what: str) -> UnwrittenError:
    """Return the error of a write in the store as a sentence, with one of what the store holds."""
    why, mend = error.strerror or os.strerror(error.errno or 0), "mend that"
    if error.errno in _FULL:
        why, mend = f"the disk is full: {why}", "make room"
    elif error.errno in _FORBIDDEN:
        mend = "have the folder made writable"
    elif error.errno in _MISPLACED:
        why += ": its folder takes no files, was removed, or has something else of this name"
    return UnwrittenError(
        f"'{error.filename or path}' cannot be written ({why}). {what} Pass another path, or "
        f"{mend} and run the same line again: it goes on from there. With at most as many draws= "
        "nothing is written, and they are returned."
    )


class Lock:
    """A file that is locked until it is closed or the process ends.

    A lock of the system belongs to a process: the child of a fork does not have its parent's.
    Threads of one process are told apart here. A thread may take a lock again that it left.
    """

    _held: ClassVar[dict[str, Lock]] = {}

    def __init__(self, path: Path) -> None:
        self._path = path
        self._key = os.path.realpath(path)
        self._file: int | None = None
        self._of = os.getpid(), current_thread()

    def taken_by(self) -> str | None:
        """Take the lock; return who else has it, None once it is taken."""
        other = self._held.setdefault(self._key, self)
        if other is not self:
            (process, thread), (here, this) = other._of, self._of
            if process == here and thread is not this and thread.is_alive():
                return f"another thread of this process ('{thread.name}')"
            if process == here:
                # Closing the other's descriptor would release the lock
                self._file, other._file = other._file, None
            self._held[self._key] = self
        if self._file is None:
            self._file = opened(self._path, os.O_RDWR)
        with suppress(ImportError):
            import fcntl

            try:
                fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                if error.errno in {errno.EACCES, errno.EAGAIN}:
                    owner = os.pread(self._file, 20, 0).decode(errors="replace") or "unknown"
                    return f"another process (number {owner})"
                # Else a file system without locks
            with suppress(OSError):  # a disk that is full
                os.ftruncate(self._file, 0)
                os.pwrite(self._file, str(os.getpid()).encode(), 0)
        return None

    def close(self) -> None:
        """Release the lock."""
        if self._held.get(self._key) is self:
            del self._held[self._key]
        if self._file is not None:
            os.close(self._file)
        self._file = None


def release(folder: Path) -> None:
    """Release what this thread, or one that has ended, still has locked below a folder."""
    held = Path(os.path.realpath(folder))
    for key, lock in list(Lock._held.items()):
        process, thread = lock._of
        left = thread is current_thread() or not thread.is_alive()
        if process == os.getpid() and left and held in Path(key).parents:
            lock.close()


def locked(path: Path) -> Lock:
    """Return the file, locked for this thread; that another one keeps it is an error."""
    lock, end = Lock(path), time.monotonic() + _PATIENCE
    try:
        while owner := lock.taken_by():
            if time.monotonic() > end:
                raise SamplingError(
                    f"The chain in '{path.parent}' is being sampled by {owner}. Wait for its end "
                    "or end it, or pass another path."
                )
            time.sleep(0.1)
    except BaseException:
        lock.close()
        raise
    return lock


def a_folder(argument: str, path: Any) -> Path:
    """Check for the path of a folder, or of none yet."""
    folder = a_path(argument, path, "a folder, such as 'run'").absolute()
    for place in (folder, *folder.parents):
        exists = os.path.exists(place)
        kind = "a file" if exists and not place.is_dir() else ""
        if place.is_symlink() and not exists:
            kind = "a link to nothing"
        if kind:
            raise ValueError(
                f"{argument}='{path}' cannot be the folder of a run: '{place}' is {kind}. Pass "
                "another path."
            )
    return folder
