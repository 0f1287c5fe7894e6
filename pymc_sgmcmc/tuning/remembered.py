"""The potential of a step beside others, averaged over what they have sampled."""

from __future__ import annotations

import operator

from collections.abc import Callable, Sequence
from functools import reduce

import numpy as np

from pymc_sgmcmc.kernel.pair_sums import PairSums
from pymc_sgmcmc.tuning.conditional import Mapped
from pymc_sgmcmc.tuning.surface import Surface


class Remembered(Mapped):
    """The mean of a potential over values of other steps' variables, ``views`` one for each.

    Each batch or block is evaluated at a fixed one of the values, so means over many are over all
    values. ``places`` returns the chain's φ at the values, shape (views, d).
    """

    def __init__(self, views: Sequence[Surface], places: Callable[[], np.ndarray]) -> None:
        super().__init__(views[0])
        self.shapes = views[0].shapes
        self.views, self.places = list(views), places

    def full(self, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return U and ∇U of the full data, averaged over the values."""
        us, gradients = zip(*(view.full(points) for view in self.views), strict=True)
        return np.mean(us, axis=0), np.mean(gradients, axis=0)

    def batch(self, points: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return estimates of U and ∇U from one batch for each position."""
        u = np.empty(len(points))

        def of_view(view: Surface, chosen: np.ndarray) -> np.ndarray:
            u[chosen], gradient = view.batch(points[chosen], rows[chosen])
            return gradient

        return u, self._of_each(of_view, _number(rows))

    def batch_gradient(self, points: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Return estimates of ∇U alone."""
        if not self.batch_size:
            return self.full(points)[1]
        return self._of_each(
            lambda view, chosen: view.batch_gradient(points[chosen], rows[chosen]), _number(rows)
        )

    def pair_sums(
        self, point: np.ndarray, width: np.ndarray, signs: np.ndarray, rows: np.ndarray
    ) -> PairSums:
        """Sum gradients at opposite positions, each pair at the value that its rows choose."""
        if not self.batch_size:
            return super().pair_sums(point, width, signs, rows)
        numbers = _number(rows.reshape(len(rows), -1)) % len(self.views)
        return reduce(
            operator.add,
            (
                self.views[k].pair_sums(point, width, signs[i : i + 1], rows[i : i + 1])
                for i, k in enumerate(numbers)
            ),
        )

    def block(self, points: np.ndarray, which: int | np.ndarray) -> np.ndarray:
        """Return the share of the full ∇U of one block of the data for each position."""
        which = np.broadcast_to(which, len(points))
        if self.n_blocks < len(self.views):
            return np.mean([view.block(points, which) for view in self.views], axis=0)
        shares = self._of_each(
            lambda view, chosen: view.block(points[chosen], which[chosen]), which
        )
        first = which == 0
        if first.any():
            # It alone has the terms without rows
            each = [view.block(points[first], which[first]) for view in self.views]
            shares[first] = np.mean(each, axis=0)
        return shares

    def _of_each(
        self, gradient: Callable[[Surface, np.ndarray], np.ndarray], numbers: np.ndarray
    ) -> np.ndarray:
        """Return gradients, each from the view that its number chooses, shape (n, d)."""
        gradients, of_view = np.empty((len(numbers), self.dimension)), numbers % len(self.views)
        for k in np.unique(of_view):
            chosen = np.flatnonzero(of_view == k)
            gradients[chosen] = gradient(self.views[k], chosen)
        return gradients


def _number(rows: np.ndarray) -> np.ndarray:
    """Return a number for each batch, the same for the same rows."""
    return rows[:, 0] if rows.shape[1] else np.zeros(len(rows), dtype=int)
