"""The configurational temperature of a draw."""

import numpy as np
import pymc as pm
import pytest

import pymc_sgmcmc as sg

from helpers.steps import drawn
from helpers.z_scores import STANDARD_ERRORS, mean_and_error_of_chain
from pymc_sgmcmc.testing import UNTUNED

BOUNDED = {
    "half-normal": lambda: pm.HalfNormal("x", 1, shape=1000),
    "gamma": lambda: pm.Gamma("x", 2, 1, shape=1000),
    "beta": lambda: pm.Beta("x", 2, 3, shape=1000),
    "normal": lambda: pm.Normal("x", 3, 1, shape=1000),
}


def temperatures(step):
    found = [stats["config_temperature"] for _, stats in drawn(step, 200, seed=2, tune=40)]
    return np.array(found[40:])


@pytest.mark.parametrize(
    ("method", "h", "name"),
    [
        *((sg.CoRVSGLD, 0.05, name) for name in BOUNDED),
        *((sg.MSGNHT, 0.1, name) for name in ("beta", "normal")),
    ],
)
def test_config_temperature_is_one_under_the_exact_law(method, h, name):
    with pm.Model():
        BOUNDED[name]()
        step = method(step_size=h, backend="jax", **{**UNTUNED, "thin": round(1 / h)})
    mean, error = mean_and_error_of_chain(temperatures(step))
    assert error < 0.01
    # Both integrators are of second order
    assert abs(mean - 1) < STANDARD_ERRORS * error + h**2


@pytest.mark.parametrize("h", [0.1, 0.35])
def test_config_temperature_is_the_variance_of_a_run_that_is_too_wide(h):
    with pm.Model():
        pm.Normal("x", shape=1000)
        step = sg.SGLD(step_size=h, backend="jax", **{**UNTUNED, "thin": 10})
    mean, error = mean_and_error_of_chain(temperatures(step))
    assert abs(mean - 2 / (2 - h)) < STANDARD_ERRORS * error
    assert error < 0.01


def test_config_temperature_is_about_the_chain_where_scales_are_given_by_hand():
    """About 0 it would have the same mean and, 30 sds away, an error 17 times as large."""
    with pm.Model():
        pm.Normal("x", 30, 1, shape=1000)
        step = sg.CoRVSGLD(step_size=0.05, backend="jax", **{**UNTUNED, "scale": {"x": 1.0}})
    mean, error = mean_and_error_of_chain(temperatures(step))
    assert error < 0.01
    assert abs(mean - 1) < STANDARD_ERRORS * error + 0.05**2
