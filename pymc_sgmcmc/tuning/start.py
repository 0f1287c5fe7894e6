"""Step 1 of tuning: a jittered start, so that chains do not share one."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

__all__ = ["jittered"]

# Lengths of the jitter that are tried before the unjittered start is used, or jittered starts where
# that is not finite, as many as PyMC tries
_MOST_TRIES = 10


def jittered(
    start: np.ndarray,
    rng: np.random.Generator,
    potential: Callable[[np.ndarray], np.ndarray],  # (P, d) to (P,), inf if ∇U is not finite
    width: float = 1.0,  # 0 keeps the start
) -> np.ndarray | None:
    """Return a start moved by up to ``width`` in each coordinate, (d,), or None if none is finite.

    The jitter is halved until the potential is not absurdly above the start's; other starts are
    tried if that is infinite, as where the probability of a single row underflows.
    """
    jitter = width * rng.uniform(-1, 1, size=start.shape)
    at_start = potential(start[None])[0]
    if not np.isfinite(at_start):
        others = (start + width * rng.uniform(-1, 1, start.shape) for _ in range(_MOST_TRIES))
        tried = (x for x in others if width and np.isfinite(potential(x[None])[0]))
        return next(tried, None)
    highest = min(2 * abs(float(at_start)) + 1000, np.finfo(float).max)
    for k in range(_MOST_TRIES):
        moved = start + jitter * 2.0**-k
        if potential(moved[None])[0] <= highest:
            return moved
    return start
