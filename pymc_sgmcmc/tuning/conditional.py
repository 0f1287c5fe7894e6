"""A potential in other coordinates, or along some of them."""

from __future__ import annotations

import numpy as np

from pymc_sgmcmc.kernel.pair_sums import PairSums, summed_pairs
from pymc_sgmcmc.tuning.surface import Surface


class Mapped(Surface):
    """A surface in new coordinates of which its own are linear functions; by default the identity.

    ``kept`` says which of its own coordinates have new ones, shape (D,).
    """

    def __init__(self, surface: Surface, kept: np.ndarray | None = None) -> None:
        kept = np.ones(surface.dimension, dtype=bool) if kept is None else kept
        self._surface, self.dimension = surface, int(kept.sum())
        self.shapes: list[tuple[int, ...]] = []
        self.n_blocks, self.batch_size = surface.n_blocks, surface.batch_size
        self.sizes, self.numbers = surface.sizes, surface.numbers
        self.precision, self.kinked = surface.precision, surface.kinked
        self.unbounded, self.circular = surface.unbounded[kept], surface.circular[kept]
        self.widest = surface.widest[kept]

    def whole(self, points: np.ndarray) -> np.ndarray:
        """Map positions to the surface's own coordinates, shape (P, D)."""
        return points

    def pulled(self, gradient: np.ndarray) -> np.ndarray:
        """Return gradients with respect to the new coordinates, shape (P, d)."""
        return gradient

    def full(self, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return U and ∇U of the full data."""
        u, g = self._surface.full(self.whole(points))
        return u, self.pulled(g)

    def batch(self, points: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return estimates of U and ∇U from one batch for each position."""
        u, g = self._surface.batch(self.whole(points), rows)
        return u, self.pulled(g)

    def batch_gradient(self, points: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Return estimates of ∇U alone."""
        return self.pulled(self._surface.batch_gradient(self.whole(points), rows))

    def block(self, points: np.ndarray, which: int | np.ndarray) -> np.ndarray:
        """Return the share of the full ∇U of one block of the data for each position."""
        return self.pulled(self._surface.block(self.whole(points), which))

    def pair_sums(
        self, point: np.ndarray, width: np.ndarray, signs: np.ndarray, rows: np.ndarray
    ) -> PairSums:
        """Sum gradients at opposite positions."""
        return summed_pairs(self.batch_gradient, point, width, signs, rows)

    def draw_rows(self, rng: np.random.Generator, count: int) -> np.ndarray:
        """Draw batches."""
        return self._surface.draw_rows(rng, count)


class Conditional(Mapped):
    """A surface along its ``free`` coordinates, shape (D,), with the others held at ``point``."""

    def __init__(self, surface: Surface, point: np.ndarray, free: np.ndarray) -> None:
        super().__init__(surface, free)
        self._point, self._free = point, free

    def whole(self, points: np.ndarray) -> np.ndarray:
        """Map positions in the free coordinates to all coordinates, shape (P, D)."""
        whole = np.repeat(self._point[None], len(points), axis=0)
        whole[:, self._free] = points
        return whole

    def pulled(self, gradient: np.ndarray) -> np.ndarray:
        """Return the gradients' free part, shape (P, d)."""
        return gradient[:, self._free]
