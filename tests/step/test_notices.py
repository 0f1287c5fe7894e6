"""What is logged before sampling: memory, compilation, log likelihoods."""

import logging

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_sgmcmc as sg

from helpers.sampling import run
from helpers.steps import location
from pymc_sgmcmc.step import notices
from pymc_sgmcmc.testing import UNTUNED

Y = np.random.default_rng(1).normal(size=60)


@pytest.mark.parametrize("by_dims", [False, True])
def test_draws_that_fill_the_memory_are_told_before_sampling(caplog, by_dims):
    with pm.Model(coords={"weight": np.arange(200_000)}):
        pm.Normal("w", **({"dims": "weight"} if by_dims else {"shape": 200_000}))
        pm.Normal("b")
        with caplog.at_level(logging.WARNING):
            sg.MSGNHT()
    [said] = caplog.messages
    assert said.startswith("1,000 draws of w, b take 1.6 GB")
    assert "var_names=" in said


def test_usual_models_are_told_nothing(caplog):
    with pm.Model():
        pm.Normal("w", shape=10_000)
        with caplog.at_level(logging.DEBUG):
            sg.MSGNHT()
    assert not caplog.records


@pytest.mark.parametrize("kept", [False, True])
def test_a_matrix_product_in_a_deterministic_is_told_once_on_a_machine(monkeypatch, caplog, kept):
    monkeypatch.setattr(notices, "_is_kept", lambda: kept)
    with pm.Model():
        beta = pm.Normal("beta", shape=3)
        pm.Deterministic("linear", np.ones((5, 3)) @ beta)
        pm.Deterministic("twice", 2 * beta)
        with caplog.at_level(logging.INFO, "pymc.sgmcmc"):
            sg.CoRVSGLD()
    told = [text for text in caplog.messages if "matrix product" in text]
    assert len(told) == (not kept)
    assert all("linear" in message and "twice" not in message for message in told)


@pytest.mark.slow
def test_a_compiled_matrix_product_is_found_where_pytensor_keeps_it():
    x = pt.dmatrix("x")
    pm.compile([x], x @ x, mode="NUMBA")(np.eye(2))
    assert notices._is_kept()


def sampled(*, in_batches):
    with pm.Model(coords={"obs": range(len(Y))}) as model:
        mu = pm.Normal("mu")
        if in_batches:
            batch = pm.Minibatch(Y, batch_size=6)
            pm.Normal("y", mu, observed=batch, total_size=len(Y))
            rows = {}
        else:
            pm.Normal("y", mu, observed=Y, dims="obs")
            rows = {"batch_size": 6, "batch_dim": "obs"}
        step = sg.SGLD(step_size=1e-3, backend="jax", **rows, **UNTUNED)
        return model, run(step, draws=2, tune=0, chains=1)


@pytest.mark.parametrize("in_batches", [True, False])
def test_that_of_a_batch_is_told_where_it_is_asked_for(in_batches, caplog):
    """Of pm.Minibatch alone: a model with batches of a dim is that of all rows."""
    model, dt = sampled(in_batches=in_batches)
    assert "log_likelihood" not in caplog.text
    pm.compute_log_likelihood(dt, model=model, progressbar=False)
    told = "log_likelihood of a model with pm.Minibatch is that of one batch" in caplog.text
    assert told == in_batches
    # Where PyMC gives that of all rows the message is no longer needed
    assert dt.log_likelihood["y"].shape[2] == (6 if in_batches else len(Y))


@pytest.mark.parametrize("name", ["mu", "sigma"])
def test_steps_of_pymc_that_compare_batches_are_named(caplog, name):
    with location() as model, caplog.at_level("WARNING", "pymc.sgmcmc"):
        [ours] = [rv for rv in model.free_RVs if rv.name != name]
        steps = [sg.SGLD([ours], step_size=1e-4, backend="jax", **UNTUNED), pm.Slice([model[name]])]
        run(steps, 2, 1, model=model, tune=0)
    assert f"step methods sample '{name}' in a model with a pm.Minibatch" in caplog.text


def test_steps_of_pymc_above_the_batches_are_named_too(caplog):
    """They compare densities of the whole model, of which only their own terms would do."""
    with pm.Model() as model, caplog.at_level("WARNING", "pymc.sgmcmc"):
        width = pm.HalfNormal("width")
        mu = pm.Normal("mu", 0, width)
        pm.Normal("y", mu, 1, observed=pm.Minibatch(Y[:40], batch_size=5), total_size=40)
        steps = [sg.SGLD([mu], step_size=1e-4, backend="jax", **UNTUNED), pm.Slice([width])]
        run(steps, 2, 1, model=model, tune=0)
        density = model.compile_logp(vars=[model["y"]])
    assert "step methods sample 'width' in a model with a pm.Minibatch" in caplog.text
    # If PyMC's densities no longer draw rows, the message is no longer needed
    point = model.initial_point()
    assert len({float(density(point)) for _ in range(5)}) > 1


@pytest.mark.parametrize("both", [True, False], ids=["ours", "beside PyMC's"])
def test_steps_of_several_temperatures_are_named(caplog, both):
    with pm.Model() as model, caplog.at_level("WARNING", "pymc.sgmcmc"):
        a, b = pm.Normal("a"), pm.Normal("b")
        options = {"step_size": 0.1, "backend": "jax", **UNTUNED}
        other = sg.SGLD([b], **options) if both else pm.Slice([b])
        run([sg.SGLD([a], temperature=0.1, **options), other], 2, 1, model=model, tune=0)
    assert "have the temperatures 0.1 and 1 (PyMC's own have 1)" in caplog.text
