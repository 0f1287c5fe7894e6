"""The potential that tuning needs, on the full data and on batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np

from pymc_sgmcmc.kernel.pair_sums import PairSums

__all__ = [
    "WIDE",
    "Gradients",
    "NoGaussianError",
    "Surface",
    "TuningError",
    "antithetic",
    "difference_step",
    "mean_hessian",
]

# Positions that a compiled potential evaluates in one call
_IN_ONE_CALL = 64

# Widest step of differences, in sds
WIDE = 0.5

Gradients = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]
"""Maps positions (P, d) to potentials (P,) and gradients (P, d)."""


class TuningError(RuntimeError):
    """A step of tuning failed; the message names it and what to try."""


class NoGaussianError(Exception):
    """No Gaussian is near a posterior of exchangeable units: the chain is tuned another way."""


class Surface(Protocol):
    """The potential at flat positions φ, as :class:`~pymc_sgmcmc.kernel.potential.Potential`."""

    dimension: int
    shapes: list[tuple[int, ...]]
    """Of each variable's part of a position, where elements may share an index."""
    n_blocks: int
    batch_size: int
    sizes: list[tuple[int, int]]
    """Rows N and batch size B of each minibatch."""
    precision: float
    """Relative rounding error of the model's floats."""
    unbounded: np.ndarray
    """Which coordinates are those of variables without bounds, shape (d,)."""
    circular: np.ndarray
    """Which coordinates lie on a circle, shape (d,)."""
    widest: np.ndarray
    """The largest sd that a fit may give to each coordinate, shape (d,)."""
    kinked: bool
    """Whether ∇U may jump, as that of a Laplace distribution does."""
    numbers: int
    """Numbers that a gradient of one batch computes: what it costs."""

    def full(self, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return U and ∇U of the full data."""

    def batch(self, points: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return unbiased estimates of U and ∇U from one batch for each position."""

    def batch_gradient(self, points: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Return estimates of ∇U alone, which may cost far less."""

    def block(self, points: np.ndarray, which: int | np.ndarray) -> np.ndarray:
        """Return the share of the full ∇U of one block of the data for each position."""

    def pair_sums(
        self, point: np.ndarray, width: np.ndarray, signs: np.ndarray, rows: np.ndarray
    ) -> PairSums:
        """Sum gradients at ``point ± signs width``, each pair from a batch of its own."""

    def draw_rows(self, rng: np.random.Generator, count: int) -> np.ndarray:
        """Draw batches."""


def antithetic(rng: np.random.Generator, pairs: int, dimension: int) -> np.ndarray:
    """Return standard normal vectors e and −e, shape (2 pairs, d), neighbours opposite."""
    e = rng.standard_normal((pairs, dimension))
    return np.stack([e, -e], axis=1).reshape(2 * pairs, dimension)


def difference_step(surface: Surface) -> float:
    """Return the step of central differences, in posterior sds: the cube root of rounding.

    A density with kinks may have all its curvature there, which small steps miss; wide ones average
    the curvature over a window.
    """
    if surface.kinked:
        return WIDE
    return max(1e-3, 3 * surface.precision ** (1 / 3))


def mean_hessian(
    gradients: Callable[[np.ndarray, np.ndarray], np.ndarray],
    points: np.ndarray,
    scale: np.ndarray,
    step: float,
    *,
    central: bool = True,
) -> np.ndarray:
    """Return the mean Hessian of U over positions, (d, d), by differences of ``gradients(x, p)``.

    x, (n, d), are near ``points[p]``. One-sided differences cost half; their error cancels between
    opposite positions. Positions without finite differences are left out; NaN if none is finite.
    """
    d = len(scale)
    moves = np.diag(step * scale)
    moves = np.concatenate([moves, -moves if central else np.zeros((1, d))])
    together = max(1, _IN_ONE_CALL // len(moves))
    total, count = np.zeros((d, d)), 0
    for first in range(0, len(points), together):
        some = points[first : first + together]
        which = np.repeat(np.arange(first, first + len(some)), len(moves))
        found = gradients((some[:, None] + moves).reshape(-1, d), which)
        for g in found.reshape(len(some), len(moves), d):
            hessian = (g[:d] - g[d:]) / ((1 + central) * step * scale)[:, None]
            if np.all(np.isfinite(hessian)):
                total += hessian
                count += 1
    if not count:
        return np.full((d, d), np.nan)
    return (total + total.T) / (2 * count)
