"""Rows of a zarr array."""

from __future__ import annotations

import itertools
import math

from pathlib import Path
from typing import Any

import numpy as np

from pymc_sgmcmc.disk.dtypes import dtype_read
from pymc_sgmcmc.disk.source import MOST_CHUNKS, ChunkedSource, DiskError, state_of

__all__ = ["ZarrSource", "is_zarr"]

# Files of which one is in the folder of an array, of format 3 and 2
_ARRAY = "zarr.json", ".zarray"


def is_zarr(path: Path) -> bool:
    """Whether a folder holds a zarr array or group."""
    return any((path / name).is_file() for name in (*_ARRAY, ".zgroup"))


class ZarrSource(ChunkedSource):
    """Rows of a zarr array in a folder, decoded a chunk (of shards: a shard) at a time."""

    def __init__(self, path: Path, dtype: Any = None) -> None:
        self.path = path.resolve()
        self._array: Any = None
        array = self._opened()
        if not array.ndim or not array.shape[0]:
            raise ValueError(f"'{path}' has no rows: its shape is {array.shape}.")
        self._chunk_shape = getattr(array, "shards", None) or array.chunks
        stored, chunk = array.dtype, self._chunk_shape[0]
        if math.prod(self._grid(array)) > MOST_CHUNKS:
            raise ValueError(
                f"'{path}' has shape {array.shape} in chunks of {self._chunk_shape}: these are too "
                "many. Write it with larger ones."
            )
        starts = np.append(np.arange(0, array.shape[0], chunk), array.shape[0])
        super().__init__(
            f"'{path}'", array.shape, stored, dtype_read(str(path), stored, dtype), starts
        )
        self._metadata = next(file for name in _ARRAY if (file := self.path / name).is_file())
        self._state = state_of(self._metadata)
        self._states = [self._state_of_chunk(k) for k in range(len(starts) - 1)]

    def _grid(self, array: Any) -> list[int]:
        """Return how many chunks there are along each axis."""
        return [-(-n // size) for n, size in zip(array.shape, self._chunk_shape, strict=True)]

    def _state_of_chunk(self, k: int) -> int:
        """Return what changes with sizes and times of a chunk's files; they need not be there."""
        array = self._opened()
        places = itertools.product([k], *map(range, self._grid(array)[1:]))
        files = [self.path / array.metadata.encode_chunk_key(place) for place in places]
        return hash(tuple(state_of(file) if file.exists() else None for file in files))

    def _opened(self) -> Any:
        if self._array is None:
            try:
                import zarr
            except ImportError as error:
                raise ImportError(
                    "Reading zarr needs the package zarr (3.1 or newer): pip install "
                    "'pymc-sgmcmc[disk]'."
                ) from error
            try:
                found = zarr.open(self.path, mode="r")
            except Exception as error:
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
        """Raise where the array is no longer what it was: rows would be read as fill values."""
        if state_of(self._metadata) != self._state:
            raise DiskError(
                f"{self.name} was written to since the model was made. Make the model anew."
            )

    def decode(self, k: int) -> np.ndarray:
        """Return the rows of a chunk."""
        first, last = int(self._starts[k]), int(self._starts[k + 1])
        self.check()
        if self._state_of_chunk(k) != self._states[k]:
            raise DiskError(
                f"Rows {first} to {last} of {self.name} were written to, or removed, since the "
                "model was made. Make the model anew."
            )
        try:
            return np.asarray(self._opened()[first:last])
        except Exception as error:
            # Codecs raise what they like
            raise DiskError(f"Rows {first} to {last} of {self.name} cannot be read: {error}") from (
                error
            )

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_array": None}
