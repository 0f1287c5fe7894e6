"""The scalar thermostat: what noise it absorbs, and what noise it does not."""

from functools import partial

import numpy as np
import pymc as pm
import pytest

import pymc_sgmcmc as sg

from helpers.conjugate import flat_means
from helpers.laws import thermostat_variance
from helpers.z_scores import STANDARD_ERRORS, mean_and_error
from pymc_sgmcmc.testing import UNTUNED, check, correlated_gaussian, gaussian, run_chain


@pytest.mark.parametrize("integrator", ["ssi", "euler"])
def test_law_on_a_correlated_gaussian(integrator):
    h, unknown = (0.1, 0.2) if integrator == "ssi" else (0.02, 30.0)
    target = correlated_gaussian(10, thermostat_variance, h, unknown=unknown)
    check(target, partial(sg.SGNHT, integrator=integrator), step_size=h, backend="jax")


@pytest.mark.slow
def test_one_coordinate_is_as_with_a_thermostat_for_each():
    target = gaussian(1, thermostat_variance, 0.1, unknown=0.2, replicates=1)
    options = {"step_size": 0.1, "thin": 20, "scale": None, "gradient": "plain", "batches": 1}
    with target.model:
        one = sg.SGNHT(backend="jax", **options)
        each = sg.MSGNHT(backend="jax", thermostat_mass=1.0, **options)
    draws = [run_chain(target.model, step, burn=0, draws=20, seed=1)["x"] for step in (one, each)]
    np.testing.assert_allclose(*draws, rtol=1e-9)


def test_noise_of_some_coordinates_heats_these_and_cools_others():
    """The thermostat settles where the mean of p² over all coordinates is 1."""
    rows, batch_size, columns, h = 200, 20, 400, 0.05
    data = np.random.default_rng(1).normal(0, np.sqrt(rows), size=(rows, columns))
    data[:, columns // 2 :] = 0.0
    model = flat_means(data, np.sqrt(rows), batch_size)
    options = {**UNTUNED, "batch": "random", "step_size": h, "backend": "jax"}
    step = sg.SGNHT(model=model, **options)
    draws = run_chain(model, step, burn=20, draws=200, seed=1)["x"] - data.mean(axis=0)
    noise = data.var(axis=0) / batch_size
    for which in (slice(0, columns // 2), slice(columns // 2, None)):
        expected = (1 + h * noise[which].mean() / 2) / (1 + h * noise.mean() / 2)
        variance, error = mean_and_error((draws[:, which] ** 2).mean(axis=0))
        assert abs(variance - expected) < STANDARD_ERRORS * error + h**2
        assert abs(expected - 1) > 0.1


@pytest.mark.parametrize("name", ["diffusion", "thermostat_mass"])
def test_arguments_out_of_range(name):
    with pm.Model():
        pm.Normal("x")
        with pytest.raises(ValueError, match=name):
            sg.SGNHT(**{name: 0.0})
