"""Hundreds of pairs of effects that correlate within each group: intercepts and slopes."""

from __future__ import annotations

from functools import cache

import numpy as np
import pymc as pm

from registry import batched

from .conjugate import mixed, of_few
from .exact import Moments
from .many import MANY

__all__ = ["PAIRS_OF_EFFECTS"]

GROUPS, ROWS, SERIES, LENGTH = 600, 20, 1_000, 30
# Nodes for each of three scales
NODES = 17


@cache
def rows_of_lines() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return group, covariate and value of each row; the covariate's mean is far from zero."""
    rng = np.random.default_rng(31)
    group = np.repeat(np.arange(GROUPS), ROWS)
    x = rng.normal(5, 1, size=len(group))
    a, b = rng.normal(1, 1, GROUPS), rng.normal(0.5, 0.5, GROUPS)
    return group, x, a[group] + b[group] * x + rng.normal(size=len(group))


@MANY.add
def lines_of_groups(batch_size: int | None = 500) -> None:
    """Return 600 intercepts and slopes on a covariate that is not centred; scales are learned."""
    group, x, y = rows_of_lines()
    g, covariate, seen = batched(batch_size, group, x, y)
    a, b, sigma = _effects(GROUPS)
    pm.Normal("y", a[g] + b[g] * covariate, sigma, observed=seen, total_size=len(y))


@cache
def rows_of_series() -> np.ndarray:
    """Return the values of each series, which begins where it tends to."""
    rng = np.random.default_rng(32)
    drift, rho = rng.normal(1, 0.4, SERIES), rng.normal(0.5, 0.15, SERIES)
    y = np.empty((SERIES, LENGTH))
    y[:, 0] = drift / (1 - rho)
    for t in range(1, LENGTH):
        y[:, t] = drift + rho * y[:, t - 1] + 0.5 * rng.normal(size=SERIES)
    return y


@MANY.add
def panel_of_autoregressions(batch_size: int = 50) -> None:
    """Return 1,000 series' drifts and coefficients given their first values, in batches of series.

    A row is a series.
    """
    y = rows_of_series()
    i, before, seen = pm.Minibatch(np.arange(SERIES), y[:, :-1], y[:, 1:], batch_size=batch_size)
    a, b, sigma = _effects(SERIES)
    mean = a[i][:, None] + b[i][:, None] * before
    pm.Normal("y", mean, sigma, observed=seen, total_size=[SERIES, LENGTH - 1])


def _effects(count: int) -> tuple:
    mu, tau = pm.Normal("mu", 0, 5, shape=2), pm.HalfNormal("tau", 1, shape=2)
    a = pm.Normal("a", mu[0], tau[0], shape=count)
    b = pm.Normal("b", mu[1], tau[1], shape=count)
    return a, b, pm.HalfNormal("sigma", 1)


def moments_of_lines() -> Moments:
    """Return the moments of intercepts, slopes and what they have in common."""
    _, x, y = rows_of_lines()
    return moments_of_pairs(x.reshape(GROUPS, ROWS), y.reshape(GROUPS, ROWS))


def moments_of_autoregressions() -> Moments:
    """Return the moments of drifts, coefficients and what they have in common."""
    y = rows_of_series()
    return moments_of_pairs(y[:, :-1], y[:, 1:])


def moments_of_pairs(x: np.ndarray, y: np.ndarray) -> Moments:
    """Given three scales each pair, and the means of all, are normal."""
    design = np.stack([np.ones_like(x), x], axis=-1)
    squares = np.einsum("gri,grj->gij", design, design)
    products, total = np.einsum("gri,gr->gi", design, y), np.sum(y**2)

    def law(at: np.ndarray) -> tuple[float, tuple]:
        tau, sigma = np.exp(at[:2]), np.exp(at[2])
        inner = np.diag(tau**-2)
        covariance = np.linalg.inv(squares / sigma**2 + inner)
        own = np.einsum("gij,gj->gi", covariance, products) / sigma**2
        of_mean = len(x) * inner - inner @ covariance.sum(axis=0) @ inner + np.eye(2) / 25
        linear = inner @ own.sum(axis=0)
        mean_covariance = np.linalg.inv(of_mean)
        mu = mean_covariance @ linear
        log = -x.size * at[2] - len(x) * at[:2].sum() + np.linalg.slogdet(covariance)[1].sum() / 2
        log += (np.einsum("gi,gi->", own, products) - total) / sigma**2 / 2
        log += (linear @ mu - np.linalg.slogdet(of_mean)[1]) / 2
        log += at.sum() - (tau @ tau + sigma**2) / 2
        shrunk = covariance @ inner
        variance = np.diagonal(covariance, axis1=1, axis2=2) + np.einsum(
            "gij,jk,gik->gi", shrunk, mean_covariance, shrunk
        )
        return float(log), (mu, np.diag(mean_covariance), own + shrunk @ mu, variance)

    nodes, weight = of_few(lambda at: law(at)[0], [0.0, -1.0, 0.0], NODES)
    kept = weight > 1e-6 * weight.max()
    nodes, weight = nodes[kept], weight[kept] / weight[kept].sum()
    laws = [law(at)[1] for at in nodes]
    mu, of_mu, pairs, of_pairs = (np.array(part) for part in zip(*laws, strict=True))
    mean, sd = mixed(weight, pairs, of_pairs)
    return {
        "mu": mixed(weight, mu, of_mu),
        "tau": mixed(weight, np.exp(nodes[:, :2]), 0),
        "sigma": mixed(weight, np.exp(nodes[:, 2]), 0),
        "a": (mean[:, 0], sd[:, 0]),
        "b": (mean[:, 1], sd[:, 1]),
    }


PAIRS_OF_EFFECTS = {
    "lines_of_groups": moments_of_lines,
    "panel_of_autoregressions": moments_of_autoregressions,
}
