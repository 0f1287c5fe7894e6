"""Batches for pairs of positions, with each row of the data in equally many of them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from pymc_sgmcmc.tuning.surface import Points, Rng, Rows, Surface

type Draw = Callable[[int], Rows]

# Pairs of a step, each on a batch of its own: as many batches measure a curvature
PAIRS = 8
# Least steps of a fit of thousands of parameters, and its passes over the data
LEAST_STEPS, PASSES = 400, 20
# Passes of a measurement of noise. Independent batches that are as many miss few rows
FEW_PASSES = 4


def batches_to_measure(surface: Surface, rng: Rng, least: int) -> tuple[int, Draw]:
    """Return how many batches a measurement takes, and what draws some of them.

    Where ``least`` of them are few, they make up a pass over the data; else they are independent.
    """
    if are_few(surface, least):
        return max(least, surface.n_blocks), Passes(surface, rng, batches=1).draw
    return least, partial(surface.draw_rows, rng)


def are_few(surface: Surface, batches: int) -> bool:
    """Return whether so many independent batches may miss a row that alone informs a coordinate."""
    return FEW_PASSES * surface.n_blocks > batches


def random_signs(rng: Rng, dimension: int) -> Points:
    """Return a step's random signs, 8-bit integers of shape (pairs, d)."""
    return (2 * rng.integers(0, 2, (PAIRS, dimension), dtype=np.int8) - 1).astype(np.int8)


class Passes:
    """Draws the batches of steps, pass after pass over the data; each begins at a random row.

    Independent batches might miss rows that inform a coordinate. A pair has ``batches`` of them:
    one or, with much data, so many that the least number of steps makes all passes. ``pairs`` is
    the number of pairs in a pass.
    """

    def __init__(self, surface: Surface, rng: Rng, batches: int | None = None) -> None:
        self._sizes, self._rng = surface.sizes, rng
        self.batches = batches or max(1, PASSES * surface.n_blocks // (PAIRS * LEAST_STEPS))
        self._places = [max(1, n // (self.batches * size)) for n, size in self._sizes]
        self.pairs = min(self._places, default=1)
        self._left = [np.zeros(0, dtype=int) for _ in surface.sizes]

    def draw(self, pairs: int = PAIRS) -> Rows:
        """Draw the batches of some pairs: offsets, shape (pairs, [batches,] minibatches)."""
        rows = [self._first(k, pairs) for k in range(len(self._sizes))]
        first = np.stack(rows, axis=1) if rows else np.zeros((pairs, 0), dtype=int)
        if self.batches == 1:
            return first
        total, size = np.array(self._sizes).T
        return (first[:, None] + np.arange(self.batches)[:, None] * size) % total

    def _first(self, k: int, pairs: int) -> np.ndarray:
        """Return the first row of each pair's batches of one minibatch."""
        n, size = self._sizes[k]
        while len(self._left[k]) < pairs:
            order = self._rng.permutation(self._places[k])
            coming = (self._rng.integers(0, n) + self.batches * size * order) % n
            self._left[k] = np.concatenate([self._left[k], coming])
        taken, self._left[k] = self._left[k][:pairs], self._left[k][pairs:]
        return taken
