"""Batches of the rows of a dim: the density of the full model, and what cannot be batched."""

import logging

import numpy as np
import pymc as pm
import pytensor
import pytensor.sparse
import pytensor.tensor as pt
import pytest
import scipy.sparse

import pymc_sgmcmc as sg

from helpers.five_models import BATCH, FIVE, exact_moments
from helpers.minibatched_models import with_batches, with_dims, without_batches
from helpers.models_with_rows import COUNTS, MODELS, G, N, X, Y, regression
from helpers.modes import PLAIN
from helpers.sampling import run
from helpers.steps import drawn, start
from helpers.z_scores import assert_right
from pymc_sgmcmc.kernel.engine import Engine
from pymc_sgmcmc.kernel.options import Options
from pymc_sgmcmc.model.initial_point import initial_point
from pymc_sgmcmc.testing import UNTUNED


def step_of(model, **options):
    return sg.SGLD(
        model=model,
        **{"step_size": 1e-3, "batch_size": 7, "batch_dim": "obs", **UNTUNED, **options},
    )


# Long to compile
LONG = {
    "arrays_without_dims",
    "as_many_others_as_rows",
    "columns_of_frames",
    "kinds_of_likelihoods",
    "rows_of_several_lengths",
    "rows_of_vectors",
}
CASES = [
    pytest.param(build, 7, "jax", marks=[pytest.mark.slow] * (build.__name__ in LONG))
    for build in MODELS
]
CASES += [(regression, 60, "jax")]


@pytest.mark.parametrize(("build", "batch_size", "backend"), CASES)
def test_batches_make_up_the_density_of_the_model(build, batch_size, backend):
    """Sums over blocks are PyMC's density and gradient; estimates from blocks average to them."""
    model = build()
    step_of(model, batch_size=batch_size)
    options = Options(batch_size=batch_size, batch_dim="obs", transforms="model", backend=backend)
    start = initial_point(model)
    compiled = Engine(model, model.value_vars, options, start)
    rng = np.random.default_rng(1)
    point = [start[v.name] + rng.normal(0, 0.3, np.shape(start[v.name])) for v in model.value_vars]
    outputs = [model.logp(), model.dlogp()]
    logp, gradient = pm.compile(model.value_vars, outputs, mode=PLAIN)(*point)

    potential = compiled.potential_at(5, [], [])
    flat = potential.join(point)[None]
    full = potential.full(flat)
    np.testing.assert_allclose(full[0], -logp, rtol=1e-12)
    np.testing.assert_allclose(full[1][0], -gradient, rtol=1e-10, atol=1e-10)
    # Every offset, each row equally often
    every = np.arange(N, dtype=np.int32)[:, None]
    estimates = potential.batch_gradient(np.repeat(flat, N, axis=0), every)
    np.testing.assert_allclose(estimates.mean(axis=0), -gradient, rtol=1e-9, atol=1e-9)


QUICK, *REST = FIVE
SAME_BITS = [(QUICK, "jax"), pytest.param(QUICK, "numba", marks=pytest.mark.slow)]
SAME_BITS += [pytest.param(build, "jax", marks=pytest.mark.slow) for build in REST]


@pytest.mark.parametrize(("build", "backend"), SAME_BITS)
def test_draws_are_those_of_the_model_with_minibatches(build, backend):
    """To the last bit."""
    found = []
    for model, options in [
        (with_dims(build), {"batch_size": BATCH, "batch_dim": "obs"}),
        (with_batches(build), {}),
    ]:
        step = sg.SGLD(model=model, step_size=1e-4, backend=backend, **UNTUNED, **options)
        *_, (point, _) = drawn(step, 3, seed=3)
        found.append(point)
    for name, values in found[0].items():
        np.testing.assert_array_equal(values, found[1][name])
        assert np.isfinite(values).all()


@pytest.mark.slow
@pytest.mark.parametrize("build", FIVE[::2])
def test_the_posterior_is_right(build):
    """Of the unchanged model, tuned; the exact one is that of PyMC's density."""
    model = with_dims(build)
    step = sg.MSGNHT(model=model, backend="jax", batch_size=BATCH, batch_dim="obs")
    assert_right(run(step, chains=1).posterior, exact_moments(without_batches(build)))


def test_new_data_are_read_at_the_next_chain():
    with pm.Model() as model:
        x = pm.Data("x", X, dims=("obs", "feature"))
        pm.Normal("y", x @ pm.Normal("b", shape=3), observed=Y, dims="obs")
    step = step_of(model, backend="jax")
    step.step(start(step, 0, 1))
    before = step._engine
    with model:
        pm.set_data({"x": 2 * X})
    step.step(start(step, 0, 1))
    assert step._engine is not before
    np.testing.assert_array_equal(step._engine.posterior.arrays[0][0], 2 * X)


def test_new_data_that_are_refused_are_refused_again():
    with pm.Model() as model:
        g = pm.Data("g", np.repeat([0, 1, 2], 20), dims="obs")
        pm.Normal("y", pm.Normal("t", shape=3)[g], 1, observed=np.zeros(60), dims="obs")
    step = step_of(model, backend="jax")
    step.step(start(step, 0, 1))
    with model:
        pm.set_data({"g": np.repeat([1, 2, 3], 20)})
    for _ in range(2):
        with pytest.raises(ValueError, match="'g' has the value 3"):
            run(step, draws=2, tune=0, chains=1)


def test_a_dim_has_one_length():
    model = regression()
    with model:
        pm.set_data({"x": X[:50]}, coords={"obs": range(50)})
    with pytest.raises(ValueError, match=r"'g' has 60 entries along the dim 'obs', .* have 50"):
        step_of(model)


def test_what_is_not_finite_is_named():
    bad = X.copy()
    bad[17, 1] = np.inf
    with pm.Model() as model:
        x = pm.Data("x", bad.T, dims=(None, "obs"))
        pm.Normal("y", x.T @ pm.Normal("b", shape=3), observed=Y, dims="obs")
    step = step_of(model, backend="jax")
    with pytest.raises(pm.exceptions.SamplingError, match=r"pm.Data 'x' has inf in 1 of"):
        step.step(start(step, 0, 1))


def test_single_precision():
    with pytensor.config.change_flags(floatX="float32"), pm.Model() as model:
        x = pm.Data("x", X, dims=("obs", None))
        b = pm.Normal("b", shape=3)
        pm.Normal("y", x @ b, observed=Y, dims="obs")
        pm.Bernoulli("z", logit_p=x @ b, observed=G > 1, dims="obs")
        step = step_of(model, backend="jax")
        point, _ = step.step(start(step, 0, 1))
    assert point["b"].dtype == np.float32


def test_deterministics_of_all_rows_are_left_out_of_the_draws(caplog):
    with pm.Model() as model:
        x = pm.Data("x", np.zeros(40), dims="obs")
        mean = pm.Deterministic("mean", pm.Normal("a") + x, dims="obs")
        pm.Deterministic("other", model["a"] + 1)
        pm.Normal("y", mean, observed=np.zeros(40), dims="obs")
    with caplog.at_level(logging.INFO, "pymc.sgmcmc"):
        dt = run(step_of(model), draws=3, tune=1, chains=1)
    assert "The draws leave out 'mean', computed from all rows" in caplog.text
    assert set(dt.posterior.data_vars) == {"a", "other"}
    with model:
        again = pm.compute_deterministics(dt.posterior.to_dataset(), progressbar=False)
        # PyMC's checks take no draws without a free variable
        asked = pm.sample(
            100, tune=1, chains=2, cores=1, step=step_of(model), var_names=["mean"],
            progressbar=False,
        )  # fmt: skip
        slice_ = pm.sample(2, tune=1, chains=1, step=pm.Slice(), progressbar=False)
    assert again["mean"].sizes == {"chain": 1, "draw": 3, "obs": 40}
    assert set(asked.posterior.data_vars) == {"mean"}
    assert set(slice_.posterior.data_vars) == {"a", "mean", "other"}


def test_deterministics_of_another_length_than_their_coords_are_refused_where_draws_keep_them():
    with pm.Model(coords={"obs": range(40)}) as model:
        mean = pm.Deterministic("mean", pm.Normal("a", shape=1), dims="obs")
        pm.Normal("y", mean, observed=np.zeros(40), dims="obs")
    with pytest.raises(ValueError, match=r"'mean' has 1 entries along the dim 'obs', .* 40"):
        run(step_of(model), draws=3, tune=1, chains=1)
    with model:
        pm.sample(3, tune=1, chains=1, step=step_of(model), var_names=["a"], progressbar=False)


# ------------------------------------------------------------------ what cannot be batched


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
    (centred, ValueError, r"'y' is not a sum over the rows.*Compute such means before"),
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


def test_potentials_of_whole_numbers_are_terms_of_rows():
    with pm.Model(coords={"obs": range(60)}) as model:
        a = pm.Normal("a")
        x = pm.Data("x", np.linspace(-1, 1, 60), dims="obs")
        pm.Potential("wall", pt.switch(a * x > 2, -1000, -3), dims="obs")
        pm.Normal("y", a * x, 1, observed=np.zeros(60), dims="obs")
    step = step_of(model, batch_size=9)
    [(_, statistics)] = drawn(step, 1)
    at = {"a": step.chain.values[0]}
    normal = float(model.compile_logp(vars=[model["a"]])(at))
    of_rows = statistics["batch_logp"] - normal
    # Of nine rows, scaled by 60 / 9 and not by 6
    constant = -180 - 30 * np.log(2 * np.pi)
    assert constant - 60 * float(at["a"]) ** 2 / 2 <= of_rows <= constant


def test_a_float_is_no_number_of_rows():
    with pm.Model(coords={"obs": range(60)}) as model:
        a = pm.Normal("a")
        group = pm.Data("group", np.arange(60) % 3, dims="obs")
        levels = pt.stack([a, 2 * a, 60.0])
        pm.Normal("y", levels[group], 1, observed=np.zeros(60), dims="obs")
    # A batch of all rows has their density
    [(_, statistics)] = drawn(step_of(model, batch_size=60), 1)
    assert statistics["batch_logp"] < -20 * 60**2 / 2
    step_of(model, batch_size=7)
