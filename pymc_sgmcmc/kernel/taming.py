"""Bounds on the moves of an update, and the count of the updates in which one acted."""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np
import pytensor.tensor as pt

from pytensor.tensor.variable import TensorVariable

from pymc_sgmcmc.kernel.blocks import Blocks

__all__ = ["Taming"]


class Taming:
    """The bounds of one update, in symbols, and whether any of them acted.

    An update in which :meth:`shortened` or :meth:`clipped` changes anything is counted in the
    statistic ``tamed_updates``.
    """

    def __init__(self) -> None:
        self._acted: list[TensorVariable] = []

    def shortened(self, move: Blocks, largest: Any) -> Blocks:
        """Scale a whole vector down until no element exceeds ``largest``.

        Clipping its elements one by one would bend correlations.
        """
        size = move.max_abs()
        self._acted.append(size > largest)
        return move * pt.minimum(1.0, largest / size)

    def shortened_power(self, signs: Blocks, logs: Blocks, largest: Any) -> Blocks:
        """Return sign · exp(log), shortened, of elements that are too large to be written."""
        size = reduce(pt.maximum, [pt.max(part) for part in logs])
        limit = pt.log(largest)
        self._acted.append(size > limit)
        scaled = (logs - size + pt.minimum(size, limit)).map(pt.exp)
        # All of them zero: the largest logarithm is −∞
        return signs * scaled.map(lambda x: pt.switch(pt.isnan(x), 0.0, x).astype(x.dtype))

    def clipped(self, noise: Blocks, largest: float) -> Blocks:
        """Clip each element at ± ``largest``."""
        self._acted.append(noise.max_abs() > largest)
        return noise.map(lambda x: pt.clip(x, -largest, largest))

    def acted(self) -> TensorVariable:
        """Whether a bound acted in this update."""
        return reduce(pt.or_, self._acted) if self._acted else pt.constant(np.bool_(False))
