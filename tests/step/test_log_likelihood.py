"""What is said of PyMC's log likelihood."""

import numpy as np
import pymc as pm
import pytest

import pymc_sgmcmc as sg

from helpers.sampling import run
from pymc_sgmcmc.testing import UNTUNED

Y = np.random.default_rng(1).normal(size=60)


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
