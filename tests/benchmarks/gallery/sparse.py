"""Simplexes and positive variables with much mass near 0, on few counts, of known laws."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import pymc as pm

from registry import Registry
from scipy import special, stats

from .conjugate import mixed
from .exact import Moments

__all__ = ["DECILES", "SPARSE", "SPARSE_MOMENTS"]

SPARSE = Registry()

# Hsieh et al. (2018), figure 1(a): counts of 11 categories, a prior of 0.1 for each
PAPERS = np.array([10_000, 10, 10, *[0] * 8])
RARE = np.array([60_000, 30_000, 9_995, 5])
EMPTY = np.array([80, 0, 40, 0, 0, 0])
OTHERS = np.geomspace(1e-3, 60, 400)
TENTHS = np.arange(1, 10) / 10


@SPARSE.add
def sparse_counts() -> None:
    """Return the sparse Dirichlet posterior of the paper on mirrored Langevin dynamics."""
    p = pm.Dirichlet("p", np.full(len(PAPERS), 0.1))
    pm.Multinomial("counts", PAPERS.sum(), p, observed=PAPERS)


@SPARSE.add
def rare_cell() -> None:
    """Return four cells, one of which has 5 of 100,000 counts."""
    p = pm.Dirichlet("p", np.ones(len(RARE)))
    pm.Multinomial("counts", RARE.sum(), p, observed=RARE)


@cache
def rows_of_shares() -> np.ndarray:
    """Return counts of 8 groups in 6 categories, most of which are empty."""
    rng = np.random.default_rng(3)
    return np.array([rng.multinomial(40, p) for p in rng.dirichlet(np.full(6, 0.2), 8)])


@SPARSE.add
def learned_concentration() -> None:
    """Return sparse shares of groups, of a Dirichlet law whose concentration is learned."""
    counts = rows_of_shares()
    a = pm.Exponential("a", 1)
    share = pm.Dirichlet("share", a * np.ones(6), shape=counts.shape)
    pm.Multinomial("counts", counts.sum(axis=1), share, observed=counts)


@SPARSE.add
def arcsine() -> None:
    """Return a probability with Jeffreys' prior and no data: unbounded at both ends."""
    pm.Beta("p", 0.5, 0.5)


@SPARSE.add
def sparse_gamma() -> None:
    """Return a gamma variable of shape 0.1."""
    pm.Gamma("x", 0.1, 1)


@SPARSE.add
def empty_components() -> None:
    """Return a mixture of six known components, four of them empty: each row tells its own."""
    rng = np.random.default_rng(5)
    y = rng.normal(40 * np.repeat(np.arange(6), EMPTY), 1)
    w = pm.Dirichlet("w", np.full(6, 0.1))
    pm.NormalMixture("y", w, 40 * np.arange(6), 1, observed=y)


@SPARSE.add
def logit_normal() -> None:
    """Return a share whose prior has bounds and, in PyMC, no transform, with 1 success of 20."""
    p = pm.LogitNormal("p", 0, 1)
    pm.Binomial("successes", 20, p, observed=1)


def of_logit_normal() -> Moments:
    """Return the moments by a sum over the logit."""
    logit = np.linspace(-12, 12, 20_001)
    log_p, log_q = special.log_expit(logit), special.log_expit(-logit)
    weight = special.softmax(log_p + 19 * log_q - logit**2 / 2)
    return {"p": mixed(weight, special.expit(logit), 0.0)}


def of_dirichlet(a: np.ndarray) -> list[stats.rv_continuous]:
    """Return the law of each entry."""
    return [stats.beta(b, a.sum() - b) for b in a]


LAWS: dict[str, tuple[str, list[stats.rv_continuous]]] = {
    "sparse_counts": ("p", of_dirichlet(PAPERS + 0.1)),
    "rare_cell": ("p", of_dirichlet(RARE + 1)),
    "arcsine": ("p", [stats.beta(0.5, 0.5)]),
    "sparse_gamma": ("x", [stats.gamma(0.1)]),
    "empty_components": ("w", of_dirichlet(EMPTY + 0.1)),
}


def of_laws(name: str) -> Moments:
    """Return the moments of a model all of whose laws are known."""
    variable, laws = LAWS[name]
    mean, sd = (
        np.array([getattr(law, key)() for law in laws]).squeeze() for key in ("mean", "std")
    )
    return {variable: (mean, sd)}


def deciles_of_laws(name: str) -> dict[str, np.ndarray]:
    """Return the nine deciles of each element, in the last axis."""
    variable, laws = LAWS[name]
    return {variable: np.array([law.ppf(TENTHS) for law in laws])}


@cache
def weights_of_concentration() -> np.ndarray:
    """Return the posterior of the concentration at its nodes, shares integrated out."""
    a, counts = OTHERS[:, None, None], rows_of_shares()
    each = special.gammaln(a + counts) - special.gammaln(a)
    whole = special.gammaln(6 * a[..., 0]) - special.gammaln(6 * a[..., 0] + counts.sum(axis=1))
    # da = a d log a
    return special.softmax(each.sum((1, 2)) + whole.sum(1) - OTHERS + np.log(OTHERS))


def of_shares() -> Moments:
    """Given the concentration the shares are Dirichlet."""
    weight, counts = weights_of_concentration(), rows_of_shares()
    a = OTHERS[:, None, None] + counts
    total = a.sum(axis=-1, keepdims=True)
    share = a / total
    return {
        "a": mixed(weight, OTHERS, 0.0),
        "share": mixed(weight, share, share * (1 - share) / (total + 1)),
    }


def deciles_of_shares() -> dict[str, np.ndarray]:
    """Return the nine deciles of each element, in the last axis; by bisection of log x."""
    weight, counts = weights_of_concentration(), rows_of_shares()
    a = OTHERS[:, None, None, None] + counts[..., None]
    rest = a.sum(axis=-2, keepdims=True) - a
    low, high = np.full((*counts.shape, 9), -700.0), np.zeros((*counts.shape, 9))
    for _ in range(50):
        middle = (low + high) / 2
        below = np.tensordot(weight, special.betainc(a, rest, np.exp(middle)), 1) < TENTHS
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    of_concentration = np.interp(TENTHS, np.cumsum(weight) - weight / 2, OTHERS)
    return {"a": of_concentration, "share": np.exp(low)}


SPARSE_MOMENTS: dict[str, Callable[[], Moments]] = {
    **{name: (lambda name=name: of_laws(name)) for name in LAWS},
    "learned_concentration": of_shares,
    "logit_normal": of_logit_normal,
}
DECILES: dict[str, Callable[[], dict[str, np.ndarray]]] = {
    **{name: (lambda name=name: deciles_of_laws(name)) for name in LAWS},
    "learned_concentration": deciles_of_shares,
}
