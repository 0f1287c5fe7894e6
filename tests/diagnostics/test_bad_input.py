"""Diagnostics of bad input end with an error that names the cure."""

import numpy as np
import pymc as pm
import pytest
import xarray as xr

import pymc_sgmcmc as sg

from helpers.results import result_of
from pymc_sgmcmc.diagnostics import bias_report, gradient_noise, ksd, plot_bias, stein_thinning


@pytest.fixture(scope="module")
def plain_model():
    with pm.Model() as model:
        pm.Normal("x", shape=2)
    return model


GOOD = result_of(x=np.zeros((1, 10, 2)))
REPORT = xr.Dataset(
    dict.fromkeys(("flagged", "relative"), (("parameter", "statistic"), np.zeros((1, 2)))),
    {"parameter": ["x"], "statistic": ["mean", "sd"]},
)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda m: ksd({}, m), TypeError, "^result must be the DataTree"),
        (lambda m: ksd(GOOD), TypeError, "^model is missing"),
        (lambda m: ksd(GOOD, "m"), TypeError, "^model must be a pm.Model"),
        (lambda m: ksd(GOOD, m, group="prior"), ValueError, "no group 'prior'. It has 'posterior'"),
        (lambda m: ksd(result_of(y=np.zeros((1, 9))), m), ValueError, "no variable 'x'"),
        (lambda m: ksd(result_of(x=np.zeros((1, 9, 3))), m), ValueError, r"shape \(3,\)"),
        (lambda m: ksd(GOOD, m, scale="sd"), ValueError, "^scale must be one of"),
        (lambda m: ksd(GOOD, m, draws=0), ValueError, "^draws must be an integer"),
        (lambda m: ksd(GOOD, m, draws=1), ValueError, "^draws must be at least 2"),
        (lambda m: ksd(GOOD, m, batches=0), ValueError, "^batches must be an integer"),
        (lambda m: ksd(GOOD, m, batches=1), ValueError, "has no pm.Minibatch"),
        (lambda m: ksd(GOOD, m, batch_size=9), ValueError, "^batch_size=9, but no observed"),
        (lambda m: ksd(GOOD, m, batch_size=9, batch_dim="r"), ValueError, "is no dim of the model"),
        (lambda m: ksd(GOOD, m, backend="c"), ValueError, "^backend must be one of"),
        (lambda m: ksd(GOOD, m, scale="median"), ValueError, "^scale='median' needs draws"),
        (lambda m: ksd(GOOD["posterior"].to_dataset().isel(chain=0), m), ValueError, "dimensions"),
        (lambda m: stein_thinning(GOOD, 11, m), ValueError, "^size=11 draws cannot be chosen"),
        (lambda m: stein_thinning(GOOD, 1.5, m), ValueError, "^size must be an integer"),
        (lambda m: stein_thinning(GOOD["posterior"].to_dataset(), 5, m), TypeError, "^result must"),
        (lambda m: gradient_noise(m, {"x": [0.0, 0.0]}), ValueError, "no pm.Minibatch"),
        (lambda m: gradient_noise(m, {}), ValueError, "^point has no value for the variable 'x'"),
        (lambda m: gradient_noise(m, {"x": 0.0}), ValueError, "^point has 'x' with the shape"),
        (lambda m: gradient_noise(m, 3), TypeError, "^point must be a result"),
        (lambda m: gradient_noise(m, GOOD, largest=0), ValueError, "^largest must be a positive"),
        (lambda m: gradient_noise(m, GOOD, batches=3), ValueError, "^batches must be at least 32"),
        *(
            (
                lambda m, seed=seed: bias_report(sg.SGLD, m, random_seed=seed),
                TypeError,
                "^random_seed must be None, an integer",
            )
            for seed in (-1, "a", np.random.RandomState(1))
        ),
        (lambda m: bias_report(sg.FLA, m), NotImplementedError, "FLA with alpha=1.8"),
        (lambda m: bias_report(pm.NUTS, m), TypeError, "^step must be a step method of this"),
        (lambda m: bias_report("SGLD", m), TypeError, "^step must be a step method of this"),
        (lambda m: bias_report(sg.SGLD, m, order=3), ValueError, "^order must be 1 or 2"),
        (lambda m: bias_report(sg.SGLD, m, order=[1]), ValueError, "^order must be 1 or 2"),
        (lambda m: bias_report(sg.SGLD, m, draws=5), ValueError, "^draws=5 of chains=4"),
        (lambda m: bias_report(sg.SGLD, m, draws=3, chains=50), ValueError, "^draws=3 of chains"),
        (lambda m: bias_report(sg.SGLD, m, tolerance=0), ValueError, "^tolerance must be"),
        (lambda m: bias_report(sg.SGLD, m, stepsize=1), TypeError, "no argument 'stepsize'"),
        (lambda m: bias_report(sg.SGLD, m, step_size=sg.polynomial(1.0)), ValueError, "no half"),
        (lambda m: bias_report(sg.SGLD(model=m), m, thin=3), TypeError, "made already"),
        (lambda m: bias_report(sg.SGLD(model=m), pm.Model()), ValueError, "another model"),
        (lambda m: plot_bias(GOOD), TypeError, "^report must be the Dataset"),
        (lambda m: plot_bias(REPORT.sel(statistic="mean")), ValueError, "^report has 1 parameters"),
        (lambda m: plot_bias(REPORT.isel(parameter=[])), ValueError, "^report has 0 parameters"),
    ],
)
def test_bad_input_is_an_error_that_names_the_cure(plain_model, call, error, message):
    with pytest.raises(error, match=message):
        call(plain_model)


def test_models_without_scores_are_refused():
    with pm.Model() as discrete:
        pm.Bernoulli("z", 0.5)
        pm.Normal("x", shape=2)
    draws = result_of(x=np.zeros((1, 10, 2)), z=np.zeros((1, 10), dtype=int))
    with pytest.raises(NotImplementedError, match="'z' is discrete"):
        ksd(draws, discrete)
    with pytest.raises(ValueError, match="leaves out the variable 'z'"):
        bias_report(sg.SGLD, discrete)
    with pm.Model() as circular:
        pm.VonMises("angle", 0.0, 1.0)
    angle = np.random.default_rng(0).uniform(-1, 1, size=(1, 10))
    with pytest.raises(NotImplementedError, match="'angle' is circular"):
        stein_thinning(result_of(angle=angle), 5, circular)


def test_draws_outside_the_support_are_named():
    with pm.Model() as model:
        pm.HalfNormal("s")
    draws = np.abs(np.random.default_rng(0).normal(size=(1, 10)))
    draws[0, 3] = -1.0
    with pytest.raises(ValueError, match="1 of 10 draws of 's' are not inside its support"):
        ksd(result_of(s=draws), model)
