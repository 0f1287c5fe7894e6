"""The configurational temperature of a draw."""

import numpy as np
import pymc as pm
import pytest

import pymc_sgmcmc as sg

from helpers.sampling import run
from helpers.steps import drawn, sharing
from helpers.z_scores import STANDARD_ERRORS, mean_and_error_of_chain
from pymc_sgmcmc.testing import UNTUNED

BOUNDED = {
    "half-normal": lambda name, n: pm.HalfNormal(name, 1, shape=n),
    "gamma": lambda name, n: pm.Gamma(name, 2, 1, shape=n),
    "beta": lambda name, n: pm.Beta(name, 2, 3, shape=n),
    "normal": lambda name, n: pm.Normal(name, 3, 1, shape=n),
}


def temperatures(step):
    found = [stats["config_temperature"] for _, stats in drawn(step, 200, seed=2, tune=40)]
    return np.array(found[40:])


@pytest.mark.parametrize(
    ("method", "h", "names"),
    [(sg.CoRVSGLD, 0.05, tuple(BOUNDED)), (sg.MSGNHT, 0.1, ("beta", "normal"))],
)
def test_config_temperature_is_one_under_the_exact_law(method, h, names):
    count = len(names)
    with pm.Model():
        for name in names:
            # Of 1,024 elements in all each is watched
            BOUNDED[name](name, 1024 // count)
        step = method(step_size=h, backend="jax", **{**UNTUNED, "thin": round(1 / h)})
    kept = [stats for _, stats in drawn(step, 200 * count, seed=2, tune=40)][40:]
    for key in ("config_temperature", *(f"config_temperature[{name}]" for name in names)):
        mean, error = mean_and_error_of_chain(np.array([stats[key] for stats in kept]))
        assert error < 0.01, key
        # Both integrators are of second order
        assert abs(mean - 1) < STANDARD_ERRORS * error + h**2, key


def test_config_temperature_is_the_variance_of_a_run_that_is_too_wide():
    make = sharing(sg.SGLD)
    with pm.Model() as model:
        pm.Normal("x", shape=1000)
    for h in (0.1, 0.35):
        step = make(step_size=h, model=model, backend="jax", **{**UNTUNED, "thin": 10})
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


@pytest.mark.parametrize("method", [sg.MirrorSGLD, sg.SGRLD])
def test_positions_with_bounds_have_no_temperature(method, caplog):
    """Their products with the gradient have another mean: of a uniform law 0."""
    with pm.Model():
        if method is sg.SGRLD:
            pm.Dirichlet("x", np.ones(3))
        else:
            pm.Uniform("x", 0, 1, shape=20)
        result = run(method(step_size=0.001, backend="jax"), chains=1)
    assert "temperature" not in caplog.text
    assert not [name for name in result.sample_stats if "temperature[" in name]
