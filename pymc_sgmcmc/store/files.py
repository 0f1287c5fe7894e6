"""Files that are whole or not there, and that know whether they are damaged."""

from __future__ import annotations

import errno
import hashlib
import os
import time

from pathlib import Path
from typing import IO

from pymc.exceptions import SamplingError

__all__ = ["DamagedError", "append", "explained", "locked", "read_whole", "write_whole"]

_MAGIC = b"sgmcmc-1"
_DIGEST = 32

# Seconds that a process which was killed may take to end
_PATIENCE = 30.0

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_FORBIDDEN = {errno.EACCES, errno.EPERM, errno.EROFS}
_MISPLACED = {errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ELOOP}


class DamagedError(SamplingError):
    """A file is not what was written."""


def write_whole(path: Path, payload: bytes) -> None:
    """Write a file under another name and rename it: it is there whole, or as it was before.

    Parameters
    ----------
    path : Path
        The file.
    payload : bytes
        What is in it, beside a checksum.
    """
    new = path.with_name(path.name + ".new")
    # What an earlier process left is overwritten
    with open(new, "wb", buffering=0) as file:
        append(file.fileno(), _MAGIC + hashlib.blake2b(payload, digest_size=_DIGEST).digest())
        append(file.fileno(), payload)
        os.fsync(file.fileno())
    os.replace(new, path)
    _sync_folder(path.parent)


def read_whole(path: Path) -> bytes | None:
    """Return what :func:`write_whole` wrote, None where there is no such file.

    Raises
    ------
    DamagedError
        If the file is not what was written.
    """
    try:
        found = path.read_bytes()
    except FileNotFoundError:
        return None
    except (IsADirectoryError, NotADirectoryError) as error:
        raise DamagedError(f"'{path}' is no file of a chain ({error.strerror}).") from None
    payload = found[len(_MAGIC) + _DIGEST :]
    digest = hashlib.blake2b(payload, digest_size=_DIGEST).digest()
    if found[: len(_MAGIC) + _DIGEST] != _MAGIC + digest:
        raise DamagedError(f"The file '{path}' is damaged: its checksum is another.")
    return payload


def append(descriptor: int, data: bytes) -> None:
    """Write all of the data; the system may take them in parts."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def explained(error: OSError, what: str) -> SamplingError | OSError:
    """Return the error of a disk that is full, or another's, in a sentence that says what is kept.

    Others are returned as they are.

    Parameters
    ----------
    error : OSError
        Of a write.
    what : str
        What the store holds, as the end of a sentence.
    """
    if error.errno in _FORBIDDEN:
        return PermissionError(
            f"'{error.filename}' cannot be written ({os.strerror(error.errno or 0)}). {what} Pass "
            "another path, or have the folder made writable. With at most as many draws= nothing "
            "is written."
        )
    if error.errno in _MISPLACED:
        return SamplingError(
            f"'{error.filename}' cannot be written ({os.strerror(error.errno or 0)}): its folder "
            f"takes no files, was removed, or has something else of this name. {what} Pass another "
            "path, or run the same line again once that is mended."
        )
    if error.errno not in _FULL:
        return error
    return SamplingError(
        f"The disk is full ({os.strerror(error.errno or 0)}). {what} Make room and run the same "
        "line again: it goes on from there. With at most as many draws= it writes nothing and "
        "returns them."
    )


def locked(path: Path) -> IO[str]:
    """Return the file, locked for this process until it is closed or the process ends.

    Raises
    ------
    SamplingError
        If another process keeps it.
    """
    file = open(path, "a+", encoding="utf-8")
    try:
        import fcntl
    except ImportError:
        return file
    end = time.monotonic() + _PATIENCE
    while True:
        try:
            # One of the process: that of a fork's parent is none of the child's
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except OSError as error:
            if error.errno not in {errno.EACCES, errno.EAGAIN}:
                # A file system without locks
                return file
            if time.monotonic() > end:
                file.seek(0)
                owner = file.read().strip() or "unknown"
                file.close()
                raise SamplingError(
                    f"The chain in '{path.parent}' is being sampled by another process (number "
                    f"{owner}). Wait for its end or end it, or pass another path."
                ) from None
        time.sleep(0.1)
    file.truncate(0)
    file.write(str(os.getpid()))
    file.flush()
    return file


def _sync_folder(folder: Path) -> None:
    """Make a renaming last."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
