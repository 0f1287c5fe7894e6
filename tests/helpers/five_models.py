"""Five models of one kind of rows, each written for ``pm.Minibatch`` and for a dim."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt

from helpers.minibatched_models import with_batches

N, B, GROUPS = 2000, 100, 20


def logistic(batched, observed):
    """Coefficients of a logistic regression."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(N, 3))
    x, y = batched(X, rng.random(N) < 1 / (1 + np.exp(-X @ [1.0, -0.5, 0.3])), batch_size=B)
    beta = pm.Normal("beta", 0, 2, shape=3)
    pm.Bernoulli("y", logit_p=x @ beta, observed=y, **observed(N))


def poisson_with_offset(batched, observed):
    """Counts over exposures of known length; a rate that is positive."""
    rng = np.random.default_rng(2)
    X, exposure = rng.normal(size=N), rng.uniform(0.2, 3, size=N)
    counts = rng.poisson(exposure * 0.7 * np.exp(0.4 * X)).astype(np.int32)
    x, e, y = batched(X, exposure, counts, batch_size=B)
    rate, slope = pm.Gamma("rate", 2, 2), pm.Normal("slope")
    pm.Poisson("y", e * rate * pt.exp(slope * x), observed=y, **observed(N))


def hierarchical(batched, observed):
    """Groups by an index, with their spread."""
    rng = np.random.default_rng(3)
    groups, X = rng.integers(0, GROUPS, size=N), rng.normal(size=N)
    Y = rng.normal(0.5, 0.8, size=GROUPS)[groups] + 0.3 * X + rng.normal(size=N)
    g, x, y = batched(groups.astype(np.int32), X, Y, batch_size=B)
    mean, spread = pm.Normal("mean", 0, 2), pm.HalfNormal("spread", 1)
    effects = pm.Normal("effects", mean, spread, shape=GROUPS)
    sd = pm.HalfNormal("sd", 2)
    pm.Normal("y", effects[g] + pm.Normal("slope") * x, sd, observed=y, **observed(N))


def robust(batched, observed):
    """A regression with heavy tails, whose degrees of freedom are bounded below."""
    rng = np.random.default_rng(4)
    X = rng.normal(size=(N, 2))
    x, y = batched(X, X @ [1.0, -1.0] + 0.5 * rng.standard_t(4, size=N), batch_size=B)
    beta, sd = pm.Normal("beta", 0, 2, shape=2), pm.HalfNormal("sd", 1)
    nu = pm.Gamma("nu", 4, 0.5)
    pm.StudentT("y", nu + 1, mu=x @ beta, sigma=sd, observed=y, **observed(N))


def zero_inflated(batched, observed):
    """A mixture: counts with zeros of another origin; a probability between 0 and 1."""
    rng = np.random.default_rng(5)
    X = rng.normal(size=N)
    counts = np.where(rng.random(N) < 0.6, rng.poisson(np.exp(0.8 + 0.3 * X)), 0)
    x, y = batched(X, counts.astype(np.int32), batch_size=B)
    psi, beta = pm.Beta("psi", 2, 2), pm.Normal("beta", 0, 2, shape=2)
    pm.ZeroInflatedPoisson("y", psi, pt.exp(beta[0] + beta[1] * x), observed=y, **observed(N))


FIVE = [logistic, poisson_with_offset, hierarchical, robust, zero_inflated]


def unchanged(build):
    """Return the model that knows of no batches: its rows have the dim "obs"."""

    def data(*arrays, batch_size):
        return [
            pm.Data(f"data_{k}", array, dims=("obs", *[None] * (array.ndim - 1)))
            for k, array in enumerate(arrays)
        ]

    with pm.Model() as model:
        build(data, lambda size: {"dims": "obs"})
    return model


def both_ways(build):
    """Return each writing of a model and what a step method must be told of it."""
    return [(unchanged(build), {"batch_size": B, "batch_dim": "obs"}), (with_batches(build), {})]
