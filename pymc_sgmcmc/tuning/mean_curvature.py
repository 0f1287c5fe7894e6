"""The mean curvature of a density with kinks, by regression of gradients on positions."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

__all__ = ["mean_curvature"]

# Pairs along which the gradient changes this many times more than in the middle count less
_STEEP = 1.2


def mean_curvature(
    gradients: Callable[[np.ndarray], np.ndarray],
    centre: np.ndarray,
    root: np.ndarray,
    rng: np.random.Generator,
    pairs: int,
    *,
    batches: bool = False,
) -> np.ndarray:
    r"""Return L'HL, H the Hessian of U averaged over N(m, LL').

    By Stein's identity :math:`E[L^\top H L] = E[L^\top \nabla U(m + L e)\, e^\top]`, which needs
    no second derivative: it holds where all curvature is at kinks. Differences of gradients over
    a part of an sd meet few of them, and along coordinates that data tie together none. The
    regression of :math:`L^\top (\nabla U(m + Le) - \nabla U(m - Le)) / 2` on e has no errors for a
    normal density. A few pairs that reach where a scale multiplies the gradient would be all that
    counts, and L would become far too short: they have less weight. Pairs with a batch of their own
    have equal weights, as few batches may hold all that is known of a coordinate.

    Parameters
    ----------
    gradients : callable
        ∇U at positions, shape (2 pairs, d), of which neighbours are a pair.
    centre, root : ndarray
        m, shape (d,), and L, shape (d, d).
    rng : numpy.random.Generator
        For e.
    pairs : int
        How many pairs.
    batches : bool
        Whether each pair has a batch of its own.

    Returns
    -------
    ndarray
        Shape (d, d), symmetric; NaN where gradients of fewer than 2 d pairs are finite.
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
    found, *_ = np.linalg.lstsq(e, change)
    return (found + found.T) / 2
