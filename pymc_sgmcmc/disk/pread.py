"""Many places of a file, read at once by compiled code that does not hold Python's lock."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numba
import numpy as np

from numba import types

__all__ = ["read_places"]

# ssize_t pread(int, void *, size_t, off_t)
_pread: Any = types.ExternalFunction(
    "pread", types.int64(types.int32, types.int64, types.int64, types.int64)
)


@numba.njit(nogil=True)
def read_places(file: int, places: np.ndarray, out: np.ndarray) -> int:
    """Fill the rows of ``out``, bytes (n, size), with what a file holds from places (n,) on.

    Return how many are full: fewer than n where reading failed or the file ended.
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


with suppress(RuntimeError):  # where there is no folder to keep it
    read_places.enable_caching()
