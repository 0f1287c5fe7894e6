"""Effects of thousands of groups, of which a batch touches a few, with exact posteriors."""

from __future__ import annotations

from functools import cache

import numpy as np
import pymc as pm

from registry import Registry, batched
from scipy.sparse import coo_array

from .exact import Moments

__all__ = ["MANY", "moments_of_many"]

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


def groups(name: str, batch_size: int | None) -> None:
    """Return the hierarchy y ~ N(theta_g, 1), theta_g ~ N(mu, 1), mu ~ N(0, 10)."""
    group, y = rows(name)
    g, seen = batched(batch_size, group, y)
    mu = pm.Normal("mu", 0, 10)
    theta = pm.Normal("theta", mu, 1, shape=SIZES[name][0])
    pm.Normal("y", theta[g], 1, observed=seen, total_size=len(y))


@MANY.add
def groups_5000(batch_size: int | None = 1_000) -> None:
    """Return 5,000 groups of 200 rows."""
    groups("groups_5000", batch_size)


@MANY.add
def groups_50000(batch_size: int | None = 1_000) -> None:
    """Return 50,000 groups of 20 rows."""
    groups("groups_50000", batch_size)


@MANY.add
def groups_of_power_law(batch_size: int | None = 1_000) -> None:
    """Return 5,000 groups of none to some hundred thousand rows."""
    groups("groups_of_power_law", batch_size)


# Groups, items and rows of crossed effects, and the sds of their effects
CROSSED = 2_000, 500, 100_000, 1.0, 0.5


@cache
def crossed_rows() -> tuple[np.ndarray, ...]:
    """Return group, item, covariate and value of each row; sizes of groups are a power law's."""
    groups, items, count, sd_a, sd_b = CROSSED
    rng = np.random.default_rng(6)
    share = 1 / np.arange(1, groups + 1)
    group = rng.choice(groups, count, p=share / share.sum())
    item = rng.integers(items, size=count)
    x = rng.normal(size=groups)[group]
    effects = sd_a * rng.normal(size=groups)[group] + sd_b * rng.normal(size=items)[item]
    return group, item, x, 2 + 0.7 * x + effects + rng.normal(size=count)


@MANY.add
def crossed_thousands(batch_size: int | None = 1_000) -> None:
    """Return y ~ N(mu + beta x_g + a_g + b_i, 1): ridges between a few and thousands."""
    group, item, x, y = crossed_rows()
    groups, items, count, sd_a, sd_b = CROSSED
    g, i, covariate, seen = batched(batch_size, group, item, x, y)
    mu = pm.Normal("mu", 0, 5)
    beta = pm.Normal("beta", 0, 5)
    a = pm.Normal("a", 0, sd_a, shape=groups)
    b = pm.Normal("b", 0, sd_b, shape=items)
    mean = mu + beta * covariate + a[g] + b[i]
    pm.Normal("y", mean, 1, observed=seen, total_size=count)


def moments_of_many(name: str) -> Moments:
    """Return the exact moments of one of these models."""
    return moments_of_crossed() if name == "crossed_thousands" else moments_of_groups(name)


def moments_of_crossed() -> Moments:
    """Return the exact moments: a linear model with normal priors."""
    group, item, x, y = crossed_rows()
    groups, items, count, sd_a, sd_b = CROSSED
    row, one = np.arange(count), np.ones(count)
    columns = [(0 * row, one), (0 * row + 1, x), (2 + group, one), (2 + groups + item, one)]
    design = sum(coo_array((v, (row, k)), (count, 2 + groups + items)) for k, v in columns)
    prior = np.repeat([1 / 25, sd_a**-2, sd_b**-2], [2, groups, items])
    covariance = np.linalg.inv((design.T @ design).toarray() + np.diag(prior))
    mean, sd = covariance @ (design.T @ y), np.sqrt(np.diag(covariance))
    ends = [0, 1, 2, 2 + groups, 2 + groups + items]
    return {
        name: (mean[a:b].squeeze(), sd[a:b].squeeze())
        for name, a, b in zip(("mu", "beta", "a", "b"), ends, ends[1:], strict=False)
    }


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
