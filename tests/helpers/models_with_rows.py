"""Models whose rows have the dim "obs", and nothing else that tells of batches."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt

from helpers.minibatched_models import data

N = 60
X, Y = data(0, (N, 3), N)
G, COUNTS = np.arange(N) % 4, np.arange(N) % 5


def regression():
    """Data with dims, a group index, an observed array, coords; lengths of another dim."""
    with pm.Model(coords={"obs": range(N), "group": list("abcd")}) as model:
        x = pm.Data("x", X, dims=("obs", "feature"))
        g = pm.Data("g", G, dims="obs")
        effects = pm.Normal("effects", dims="group")
        slopes = pm.Normal("slopes", shape=x.shape[1])
        more = pm.Normal("more", dims="feature")
        mu = pm.Deterministic("mu", effects[g] + x @ (slopes + more), dims="obs")
        pm.Normal("y", mu, pm.HalfNormal("sd"), observed=Y, dims="obs")
    return model


def several_terms():
    """Observed on the same rows: containers, int64 labels, one left whole, a potential."""
    with pm.Model() as model:
        x = pm.Data("x", X, dims=("obs", None))
        a, b = pm.Normal("a", 0.1, initval=0.3), pm.Normal("b", shape=3)
        pm.Bernoulli("z", logit_p=x @ b, observed=pm.Data("z_data", G > 1, dims="obs"))
        pm.Poisson("n", pt.exp(a * x[:, 0]), observed=COUNTS, dims="obs")
        pm.Categorical("k", logit_p=pt.outer(x[:, 1], b), observed=G % 3, dims="obs")
        pm.Normal("whole", a, observed=[0.5, 1.5])
        pm.Potential("loss", -pt.abs(x @ b - a), dims="obs")
    return model


def potential_alone():
    """A likelihood that is a potential, and nothing that is observed."""
    with pm.Model() as model:
        x = pm.Data("x", X, dims=("obs", None))
        pm.Potential("loss", -pt.abs(x @ pm.Normal("b", shape=3) - 1), dims="obs")
    return model


def rows_on_other_axes():
    """The dim on the second axis: of data, of an observed matrix and of a potential."""
    with pm.Model(coords={"item": range(3)}) as model:
        x = pm.Data("x", X.T, dims=("item", "obs"))
        b = pm.Normal("b", dims="item")
        pm.Normal("y", b[:, None] * x, 1.3, observed=2 * X.T + Y, dims=("item", "obs"))
        pm.Potential("loss", -pt.abs(x - b[:, None]), dims=("item", "obs"))
    return model


def rows_of_vectors():
    """Observed matrices, one of them of correlated entries."""
    with pm.Model(coords={"obs": range(N), "item": range(3)}) as model:
        b, sd = pm.Normal("b", dims="item"), pm.HalfNormal("sd")
        cov = np.diag([1.0, 2.0, 3.0]) + sd
        pm.MvNormal("y", b, cov, observed=X + Y[:, None], dims=("obs", "item"))
        pm.Normal("z", b, sd, observed=X, dims=("obs", "item"))
    return model


def kinds_of_likelihoods():
    """Censored, truncated, mixed and of the user's own; one shape is written as a number."""
    with pm.Model() as model:
        x = pm.Data("x", X[:, 0], dims="obs")
        a, sd = pm.Normal("a", [0.0, 1.0]), pm.HalfNormal("sd")
        normal = pm.Normal.dist(a[0] * x, sd)
        pm.Censored("c", normal, lower=-0.5, upper=1, observed=np.clip(Y, -0.5, 1), dims="obs")
        pm.Truncated("t", normal, lower=0, observed=np.abs(Y), dims="obs")
        pm.NormalMixture("m", [0.3, 0.7], a, sd, observed=Y, dims="obs", shape=N)
        pm.CustomDist("l", a[1] * x, logp=lambda v, m: -pt.abs(v - m), observed=Y, dims="obs")
        pm.CustomDist(
            "d",
            a[1] * x,
            sd,
            dist=lambda m, s, size: pt.exp(pm.Normal.dist(m, s, size=size)),
            observed=np.exp(Y),
            dims="obs",
        )
    return model


def arrays_without_dims():
    """A design, its transpose, an index, a mask, weights and bounds that no dim tells of."""
    with pm.Model(coords={"obs": range(N)}) as model:
        b, effects, sd = pm.Normal("b", shape=3), pm.Normal("effects", shape=4), pm.HalfNormal("sd")
        mean = pm.Data("x", X) @ b + effects[G] + pytensor.shared(Y, "offset")
        mean = mean + pt.switch(Y > 0, b[0], 0.3) + (b[:, None] * X.T).sum(axis=0)
        pm.Normal("y", mean, sd * np.exp(X[:, 0]), observed=Y, dims="obs")
        pm.Censored("c", pm.Normal.dist(b[0]), lower=Y, upper=None, observed=Y + 1, dims="obs")
        pm.Potential("loss", -pt.abs(mean) * (COUNTS + 0.5), dims="obs")
    return model


MODELS = [
    regression,
    several_terms,
    potential_alone,
    rows_on_other_axes,
    rows_of_vectors,
    kinds_of_likelihoods,
    arrays_without_dims,
]
