"""Rows of a zarr array."""

from __future__ import annotations

import base64
import itertools
import math

from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from pymc_sgmcmc.disk.source import MOST_CHUNKS, ChunkedSource, DiskError, needed, reading, state_of

# How xarray says that numbers are not meant as they are stored, and which stands for missing ones
_PACKED, _MISSING = ("scale_factor", "add_offset", "_Unsigned"), ("missing_value", "_FillValue")

# Files of which one is in the folder of an array, of format 3 and 2
_ARRAY = "zarr.json", ".zarray"


def is_zarr(path: Path) -> bool:
    """Whether a folder holds a zarr array or group."""
    return any((path / name).is_file() for name in (*_ARRAY, ".zgroup"))


class ZarrSource(ChunkedSource):
    """Rows of a zarr array in a folder, decoded a chunk (of shards: a shard) at a time."""

    def __init__(self, path: Path, dtype: Any = None) -> None:
        self.path = path.resolve()
        array = _opened(self.path)
        if not array.ndim or not array.shape[0]:
            raise ValueError(f"'{path}' has no rows: its shape is {array.shape}.")
        if found := _decoded(array):
            raise ValueError(
                f"'{path}' is packed, with {' and '.join(found)} in its attributes: what it holds "
                "are not the numbers themselves. Write them unpacked, and missing ones as NaN; in "
                "xarray that is encoding={} of the variable."
            )
        chunk = getattr(array, "shards", None) or array.chunks
        # How many chunks there are along each axis
        self._grid = [-(-n // size) for n, size in zip(array.shape, chunk, strict=True)]
        if math.prod(self._grid) > MOST_CHUNKS:
            raise ValueError(
                f"'{path}' has shape {array.shape} in chunks of {chunk}: these are too many. Write "
                "it with larger ones."
            )
        starts = np.append(np.arange(0, array.shape[0], chunk[0]), array.shape[0])
        super().__init__(f"'{path}'", array.shape, array.dtype, dtype, starts)
        self.handles[self.path] = array
        # Of an array that is no longer what it was rows would be read as fill values
        metadata = next(file for name in _ARRAY if (file := self.path / name).is_file())
        self.states[metadata] = state_of(metadata)
        self._states_of_chunks = [self._state_of_chunk(k) for k in range(len(starts) - 1)]

    @property
    def _array(self) -> Any:
        if self.path not in self.handles:
            self.handles[self.path] = _opened(self.path)
        return self.handles[self.path]

    def _state_of_chunk(self, k: int) -> int:
        """Return what changes with sizes and times of a chunk's files; they need not be there."""
        places = itertools.product([k], *map(range, self._grid[1:]))
        files = [self.path / self._array.metadata.encode_chunk_key(place) for place in places]
        return hash(tuple(state_of(file) if file.exists() else None for file in files))

    def decode(self, k: int) -> np.ndarray:
        """Return the rows of a chunk."""
        first, last = int(self._starts[k]), int(self._starts[k + 1])
        self.check()
        if self._state_of_chunk(k) != self._states_of_chunks[k]:
            raise DiskError(
                f"Rows {first} to {last} of {self.name} were written to, or removed, since the "
                "model was made. Make the model anew."
            )
        with reading(f"Rows {first} to {last} of {self.name} cannot be read"):
            return np.asarray(self._array[first:last])


def _decoded(array: Any) -> list[str]:
    """Return by which attributes xarray reads other numbers than an array holds."""
    attributes = dict(array.attrs)
    # Format 2 has it beside the attributes, for rows that nobody wrote, too
    if "_ARRAY_DIMENSIONS" in attributes and array.fill_value is not None:
        attributes["_FillValue"] = array.fill_value
    missing = [name for name in _MISSING if name in attributes and not _is_nan(attributes[name])]
    return [name for name in _PACKED if name in attributes] + missing


def _is_nan(value: Any) -> bool:
    """Whether a fill value is NaN; of format 3 xarray writes those of floats as eight bytes."""
    if isinstance(value, str):
        with suppress(ValueError):
            value = np.frombuffer(base64.b64decode(value, validate=True), "<f8")
    return np.asarray(value).dtype.kind == "f" and bool(np.all(np.isnan(value)))


def _opened(path: Path) -> Any:
    zarr = needed("zarr", "zarr needs the package zarr (3.1 or newer)")
    with reading(f"'{path}' cannot be opened"):
        array = zarr.open(path, mode="r")
    if not isinstance(array, zarr.Array):
        names = ", ".join(f"'{name}'" for name, _ in array.arrays())
        raise ValueError(
            f"'{path}' is a zarr group and no array. Pass the path of an array in it: it has "
            f"{names or 'none'}."
        )
    return array
