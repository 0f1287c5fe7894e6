"""Hierarchies as people write them: centred, with little data and with much."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pymc as pm
import pytensor.tensor as pt

from scipy import special

from .exact import Moments, trend, weighted
from .posteriordb import ORIGIN, data
from .registry import Registry

HIERARCHIES = Registry()
# The reference draws are those of the other writing
ORIGIN["eight_schools_centred"] = ORIGIN["eight_schools_noncentered"]
# Of a funnel without data only the log scale has moments that draws can tell
FUNNEL: Moments = {"v": (0.0, 3.0)}


@HIERARCHIES.add
def eight_schools_centred() -> pm.Model:
    """Coaching in eight schools, whose common scale may be near zero."""
    d = data(ORIGIN["eight_schools_centred"])
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 5)
        tau = pm.HalfCauchy("tau", 5)
        theta = pm.Normal("theta", mu, tau, shape=8)
        pm.Normal("y", theta, d["sigma"], observed=d["y"])
    return model


def funnel(dimension: int) -> pm.Model:
    """Return Neal's funnel."""
    with pm.Model() as model:
        v = pm.Normal("v", 0, 3)
        pm.Normal("x", 0, pt.exp(v / 2), shape=dimension)
    return model


@HIERARCHIES.add
def funnel_of_10() -> pm.Model:
    """Neal's funnel: a log scale and nine elements."""
    return funnel(9)


@HIERARCHIES.add
def funnel_of_100() -> pm.Model:
    """The same with 99 elements."""
    return funnel(99)


@HIERARCHIES.add
def funnel_in_a_funnel() -> pm.Model:
    """A log scale whose own scale is in a funnel."""
    with pm.Model() as model:
        v = pm.Normal("v", 0, 3)
        w = pm.Normal("w", 0, pt.exp(v / 4))
        pm.Normal("x", 0, pt.exp(w / 4), shape=5)
    return model


def rows_of_three_levels() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return the region of each group, and of each row its group, predictor and response."""
    rng = np.random.default_rng(0)
    regions, groups, rows = 20, 10, 1000
    region = np.repeat(np.arange(regions), groups)
    of_region = 0.5 + 0.8 * rng.normal(size=regions)
    of_group = of_region[region] + 0.5 * rng.normal(size=regions * groups)
    group = np.repeat(np.arange(regions * groups), rows)
    x = rng.normal(size=len(group))
    chance = 1 / (1 + np.exp(-of_group[group] - 0.7 * x))
    return region, group, x, (rng.random(len(group)) < chance).astype("int32")


@HIERARCHIES.add
def three_levels(batch_size: int | None = 500) -> pm.Model:
    """Return 20 regions of 10 groups of 1,000 rows each, a logistic regression."""
    region, group, x, y = rows_of_three_levels()
    with pm.Model() as model:
        if batch_size is None:
            g, u, seen = group, x, y
        else:
            g, u, seen = pm.Minibatch(group, x, y, batch_size=batch_size)
        mu = pm.Normal("mu", 0, 2)
        between_regions = pm.HalfNormal("between_regions", 1)
        between_groups = pm.HalfNormal("between_groups", 1)
        slope = pm.Normal("slope", 0, 1)
        a = pm.Normal("region", mu, between_regions, shape=int(region.max()) + 1)
        b = pm.Normal("group", a[region], between_groups, shape=len(region))
        pm.Bernoulli("y", logit_p=b[g] + slope * u, observed=seen, total_size=len(y))
    return model


NOISE_OF_FEW = 2.1


def rows_of_few_groups() -> tuple[np.ndarray, np.ndarray]:
    """Return the group of each of 4,000 rows, of which there are eight, and the response."""
    rng = np.random.default_rng(0)
    group = rng.integers(0, 8, 4000)
    return group, 0.5 + rng.normal(0, NOISE_OF_FEW, len(group))


@HIERARCHIES.add
def few_groups(batch_size: int | None = 100) -> pm.Model:
    """Return groups without effects: the sd of these is near zero, and batches say little of it."""
    group, y = rows_of_few_groups()
    with pm.Model() as model:
        g, seen = pm.Minibatch(group, y, batch_size=batch_size) if batch_size else (group, y)
        level, sd = pm.Normal("level", 0, 1), pm.HalfNormal("sd", 1)
        effect = sd * pm.Normal("z", 0, 1, shape=8)
        pm.Normal("y", level + effect[g], NOISE_OF_FEW, observed=seen, total_size=len(y))
    return model


def sds_of_few_groups() -> tuple[np.ndarray, ...]:
    """Return sds and their weights, and the level's mean and precision given each of them.

    Given the sd, the groups' means are normal, and the level too.
    """
    group, y = rows_of_few_groups()
    count = np.bincount(group)
    means = np.bincount(group, y) / count
    sd = np.exp(np.linspace(-14, 1.5, 2001))
    precision = 1 / (sd[:, None] ** 2 + NOISE_OF_FEW**2 / count)
    total = precision.sum(axis=1) + 1
    level = precision @ means / total
    evidence = (np.log(precision).sum(axis=1) - precision @ means**2 + level**2 * total) / 2
    # The priors are N(0, 1) and half normal, and ds = s d log s
    log_weight = evidence - np.log(total) / 2 - sd**2 / 2 + np.log(sd)
    return sd, special.softmax(log_weight), level, total


def moments_of_few_groups() -> Moments:
    """Return moments by an integral over the sd."""
    sd, weight, level, precision = sds_of_few_groups()
    return {
        "level": weighted(level, 1 / precision, weight),
        "sd": weighted(sd, np.zeros_like(sd), weight),
    }


# Those whose moments have a formula, or integrals over one or two scales
EXACT: dict[str, Callable[[], Moments]] = {
    "funnel_of_10": lambda: FUNNEL,
    "funnel_of_100": lambda: FUNNEL,
    "funnel_in_a_funnel": lambda: FUNNEL,
    "few_groups": moments_of_few_groups,
    "trend": trend,
}
