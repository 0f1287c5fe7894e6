"""Diagnostics of a model that knows of no batches, with those of the step method."""

import numpy as np
import pymc as pm
import pytest
import xarray as xr

from helpers.results import result_of
from pymc_sgmcmc.diagnostics import gradient_noise, ksd, stein_thinning

ROWS = np.random.default_rng(4).normal(1.0, 2.0, size=500)
OF_DIM = {"batch_size": 50, "batch_dim": "obs"}


def written_with_a_dim():
    with pm.Model(coords={"obs": range(500)}) as model:
        pm.Normal("y", pm.Normal("mu", 0, 10), 2.0, observed=ROWS, dims="obs")
    return model


def written_with_minibatches():
    with pm.Model() as model:
        y = pm.Minibatch(ROWS, batch_size=50)
        pm.Normal("y", pm.Normal("mu", 0, 10), 2.0, observed=y, total_size=500)
    return model


def test_they_find_what_they_find_with_minibatches():
    draws = np.random.default_rng(5).normal(ROWS.mean(), 2 / np.sqrt(500), size=(2, 50))
    dt = result_of(mu=draws)
    found = []
    for model, options in ((written_with_a_dim(), OF_DIM), (written_with_minibatches(), {})):
        noise = gradient_noise(model, dt, batches=64, random_seed=1, **options)
        discrepancy = ksd(dt, model, batches=2, random_seed=2, **options)
        thinned = stein_thinning(dt, 10, model, **options)["posterior_thinned"].to_dataset()
        found.append((noise, discrepancy, thinned))
    for one, other in zip(*found, strict=True):
        xr.testing.assert_identical(one, other)
    # A variance of N/B (1 − B/N)
    assert found[0][0].attrs["batch_size"] == 50
    assert 4 < found[0][0]["mu"].sel(estimator="plain") < 16


def test_without_a_dim_there_are_no_batches():
    model = written_with_a_dim()
    with pytest.raises(ValueError, match="Pass batch_size= and batch_dim="):
        gradient_noise(model, {"mu": 1.0})
    with pytest.raises(ValueError, match=r"batch_size=50 needs batch_dim=.*one of 'obs'"):
        gradient_noise(model, {"mu": 1.0}, batch_size=50)
