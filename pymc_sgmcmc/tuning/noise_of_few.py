"""Which noise decides where a few of thousands of coordinates are noisier than all others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from pymc_sgmcmc.tuning.noise import TurnedNoise
from pymc_sgmcmc.tuning.turn import Turn

__all__ = ["ALLOWED", "most_of_each", "shorter"]

# Batches that may be averaged for a single variable's noise: all pay for them
ALLOWED = 16

# Share of thousands of coordinates by whose noise the number of batches is chosen
_MOST_OF_MANY = 0.95


def most_of_each(variance: np.ndarray, sizes: Sequence[int]) -> float:
    """Return what most of each variable's coordinates are below.

    A scale is one of thousands, and all that is wanted to be known of them.
    """
    parts = np.split(variance, np.cumsum(sizes)[:-1]) if len(sizes) else [variance]
    return float(max(np.quantile(part, _MOST_OF_MANY) for part in parts if part.size))


def shorter(
    root: np.ndarray, turn: Turn | None, turned: TurnedNoise, variance: np.ndarray, free: float
) -> tuple[np.ndarray, Turn | None, TurnedNoise, np.ndarray]:
    """Shorten the steps of the few that are noisier: all others need not wait for them."""
    most = max(float(np.quantile(variance, _MOST_OF_MANY)), free)
    by = np.sqrt(np.divide(most, variance, where=variance > most, out=np.ones(len(variance))))
    if turn is None:
        root = root * by
    else:
        turn = replace(turn, lengths=turn.lengths * by)
        turned = replace(turned, times=turned.times * by**2, plus=turned.plus * by**2)
    return root, turn, turned, np.minimum(variance, most)
