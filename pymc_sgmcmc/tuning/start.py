"""Step 1 of tuning: a jittered start, so that chains do not share one."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

__all__ = ["jittered"]

# Halvings of the jitter before the unjittered start is the only one left, and jittered starts that
# are tried where it is none, as many as PyMC tries
_MOST_HALVINGS = 10
_MOST_OTHERS = 10


def jittered(
    start: np.ndarray,
    rng: np.random.Generator,
    potential: Callable[[np.ndarray], np.ndarray],
    width: float = 1.0,
) -> np.ndarray | None:
    """Move a start by up to ``width`` in each coordinate.

    The jitter is halved until the potential and its gradient are finite and the potential is
    not absurdly higher than at the start itself. Where they are not finite at the start, as where
    the probability of a single row underflows there, other jittered starts are tried.

    Parameters
    ----------
    start : ndarray
        φ, shape (d,).
    rng : numpy.random.Generator
        The chain's.
    potential : callable
        Maps positions (P, d) to potentials (P,), infinite where a gradient is not finite.
    width : float
        0 for a start that shall stay where it is.

    Returns
    -------
    ndarray or None
        The moved start, or None if the potential is finite neither at the start nor at others.
    """
    jitter = width * rng.uniform(-1, 1, size=start.shape)
    at_start = potential(start[None])[0]
    if not np.isfinite(at_start):
        others = (start + width * rng.uniform(-1, 1, start.shape) for _ in range(_MOST_OTHERS))
        tried = (x for x in others if width and np.isfinite(potential(x[None])[0]))
        return next(tried, None)
    highest = min(2 * abs(float(at_start)) + 1000, np.finfo(float).max)
    for k in range(_MOST_HALVINGS):
        moved = start + jitter * 2.0**-k
        if potential(moved[None])[0] <= highest:
            return moved
    return start
