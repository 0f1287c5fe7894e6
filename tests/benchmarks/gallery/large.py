"""Models of tens of thousands of rows and more, for minibatches.

Each takes ``batch_size``; with None the likelihood is that of the full data, for NUTS.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pymc as pm
import pytensor.tensor as pt

from registry import Registry, batched

from .mixed import large_mixture

A9A = Path(__file__).parents[2] / "data" / "a9a.npz"
LARGE = Registry()


@LARGE.add
def a9a(batch_size: int | None = 500) -> None:
    """Logistic regression of income on the 123 binary features of a9a: 32,561 rows."""
    with np.load(A9A) as file:
        x = np.unpackbits(file["X_train"], axis=1)[:, :123]
        y = file["y_train"].astype(bool)
    n = len(y)
    intercept = pm.Normal("intercept", 0, 1)
    beta = pm.Normal("beta", 0, 1, shape=123)
    if batch_size is None:
        # Rows with the same features make one binomial
        x, row, trials = np.unique(x, axis=0, return_inverse=True, return_counts=True)
        successes = np.bincount(row, weights=y).astype("int32")
        logit = intercept + x.astype(float) @ beta
        pm.Binomial("y", trials, logit_p=logit, observed=successes)
    else:
        xb, yb = pm.Minibatch(x.astype(float), y, batch_size=batch_size)
        pm.Bernoulli("y", logit_p=intercept + xb @ beta, observed=yb, total_size=n)


def poisson(scales: np.ndarray, batch_size: int | None) -> None:
    """Poisson regression on columns of these scales, with exposures: 200,000 rows."""
    rng = np.random.default_rng(0)
    n, d = 200_000, len(scales)
    x = rng.normal(size=(n, d)) @ np.linalg.cholesky(0.3 + 0.7 * np.eye(d)).T
    exposure = rng.lognormal(0, 1, n)
    rate = np.exp(-1 + x @ rng.normal(0, 0.2, d))
    y = rng.poisson(exposure * rate).astype("int32")
    x *= scales
    intercept = pm.Normal("intercept", 0, 2)
    beta = pm.Normal("beta", 0, 1 / scales, shape=d)
    xb, eb, yb = batched(batch_size, x, exposure, y)
    total_size = None if batch_size is None else n
    mean = eb * pt.exp(intercept + xb @ beta)
    pm.Poisson("y", mean, observed=yb, total_size=total_size)


@LARGE.add
def poisson_unit(batch_size: int | None = 500) -> None:
    """Poisson regression on ten columns of unit scale: 200,000 rows."""
    poisson(np.ones(10), batch_size)


@LARGE.add
def poisson_scaled(batch_size: int | None = 500) -> None:
    """Poisson regression on ten columns of scales from 0.01 to 1000: 200,000 rows."""
    poisson(np.logspace(-2, 3, 10), batch_size)


@LARGE.add
def hierarchical_logistic(batch_size: int | None = 500) -> None:
    """Logistic regression with varying intercepts of 500 groups, non-centred: 100,000 rows."""
    rng = np.random.default_rng(0)
    n, groups, d = 100_000, 500, 5
    # Groups of very different sizes
    group = rng.choice(groups, n, p=rng.dirichlet(np.full(groups, 3))).astype("int32")
    x = rng.normal(size=(n, d))
    logit = -0.5 + rng.normal(0, 0.5, groups)[group] + x @ rng.normal(0, 0.5, d)
    y = rng.random(n) < 1 / (1 + np.exp(-logit))
    mu = pm.Normal("mu", 0, 1.5)
    tau = pm.HalfNormal("tau", 1)
    z = pm.Normal("z", 0, 1, shape=groups)
    beta = pm.Normal("beta", 0, 1, shape=d)
    xb, gb, yb = batched(batch_size, x, group, y)
    total_size = None if batch_size is None else n
    logit = mu + tau * z[gb] + xb @ beta
    pm.Bernoulli("y", logit_p=logit, observed=yb, total_size=total_size)


@LARGE.add
def multivariate_normal_rows(batch_size: int | None = 500) -> None:
    """Mean and covariance of four columns, the correlations with an LKJ prior: 60,000 rows."""
    rng = np.random.default_rng(0)
    n, d = 60_000, 4
    factor = np.tril(rng.normal(0, 0.5, (d, d)), -1) + np.diag([1, 0.8, 1.2, 0.5])
    y = [1, 0, -1, 2] + rng.normal(size=(n, d)) @ factor.T
    mu = pm.Normal("mu", 0, 5, shape=d)
    sd = pm.Exponential.dist(1, size=d)
    chol, _, _ = pm.LKJCholeskyCov("chol", eta=2, n=d, sd_dist=sd)
    if batch_size is None:
        # The likelihood by its sufficient statistics, for the sake of time
        away = y.mean(axis=0) - mu
        squares = pt.constant(np.cov(y, rowvar=False, ddof=0)) + pt.outer(away, away)
        half = pt.linalg.solve_triangular(chol, squares, lower=True)
        quadratic = pt.trace(pt.linalg.solve_triangular(chol, half.T, lower=True))
        log_determinant = 2 * pt.sum(pt.log(pt.diag(chol)))
        constant = d * np.log(2 * np.pi)
        pm.Potential("y", -n / 2 * (constant + log_determinant + quadratic))
    else:
        yb = pm.Minibatch(y, batch_size=batch_size)
        pm.MvNormal("y", mu, chol=chol, observed=yb, total_size=n)


# The mixture of ``mixture_blocks``, for one step
LARGE["mixture_of_many_rows"] = large_mixture
