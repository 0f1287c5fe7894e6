"""Batches of the rows of a dim: the density of the full model, and draws."""

import logging

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest

import pymc_sgmcmc as sg

from helpers.five_models import BATCH, FIVE, exact_moments
from helpers.minibatched_models import with_batches, with_dims, without_batches
from helpers.models_with_rows import MODELS, G, N, X, Y, regression, step_of
from helpers.modes import PLAIN
from helpers.sampling import run
from helpers.steps import drawn, start
from helpers.z_scores import assert_right
from pymc_sgmcmc.kernel.engine import Engine
from pymc_sgmcmc.kernel.options import Options
from pymc_sgmcmc.model.initial_point import initial_point
from pymc_sgmcmc.testing import UNTUNED

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
