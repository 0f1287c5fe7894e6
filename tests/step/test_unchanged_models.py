"""One model for SG-MCMC, for pointwise log likelihoods and for LOO."""

from __future__ import annotations

import arviz as az
import numpy as np
import pymc as pm

import pymc_sgmcmc as sg

from pymc_sgmcmc.backends.interpreting import INTERPRETER
from pymc_sgmcmc.backends.workarounds import interpreted


def _model() -> pm.Model:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(300, 2))
    y = rng.poisson(np.exp(0.3 + x @ [0.5, -0.2]))
    with pm.Model(coords={"row": range(300), "feature": ["a", "b"]}) as model:
        data = pm.Data("x", x, dims=("row", "feature"))
        intercept = pm.Normal("intercept")
        slope = pm.Normal("slope", dims="feature")
        pm.Poisson("y", pm.math.exp(intercept + data @ slope), observed=y, dims="row")
    return model


def test_loo_after_sampling_in_batches_is_that_of_a_model_that_never_saw_one():
    with _model() as sampled:
        dt = pm.sample(
            step=sg.CoRVSGLD(batch_size=50, batch_dim="row"),
            draws=200, cores=1, random_seed=1, progressbar=False,
        )  # fmt: skip
    found = {}
    for name, model in {"sampled": sampled, "new": _model()}.items():
        with model, interpreted():
            likelihood = pm.compute_log_likelihood(
                dt, progressbar=False, extend_inferencedata=False
            )
        assert likelihood["y"].sizes["row"] == 300
        other = dt.copy()
        other["log_likelihood"] = likelihood
        found[name] = az.loo(other).elpd
    assert found["sampled"] == found["new"]
    # Each row counts once: near the log density of all rows at the mean of the draws
    at_mean = dt.posterior.mean(["chain", "draw"])
    rate = np.exp(
        float(at_mean["intercept"]) + sampled["x"].get_value() @ at_mean["slope"].to_numpy()
    )
    y = sampled.rvs_to_values[sampled["y"]].data
    plain = float(np.sum(pm.logp(pm.Poisson.dist(rate), y).eval(mode=INTERPRETER)))
    assert abs(found["new"] - plain) < 10
