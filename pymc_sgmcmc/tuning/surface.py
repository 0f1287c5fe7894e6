"""What tuning asks of a posterior: its potential on the full data and on batches."""

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
        """U and ∇U of the full data."""

    def batch(self, points: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Unbiased estimates of U and ∇U from one batch for each position."""

    def batch_gradient(self, points: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Estimates of ∇U alone, which may cost far less."""

    def block(self, points: np.ndarray, which: int | np.ndarray) -> np.ndarray:
        """Share of the full ∇U of one block of the data for each position."""

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
    """Step of central differences in units of a posterior sd: the cube root of rounding.

    All the curvature of a density with kinks may be at them, where small steps meet it by chance.
    Wide ones see the curvature of the density averaged over a window.
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
    """Mean Hessian of U over positions, by differences of gradients.

    Parameters
    ----------
    gradients : callable
        ``gradients(x, p)``: ∇U at positions x, each of them near ``points[p]``; shapes (n, d)
        and (n,).
    points : ndarray
        Shape (P, d).
    scale : ndarray
        About one posterior sd of each coordinate, shape (d,).
    step : float
        Step of the differences in units of ``scale``.
    central : bool
        Whether differences are central. One-sided ones cost half; their error is odd and of
        first order in the step, so it cancels between opposite positions.

    Returns
    -------
    ndarray
        Shape (d, d), symmetric: the mean over the positions whose differences are all finite,
        NaN if there are none.
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
