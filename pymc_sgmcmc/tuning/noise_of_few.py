"""The noise that counts where a few of thousands of coordinates are noisier than the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from pymc_sgmcmc.tuning.noise import TurnedNoise
from pymc_sgmcmc.tuning.turn import Turn

__all__ = ["ALLOWED", "most_of_each", "shorter"]

# Most batches averaged for a single variable's noise, as all variables pay for them
ALLOWED = 16

# Quantile of thousands of coordinates' noise by which the number of batches is chosen
_MOST_OF_MANY = 0.95


def most_of_each(variance: np.ndarray, sizes: Sequence[int]) -> float:
    """Return the largest high quantile of any variable's variances.

    A scale may be one of thousands of coordinates, and the one of interest.
    """
    parts = np.split(variance, np.cumsum(sizes)[:-1]) if len(sizes) else [variance]
    return float(max(np.quantile(part, _MOST_OF_MANY) for part in parts if part.size))


def shorter(
    root: np.ndarray, turn: Turn | None, turned: TurnedNoise, variance: np.ndarray, free: float
) -> tuple[np.ndarray, Turn | None, TurnedNoise, np.ndarray]:
    """Shorten the steps of the few noisier coordinates, so that the others need not wait."""
    most = max(float(np.quantile(variance, _MOST_OF_MANY)), free)
    by = np.sqrt(np.divide(most, variance, where=variance > most, out=np.ones(len(variance))))
    if turn is None:
        root = root * by
    else:
        turn = replace(turn, lengths=turn.lengths * by)
        turned = replace(turned, times=turned.times * by**2, plus=turned.plus * by**2)
    return root, turn, turned, np.minimum(variance, most)
