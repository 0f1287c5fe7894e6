"""Models whose rows cannot be taken in batches, and arguments that ask for it in vain."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.sparse
import pytensor.tensor as pt
import pytest
import scipy.sparse

import pymc_sgmcmc as sg

from helpers.models_with_rows import COUNTS, G, N, X, Y, regression, step_of
from pymc_sgmcmc.testing import UNTUNED


def latent():
    z = pm.Normal("z", dims="obs")
    pm.Normal("y", z, observed=Y, dims="obs")


def prior_of_the_rows():
    y = pm.Data("Y", Y, dims="obs")
    pm.Normal("y", pm.Normal("a", y.mean()), observed=y, dims="obs")


def missing():
    with pytest.warns(pm.exceptions.ImputationWarning):
        pm.Normal("y", pm.Normal("a"), observed=np.where(G == 0, np.nan, Y), dims="obs")


def table_as_long_as_the_rows():
    """Of one entry for each of as many groups: no rows, without a dim that says so."""
    table = pm.Data("table", Y)
    pm.Normal("y", pm.Normal("b") * table[np.arange(N)[::-1] // 2], observed=Y, dims="obs")


def sum_of_rows():
    pm.Normal("y", pm.Normal("b") / pt.sum(pm.Data("w", Y**2)), observed=Y, dims="obs")


def bare_observed():
    x = pm.Data("x", X, dims=("obs", None))
    pm.Normal("y", x @ pm.Normal("b", shape=3), observed=Y)
    pm.Normal("z", 0, observed=Y, dims="obs")


def potential():
    pm.Normal("y", pm.Normal("a"), observed=Y, dims="obs")
    pm.Potential("p", pt.sum(pm.Data("x", Y, dims="obs") * pm.modelcontext(None)["a"]))


def own_gradient():
    x = pm.Data("x", Y, dims="obs")
    a = pm.Normal("a")
    pm.Normal("y", a, observed=Y, dims="obs")
    sg.GradientPotential("g", lambda a, x, noise: pt.sum(x - a), [a], [x])


def pairs():
    pm.MvNormal("y", cov=pm.Data("k", np.eye(N), dims=("obs", "obs")), observed=Y, dims="obs")
    pm.Normal("a")


def matrix():
    pm.MvNormal("y", pm.Normal("a"), np.eye(N), observed=Y, dims="obs")


def autoregression():
    pm.AR("y", pm.Normal("a"), observed=Y, dims="obs", init_dist=pm.Normal.dist())


def walk():
    pm.GaussianRandomWalk(
        "y", pm.Normal("a"), init_dist=pm.Normal.dist(), observed=Y, dims="obs", steps=N - 1
    )


def centred():
    x = pm.Data("x", X[:, 0], dims="obs")
    pm.Normal("y", pm.Normal("a") * (x - x.mean()), observed=Y, dims="obs")


def cumulated():
    x = pm.Data("x", X[:, 0], dims="obs")
    pm.Normal("y", pm.Normal("a") * pt.cumsum(x), observed=Y, dims="obs")


def time_trend():
    x = pm.Data("x", X[:, 0], dims="obs")
    pm.Normal("y", pm.Normal("a") * pt.arange(x.shape[0]), observed=Y, dims="obs")


def shares():
    pm.Multinomial("y", N * 2, pm.Dirichlet("p", np.ones(N)), observed=COUNTS, dims="obs")


def basis_without_a_dim():
    """A square matrix: which of its axes is that of the rows cannot be seen."""
    pm.Normal("y", pm.Data("basis", np.eye(N)) @ pm.Normal("w", shape=N), observed=Y, dims="obs")


def latent_walk():
    z = pm.GaussianRandomWalk("z", 1.0, init_dist=pm.Normal.dist(), steps=N - 1)
    pm.Normal("y", z, observed=Y, dims="obs")


def covariate_of_groups():
    """Of as many groups as there are rows, each in the place of its row."""
    u = pm.Data("u", Y)
    pm.Normal("y", (pm.Normal("b") * u)[np.arange(N)], observed=Y, dims="obs")


def centred_constant():
    x = pt.constant(X[:, 0], name="x")
    pm.Normal("y", pm.Normal("a") * (x - x.mean()), observed=Y, dims="obs")


def ranked():
    pm.Normal("y", pm.Normal("a") * pt.sort(pm.Data("x", X[:, 0])), observed=Y, dims="obs")


def lagged():
    x = pm.Data("x", X[:, 0])
    lag = pt.concatenate([x[:1], x[:-1]])
    pm.Normal("y", pm.Normal("a") * lag, observed=Y, dims="obs")


def weight_of_all():
    """A potential of weights that are divided by their sum."""
    w = pm.Data("w", Y**2)
    pm.Potential("p", -w / w.sum() * (Y - pm.Normal("a")) ** 2, dims="obs")
    pm.Normal("y", 0, observed=Y, dims="obs")


def of_their_number():
    y = pm.Data("Y", Y, dims="obs")
    pm.Potential("p", -((y - pm.Normal("a")) ** 2) / y.shape[0], dims="obs")


def spread_of_their_number():
    y = pm.Data("Y", Y, dims="obs")
    pm.Normal("y", pm.Normal("a"), pt.sqrt(y.shape[0]), observed=y, dims="obs")


def kept_by_a_mask():
    pm.Normal("y", (pm.Normal("a") * X[:, 0])[Y > 0], observed=Y[Y > 0], dims="kept")


def minibatch():
    y = pm.Minibatch(Y, batch_size=7)
    pm.Normal("y", pm.Normal("a"), observed=y, total_size=N)
    pm.Normal("z", 0, observed=Y, dims="obs")


def total_size():
    pm.Normal("y", pm.Normal("a"), observed=Y, dims="obs", total_size=10 * N)


def another_dim():
    pm.Normal("y", pm.Normal("a"), observed=Y, dims="rows")
    pm.Data("x", Y, dims="obs")


def potential_of_no_arrays():
    pm.Potential("p", pt.ones(len(Y)) * pm.Normal("a"), dims="obs")


def data_of_a_deterministic_alone():
    pm.Deterministic("twice", 2 * pm.Data("x", Y, dims="obs"), dims="obs")
    potential_of_no_arrays()


def picked(dims=None):
    y = pm.Data("y_data", Y, dims="obs")
    pm.Normal("y", pm.Normal("a"), observed=y[np.flatnonzero(G)], dims=dims)


def picked_with_the_dim():
    picked("obs")


def features_first():
    x = pytensor.sparse.as_sparse_variable(scipy.sparse.csc_matrix(X.T))
    b = pm.Normal("b", shape=(3, 1))
    pm.Normal("y", pytensor.sparse.structured_dot(x.T, b)[:, 0], observed=Y, dims="obs")


def sparse_in_no_product():
    x = pm.Data("x", scipy.sparse.csr_matrix(X), dims=("obs", None))
    mean = pm.Normal("a") * pytensor.sparse.sp_sum(x, axis=1)
    pm.Normal("y", mean, observed=Y, dims="obs")


REFUSED = [
    (potential_of_no_arrays, ValueError, r"No array has the dim 'obs'.*pm.Data\("),
    (data_of_a_deterministic_alone, ValueError, r"No array has the dim 'obs'.*pm.Data\("),
    (picked, ValueError, r"'y' depends on rows of the dim 'obs'.*an index or a mask takes some"),
    (
        picked_with_the_dim,
        ValueError,
        r"'y' has 45 entries along the dim 'obs', whose coords .* 60",
    ),
    (features_first, ValueError, r"An array of shape \(3, 60\) is sparse.*x\.toarray\(\)"),
    (sparse_in_no_product, ValueError, r"'x' of shape \(60, 3\) is sparse.*structured_dot\(x"),
    (
        prior_of_the_rows,
        NotImplementedError,
        "prior of 'a' is computed from the rows of the dim 'obs'.*by NumPy",
    ),
    (latent, NotImplementedError, r"'z' depends on the rows of the dim 'obs'.*z\[pm.Data\("),
    (missing, NotImplementedError, r"'y' has missing values.*Leave these rows out"),
    (table_as_long_as_the_rows, ValueError, r"depends on .*'table'.* another dim to what holds"),
    (sum_of_rows, ValueError, r"not a sum over the rows.* By its length alone 'w' is taken"),
    (bare_observed, ValueError, r"'y' depends on rows of the dim 'obs' and has not the dim"),
    (potential, NotImplementedError, r"The potential 'p' depends on rows.*give it dims=\"obs\""),
    (own_gradient, NotImplementedError, r"The GradientPotential 'g'.*Draw them by pm.Minibatch"),
    (pairs, ValueError, r"'k' has the dim 'obs' twice"),
    (matrix, ValueError, r"depends on an array of shape \(60, 60\)"),
    (autoregression, ValueError, r"'y' is not a sum over the rows.*time series"),
    (walk, ValueError, r"'y' is not a sum over the rows|cannot be taken in batches"),
    (centred, ValueError, r"'y' is not a sum over the rows.*Compute such means, and"),
    (cumulated, ValueError, r"'y' is not a sum over the rows"),
    (time_trend, ValueError, r"'y' is not a sum over the rows"),
    (basis_without_a_dim, ValueError, r"depends on .*'basis'"),
    (latent_walk, ValueError, r"depends on 'z'"),
    (covariate_of_groups, ValueError, r"'u'"),
    (centred_constant, ValueError, r"'y' is not a sum over the rows.* its length alone 'x' is"),
    (ranked, ValueError, r"'y' is not a sum over the rows.* its length alone 'x' is"),
    (lagged, ValueError, r"'y' is not a sum over the rows.* its length alone 'x' is"),
    (of_their_number, ValueError, r"'p' is not a sum over the rows"),
    (spread_of_their_number, ValueError, r"'y' is not a sum over the rows"),
    (weight_of_all, ValueError, r"'p' is not a sum over the rows.* alone .*'w'.* is taken"),
    (shares, ValueError, r"depends on .*'p'.* with as many entries|is not a sum over the rows"),
    (minibatch, ValueError, r"draws batches by pm.Minibatch, and batch_dim='obs' asks"),
    (total_size, ValueError, r"'y' has a total_size=.*Leave total_size out"),
    (another_dim, ValueError, r"No observed variable has the dim 'obs'"),
]


@pytest.mark.parametrize(("build", "error", "match"), REFUSED)
def test_what_cannot_be_batched_is_refused(build, error, match):
    with pm.Model(coords={"obs": range(N), "rows": range(N)}) as model:
        build()
    with pytest.raises(error, match=match):
        step_of(model)


def test_what_comes_after_the_rows_is_sampled_with_all_of_them():
    """A prior in whose graph is an observed variable, and no array."""
    with pm.Model() as model:
        y = pm.Normal("y", pm.Normal("a"), observed=np.zeros(10_000))
        pm.Normal("next", y[-1])
        assert sg.SGLD(step_size=1e-3, **UNTUNED).options.batch_dim is None
    with pytest.raises(NotImplementedError, match="prior of 'next' is computed from the rows"):
        step_of(model, batch_dim={"y": 0})


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"batch_size": None}, ValueError, r"batch_dim='obs' needs batch_size="),
        ({"batch_size": "some"}, ValueError, r"batch_size must be 'auto', a number of rows, or"),
        ({"batch_dim": {}}, ValueError, r"batch_dim is an empty dict"),
        ({"batch_dim": {"z": 0}}, ValueError, r"batch_dim names 'z', which is no observed .* 'y'"),
        ({"batch_dim": {"y": 1}}, ValueError, r"'y' has an axis from 0 to 0"),
        ({"batch_dim": {"y": True}}, ValueError, r"'y' has an axis from 0 to 0"),
        ({"batch_dim": {"y": 0}}, ValueError, r"which has the dim 'obs'. Pass batch_dim='obs'"),
        ({"batch_dim": "obz"}, ValueError, r"batch_dim='obz' is no dim.*Did you mean 'obs'\?"),
        ({"batch_dim": 0}, TypeError, r"batch_dim must be the name of a dim"),
        ({"batch_size": 61}, ValueError, r"batch_size=61 is larger than the dim 'obs' of 60 rows"),
        ({"batch_size": 0}, ValueError, r"batch_size must be an integer of at least 1"),
        ({"batches": 10}, ValueError, r"the data have only 9 batches: 60 rows"),
    ],
)
def test_arguments(options, error, match):
    with pytest.raises(error, match=match):
        step_of(regression(), **options)
