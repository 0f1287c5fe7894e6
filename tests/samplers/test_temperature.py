"""Cold and hot posteriors: prior and likelihood to the power 1/T, untuned by hand."""

import numpy as np
import pymc as pm
import pytest

import pymc_sgmcmc as sg

from helpers.conjugate import slopes_of
from helpers.sampling import run
from helpers.z_scores import STANDARD_ERRORS, assert_right, mean_and_error, means_of_parts


@pytest.mark.parametrize(
    ("method", "batch_size", "temperature"),
    [
        (sg.CoRVSGLD, 100, 4.0),
        (sg.MSGNHT, None, 0.25),
        pytest.param(sg.MSGNHT, 100, 4.0, marks=pytest.mark.slow),
        pytest.param(sg.SGHMC, 100, 0.25, marks=pytest.mark.slow),
        pytest.param(sg.SGLD, None, 4.0, marks=pytest.mark.slow),
    ],
)
def test_variances_are_those_of_the_temperature(method, batch_size, temperature):
    rng = np.random.default_rng(3)
    X = rng.normal(size=(4000, 2)) @ [[1.0, 0.7], [0.0, 0.5]]
    y = X @ [1.0, -0.5] + rng.normal(size=4000)
    with pm.Model():
        b = pm.Normal("b", 0.0, 10.0, shape=2)
        pm.Normal("y", X @ b, 1.0, observed=y)
        step = method(temperature=temperature, batch_size=batch_size, backend="jax")
    result = run(step, tune=100)
    mean, covariance = slopes_of(X, y, 1.0)
    assert_right(result.posterior, {"b": (mean, np.sqrt(temperature * np.diag(covariance)))})
    # Of the target, whatever its temperature
    parts = means_of_parts(result.sample_stats["config_temperature"].values)
    found, error = mean_and_error(parts)
    assert abs(found - 1) < 0.1 + STANDARD_ERRORS * error
