"""As which types numbers on disk are read and held."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np
import pytensor

__all__ = ["dtype_held", "dtype_read"]

_READ = "float64", "float32", "float16", "int64", "int32", "int16", "int8", "bool"

# Shorter ones than those of a model, that both backends compute with
_SHORT = "float32", "int16", "int8", "uint16", "uint8"


def dtype_read(name: str, stored: Any, wished: Any = None) -> np.dtype[Any]:
    """Return the type as which numbers are read.

    As of ``pm.Data`` floats become ``floatX`` and whole numbers ``int32``: PyMC takes no others as
    what is observed.
    """
    stored = np.dtype(stored)
    if stored.kind not in "biuf":
        raise ValueError(
            f"'{name}' holds {stored}, which are no numbers. Save floats, whole numbers or "
            "booleans."
        )
    if wished is not None:
        with suppress(TypeError):
            found = np.dtype(wished).newbyteorder("=")
            if found.name in _READ:
                return found
        raise ValueError(f"dtype={wished!r} is no type of numbers. Pass 'float32' or 'int32'.")
    if stored.kind in "iu":
        return np.dtype("int32")
    if stored.kind == "f":
        return np.dtype(pytensor.config.floatX)
    return stored


def dtype_held(stored: Any, read: np.dtype[Any]) -> np.dtype[Any]:
    """Return the type in which rows are held in memory: short numbers are converted when used."""
    stored = np.dtype(stored).newbyteorder("=")
    short = stored.name in _SHORT and stored.itemsize < read.itemsize
    return stored if short and np.can_cast(stored, read) else read
