"""A statistic of many parameters, of some of them at a time."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

__all__ = ["in_parts"]

# Bytes of draws processed together; a statistic needs about ten times as much
_TOGETHER = 2**24


def in_parts(statistic: Callable[[np.ndarray], np.ndarray], draws: np.ndarray) -> np.ndarray:
    """Return a statistic of draws (d, chains, n), NaN where a draw is, in bounded memory.

    ``statistic`` maps draws without NaN, shape (k, chains, n), to shape (k,).
    """
    found = np.full(len(draws), np.nan)
    step = max(1, _TOGETHER // max(1, draws[:1].size * draws.dtype.itemsize))
    for k in range(0, len(draws), step):
        part = draws[k : k + step]
        known = ~np.isnan(part).any(axis=(1, 2))
        if known.any():
            found[k : k + step][known] = statistic(part[known])
    return found
