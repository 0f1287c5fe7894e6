"""Causes and designs, on made data of the notebooks' shapes."""

from __future__ import annotations

import numpy as np
import pymc as pm
import pytensor.tensor as pt

from scipy.special import expit

from .registry import EXAMPLES

CAUSAL = "causal_inference/"


def _simpson() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    group = np.repeat(np.arange(5), 20)
    x = rng.normal(np.linspace(-2, 2, 5)[group], 0.5)
    return group, x, 2 * group - 1.0 * x + rng.normal(0, 0.5, 100)


@EXAMPLES.of("generalized_linear_models/GLM-simpsons-paradox")
def simpson_pooled() -> None:
    """One line through five groups of 20."""
    _, x, y = _simpson()
    beta = pm.Normal("beta", 0, 5, shape=2)
    sigma = pm.Gamma("sigma", 2, 2)
    pm.Normal("y", beta[0] + beta[1] * x, sigma, observed=y)


@EXAMPLES.of("generalized_linear_models/GLM-simpsons-paradox", coords={"group": np.arange(5)})
def simpson_unpooled() -> None:
    """A line for each group."""
    group, x, y = _simpson()
    a = pm.Normal("beta0", 0, 5, dims="group")
    b = pm.Normal("beta1", 0, 5, dims="group")
    sigma = pm.Gamma("sigma", 2, 2)
    pm.Normal("y", a[group] + b[group] * x, sigma, observed=y)


@EXAMPLES.of("generalized_linear_models/GLM-simpsons-paradox", coords={"group": np.arange(5)})
def simpson_hierarchical() -> None:
    """Lines from common normals, centred as printed."""
    group, x, y = _simpson()
    a0 = pm.Normal("intercept_mu", 0, 1)
    a_sd = pm.Gamma("intercept_sigma", 2, 2)
    b0 = pm.Normal("slope_mu", 0, 1)
    b_sd = pm.Gamma("slope_sigma", 2, 2)
    a = pm.Normal("intercept", a0, a_sd, dims="group")
    b = pm.Normal("slope", b0, b_sd, dims="group")
    sigma = pm.Gamma("sigma", 2, 2)
    pm.Normal("y", a[group] + b[group] * x, sigma, observed=y)


@EXAMPLES.of(CAUSAL + "difference_in_differences")
def difference_in_differences() -> None:
    """Two groups before and after, 100 rows."""
    rng = np.random.default_rng(2)
    group, t = np.tile([0, 1], 50), np.repeat([0.0, 1.0, 1.0, 0.0], 25)
    y = 1 + 0.5 * t + 0.7 * group + 0.5 * group * t + rng.normal(0, 0.2, 100)
    control = pm.Normal("control_intercept", 0, 5)
    trend = pm.Normal("trend", 0, 1)
    delta_group = pm.Normal("treat_intercept_delta", 0, 1)
    effect = pm.Normal("Δ", 0, 1)
    sigma = pm.HalfNormal("sigma", 1)
    mean = control + delta_group * group + trend * t + effect * group * t
    pm.Normal("obs", mean, sigma, observed=y)


@EXAMPLES.of(CAUSAL + "excess_deaths", coords={"month": np.arange(12)})
def excess_deaths() -> None:
    """Deaths of 170 months by temperature, month and time."""
    rng = np.random.default_rng(3)
    t = np.arange(170) / 12
    month = np.arange(170) % 12
    temperature = 10 - 7 * np.cos(2 * np.pi * month / 12) + rng.normal(0, 1, 170)
    y = 46_000 + 200 * t - 500 * temperature + rng.normal(0, 1500, 170)
    intercept = pm.Normal("intercept", 40_000, 10_000)
    season = pm.ZeroSumNormal("month mu", sigma=3000, dims="month")
    linear = pm.TruncatedNormal("linear trend", 0, 500, lower=0)
    heat = pm.Normal("temp coeff", 0, 500)
    sigma = pm.HalfNormal("sigma", 2000)
    pm.TruncatedNormal(
        "obs", intercept + linear * t + season[month] + heat * temperature, sigma, lower=0,
        observed=y,
    )  # fmt: skip


@EXAMPLES.of(CAUSAL + "interrupted_time_series")
def interrupted_series() -> None:
    """36 months before an intervention, a line."""
    rng = np.random.default_rng(4)
    t = np.arange(36.0)
    y = 1000 + 5 * t + rng.normal(0, 20, 36)
    b0 = pm.Normal("beta0", 1000, 500)
    b1 = pm.Normal("beta1", 0, 10)
    sigma = pm.HalfNormal("sigma", 50)
    pm.Normal("obs", b0 + b1 * t, sigma, observed=y)


@EXAMPLES.of(CAUSAL + "regression_discontinuity")
def regression_discontinuity() -> None:
    """1,000 rows, a step at 0."""
    rng = np.random.default_rng(5)
    x = rng.normal(size=1000)
    y = 0.8 * x + 0.5 * (x > 0) + rng.normal(0, 0.3, 1000)
    delta = pm.Cauchy("effect", 0, 1)
    beta = pm.Normal("beta", 0, 1, shape=2)
    sigma = pm.HalfNormal("sigma", 1)
    pm.Normal("y", beta[0] + beta[1] * x + delta * (x > 0), sigma, observed=y)


@EXAMPLES.of(CAUSAL + "moderation_analysis")
def moderation() -> None:
    """A slope that depends on another variable, 150 rows."""
    rng = np.random.default_rng(6)
    x, m = rng.normal(0, 3, 150), rng.normal(40, 10, 150)
    y = 20 - 0.5 * x + 0.1 * m + 0.02 * x * m + rng.normal(0, 3, 150)
    b = pm.Normal("β", 0, [10, 5, 5, 5])
    sigma = pm.HalfCauchy("σ", 5)
    pm.Normal("y", b[0] + b[1] * x + b[2] * x * m + b[3] * m, sigma, observed=y)


@EXAMPLES.of(CAUSAL + "bayesian_nonparametric_causal", coords={"coeffs": np.arange(8)})
def propensities() -> None:
    """Treatment of 1,500 persons by eight traits, logistic."""
    rng = np.random.default_rng(7)
    x = rng.normal(size=(1500, 8))
    y = rng.random(1500) < expit(-1 + x @ rng.normal(0, 0.4, 8))
    b = pm.Normal("b", 0, 1, dims="coeffs")
    c = pm.Normal("intercept", 0, 1)
    pm.Bernoulli("t", p=pm.math.invlogit(c + x @ b), observed=y)


@EXAMPLES.of(CAUSAL + "counterfactuals_do_operator")
def instrument() -> None:
    """Two equations with correlated noise: an instrument, 500 rows."""
    rng = np.random.default_rng(8)
    z = rng.normal(size=500)
    e = rng.multivariate_normal([0, 0], [[1, 0.6], [0.6, 1]], 500)
    t = 0.8 * z + e[:, 0]
    y = 1.5 * t + e[:, 1]
    first = pm.Normal("beta_t", 0, 2, shape=2)
    second = pm.Normal("beta_z", 0, 2, shape=2)
    chol, _, _ = pm.LKJCholeskyCov("chol", n=2, eta=2, sd_dist=pm.HalfCauchy.dist(2, size=2))
    mean = pt.stack([second[0] + second[1] * t, first[0] + first[1] * z], axis=1)
    pm.MvNormal("y", mean, chol=chol, observed=np.stack([y, t], 1))
