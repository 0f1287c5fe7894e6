"""Posteriors that samplers get wrong, and what is known of them exactly."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pymc as pm
import pytensor.tensor as pt

from scipy import special, stats

from helpers.conjugate import slopes_of
from helpers.grids import moments, weights
from helpers.importance import importance


@dataclass
class Case:
    """A model and what is known of its posterior.

    Attributes
    ----------
    model : pymc.Model
        The model.
    moments : dict
        For names of variables, exact means and sds.
    quantiles : dict
        For names of variables, exact quantiles at 0.1, 0.25, 0.5, 0.75 and 0.9 of each of
        their elements, which are alike.
    own_steps : callable
        Makes further step methods, for what ours does not sample.
    """

    model: pm.Model
    moments: dict = field(default_factory=dict)
    quantiles: dict = field(default_factory=dict)
    own_steps: Callable = list


LEVELS = np.array([0.1, 0.25, 0.5, 0.75, 0.9])


EFFECTS = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
ERRORS = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])


def schools():
    """Moments of mu and tau in the eight schools: given tau all is Gaussian."""
    tau = np.geomspace(1e-4, 300, 4000)
    log_weight, mean, variance = np.empty((3, len(tau)))
    for i, t in enumerate(tau):
        precision = 1 / (ERRORS**2 + t**2)
        of_mu = precision.sum() + 1 / 25
        mean[i] = precision @ EFFECTS / of_mu
        variance[i] = 1 / of_mu
        quadratic = precision @ EFFECTS**2 - of_mu * mean[i] ** 2
        log_weight[i] = (np.log(precision).sum() - np.log(of_mu) - quadratic) / 2
    log_weight += stats.halfcauchy(scale=5).logpdf(tau) + np.log(tau)  # a grid in log tau
    weight = weights(log_weight)
    return {"mu": moments(weight, mean, variance), "tau": moments(weight, tau)}


def centred_schools():
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 5)
        tau = pm.HalfCauchy("tau", 5)
        theta = pm.Normal("theta", mu, tau, shape=8)
        pm.Normal("y", theta, ERRORS, observed=EFFECTS)
    return Case(model, schools())


def line(noise, seed=0, rows=50):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=rows)
    return np.column_stack([np.ones(rows), x]), 1 + 2 * x + noise * rng.normal(size=rows)


def flat_priors():
    X, y = line(0.5)
    with pm.Model() as model:
        beta = pm.Flat("beta", shape=2)
        sigma = pm.HalfFlat("sigma")
        pm.Normal("y", X @ beta, sigma, observed=y)
    # p(σ | y) ∝ σ^-(n - 2) exp(-S / 2σ²), and slopes are Student with n - 3 degrees of freedom
    K, n = X.T @ X, len(y)
    m = np.linalg.solve(K, X.T @ y)
    S = float(y @ y - m @ K @ m)
    nu = n - 3
    variances = S / nu * np.diag(np.linalg.inv(K)) * nu / (nu - 2)
    mean = np.sqrt(S / 2) * np.exp(special.gammaln((nu - 1) / 2) - special.gammaln(nu / 2))
    return Case(
        model, {"beta": (m, variances**0.5), "sigma": (mean, np.sqrt(S / (nu - 2) - mean**2))}
    )


def tiny_noise():
    """Residuals of 1e-8 where the prior thinks of 1."""
    X, y = line(1e-8)
    with pm.Model() as model:
        precision = pm.Gamma("precision", 1.0, 1e-16)
        beta = pm.Normal("beta", 0, 10, shape=2)
        pm.Normal("y", X @ beta, tau=precision, observed=y)
    # The prior of the slopes is flat on their scale
    K, n = X.T @ X, len(y)
    m = np.linalg.solve(K, X.T @ y)
    residual = y - X @ m
    a, b = 1 + (n - 2) / 2, 1e-16 + residual @ residual / 2
    sds = np.sqrt(b / (a - 1) * np.diag(np.linalg.inv(K)))
    return Case(model, {"precision": (a / b, a**0.5 / b), "beta": (m, sds)})


def no_noise():
    """An exact fit: the posterior of sigma has no mass away from 0, and is no distribution."""
    X, y = line(0.0)
    with pm.Model() as model:
        sigma = pm.HalfNormal("sigma", 1)
        beta = pm.Normal("beta", 0, 10, shape=2)
        pm.Normal("y", X @ beta, sigma, observed=y)
    return Case(model, {"sigma": (np.nan, np.nan)})


def one_row():
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 1)
        y = pm.Minibatch(np.array([2.0]), batch_size=1)
        pm.Normal("y", mu, 0.5, observed=y, total_size=1)
    return Case(model, {"mu": (2 * 4 / 5, 0.2**0.5)})


def one_row_and_a_scale():
    """A scale that one row says little of: 3 dimensions, and tails."""
    with pm.Model() as model:
        sigma = pm.HalfNormal("sigma", 1)
        pm.Normal("y", 0, sigma, observed=[0.5])
    grid = np.geomspace(1e-4, 12, 200_000)
    log_weight = np.log(grid) + stats.halfnorm.logpdf(grid) + stats.norm.logpdf(0.5, 0, grid)
    return Case(model, {"sigma": moments(weights(log_weight), grid)})


def gaussian_regression(X, noise=0.5, prior=10.0, batch_size=100, seed=1):
    rng = np.random.default_rng(seed)
    y = X @ rng.normal(size=X.shape[1]) + noise * rng.normal(size=len(X))
    with pm.Model() as model:
        x, batch = pm.Minibatch(X, y, batch_size=batch_size)
        beta = pm.Normal("beta", 0, prior, shape=X.shape[1])
        pm.Normal("y", x @ beta, noise, observed=batch, total_size=len(X))
    return model, *slopes_of(X, y, noise, prior)


def collinear():
    """Two equal columns and a third that is their sum: the data see one direction of three."""
    rng = np.random.default_rng(2)
    x, z = rng.normal(size=(2, 2000))
    X = np.column_stack([x, x, 2 * x, z])
    model, mean, covariance = gaussian_regression(X)
    return Case(model, {"beta": (mean, np.diag(covariance) ** 0.5)})


def unidentified():
    """Variables that the data say nothing about keep their priors, on any scale."""
    y = np.random.default_rng(3).normal(1, 2, size=1000)
    with pm.Model() as model:
        batch = pm.Minibatch(y, batch_size=100)
        mu = pm.Normal("mu", 0, 10)
        pm.Normal("far", 1e4, 1e6)
        pm.Gamma("positive", 2, 1e-3)
        pm.Beta("share", 2, 3)
        pm.Normal("y", mu, 2, observed=batch, total_size=1000)
    precision = 1 / 100 + 1000 / 4
    return Case(
        model,
        {
            "mu": (y.sum() / 4 / precision, precision**-0.5),
            "far": (1e4, 1e6),
            "positive": (2e3, 2**0.5 * 1e3),
            "share": (0.4, 0.2),
        },
    )


def student():
    with pm.Model() as model:
        pm.StudentT("x", nu=2.5, shape=3)
    return Case(model, quantiles={"x": stats.t(2.5).ppf(LEVELS)})


def cauchy():
    with pm.Model() as model:
        pm.Cauchy("x", 0, 1, shape=3)
    return Case(model, quantiles={"x": stats.cauchy.ppf(LEVELS)})


def rare_cell():
    counts = np.array([60_000, 39_995, 5])
    labels = np.random.default_rng(4).permutation(np.repeat(np.arange(3, dtype="int32"), counts))
    with pm.Model() as model:
        p = pm.Dirichlet("p", np.ones(3))
        batch = pm.Minibatch(labels, batch_size=500)
        pm.Categorical("y", p, observed=batch, total_size=len(labels))
    a = 1.0 + counts
    mean = a / a.sum()
    return Case(model, {"p": (mean, np.sqrt(mean * (1 - mean) / (a.sum() + 1)))})


def wild_columns():
    """A Poisson regression whose columns have scales from 1e-4 to 1e5."""
    rng = np.random.default_rng(5)
    scales = np.array([1e-4, 1.0, 30.0, 1e5])
    Z = rng.normal(size=(2000, 4))
    X = Z * scales
    effects = np.array([0.3, -0.2, 0.1, 0.25])
    y = rng.poisson(np.exp(0.5 + Z @ effects)).astype("int32")
    with pm.Model() as model:
        x, batch = pm.Minibatch(X, y, batch_size=100)
        intercept = pm.Normal("intercept", 0, 5)
        beta = pm.Normal("beta", 0, 1e5, shape=4)
        pm.Poisson("y", pt.exp(intercept + x @ beta), observed=batch, total_size=2000)

    def log_density(theta):
        eta = theta[:, :1] + theta[:, 1:] @ Z.T
        prior = -(theta[:, 0] ** 2) / 50 - ((theta[:, 1:] / scales) ** 2).sum(axis=1) / 2e10
        return (y * eta - np.exp(eta)).sum(axis=1) + prior

    mean, sd = importance(log_density, np.zeros(5), rng)
    return Case(
        model, {"intercept": (mean[0], sd[0]), "beta": (mean[1:] / scales, sd[1:] / scales)}
    )


def many_dimensions():
    """Means of 2,000 columns on scales from 0.01 to 100: whitening is diagonal."""
    rng = np.random.default_rng(6)
    sds = np.geomspace(0.01, 100, 2000)
    y = sds * (3 + rng.normal(size=(200, 2000)))
    with pm.Model() as model:
        batch = pm.Minibatch(y, batch_size=20)
        mu = pm.Normal("mu", 0, 1e3, shape=2000)
        pm.Normal("y", mu, sds, observed=batch, total_size=200)
    precision = 1e-6 + 200 / sds**2
    return Case(model, {"mu": (y.sum(axis=0) / sds**2 / precision, precision**-0.5)})


def standard_normals():
    """What could be easier, but for their number."""
    with pm.Model() as model:
        pm.Normal("x", 0, 1, shape=600)
    return Case(model, {"x": (np.zeros(600), np.ones(600))})


def many_predictors():
    """A regression on 200 columns."""
    X = np.random.default_rng(7).normal(size=(4000, 200))
    model, mean, covariance = gaussian_regression(X, noise=1.0)
    return Case(model, {"beta": (mean, np.diag(covariance) ** 0.5)})


def discrete_neighbour():
    """The width of x is set by a Bernoulli that another step samples."""
    with pm.Model() as model:
        z = pm.Bernoulli("z", 0.5)
        pm.Normal("x", 0, pt.switch(z, 4.0, 1.0))
    return Case(
        model,
        {"x": (0.0, np.sqrt(17 / 2)), "z": (0.5, 0.5)},
        own_steps=lambda: [pm.BinaryMetropolis([z])],
    )


def correlated_walk():
    """A random walk of 600 steps with few data: correlations that a diagonal does not see."""
    d = 600
    seen = np.arange(0, d, 50)
    y = np.random.default_rng(8).normal(size=len(seen))
    with pm.Model() as model:
        x = pm.GaussianRandomWalk("x", mu=0, sigma=0.1, init_dist=pm.Normal.dist(0, 1), steps=d - 1)
        pm.Normal("y", x[seen], 0.5, observed=y)
    step = np.diff(np.eye(d), axis=0)
    precision = 100 * step.T @ step
    precision[0, 0] += 1
    precision[seen, seen] += 4
    covariance = np.linalg.inv(precision)
    rhs = np.zeros(d)
    rhs[seen] = 4 * y
    return Case(model, {"x": (covariance @ rhs, np.diag(covariance) ** 0.5)})


def horseshoe():
    """Shrinkage of 20 means by half-Cauchy scales; exact by quadrature over their logarithms."""
    y = np.concatenate([[4.0, -5.0], np.random.default_rng(9).normal(size=18)])
    with pm.Model() as model:
        tau = pm.HalfCauchy("tau", 1)
        scale = pm.HalfCauchy("scale", 1, shape=20)
        beta = pm.Normal("beta", 0, tau * scale, shape=20)
        pm.Normal("y", beta, 1, observed=y)
    # The logarithm of a half-Cauchy variable has a density as 1 / cosh
    tau, scale = np.exp(np.linspace(-12, 6, 500))[:, None], np.exp(np.linspace(-15, 15, 1000))
    prior = 1 / (tau + 1 / tau)
    signal = (tau * scale) ** 2
    kept = signal / (1 + signal)
    density = np.stack(
        [np.exp(-(x**2) / 2 / (1 + signal)) / np.sqrt(1 + signal) / (scale + 1 / scale) for x in y]
    )
    of_tau = prior[:, 0] * np.prod(density.sum(axis=2), axis=0)
    of_tau /= of_tau.sum()
    mean, square = (
        ((density * each).sum(axis=2) / density.sum(axis=2)) @ of_tau
        for each in (kept * y[:, None, None], kept + (kept * y[:, None, None]) ** 2)
    )
    of_beta = mean, np.sqrt(square - mean**2)
    return Case(model, {"tau": moments(of_tau, tau[:, 0]), "beta": of_beta})


def small_funnel():
    with pm.Model() as model:
        v = pm.Normal("v", 0, 1)
        pm.Normal("x", 0, pt.exp(v / 2), shape=2)
    return Case(model, {"v": (0.0, 1.0)})


def wide_prior_of_rates():
    """An exp link under a prior that reaches far into overflow."""
    with pm.Model() as model:
        a = pm.Normal("a", 0, 100)
        pm.Poisson("y", pt.exp(a), observed=np.zeros(3, dtype="int32"))
    grid = np.linspace(-800, 20, 400_000)
    log_weight = stats.norm.logpdf(grid, 0, 100) - 3 * np.exp(grid)
    return Case(model, {"a": moments(weights(log_weight), grid)})


def separable_logistic():
    """Perfect separation: the posterior is the prior's tail on one side."""
    x = np.linspace(-1, 1, 20)
    with pm.Model() as model:
        b = pm.Normal("b", 0, 10)
        pm.Bernoulli("y", logit_p=b * x, observed=(x > 0).astype("int32"))
    grid = np.linspace(-10, 80, 200_000)
    log_likelihood = -np.logaddexp(0, -np.abs(x)[:, None] * grid).sum(axis=0)
    weight = weights(stats.norm.logpdf(grid, 0, 10) + log_likelihood)
    return Case(model, {"b": moments(weight, grid)})


def mild_neighbour():
    with pm.Model() as model:
        z = pm.Bernoulli("z", 0.5)
        pm.Normal("x", z * 1.0, pt.switch(z, 1.5, 1.0))
    variance = (2.25 + 1) / 2 + 0.25
    return Case(
        model,
        {"x": (0.5, variance**0.5), "z": (0.5, 0.5)},
        own_steps=lambda: [pm.BinaryMetropolis([z])],
    )


def clusters():
    """Two clusters whose labels a Gibbs step samples; the means are ordered by the data."""
    rng = np.random.default_rng(10)
    y = np.concatenate([rng.normal(-2, 1, 15), rng.normal(2, 1, 15)])
    with pm.Model() as model:
        mu = pm.Normal("mu", [-1.0, 1.0], 0.5, shape=2)
        z = pm.Bernoulli("z", 0.5, shape=30)
        pm.Normal("y", mu[z], 1, observed=y)
    # The labels summed out, on a grid
    grid = np.linspace(-4, 4, 801)
    a, b = np.meshgrid(grid, grid, indexing="ij")
    log_weight = stats.norm.logpdf(a, -1, 0.5) + stats.norm.logpdf(b, 1, 0.5)
    for value in y:
        log_weight += np.logaddexp(stats.norm.logpdf(value, a), stats.norm.logpdf(value, b))
    of_mu = moments(weights(log_weight.ravel()), np.stack([a.ravel(), b.ravel()], axis=1))
    return Case(model, {"mu": of_mu}, own_steps=lambda: [pm.BinaryGibbsMetropolis([z])])
