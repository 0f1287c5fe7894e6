"""What batches say at opposite positions, summed over pairs of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class PairSums:
    """Sums over pairs of gradients g₊ and g₋ at opposite positions."""

    count: int  # finite pairs; the others are left out
    middle: np.ndarray  # of (g₊ + g₋) / 2, shape (d,)
    middle_squared: np.ndarray  # of its square, shape (d,)
    change: np.ndarray  # of (g₊ − g₋) times the signs, shape (d,)
    change_squared: np.ndarray  # of its square, shape (d,)

    def __add__(self, other: PairSums) -> PairSums:
        """Return the sums over the pairs of both."""
        both = zip(vars(self).values(), vars(other).values(), strict=True)
        return PairSums(*(a + b for a, b in both))


def summed_pairs(
    batch_gradient: Callable[[np.ndarray, np.ndarray], np.ndarray],
    point: np.ndarray,
    width: np.ndarray,
    signs: np.ndarray,
    rows: np.ndarray,
) -> PairSums:
    """Sum gradients at ``point ± signs width``, with point and width (d,) and signs of ±1, (P, d).

    ``batch_gradient`` maps positions and rows to estimates of ∇U, shape (P, d). ``rows`` are
    (P, minibatches), or (P, m, minibatches) for the mean of m batches.
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
