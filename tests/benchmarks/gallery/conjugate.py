"""Thousands of rates, slopes and values of a walk, of known laws; a rare event."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import pymc as pm
import pymc.dims as pmd

from scipy import linalg, optimize, special, stats

from .exact import Moments
from .many import MANY

__all__ = ["CONJUGATE"]

GROUPS, STEPS = 5_000, 2_000
COLUMNS, FACTORS = 600, 30
WALKS, LENGTH = 200, 15
# Nodes for each of two others, and how many sds they reach
NODES, REACH = 41, 5.0
SIDES = 1, -1


@cache
def rows_of_an_event() -> tuple[np.ndarray, np.ndarray]:
    """Return an event that one row of a million has, and a value of each row."""
    rng, event = np.random.default_rng(21), np.zeros(1_000_000)
    event[333_333] = 1
    return event, rng.normal(size=len(event))


@MANY.add
def one_row_of_a_million(batch_size: int = 500) -> None:
    """Return a mean, and the effect of an event that one row has."""
    event, y = rows_of_an_event()
    x, seen = pm.Minibatch(event, y, batch_size=batch_size)
    mean = pm.Normal("a", 0, 1) + pm.Normal("b", 0, 1) * x
    pm.Normal("y", mean, 1, observed=seen, total_size=len(y))


def moments_of_an_event() -> Moments:
    """Of normal rows with a normal prior."""
    event, y = rows_of_an_event()
    covariance = np.linalg.inv(np.array([[len(y) + 1, 1], [1, 2]]))
    mean, sd = covariance @ [y.sum(), event @ y], np.sqrt(np.diag(covariance))
    return {"a": (mean[0], sd[0]), "b": (mean[1], sd[1])}


@cache
def rows_of_factors() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return columns that factors make alike, a value of each row, H and what sums over H give.

    The sums are those along H's 30 largest eigenvectors, each in its own sd.
    """
    rng = np.random.default_rng(26)
    loads = rng.normal(size=(FACTORS, COLUMNS)) * (0.8 / FACTORS) ** 0.5
    x = rng.normal(size=(20_000, FACTORS)) @ loads
    x += 0.2**0.5 * rng.normal(size=x.shape)
    y = x @ rng.normal(0, 0.1, COLUMNS) + rng.normal(size=len(x))
    hessian = x.T @ x + np.eye(COLUMNS)
    values, vectors = np.linalg.eigh(hessian)
    return x, y, hessian, (vectors * values**0.5)[:, -FACTORS:]


@MANY.add
def sums_of_correlated_columns(batch_size: int = 200) -> None:
    """Return slopes of 600 columns made of 30 factors, and sums along the narrowest directions."""
    x, y, _, along = rows_of_factors()
    columns, seen = pm.Minibatch(x, y, batch_size=batch_size)
    beta = pm.Normal("beta", 0, 1, shape=COLUMNS)
    pm.Deterministic("sums", beta @ along)
    pm.Normal("y", columns @ beta, 1, observed=seen, total_size=len(y))


def moments_of_factors() -> Moments:
    """Of normal rows with a normal prior."""
    x, y, hessian, along = rows_of_factors()
    covariance = np.linalg.inv(hessian)
    mean, sd = covariance @ (x.T @ y), np.sqrt(np.diag(covariance))
    return {"beta": (mean, sd), "sums": (mean @ along, np.ones(FACTORS))}


@cache
def rows_of_rates() -> tuple[np.ndarray, np.ndarray]:
    """Return group and count of each row, eight of a group."""
    rng = np.random.default_rng(14)
    rate, group = rng.gamma(1.5, 0.5, GROUPS), np.repeat(np.arange(GROUPS), 8)
    return group, rng.poisson(rate[group]).astype("int32")


@MANY.add
def rates_of_groups(batch_size: int = 1_000) -> None:
    """Return counts of 5,000 groups whose rates are a gamma law's, which is learned."""
    group, y = rows_of_rates()
    g, seen = pm.Minibatch(group, y, batch_size=batch_size)
    a, b = pm.Exponential("a", 1), pm.Exponential("b", 1)
    rate = pm.Gamma("rate", a, b, shape=GROUPS)
    pm.Poisson("y", rate[g], observed=seen, total_size=len(y))


@MANY.add
def rates_in_dims() -> None:
    """Return the rates of groups as a model of pymc.dims, of all rows."""
    group, y = rows_of_rates()
    pm.modelcontext(None).add_coords({"group": range(GROUPS), "row": range(len(y))})
    g, seen = pmd.Data("g", group, dims="row"), pmd.Data("seen", y, dims="row")
    a, b = pmd.Exponential("a", 1), pmd.Exponential("b", 1)
    rate = pmd.Gamma("rate", a, b, dims="group")
    pmd.Poisson("y", rate.isel(group=g), observed=seen)


@cache
def rows_of_conversions() -> tuple[np.ndarray, np.ndarray]:
    """Return group and success of each row, twenty of a group."""
    rng = np.random.default_rng(12)
    chance, group = rng.beta(2, 8, GROUPS), np.repeat(np.arange(GROUPS), 20)
    return group, (rng.random(len(group)) < chance[group]).astype("int32")


@MANY.add
def conversions(batch_size: int = 1_000) -> None:
    """Return successes of 5,000 groups whose probabilities are a beta law's, which is learned."""
    group, y = rows_of_conversions()
    g, seen = pm.Minibatch(group, y, batch_size=batch_size)
    a, b = pm.HalfNormal("a", 10), pm.HalfNormal("b", 10)
    chance = pm.Beta("chance", a, b, shape=GROUPS)
    pm.Bernoulli("y", chance[g], observed=seen, total_size=len(y))


@cache
def rows_of_walk() -> tuple[np.ndarray, np.ndarray]:
    """Return step and value of each row, about twenty of a step."""
    rng = np.random.default_rng(24)
    walk, step = np.cumsum(0.15 * rng.normal(size=STEPS)), rng.integers(0, STEPS, 40_000)
    return step, walk[step] + rng.normal(size=len(step))


@MANY.add
def walk_of_thousands(batch_size: int = 500) -> None:
    """Return a random walk of 2,000 steps with noisy rows; both scales are learned."""
    step, y = rows_of_walk()
    t, seen = pm.Minibatch(step, y, batch_size=batch_size)
    s, sigma = pm.HalfNormal("s", 1), pm.HalfNormal("sigma", 2)
    start = pm.Normal.dist(0, 5)
    w = pm.GaussianRandomWalk("w", 0, s, init_dist=start, shape=STEPS)
    pm.Normal("y", w[t], sigma, observed=seen, total_size=len(y))


@cache
def rows_of_panel() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return person, time and value of each row, about ten of each."""
    rng = np.random.default_rng(4)
    walks = np.cumsum(0.3 * rng.normal(size=(WALKS, LENGTH)), axis=1) + rng.normal(size=(WALKS, 1))
    rows = 10 * WALKS * LENGTH
    person, time = rng.integers(0, WALKS, rows), rng.integers(0, LENGTH, rows)
    return person, time, walks[person, time] + rng.normal(size=rows)


@MANY.add
def panel_of_walks(batch_size: int = 500) -> None:
    """Return 200 people's random walks of 15 steps with noisy rows; all scales are learned."""
    person, time, y = rows_of_panel()
    i, t, seen = pm.Minibatch(person, time, y, batch_size=batch_size)
    s, first, sigma = (
        pm.HalfNormal("s", 1),
        pm.HalfNormal("first", 1),
        pm.HalfNormal("sigma", 1),
    )
    start = pm.Normal.dist(0, first)
    w = pm.GaussianRandomWalk("w", 0, s, init_dist=start, shape=(WALKS, LENGTH))
    pm.Normal("y", w[i, t], sigma, observed=seen, total_size=len(y))


Density = Callable[[np.ndarray], float]


def of_few(
    log_density: Density, start: list[float], count: int = NODES
) -> tuple[np.ndarray, np.ndarray]:
    """Return nodes of a density of d numbers on the line, shape (n, d), and their weights."""
    mode = optimize.minimize(lambda x: -log_density(x), start, method="BFGS").x
    d = len(start)
    moves = 1e-3 * np.eye(d)
    curvature = [
        [
            sum(i * j * log_density(mode + i * e + j * f) for i in SIDES for j in SIDES)
            for e in moves
        ]
        for f in moves
    ]
    factor = np.linalg.cholesky(np.linalg.inv(-np.array(curvature) / 4e-6))
    line = np.linspace(-REACH, REACH, count)
    grid = np.stack(np.meshgrid(*[line] * d), axis=-1).reshape(-1, d)
    nodes = mode + grid @ factor.T
    return nodes, special.softmax([log_density(x) for x in nodes])


def mixed(weight: np.ndarray, mean: np.ndarray, variance: np.ndarray | float) -> tuple:
    """Return mean and sd of a mixture along the first axis."""
    centre = np.tensordot(weight, mean, 1)
    return centre, np.sqrt(np.tensordot(weight, (mean - centre) ** 2 + variance, 1))


def moments_of_rates() -> Moments:
    """Given a and b each rate is gamma."""
    group, y = rows_of_rates()
    total, count = np.bincount(group, y, GROUPS), np.bincount(group, minlength=GROUPS)

    def log_density(x: np.ndarray) -> float:
        a, b = np.exp(x)
        each = special.gammaln(a + total) - special.gammaln(a) + a * np.log(b)
        return x.sum() - a - b + np.sum(each - (a + total) * np.log(b + count))

    nodes, weight = of_few(log_density, [0, 0])
    a, b = np.exp(nodes).T[..., None]
    shape, rate = a + total, b + count
    return {
        "a": mixed(weight, a[:, 0], 0),
        "b": mixed(weight, b[:, 0], 0),
        "rate": mixed(weight, shape / rate, shape / rate**2),
    }


def moments_of_conversions() -> Moments:
    """Given a and b each probability is beta."""
    group, y = rows_of_conversions()
    total, count = np.bincount(group, y, GROUPS), np.bincount(group, minlength=GROUPS)

    def log_density(x: np.ndarray) -> float:
        a, b = np.exp(x)
        prior = np.sum(stats.halfnorm(scale=10).logpdf([a, b]) + x)
        each = special.betaln(a + total, b + count - total) - special.betaln(a, b)
        return float(prior + each.sum())

    nodes, weight = of_few(log_density, [1, 2])
    a, b = np.exp(nodes).T[..., None]
    mean = (a + total) / (a + b + count)
    return {
        "a": mixed(weight, a[:, 0], 0),
        "b": mixed(weight, b[:, 0], 0),
        "chance": mixed(weight, mean, mean * (1 - mean) / (a + b + count + 1)),
    }


def moments_of_walk() -> Moments:
    """Given both scales the walk is normal, with a tridiagonal precision."""
    step, y = rows_of_walk()
    count = np.bincount(step, minlength=STEPS)
    mean = np.bincount(step, y, STEPS) / np.maximum(count, 1)
    squares = y @ y - count @ mean**2

    def law(x: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        between, within = np.exp(-2 * x)
        band = np.stack([np.full(STEPS, -between), 2 * between + count * within])
        band[1, 0] += 1 / 25 - between
        band[1, -1] -= between
        factor, linear = linalg.cholesky_banded(band), count * mean * within
        centre = linalg.cho_solve_banded((factor, False), linear)
        log = (STEPS - 1) * np.log(between) / 2 - np.log(factor[1]).sum()
        log += len(y) * np.log(within) / 2 - within * (squares + count @ mean**2) / 2
        return log + linear @ centre / 2, centre, band

    def log_density(x: np.ndarray) -> float:
        s, sigma = np.exp(x)
        return float(law(x)[0] - s**2 / 2 - sigma**2 / 8 + x.sum())

    nodes, weight = of_few(log_density, [-2, 0])
    # Those that matter: of each the walk's variances are a loop over its steps
    kept = weight > 1e-5 * weight.max()
    nodes, weight = nodes[kept], weight[kept] / weight[kept].sum()
    laws = [law(x)[1:] for x in nodes]
    s, sigma = np.exp(nodes).T
    return {
        "s": mixed(weight, s, 0),
        "sigma": mixed(weight, sigma, 0),
        "w": mixed(
            weight,
            np.array([centre for centre, _ in laws]),
            variances(np.array([band for _, band in laws])),
        ),
    }


def moments_of_panel() -> Moments:
    """Given the scales each walk is normal."""
    person, time, y = rows_of_panel()
    cell, cells = person * LENGTH + time, WALKS * LENGTH
    count = np.bincount(cell, minlength=cells)
    total = np.bincount(cell, y, cells).reshape(WALKS, LENGTH)
    steps, each = np.diff(np.eye(LENGTH), axis=0), np.eye(LENGTH)
    said = each * count.reshape(WALKS, 1, LENGTH)

    def law(x: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        s, first, within = np.exp(-2 * x)
        precision = s * steps.T @ steps + first * each[0, :, None] * each[0] + within * said
        factor = np.linalg.cholesky(precision)
        inverse = np.linalg.inv(factor)
        white = np.einsum("wij,wj->wi", inverse, within * total)
        log = WALKS * ((LENGTH - 1) * np.log(s) + np.log(first)) / 2
        log -= np.log(np.einsum("wii->wi", factor)).sum()
        log += len(y) * np.log(within) / 2 - within * (y @ y) / 2 + np.sum(white**2) / 2
        centre = np.einsum("wij,wi->wj", inverse, white)
        return log, centre, np.sum(inverse**2, axis=1)

    def log_density(x: np.ndarray) -> float:
        return float(law(x)[0] - np.sum(np.exp(2 * x)) / 2 + x.sum())

    nodes, weight = of_few(log_density, [-1.2, 0, 0], 11)
    laws = [law(x)[1:] for x in nodes]
    of_scales = {
        name: mixed(weight, scale, 0)
        for name, scale in zip(("s", "first", "sigma"), np.exp(nodes).T, strict=True)
    }
    means, spreads = (np.array(of_walks) for of_walks in zip(*laws, strict=True))
    return {**of_scales, "w": mixed(weight, means, spreads)}


def variances(band: np.ndarray) -> np.ndarray:
    """Return the diagonals of the inverses of tridiagonal matrices."""
    beside, diagonal = band[:, 0, 1:], band[:, 1]
    before, after = diagonal.copy(), diagonal.copy()
    for t in range(1, STEPS):
        before[:, t] -= beside[:, t - 1] ** 2 / before[:, t - 1]
        after[:, -t - 1] -= beside[:, -t] ** 2 / after[:, -t]
    return 1 / (before + after - diagonal)


CONJUGATE: dict[str, Callable[[], Moments]] = {
    "one_row_of_a_million": moments_of_an_event,
    "sums_of_correlated_columns": moments_of_factors,
    "rates_of_groups": moments_of_rates,
    "rates_in_dims": moments_of_rates,
    "conversions": moments_of_conversions,
    "walk_of_thousands": moments_of_walk,
    "panel_of_walks": moments_of_panel,
}
