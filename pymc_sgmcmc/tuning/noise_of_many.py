"""Step 4 of tuning with thousands of parameters, of which a batch may touch only a few."""

from __future__ import annotations

import numpy as np

from pymc_sgmcmc.model.batch_schemes import BATCH_SCHEMES
from pymc_sgmcmc.tuning.passes import PAIRS, Passes
from pymc_sgmcmc.tuning.shared_index import InBlocks
from pymc_sgmcmc.tuning.surface import Surface

__all__ = ["NoiseOnTheWay", "noise_of_pairs"]

_LEAST_BATCHES, _PASSES = 512, 4


def noise_of_pairs(
    surface: Surface, centre: np.ndarray, width: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray] | None:
    """Return one batch's plain and anchored variances for φ, (d,), None if not finite.

    They are averaged over some passes. Between opposite positions, two sds apart in each
    coordinate, an anchored gradient has four times its variance at one sd.
    """
    d, passes = len(centre), Passes(surface, rng)
    count, sums = 0, np.zeros((4, d))
    for _ in range(_steps(surface, passes)):
        signs = (2 * rng.integers(0, 2, (PAIRS, d), dtype=np.int8) - 1).astype(np.int8)
        found = surface.pair_sums(centre, width, signs, passes.draw())
        count += found.count
        sums += found.middle, found.middle_squared, found.change, found.change_squared
    if count < 2:
        return None
    middle, middle_squared, change, change_squared = sums / count
    scale = count / (count - 1) / _ratio(surface, passes.batches)
    plain = np.maximum(middle_squared - middle**2, 0) * scale
    return plain, np.maximum(change_squared - change**2, 0) / 4 * scale


class NoiseOnTheWay:
    """The variance of a gradient estimate, averaged over the positions that a chain visits.

    ``anchor`` is φ̄, shape (d,), or None for plain gradients.
    """

    def __init__(
        self, surface: Surface, anchor: np.ndarray | None, rng: np.random.Generator
    ) -> None:
        self._surface, self._anchor = surface, anchor
        self._passes = Passes(surface, rng)
        self.positions = _steps(surface, self._passes)
        """Number of positions that make up some passes over the data."""
        self.forget()

    def forget(self) -> None:
        """Start the average anew."""
        self._count, self._sum = 0, np.zeros(self._surface.dimension)

    def add(self, phi: np.ndarray) -> None:
        """Add a measurement at a position, shape (d,)."""
        if isinstance(self._surface, InBlocks):
            phi = self._surface.inward(phi[None])[0]
        other = phi if self._anchor is None else self._anchor
        # The pair of positions is the chain's position and the anchor
        signs = np.ones((PAIRS, len(phi)), dtype=np.int8)
        found = self._surface.pair_sums(
            (phi + other) / 2, (phi - other) / 2, signs, self._passes.draw()
        )
        n = found.count
        if n < 2:
            return
        total, squares = (
            (found.middle, found.middle_squared)
            if self._anchor is None
            else (found.change, found.change_squared)
        )
        self._sum += np.maximum(squares - total**2 / n, 0) / (n - 1)
        self._count += 1

    def variance(self) -> np.ndarray | None:
        """Return one batch's variance for φ, shape (d,), or None before any position."""
        if not self._count:
            return None
        # Batches of one pass share no rows, and differ more than independent ones
        apart = 1 - 1 / max(self._passes.pairs, PAIRS)
        return apart * self._sum / self._count / _ratio(self._surface, self._passes.batches)


def _steps(surface: Surface, passes: Passes) -> int:
    return max(_LEAST_BATCHES, _PASSES * surface.n_blocks) // (PAIRS * passes.batches)


def _ratio(surface: Surface, batches: int) -> float:
    """Return the variance of the mean of neighbouring batches over that of one block of rows."""
    scheme = BATCH_SCHEMES["shuffled"]
    # A batch of all rows has no noise
    return max(scheme.variance_ratio(n, size, batches) for n, size in surface.sizes) or 1.0
