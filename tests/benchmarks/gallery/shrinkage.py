"""Small regressions on many columns, whose effects a prior shrinks, on simulated data."""

from __future__ import annotations

import numpy as np
import pymc as pm
import pytensor.tensor as pt

from numpy.polynomial import Polynomial
from registry import Registry, batched
from scipy.interpolate import BSpline

from .exact import NOISE_OF_SPLINE, rows_of_spline, rows_of_trend

SHRINKAGE = Registry()


@SHRINKAGE.add
def spline_logistic() -> None:
    """A binary outcome on a smooth curve of age, a cubic spline, and on sex."""
    rng = np.random.default_rng(17)
    age = np.sort(rng.uniform(20, 80, 300))
    sex = rng.integers(0, 2, 300)
    truth = Polynomial([-1, 0, 4, 1])((age - 50) / 30) + 0.6 * sex
    ill = rng.random(300) < 1 / (1 + np.exp(-truth))
    inner = np.quantile(age, [0.25, 0.5, 0.75])
    knots = np.concatenate([np.repeat(20, 4), inner, np.repeat(80, 4)])
    basis = BSpline.design_matrix(age, knots, 3).toarray()
    effect_of_sex = pm.Normal("effect_of_sex", 0, 1)
    intercept = pm.Normal("intercept", 0, 2)
    scale = pm.HalfNormal("scale", 2)
    z = pm.Normal("z", 0, 1, shape=basis.shape[1])
    logit = intercept + scale * (basis @ z) + effect_of_sex * sex
    pm.Bernoulli("ill", logit_p=logit, observed=ill)


@SHRINKAGE.add
def laplace_regression() -> None:
    """Linear regression on 20 predictors, 4 of which matter, with Laplace priors."""
    rng = np.random.default_rng(18)
    x = rng.normal(size=(150, 20))
    y = x @ np.r_[1.5, -1, 0.7, 0.4, np.zeros(16)] + rng.normal(0, 1, 150)
    intercept = pm.Normal("intercept", 0, 2)
    beta = pm.Laplace("beta", 0, 0.3, shape=20)
    sigma = pm.HalfNormal("sigma", 2)
    pm.Normal("y", intercept + x @ beta, sigma, observed=y)


@SHRINKAGE.add
def lasso() -> None:
    """Linear regression on 20 predictors that hardly matter, with a learned Laplace prior."""
    rng = np.random.default_rng(34)
    x = rng.normal(size=(100, 20))
    y = x @ rng.laplace(0, 0.05, 20) + rng.normal(0, 1, 100)
    scale = pm.HalfNormal("scale", 1)
    beta = scale * pm.Laplace("effect", 0, 1, shape=20)
    sigma = pm.HalfNormal("sigma", 2)
    pm.Normal("y", x @ beta, sigma, observed=y)


@SHRINKAGE.add
def trend() -> None:
    """A trend with 20 changes of its slope, whose scale is learned, and a season of ten waves."""
    t, changes, after, season, y = rows_of_trend()
    slope, level = pm.Normal("slope", 0, 1), pm.Normal("level", 0, 1)
    delta = pm.Normal("delta", 0, pm.Exponential("scale", 2), shape=20)
    beta = pm.Normal("beta", 0, 1, shape=10)
    grown = (slope + pt.dot(after, delta)) * t + level - pt.dot(after, changes * delta)
    pm.Normal("y", grown + pt.dot(season, beta), pm.HalfNormal("sigma", 0.5), observed=y)


@SHRINKAGE.add
def penalised_spline() -> None:
    """A cubic spline whose coefficients are a walk of their slopes, which has a learned scale."""
    basis, y = rows_of_spline()
    scale = pm.HalfNormal("scale", 1)
    level, slope = pm.Normal("level", 0, 2), pm.Normal("slope", 0, 1)
    z = pm.Normal("z", 0, 1, shape=basis.shape[1] - 2)
    slopes = pt.concatenate([slope[None], slope + pt.cumsum(scale * z)])
    coefficients = pt.concatenate([level[None], level + pt.cumsum(slopes)])
    pm.Normal("y", basis @ coefficients, NOISE_OF_SPLINE, observed=y)


@SHRINKAGE.add
def prophet(batch_size: int | None = 500) -> None:
    """A trend with 25 changes of its slope, nearly all of them small, and a season of six waves."""
    rng = np.random.default_rng(10)
    t, changes = np.linspace(0, 1, 3000), np.linspace(0, 0.8, 25)
    after = (t[:, None] > changes) * (t[:, None] - changes)
    angle = 12 * np.pi * t[:, None] * np.arange(1, 4)
    season = np.hstack([np.sin(angle), np.cos(angle)])
    bends = rng.laplace(0, 0.3, 25) * (rng.random(25) < 0.3)
    y = 0.3 + 0.5 * t + after @ bends + season @ rng.normal(0, 0.1, 6) + rng.normal(0, 0.1, 3000)
    seen = batched(batch_size, t, after, season, y)
    slope, level = pm.Normal("slope", 0, 1), pm.Normal("level", 0, 1)
    delta = pm.Laplace("delta", 0, 0.05, shape=25)
    beta = pm.Normal("beta", 0, 0.5, shape=6)
    mean = level + slope * seen[0] + seen[1] @ delta + seen[2] @ beta
    total = None if batch_size is None else len(t)
    pm.Normal("y", mean, pm.HalfNormal("sigma", 0.5), observed=seen[3], total_size=total)


@SHRINKAGE.add
def ridge_logistic(batch_size: int | None = 500) -> None:
    """Logistic regression on 20 correlated predictors, whose effects have a learned scale."""
    rng = np.random.default_rng(36)
    x = (rng.normal(size=(2000, 20)) + rng.normal(size=(2000, 1))) / np.sqrt(2)
    bought = rng.random(2000) < 1 / (1 + np.exp(-x @ rng.normal(0, 0.1, 20)))
    seen = batched(batch_size, x, bought.astype(float))
    intercept = pm.Normal("intercept", 0, 1)
    beta = pm.Normal("beta", 0, pm.HalfNormal("scale", 1), shape=20)
    total = None if batch_size is None else len(x)
    logit = intercept + seen[0] @ beta
    pm.Bernoulli("y", logit_p=logit, observed=seen[1], total_size=total)
