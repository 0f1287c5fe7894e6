"""Models whose rows have the dim "obs", and nothing else that tells of batches; their steps."""

import numpy as np
import pandas as pd
import pymc as pm
import pytensor
import pytensor.sparse
import pytensor.tensor as pt
import scipy.sparse

import pymc_sgmcmc as sg

from helpers.minibatched_models import data
from pymc_sgmcmc.testing import UNTUNED

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


def as_many_others_as_rows():
    """Groups, basis functions and the times of a walk, each with its own dim, in a random order."""
    order = np.random.default_rng(1).permutation(N)
    with pm.Model(coords={"obs": range(N), "group": range(N), "knot": range(N)}) as model:
        of_row = pm.Data("of_row", order, dims="obs")
        basis = pm.Data("basis", np.cos(np.outer(Y, np.arange(N))), dims=("obs", "knot"))
        slope, weights = pm.Normal("slope"), pm.Normal("weights", dims="knot")
        groups = slope * pm.Data("of_group", Y, dims="group") + pm.Normal("effects", dims="group")
        walk = pm.GaussianRandomWalk("walk", 1.0, init_dist=pm.Normal.dist(), steps=N - 1)
        mean = groups[of_row] + basis @ weights + walk[order[::-1]]
        pm.Normal("y", mean, observed=Y, dims="obs")
    return model


def rows_of_several_lengths():
    """Pairs, bounds of each row, terms of as many and of fewer rows that stay whole."""
    with pm.Model(coords={"obs": range(N), "few": range(7), "pair": range(2)}) as model:
        b, sd = pm.Normal("b", shape=3), pm.HalfNormal("sd")
        pm.Normal("pairs", b[:2] * X[:, :1], sd, observed=X[:, 1:], dims=("obs", "pair"))
        mean = (b[:, None] * X.T).sum(axis=0)
        pm.Truncated("t", pm.Normal.dist(mean, sd), Y, observed=Y + 0.5, dims="obs")
        bounds = {"lower": pytensor.shared(Y - 1, "low"), "upper": Y + 1}
        pm.Censored("c", pm.Normal.dist(mean, sd), **bounds, observed=Y, dims="obs")
        pm.Normal("fewer", b[0] * X[:7, 1], observed=Y[:7], dims="few")
        pm.Normal("as_many", b[0] * X[:, 2], sd, observed=Y)
        pm.Normal("kept", (b[1] * X[:, 2])[Y > 0], sd, observed=Y[Y > 0])
        pm.Potential("weighted", -(COUNTS + 1) * pt.abs(mean - Y), dims="obs")
    return model


def columns_of_frames():
    """Of pandas, nullable and not, categories, and arrays of short numbers and in other orders."""
    frame = pd.DataFrame(X, columns=list("abc"), index=[f"row {k}" for k in range(N)])
    frame["g"] = pd.Categorical(np.array(list("wxyz"))[G])
    counts = pd.Series(COUNTS).astype("Int64")
    with pm.Model(coords={"obs": range(N)}) as model:
        b, effects = pm.Normal("b", shape=3), pm.Normal("effects", shape=4)
        mean = pm.math.dot(frame[["a", "b", "c"]], b) + effects[frame["g"].cat.codes]
        mean = mean + b[0] * X.astype("float16")[::-1, 0] + b[1] * COUNTS.astype("uint8")
        pm.Normal("y", mean, observed=pd.Series(Y), dims="obs")
        pm.Poisson("n", pt.exp(b[2] * (frame["a"] > 0)), observed=counts, dims="obs")
        pm.Bernoulli("z", logit_p=mean, observed=list(frame["b"] > 0), dims="obs")
    return model


def sparse_designs():
    """Constants and shared variables, by rows and by columns, with an empty row."""
    rng = np.random.default_rng(0)
    design = rng.normal(size=(N, 9)) * (rng.random((N, 9)) < 0.2)
    design[5] = 0
    design = scipy.sparse.csr_matrix(design)
    with pm.Model(coords={"obs": range(N)}) as model:
        b = pm.Normal("b", shape=(9, 2))
        declared = pm.Data("declared", design, dims=("obs", None))
        constant = pytensor.sparse.as_sparse_variable((design > 0).astype(int).tocsc())
        mean = pytensor.sparse.structured_dot(declared, b).sum(axis=1)
        mean = mean + pytensor.sparse.dot(constant, b[:, 0])
        mean = mean + pytensor.sparse.dot(pm.Data("bare", design.tocsc()), b[:, :1])[:, 0]
        pm.Normal("y", mean, observed=Y, dims="obs")
    return model


def weights_in_a_density():
    """Arrays that the user's functions hold, and that the graph does not show."""
    weights = np.linspace(0.5, 2, N)

    def alone(y, mu, sd):
        return weights * pm.logp(pm.Normal.dist(mu, sd), y)

    def beside_draws(z, sd):
        return weights * pm.logp(pm.Normal.dist(0, sd), z)

    def drawn(sd, size):
        return pm.Normal.dist(0, sd, size=size)

    with pm.Model() as model:
        x = pm.Data("x", X, dims=("obs", None))
        mu, sd = x @ pm.Normal("b", shape=3), pm.HalfNormal("sd")
        pm.CustomDist("y", mu, sd, logp=alone, observed=Y, dims="obs")
        pm.CustomDist("z", sd, logp=beside_draws, dist=drawn, observed=COUNTS * 1.0, dims="obs")
    return model


def mediation():
    """An observed variable that another one depends on, as pm.observe makes them."""
    with pm.Model() as model:
        x = pm.Data("x", X, dims=("obs", None))
        mediator = pm.Normal("m", x @ pm.Normal("a", shape=3), 0.6, observed=X[:, 1], dims="obs")
        mean = x[:, 0] + pm.Normal("b") * mediator
        pm.Normal("y", mean, pm.HalfNormal("sd"), observed=Y, dims="obs")
    return model


MODELS = [
    regression,
    several_terms,
    potential_alone,
    rows_on_other_axes,
    rows_of_vectors,
    kinds_of_likelihoods,
    arrays_without_dims,
    as_many_others_as_rows,
    rows_of_several_lengths,
    columns_of_frames,
    sparse_designs,
    weights_in_a_density,
    mediation,
]


def step_of(model, **options):
    """Return a step of seven of the rows at a time, of which nothing is tuned."""
    return sg.SGLD(
        model=model,
        **{"step_size": 1e-3, "batch_size": 7, "batch_dim": "obs", **UNTUNED, **options},
    )
