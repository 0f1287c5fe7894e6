"""Arrays of several shapes as parts of one flat vector."""

from __future__ import annotations

import math

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any

import numpy as np


class Ravel:
    """The parts of a flat vector of ``size`` elements: their shapes, dtypes, sizes and ranges."""

    def __init__(
        self, shapes: Sequence[Sequence[int]], dtypes: Sequence[Any] | None = None
    ) -> None:
        self.shapes = [tuple(shape) for shape in shapes]
        self.dtypes = [None] * len(self.shapes) if dtypes is None else list(dtypes)
        self.sizes = [math.prod(shape) for shape in self.shapes]
        ends = accumulate(self.sizes, initial=0)
        self.ranges = [slice(start, end) for start, end in pairwise(ends)]
        self.size = sum(self.sizes)

    @classmethod
    def of(cls, parts: Sequence[Any]) -> Ravel:
        """Return the ravel of arrays, or of symbols whose shapes are known, with their dtypes."""
        return cls([getattr(x, "type", x).shape for x in parts], [x.dtype for x in parts])

    def split(self, flat: Any) -> list[Any]:
        """Return the parts of arrays (..., d), or of a symbol (d,), in their dtypes."""
        several = flat.shape[:-1] if flat.ndim > 1 else ()
        parts = [
            flat[..., range_].reshape((*several, *shape))
            for range_, shape in zip(self.ranges, self.shapes, strict=True)
        ]
        return [
            x if dtype is None else x.astype(dtype)
            for x, dtype in zip(parts, self.dtypes, strict=True)
        ]

    @staticmethod
    def join(parts: Sequence[Any]) -> np.ndarray:
        """Return the parts as one vector of double precision."""
        return np.concatenate([np.asarray(part, dtype=float).reshape(-1) for part in parts])
