"""Hierarchies of thousands of groups, of which a batch touches a few, with exact posteriors."""

from __future__ import annotations

from functools import cache

import numpy as np
import pymc as pm

from .exact import Moments
from .registry import Registry

__all__ = ["MANY", "moments_of_groups"]

MANY = Registry()
ROWS = 1_000_000
SIZES: dict[str, tuple[int, float | None]] = {
    "groups_5000": (5_000, None),
    "groups_50000": (50_000, None),
    # Sizes from a power law: the largest group has a tenth of all rows, hundreds have none
    "groups_of_power_law": (5_000, 1.0),
}


@cache
def rows(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return group and value of each row."""
    count, power = SIZES[name]
    rng = np.random.default_rng(5)
    if power is None:
        group = np.repeat(np.arange(count), ROWS // count)
    else:
        share = rng.pareto(power, count)
        group = rng.choice(count, ROWS, p=share / share.sum())
    group = rng.permutation(group)
    return group, rng.normal(2, 1, count)[group] + rng.normal(size=ROWS)


def groups(name: str, batch_size: int | None) -> pm.Model:
    """Return the hierarchy y ~ N(theta_g, 1), theta_g ~ N(mu, 1), mu ~ N(0, 10)."""
    group, y = rows(name)
    with pm.Model() as model:
        g, seen = group, y
        if batch_size is not None:
            g, seen = pm.Minibatch(group, y, batch_size=batch_size)
        mu = pm.Normal("mu", 0, 10)
        theta = pm.Normal("theta", mu, 1, shape=SIZES[name][0])
        pm.Normal("y", theta[g], 1, observed=seen, total_size=len(y))
    return model


@MANY.add
def groups_5000(batch_size: int | None = 1_000) -> pm.Model:
    """Return 5,000 groups of 200 rows."""
    return groups("groups_5000", batch_size)


@MANY.add
def groups_50000(batch_size: int | None = 1_000) -> pm.Model:
    """Return 50,000 groups of 20 rows."""
    return groups("groups_50000", batch_size)


@MANY.add
def groups_of_power_law(batch_size: int | None = 1_000) -> pm.Model:
    """Return 5,000 groups of none to some hundred thousand rows."""
    return groups("groups_of_power_law", batch_size)


def moments_of_groups(name: str) -> Moments:
    """Return the exact moments: given mu the groups are independent and normal."""
    group, y = rows(name)
    count = np.bincount(group, minlength=SIZES[name][0])
    means = np.bincount(group, y, minlength=len(count)) / np.maximum(count, 1)
    # A mean of n rows is N(mu, 1 + 1 / n)
    weight = count / (count + 1)
    variance = 1 / (1 / 100 + weight.sum())
    mu = variance * weight @ means
    kept = 1 / (1 + count)
    theta = kept * mu + (1 - kept) * means
    spread = np.sqrt(kept + kept**2 * variance)
    return {"mu": (mu, np.sqrt(variance)), "theta": (theta, spread)}
