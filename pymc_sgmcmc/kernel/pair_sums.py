"""What batches say at opposite positions, summed over pairs of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

__all__ = ["PairSums", "summed_pairs"]


@dataclass(frozen=True)
class PairSums:
    """Sums over pairs of gradients g₊ and g₋ at opposite positions, each from its own batches.

    Attributes
    ----------
    count : int
        How many pairs were finite; the others are left out.
    middle, middle_squared : ndarray
        Of (g₊ + g₋) / 2 and its square, shape (d,).
    change, change_squared : ndarray
        Of (g₊ − g₋) times the signs, and of its square, shape (d,).
    """

    count: int
    middle: np.ndarray
    middle_squared: np.ndarray
    change: np.ndarray
    change_squared: np.ndarray


def summed_pairs(
    batch_gradient: Callable[[np.ndarray, np.ndarray], np.ndarray],
    point: np.ndarray,
    width: np.ndarray,
    signs: np.ndarray,
    rows: np.ndarray,
) -> PairSums:
    """Sum gradients that a function gives for positions (P, d) and their batches.

    Parameters
    ----------
    batch_gradient : callable
        Maps positions and rows to estimates of ∇U, shape (P, d).
    point, width : ndarray
        The positions are ``point ± signs width``, shape (d,).
    signs : ndarray
        Of ±1, shape (P, d).
    rows : ndarray
        A batch for each pair, shape (P, minibatches), or m of them to be averaged, shape
        (P, m, minibatches).
    """
    move = signs * width
    several = np.moveaxis(rows, 1, 0) if rows.ndim == 3 else [rows]
    above, below = (
        np.mean([batch_gradient(point + side * move, some) for some in several], axis=0)
        for side in (1, -1)
    )
    finite = np.all(np.isfinite(above) & np.isfinite(below), axis=1)
    middle, change = (above + below)[finite] / 2, (above - below)[finite]
    return PairSums(
        int(finite.sum()),
        middle.sum(axis=0),
        np.sum(middle**2, axis=0),
        np.sum(change * signs[finite], axis=0),
        np.sum(change**2, axis=0),
    )
