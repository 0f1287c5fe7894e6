"""A potential along some of its coordinates."""

from __future__ import annotations

import numpy as np

from pymc_sgmcmc.kernel.pair_sums import PairSums, summed_pairs
from pymc_sgmcmc.tuning.surface import Surface

__all__ = ["Conditional"]


class Conditional:
    """A surface as a function of the coordinates that are free, the others held.

    Parameters
    ----------
    surface : Surface
        The potential in all coordinates.
    point : ndarray
        Where the others are held, shape (D,).
    free : ndarray of bool
        Shape (D,), d of them true.
    """

    def __init__(self, surface: Surface, point: np.ndarray, free: np.ndarray) -> None:
        self._surface = surface
        self._point = point
        self._free = free
        self.dimension = int(free.sum())
        self.n_blocks = surface.n_blocks
        self.batch_size = surface.batch_size
        self.sizes = surface.sizes
        self.precision = surface.precision
        self.unbounded = surface.unbounded[free]
        self.circular = surface.circular[free]
        self.widest = surface.widest[free]
        self.kinked = surface.kinked
        self.numbers = surface.numbers

    def whole(self, points: np.ndarray) -> np.ndarray:
        """Map positions in the free coordinates to all coordinates, shape (P, D)."""
        whole = np.repeat(self._point[None], len(points), axis=0)
        whole[:, self._free] = points
        return whole

    def full(self, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """U and ∇U of the full data."""
        u, g = self._surface.full(self.whole(points))
        return u, g[:, self._free]

    def batch(self, points: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Estimates of U and ∇U from one batch for each position."""
        u, g = self._surface.batch(self.whole(points), rows)
        return u, g[:, self._free]

    def batch_gradient(self, points: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Estimates of ∇U alone."""
        return self._surface.batch_gradient(self.whole(points), rows)[:, self._free]

    def block(self, points: np.ndarray, which: int | np.ndarray) -> np.ndarray:
        """Share of the full ∇U of one block of the data for each position."""
        return self._surface.block(self.whole(points), which)[:, self._free]

    def pair_sums(
        self, point: np.ndarray, width: np.ndarray, signs: np.ndarray, rows: np.ndarray
    ) -> PairSums:
        """Sum gradients at opposite positions."""
        return summed_pairs(self.batch_gradient, point, width, signs, rows)

    def draw_rows(self, rng: np.random.Generator, count: int) -> np.ndarray:
        """Draw batches."""
        return self._surface.draw_rows(rng, count)
