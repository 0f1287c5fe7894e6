"""Hierarchies in both writings, centred and non-centred: two models, one posterior."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import pymc as pm
import pytensor.tensor as pt

from registry import Builder, Registry, Writer, batched, built

from .hierarchies import effects, levels
from .small import answers

WRITINGS = Registry()


@dataclass(frozen=True)
class Pair:
    """Two writings of a model.

    Attributes
    ----------
    build : callable
        Returns the model; its argument is whether it is written centred.
    easier : bool
        Whether the centred writing is the one that NUTS samples with less trouble.
    names : tuple of str
        Variables of both, whose moments are compared.
    """

    build: Builder
    easier: bool
    names: tuple[str, ...]


PAIRS: dict[str, Pair] = {}


def both(*names: str, easier: str) -> Callable[[Writer], Builder]:
    """Register both writings of a model: a decorator."""

    def register(write: Writer) -> Builder:
        name, build = write.__name__, built(write)
        PAIRS[name] = Pair(build, easier == "centred", names)
        WRITINGS[f"{name}_centred"] = partial(build, centred=True)
        WRITINGS[f"{name}_noncentred"] = partial(build, centred=False)
        return build

    return register


def pair_of(name: str) -> str:
    """Return the pair that a writing belongs to, or the name as it is."""
    pair = name.removesuffix("_noncentred").removesuffix("_centred")
    return pair if pair in PAIRS and name != pair else name


def slopes_of(groups: int, rows: int, batch_size: int | None, *, centred: bool) -> None:
    """Return a regression with an intercept and a slope for each group, correlated (LKJ)."""
    rng = np.random.default_rng(groups)
    group = rng.integers(0, groups, rows)
    x = rng.normal(size=rows)
    drawn = rng.multivariate_normal([0.5, -1], [[0.6, -0.25], [-0.25, 0.3]], groups)[group]
    y = drawn[:, 0] + drawn[:, 1] * x + rng.normal(0, 0.8, rows)
    g, u, seen = batched(batch_size, group, x, y)
    sds = pm.Exponential.dist(1, size=2)
    chol, _, _ = pm.LKJCholeskyCov("chol", eta=2, n=2, sd_dist=sds)
    beta = pm.Normal("beta", 0, 2, shape=2)
    sigma = pm.Exponential("sigma", 1)
    if centred:
        of_group = pm.MvNormal("effects", beta, chol=chol, shape=(groups, 2))
    else:
        z = pm.Normal("z", 0, 1, shape=(groups, 2))
        of_group = pm.Deterministic("effects", beta + z @ chol.T)
    mean = of_group[g, 0] + of_group[g, 1] * u
    pm.Normal("y", mean, sigma, observed=seen, total_size=rows)


@both("beta", "sigma", "chol", "effects", easier="non-centred")
def slopes(*, centred: bool) -> None:
    """Return varying slopes of 20 groups of about 15 rows."""
    slopes_of(20, 300, None, centred=centred)


@both("beta", "sigma", "chol", "effects", easier="centred")
def slopes_of_many_rows(batch_size: int | None = 500, *, centred: bool) -> None:
    """Return varying slopes of 40 groups of about 500 rows."""
    slopes_of(40, 20_000, batch_size, centred=centred)


@both("mu", "sd_person", "sd_item", "person", "item", easier="non-centred")
def crossed(*, centred: bool) -> None:
    """Return answers of 20 persons to 10 questions, right or wrong."""
    person, item, right = answers()
    mu = pm.Normal("mu", 0, 1.5)
    sd_person, sd_item = pm.HalfNormal("sd_person", 1), pm.HalfNormal("sd_item", 1)
    of_person = effects("person", 0, sd_person, 20, centred=centred)
    of_item = effects("item", 0, sd_item, 10, centred=centred)
    pm.Bernoulli("right", logit_p=mu + of_person[person] + of_item[item], observed=right)


@both("scale", "volatility", easier="non-centred")
def walk_volatility(*, centred: bool) -> None:
    """Return 150 returns whose log volatility is a random walk."""
    rng = np.random.default_rng(5)
    length = 150
    returns = np.exp(-1 + np.cumsum(rng.normal(0, 0.15, length))) * rng.normal(size=length)
    scale = pm.Exponential("scale", 10)
    start = pm.Normal.dist(-1, 1)
    if centred:
        h = pm.GaussianRandomWalk("volatility", sigma=scale, init_dist=start, shape=length)
    else:
        first = pm.Normal("first", -1, 1, shape=1)
        z = pm.Normal("z", 0, 1, shape=length - 1)
        walk = pt.concatenate([first, first + scale * pt.cumsum(z)])
        h = pm.Deterministic("volatility", walk)
    pm.Normal("returns", 0, pt.exp(h), observed=returns)


def sparse_regression() -> tuple[np.ndarray, np.ndarray]:
    """Return 20 predictors, of which three matter, and the responses of 100 rows."""
    rng = np.random.default_rng(7)
    x = rng.normal(size=(100, 20))
    return x, x[:, :3] @ [2.0, -1.5, 1.0] + rng.normal(size=100)


@both("sigma", "beta", "log_tau", "log_local", easier="non-centred")
def horseshoe(*, centred: bool) -> None:
    """Return a sparse regression with a horseshoe prior."""
    x, y = sparse_regression()
    sigma = pm.HalfNormal("sigma", 2)
    tau, local = pm.HalfCauchy("tau", 0.1), pm.HalfCauchy("local", 1, shape=20)
    # Scales have no finite variance
    pm.Deterministic("log_tau", pt.log(tau))
    pm.Deterministic("log_local", pt.log(local))
    beta = effects("beta", 0, tau * local, 20, centred=centred)
    pm.Normal("y", x @ beta, sigma, observed=y)


@both("sigma", "beta", "log_tau", "log_local", "log_slab", easier="non-centred")
def finnish_horseshoe(*, centred: bool) -> None:
    """Return a sparse regression with a regularised horseshoe prior."""
    x, y = sparse_regression()
    sigma = pm.HalfNormal("sigma", 2)
    tau, local = pm.HalfCauchy("tau", 0.1), pm.HalfCauchy("local", 1, shape=20)
    slab = pm.InverseGamma("slab", 2, 8)
    for name, scale in (("log_tau", tau), ("log_local", local), ("log_slab", slab)):
        pm.Deterministic(name, pt.log(scale))
    bounded = local * pt.sqrt(slab / (slab + tau**2 * local**2))
    beta = effects("beta", 0, tau * bounded, 20, centred=centred)
    pm.Normal("y", x @ beta, sigma, observed=y)


@both("mu", "between", "sigma", "group", easier="centred")
def groups_of_mixed_size(batch_size: int | None = 500, *, centred: bool) -> None:
    """Return normal rows in 12 groups of 3 to 30,000."""
    rng = np.random.default_rng(11)
    sizes = np.repeat([3, 10, 30, 300, 3_000, 30_000], 2)
    group = np.repeat(np.arange(12), sizes)
    y = 1 + 0.7 * rng.normal(size=12)[group] + 2 * rng.normal(size=len(group))
    g, seen = batched(batch_size, group, y)
    mu, between = pm.Normal("mu", 0, 2), pm.HalfNormal("between", 1)
    sigma = pm.HalfNormal("sigma", 3)
    of_group = effects("group", mu, between, 12, centred=centred)
    pm.Normal("y", of_group[g], sigma, observed=seen, total_size=len(y))


@WRITINGS.add
def three_levels_noncentred(batch_size: int | None = 500) -> None:
    """Return the regions and groups of ``three_levels``, written non-centred."""
    levels(batch_size, centred=False)
