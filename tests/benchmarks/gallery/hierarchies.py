"""Hierarchies as people write them: centred, with little data and with much."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pymc as pm
import pytensor.tensor as pt

from registry import Registry, batched
from scipy import special

from .conjugate import mixed
from .exact import Moments, marginal_process, penalised_spline, trend, weighted
from .posteriordb import ORIGIN, data

HIERARCHIES = Registry()
# The reference draws are those of the other writing
ORIGIN["eight_schools_centred"] = ORIGIN["eight_schools_noncentered"]
# Of a funnel without data only the log scale has moments that draws can tell
FUNNEL: Moments = {"v": (0.0, 3.0)}


@HIERARCHIES.add
def eight_schools_centred() -> None:
    """Coaching in eight schools, whose common scale may be near zero."""
    d = data(ORIGIN["eight_schools_centred"])
    mu = pm.Normal("mu", 0, 5)
    tau = pm.HalfCauchy("tau", 5)
    theta = pm.Normal("theta", mu, tau, shape=8)
    pm.Normal("y", theta, d["sigma"], observed=d["y"])


def funnel(dimension: int) -> None:
    """Return Neal's funnel."""
    v = pm.Normal("v", 0, 3)
    pm.Normal("x", 0, pt.exp(v / 2), shape=dimension)


@HIERARCHIES.add
def funnel_of_10() -> None:
    """Neal's funnel: a log scale and nine elements."""
    funnel(9)


@HIERARCHIES.add
def funnel_of_100() -> None:
    """The same with 99 elements."""
    funnel(99)


@HIERARCHIES.add
def funnel_in_a_funnel() -> None:
    """A log scale whose own scale is in a funnel."""
    v = pm.Normal("v", 0, 3)
    w = pm.Normal("w", 0, pt.exp(v / 4))
    pm.Normal("x", 0, pt.exp(w / 4), shape=5)


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


def effects(
    name: str, mean: pt.TensorLike, sd: pt.TensorLike, shape: int, *, centred: bool
) -> pt.TensorVariable:
    """Return normal effects in one of the writings."""
    if centred:
        return pm.Normal(name, mean, sd, shape=shape)
    return pm.Deterministic(name, mean + sd * pm.Normal(f"z_{name}", 0, 1, shape=shape))


def levels(batch_size: int | None, *, centred: bool) -> None:
    """Write a logistic regression on a predictor, with effects of regions and of their groups."""
    region, group, x, y = rows_of_three_levels()
    g, u, seen = batched(batch_size, group, x, y)
    mu = pm.Normal("mu", 0, 2)
    between_regions = pm.HalfNormal("between_regions", 1)
    between_groups = pm.HalfNormal("between_groups", 1)
    slope = pm.Normal("slope", 0, 1)
    a = effects("region", mu, between_regions, int(region.max()) + 1, centred=centred)
    b = effects("group", a[region], between_groups, len(region), centred=centred)
    pm.Bernoulli("y", logit_p=b[g] + slope * u, observed=seen, total_size=len(y))


@HIERARCHIES.add
def three_levels(batch_size: int | None = 500) -> None:
    """Return 20 regions of 10 groups of 1,000 rows each, a logistic regression."""
    levels(batch_size, centred=True)


NOISE_OF_FEW = 2.1


def rows_of_few_groups() -> tuple[np.ndarray, np.ndarray]:
    """Return the group of each of 4,000 rows, of which there are eight, and the response."""
    rng = np.random.default_rng(0)
    group = rng.integers(0, 8, 4000)
    return group, 0.5 + rng.normal(0, NOISE_OF_FEW, len(group))


@HIERARCHIES.add
def few_groups(batch_size: int | None = 100) -> None:
    """Return groups without effects: the sd of these is near zero, and batches say little of it."""
    group, y = rows_of_few_groups()
    g, seen = batched(batch_size, group, y)
    level, sd = pm.Normal("level", 0, 1), pm.HalfNormal("sd", 1)
    effect = sd * pm.Normal("z", 0, 1, shape=8)
    pm.Normal("y", level + effect[g], NOISE_OF_FEW, observed=seen, total_size=len(y))


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


WALKS, LENGTH, NOISE_OF_WALKS = 4, 60, 0.5


def rows_of_walks() -> np.ndarray:
    """Return noisy values of walks, each of which has another step."""
    rng = np.random.default_rng(41)
    steps = np.array([0.05, 0.2, 0.5, 1.0])[:, None] * rng.normal(size=(WALKS, LENGTH - 1))
    first = rng.normal(size=(WALKS, 1))
    walks = np.cumsum(np.hstack([first, steps]), axis=1)
    return np.asarray(walks + NOISE_OF_WALKS * rng.normal(size=walks.shape))


@HIERARCHIES.add
def walks_of_own_steps() -> None:
    """Return random walks, of each of which the sd of the steps is learned."""
    s = pm.HalfNormal("s", 1, shape=WALKS)
    first = pm.Normal.dist(0, 1)
    w = pm.GaussianRandomWalk("w", 0, s, init_dist=first, shape=(WALKS, LENGTH))
    pm.Normal("y", w, NOISE_OF_WALKS, observed=rows_of_walks())


def moments_of_walks() -> Moments:
    """Given the sd of its steps a walk is normal: an integral over it for each walk."""
    time = np.arange(LENGTH)
    sd = np.exp(np.linspace(-12, 1.5, 1001))
    walk, noise = np.minimum.outer(time, time), NOISE_OF_WALKS**2 * np.eye(LENGTH)
    laws = []
    for scale in sd:
        prior = 1 + scale**2 * walk
        gain = np.linalg.solve(prior + noise, prior)
        log = np.linalg.slogdet(prior + noise)[1] + scale**2 - 2 * np.log(scale)
        laws.append((log, np.linalg.inv(prior + noise), gain, np.diag(prior - prior @ gain)))
    logs, precisions, gains, variances = (np.array(part) for part in zip(*laws, strict=True))
    of_each = []
    for y in rows_of_walks():
        weight = special.softmax(-(logs + np.einsum("i,sij,j->s", y, precisions, y)) / 2)
        of_each.append((mixed(weight, sd, 0), mixed(weight, y @ gains, variances)))
    of_s, of_w = (np.array(part) for part in zip(*of_each, strict=True))
    return {"s": tuple(of_s.T), "w": tuple(of_w.swapaxes(0, 1))}


PAIRS_SEEN, TURN = 60, (0.6, 0.2)


def rows_of_turned_pairs() -> np.ndarray:
    """Return pairs of effects, long along one diagonal, with noise."""
    rng = np.random.default_rng(42)
    cosine, sine = np.cos(TURN[0]), np.sin(TURN[0])
    turn = np.array([[cosine, -sine], [sine, cosine]])
    effects = rng.normal(size=(PAIRS_SEEN, 2)) * [1.5, 0.5] @ turn.T
    return np.asarray(effects + rng.normal(size=effects.shape))


@HIERARCHIES.add
def turned_pairs() -> None:
    """Return pairs of effects whose covariance is written by its axes and their sds."""
    angle, s = pm.Normal("angle", *TURN), pm.HalfNormal("s", 1, shape=2)
    cosine, sine = pt.cos(angle), pt.sin(angle)
    root = pt.stacklists([[cosine, -sine], [sine, cosine]]) * s
    x = pm.MvNormal("x", np.zeros(2), cov=root @ root.T, shape=(PAIRS_SEEN, 2))
    pm.Normal("y", x, 1, observed=rows_of_turned_pairs())


def moments_of_turned_pairs() -> Moments:
    """Given the covariance the effects are normal: an integral over the three that it has."""
    y = rows_of_turned_pairs()
    middles = (np.arange(60) + 0.5) / 60
    grid = np.meshgrid(TURN[0] + 2 * (middles - 0.5), 2.5 * middles, 1.5 * middles)
    angle, *s = (of_each.ravel() for of_each in grid)
    cosine, sine = np.cos(angle), np.sin(angle)
    root = np.moveaxis(
        np.array([[cosine * s[0], -sine * s[1]], [sine * s[0], cosine * s[1]]]), -1, 0
    )
    prior = root @ root.mT
    precision = np.linalg.inv(prior + np.eye(2))
    log = PAIRS_SEEN * np.linalg.slogdet(precision)[1] - np.sum(precision * (y.T @ y), axis=(1, 2))
    weight = special.softmax((log - ((angle - TURN[0]) / TURN[1]) ** 2 - s[0] ** 2 - s[1] ** 2) / 2)
    shrunk = precision @ prior
    of_x = np.moveaxis(y @ shrunk, 0, -1), np.diagonal(prior - prior @ shrunk, axis1=1, axis2=2)
    x = [[weighted(pair[k], of_x[1][:, k], weight) for k in range(2)] for pair in of_x[0]]
    return {
        "angle": weighted(angle, np.zeros_like(angle), weight),
        "s": tuple(
            np.transpose([weighted(of_each, np.zeros_like(angle), weight) for of_each in s])
        ),
        "x": tuple(np.moveaxis(x, -1, 0)),
    }


# Those whose moments have a formula, or integrals over a few others
EXACT: dict[str, Callable[[], Moments]] = {
    "funnel_of_10": lambda: FUNNEL,
    "funnel_of_100": lambda: FUNNEL,
    "funnel_in_a_funnel": lambda: FUNNEL,
    "few_groups": moments_of_few_groups,
    "marginal_process": marginal_process,
    "penalised_spline": penalised_spline,
    "trend": trend,
    "turned_pairs": moments_of_turned_pairs,
    "walks_of_own_steps": moments_of_walks,
}
