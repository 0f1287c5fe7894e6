"""Step 4 of tuning: the variance of gradient estimates, and how many batches to average."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from pymc_sgmcmc.tuning.surface import Surface

__all__ = ["GradientNoise", "measured_noise"]

_POINTS = 16
_LEAST_BATCHES = 512
_LARGEST = 2**24


@dataclass(frozen=True)
class GradientNoise:
    """Variance of one batch's gradient in whitened coordinates.

    Attributes
    ----------
    plain : ndarray
        Of the batch's gradient as it is, shape (d,).
    controlled : ndarray
        With the centre as the anchor, shape (d,).
    rotation : ndarray or None
        Axes of the noise, shape (d, d): the coordinates in which the two are measured.
    """

    plain: np.ndarray
    controlled: np.ndarray
    rotation: np.ndarray | None


def measured_noise(
    surface: Surface,
    centre: np.ndarray,
    root: np.ndarray,
    rng: np.random.Generator,
    spread: np.ndarray | None = None,
    *,
    rotated: bool = True,
) -> GradientNoise:
    """Measure the noise at points of the bulk.

    Parameters
    ----------
    surface : Surface
        The potential.
    centre : ndarray
        m, shape (d,).
    root : ndarray
        L, shape (d, d), or its diagonal, shape (d,).
    rng : numpy.random.Generator
        For points and batches.
    spread : ndarray, optional
        The L of the bulk where that of the coordinates is another one.
    rotated : bool
        Whether a dense L may be rotated to the axes of the noise.
    """
    d = len(centre)
    if root.ndim == 1:
        bulk = root if spread is None else spread
        plain, controlled = _variances(surface, centre, root, bulk, None, rng, _LEAST_BATCHES)
        return GradientNoise(plain, controlled, None)
    batches = max(_LEAST_BATCHES, 4 * d)
    if not rotated:
        plain, controlled = _variances(surface, centre, root, root, np.eye(d), rng, batches)
        return GradientNoise(plain, controlled, None)
    covariance = np.zeros((d, d))
    for _, controlled_g in _samples(surface, centre, root, rng, batches):
        noise = (controlled_g - controlled_g.mean(axis=0)) @ root
        covariance += noise.T @ noise / (len(noise) - 1) / _POINTS
    _, rotation = np.linalg.eigh(covariance)
    # Fresh batches: along axes chosen to fit the old ones, those would show too little
    plain, controlled = _variances(surface, centre, root, root, rotation, rng, batches)
    return GradientNoise(plain, controlled, rotation)


def _samples(
    surface: Surface,
    centre: np.ndarray,
    spread: np.ndarray,
    rng: np.random.Generator,
    batches: int,
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield, for each point, gradients of batches and their differences from the centre's."""
    d = len(centre)
    each = int(np.clip(_LARGEST // d, 2, batches // _POINTS))
    for e in rng.standard_normal((_POINTS, d)):
        x = centre + (spread @ e if spread.ndim == 2 else spread * e)
        rows = surface.draw_rows(rng, each)
        both = surface.batch_gradient(np.repeat([x, centre], each, axis=0), np.tile(rows, (2, 1)))
        finite = np.all(np.isfinite(both[:each]), axis=1)
        if finite.sum() >= 2:
            yield both[:each][finite], (both[:each] - both[each:])[finite]


def _variances(
    surface: Surface,
    centre: np.ndarray,
    root: np.ndarray,
    spread: np.ndarray,
    rotation: np.ndarray | None,
    rng: np.random.Generator,
    batches: int,
) -> tuple[np.ndarray, np.ndarray]:
    def whitened(g: np.ndarray) -> np.ndarray:
        return g * root if rotation is None else g @ root @ rotation

    both = [
        (np.var(whitened(p), axis=0, ddof=1), np.var(whitened(c), axis=0, ddof=1))
        for p, c in _samples(surface, centre, spread, rng, batches)
    ]
    plain, controlled = np.mean(both, axis=0)
    return plain, controlled
