"""Rows of a zarr array."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from pymc_sgmcmc.disk.dtypes import dtype_read
from pymc_sgmcmc.disk.source import ChunkedSource, DiskError

__all__ = ["ZarrSource", "is_zarr"]

# Files of which one is in the folder of an array, of format 3 and 2
_ARRAY = "zarr.json", ".zarray"


def is_zarr(path: Path) -> bool:
    """Whether a folder holds a zarr array or group."""
    return any((path / name).exists() for name in (*_ARRAY, ".zgroup"))


class ZarrSource(ChunkedSource):
    """Rows of a zarr array in a folder, decoded a chunk (of shards: a shard) at a time.

    Parameters
    ----------
    path : Path
        The array's folder, inside a store or a store of its own.
    dtype : dtype, optional
        Of the numbers that are read.
    """

    def __init__(self, path: Path, dtype: Any = None) -> None:
        self.path = path.resolve()
        self._array: Any = None
        array = self._opened()
        if array.ndim == 0:
            raise ValueError(f"'{path}' is a single number and has no rows.")
        stored, chunk = array.dtype, (getattr(array, "shards", None) or array.chunks)[0]
        starts = np.append(np.arange(0, array.shape[0], chunk), array.shape[0])
        super().__init__(
            f"'{path}'", array.shape, stored, dtype_read(str(path), stored, dtype), starts
        )

    def _opened(self) -> Any:
        if self._array is None:
            try:
                import zarr
            except ImportError as error:
                raise ImportError(
                    "Reading zarr needs the package zarr (3 or newer): pip install "
                    "'pymc-sgmcmc[disk]'."
                ) from error
            try:
                found = zarr.open(self.path, mode="r")
            except (OSError, ValueError, KeyError) as error:
                raise DiskError(f"'{self.path}' cannot be opened: {error}") from error
            if not isinstance(found, zarr.Array):
                names = ", ".join(f"'{name}'" for name, _ in found.arrays())
                raise ValueError(
                    f"'{self.path}' is a zarr group and no array. Pass the path of an array in "
                    f"it: it has {names or 'none'}."
                )
            self._array = found
        return self._array

    def check(self) -> None:
        """Raise where the array is no longer there: its rows would be read as fill values."""
        if not any((self.path / name).exists() for name in _ARRAY):
            raise DiskError(f"{self.name} is no longer there: it was moved or deleted.")

    def decode(self, k: int) -> np.ndarray:
        """Return the rows of a chunk."""
        first, last = int(self._starts[k]), int(self._starts[k + 1])
        try:
            return np.asarray(self._opened()[first:last])
        except Exception as error:
            # Codecs raise what they like
            raise DiskError(f"Rows {first} to {last} of {self.name} cannot be read: {error}") from (
                error
            )

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_array": None}
