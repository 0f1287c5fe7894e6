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

    def clipped(self, noise: Blocks, largest: float) -> Blocks:
        """Clip each element at ± ``largest``."""
        self._acted.append(noise.max_abs() > largest)
        return noise.map(lambda x: pt.clip(x, -largest, largest))

    def acted(self) -> TensorVariable:
        """Whether a bound acted in this update."""
        return reduce(pt.or_, self._acted) if self._acted else pt.constant(np.bool_(False))
