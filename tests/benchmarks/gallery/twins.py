"""Thousands of effects of two rows each, whose errors have one sd."""

from __future__ import annotations

from functools import cache

import numpy as np
import pymc as pm

from registry import batched
from scipy.special import softmax

from .conjugate import mixed
from .exact import Moments
from .many import MANY

__all__ = ["EFFECTS_OF_TWO_ROWS"]

# Effects of two rows each, and the sd of the effects
TWINS, SD_OF_TWINS = 20_000, 3.0


@cache
def rows_of_twins() -> np.ndarray:
    """Return the values of each group, shape (groups, 2)."""
    rng = np.random.default_rng(7)
    return rng.normal(rng.normal(0, SD_OF_TWINS, (TWINS, 1)), 1.0, (TWINS, 2))


@MANY.add
def groups_of_two(batch_size: int | None = None) -> None:
    """Return 20,000 effects of two rows each, whose errors have one sd that is learned."""
    group, y = np.repeat(np.arange(TWINS), 2), rows_of_twins().ravel()
    g, seen = batched(batch_size, group, y)
    sigma = pm.HalfNormal("sigma", 10)
    theta = pm.Normal("theta", 0, SD_OF_TWINS, shape=TWINS)
    pm.Normal("y", theta[g], sigma, observed=seen, total_size=len(y))


def moments_of_twins() -> Moments:
    """Given the errors' sd the effects are independent and normal: an integral over it alone."""
    y = rows_of_twins()
    total, within = y.sum(axis=1), np.sum((y - y.mean(axis=1, keepdims=True)) ** 2)
    guess = np.sqrt(within / TWINS)
    sigma = guess * np.exp(np.linspace(-10, 10, 401) / np.sqrt(2 * TWINS))
    prior, precision = SD_OF_TWINS**-2, 2 / sigma**2
    of_means = 1 / prior + 1 / precision
    log = -TWINS * np.log(sigma) - within / sigma**2 / 2
    log -= (TWINS * np.log(of_means) + np.sum((total / 2) ** 2) / of_means) / 2
    # The prior, and ds = s d log s
    log += np.log(sigma) - sigma**2 / 200
    kept = 1 / (prior + precision)
    effects = (kept / sigma**2)[:, None] * total
    return {
        "sigma": mixed(weight := softmax(log), sigma, 0),
        "theta": mixed(weight, effects, kept[:, None]),
    }


EFFECTS_OF_TWO_ROWS = {"groups_of_two": moments_of_twins}
