"""As which type numbers on disk are read."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor

__all__ = ["dtype_read"]


def dtype_read(name: str, stored: Any, wished: Any = None) -> np.dtype[Any]:
    """Return the type as which numbers are read.

    As ``pm.Data`` does, floats are no longer than ``floatX`` and whole numbers are ``int32``:
    PyMC takes no others as what is observed. Short floats stay short.

    Raises
    ------
    ValueError
        If they are no numbers.
    """
    stored = np.dtype(stored)
    if stored.kind not in "biuf":
        raise ValueError(
            f"'{name}' holds {stored}, which are no numbers. Save floats, whole numbers or booleans."
        )
    if wished is not None:
        found = np.dtype(wished)
        if found.kind not in "bif":
            raise ValueError(f"dtype={wished!r} is no type of numbers. Pass 'float32' or 'int32'.")
        return found
    if stored.kind in "iu":
        return np.dtype("int32")
    if stored.kind == "f":
        longest = np.dtype(pytensor.config.floatX)
        shortest = np.dtype("float32")
        return min(longest, max(shortest, stored.newbyteorder("="), key=_size), key=_size)
    return stored


def _size(dtype: np.dtype[Any]) -> int:
    return dtype.itemsize
