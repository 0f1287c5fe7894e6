"""Batches for pairs of positions, each row of the data in as many of them as any other."""

from __future__ import annotations

import numpy as np

from pymc_sgmcmc.tuning.surface import Surface

__all__ = ["LEAST_STEPS", "PAIRS", "PASSES", "Passes"]

# Pairs of a step, least steps of a fit of thousands of parameters, and its passes over the data
PAIRS = 8
LEAST_STEPS, PASSES = 400, 20


class Passes:
    """Draws the batches of steps, pass after pass over the data.

    Of independent batches those of a single row are few or none: what they say of a coordinate
    that few rows touch would be a matter of luck. Each pass begins at a row of its own, and its
    batches come in an order of its own.

    A batch that touches few of many parameters costs as much as several: what is computed of all
    parameters outweighs it. A pair then has several batches, neighbours that share no rows, as
    many as leave enough steps.

    Parameters
    ----------
    surface : Surface
        The potential.
    rng : numpy.random.Generator
        Draws beginnings and orders.

    Attributes
    ----------
    batches : int
        Batches of a pair.
    pairs : int
        Pairs of a pass.
    """

    def __init__(self, surface: Surface, rng: np.random.Generator) -> None:
        self._sizes, self._rng = surface.sizes, rng
        self.batches = max(1, PASSES * surface.n_blocks // (PAIRS * LEAST_STEPS))
        self._places = [max(1, n // (self.batches * size)) for n, size in self._sizes]
        self.pairs = min(self._places, default=1)
        self._left = [np.zeros(0, dtype=int) for _ in surface.sizes]

    def draw(self) -> np.ndarray:
        """Draw the batches of a step's pairs.

        Returns
        -------
        ndarray
            Offsets, shape (pairs, minibatches), or (pairs, m, minibatches).
        """
        rows = [self._first(k) for k in range(len(self._sizes))]
        first = np.stack(rows, axis=1) if rows else np.zeros((PAIRS, 0), dtype=int)
        if self.batches == 1:
            return first
        total, size = np.array(self._sizes).T
        return (first[:, None] + np.arange(self.batches)[:, None] * size) % total

    def _first(self, k: int) -> np.ndarray:
        """Return the first row of each pair's batches of one minibatch."""
        n, size = self._sizes[k]
        while len(self._left[k]) < PAIRS:
            order = self._rng.permutation(self._places[k])
            coming = (self._rng.integers(0, n) + self.batches * size * order) % n
            self._left[k] = np.concatenate([self._left[k], coming])
        taken, self._left[k] = self._left[k][:PAIRS], self._left[k][PAIRS:]
        return taken
