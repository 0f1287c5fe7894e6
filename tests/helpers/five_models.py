"""Five common models of a few hundred rows, written once for every way to take batches of them."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt

from helpers.grids import moments
from helpers.importance import weighted
from pymc_sgmcmc.backends.interpreting import INTERPRETER
from pymc_sgmcmc.model.initial_point import initial_point

N, BATCH = 400, 50


def _data(seed):
    rng = np.random.default_rng(seed)
    return rng, rng.normal(size=(N, 2))


def logistic(batched, total):
    rng, X = _data(1)
    y = rng.random(N) < 1 / (1 + np.exp(-(0.5 + X @ [1.0, -0.7])))
    x, y = batched(X, y, batch_size=BATCH)
    intercept = pm.Normal("intercept", 0, 2)
    slopes = pm.Normal("slopes", 0, 2, shape=2)
    pm.Bernoulli("y", logit_p=intercept + x @ slopes, observed=y, **total(N))


def counts_with_exposure(batched, total):
    rng, X = _data(2)
    exposure = rng.uniform(0.5, 3, size=N)
    y = rng.poisson(0.8 * exposure * np.exp(0.3 * X[:, 0])).astype(np.int32)
    x, offset, y = batched(X[:, 0], np.log(exposure), y, batch_size=BATCH)
    rate = pm.Gamma("rate", 2, 2)
    slope = pm.Normal("slope")
    pm.Poisson("y", rate * pt.exp(offset + slope * x), observed=y, **total(N))


def groups(batched, total):
    rng, X = _data(3)
    group = (np.arange(N) % 8).astype(np.int32)
    y = rng.normal(size=8)[group] + 0.5 * X[:, 0] + rng.normal(size=N)
    x, g, y = batched(X[:, 0], group, y, batch_size=BATCH)
    mean, spread = pm.Normal("mean", 0, 2), pm.HalfNormal("spread", 2)
    effects = pm.Normal("effects", mean, spread, shape=8)
    slope, sigma = pm.Normal("slope"), pm.HalfNormal("sigma", 2)
    pm.Normal("y", effects[g] + slope * x, sigma, observed=y, **total(N))


def robust_regression(batched, total):
    rng, X = _data(4)
    y = 1 + X @ [0.4, -1.0] + 0.5 * rng.standard_t(3, size=N)
    x, y = batched(X, y, batch_size=BATCH)
    intercept, slopes = pm.Normal("intercept", 0, 3), pm.Normal("slopes", 0, 3, shape=2)
    nu, sigma = pm.Gamma("nu", 2, 0.5), pm.HalfNormal("sigma", 2)
    pm.StudentT("y", nu, mu=intercept + x @ slopes, sigma=sigma, observed=y, **total(N))


def zeros_and_counts(batched, total):
    rng, X = _data(5)
    y = (rng.poisson(np.exp(0.7 + 0.3 * X[:, 0])) * (rng.random(N) < 0.6)).astype(np.int32)
    x, y = batched(X[:, 0], y, batch_size=BATCH)
    share = pm.Beta("share", 2, 2)
    level, slope = pm.Exponential("level", 0.5), pm.Normal("slope")
    pm.ZeroInflatedPoisson("y", share, level * pt.exp(slope * x), observed=y, **total(N))


FIVE = [logistic, counts_with_exposure, groups, robust_regression, zeros_and_counts]


def exact_moments(model, draws=2000):
    """Mean and sd of each variable of a model without batches, by PyMC's own density of it."""
    start = initial_point(model)
    shapes = [np.shape(start[value.name]) for value in model.value_vars]
    ends = np.cumsum([int(np.prod(shape)) for shape in shapes])[:-1]
    variables = model.replace_rvs_by_values(model.free_RVs)
    log_density, values = (
        pm.compile(model.value_vars, graphs, mode=INTERPRETER)
        for graphs in (model.logp(), variables)
    )

    def split(x):
        parts = zip(np.split(x, ends), shapes, strict=True)
        return [part.reshape(shape) for part, shape in parts]

    x, weight = weighted(
        lambda points: np.array([float(log_density(*split(x))) for x in points]),
        np.concatenate([np.ravel(start[value.name]) for value in model.value_vars]),
        np.random.default_rng(0),
        draws,
    )
    columns = zip(*[values(*split(point)) for point in x], strict=True)
    return {
        rv.name: moments(weight, of_rv)
        for rv, of_rv in zip(model.free_RVs, map(np.stack, columns), strict=True)
    }
