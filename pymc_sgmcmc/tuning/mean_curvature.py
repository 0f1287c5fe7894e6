"""The mean curvature of a density with kinks, by regression of gradients on positions."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

__all__ = ["mean_curvature"]

# Pairs whose gradient changes by more than so many medians get less weight: a scale multiplies it
# there, and L would become far too short
_STEEP = 1.2


def mean_curvature(
    gradients: Callable[[np.ndarray], np.ndarray],  # at (2 pairs, d) positions, pairs adjacent
    centre: np.ndarray,
    root: np.ndarray,
    rng: np.random.Generator,
    pairs: int,
    *,
    batches: bool = False,  # each pair has a batch of its own
) -> np.ndarray:
    r"""Return L'HL, H the mean Hessian of U over N(m, LL'), NaN if few gradients are finite.

    By Stein's identity it is :math:`E[L^\top \nabla U(m + L e)\, e^\top]`, also with all curvature
    at kinks. Pairs of single ``batches`` count alike, as few of them may inform a coordinate.
    """
    d = len(centre)
    e = rng.standard_normal((pairs, d))
    moves = e @ root.T
    g = gradients(np.stack([centre + moves, centre - moves], axis=1).reshape(-1, d))
    with np.errstate(invalid="ignore", over="ignore"):
        change = (g[::2] - g[1::2]) / 2 @ root
    finite = np.all(np.isfinite(change), axis=1)
    if np.sum(finite) < 2 * d:
        return np.full((d, d), np.nan)
    e, change = e[finite], change[finite]
    if not batches:
        slope = np.linalg.norm(change, axis=1) / np.linalg.norm(e, axis=1)
        # Between kinks gradients may not change at all
        most = _STEEP * np.median(slope) / np.maximum(slope, np.finfo(float).tiny)
        weight = np.minimum(1, most)[:, None]
        e, change = weight * e, weight * change
    # Unlike the mean of products, a regression is exact for a normal density
    found, *_ = np.linalg.lstsq(e, change)
    return (found + found.T) / 2
