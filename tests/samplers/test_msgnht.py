"""The thermostat against its exact law and its known bias."""

from functools import partial

import numpy as np
import pymc as pm
import pytest

import pymc_sgmcmc as sg

from helpers.laws import thermostat_variance
from helpers.sampling import run
from helpers.z_scores import STANDARD_ERRORS
from pymc_sgmcmc.testing import Moment, Target, check, correlated_gaussian, gaussian


def test_thermostat_is_exact_on_a_gaussian():
    target = correlated_gaussian(10, thermostat_variance, 0.1, unknown=0.2)
    check(target, sg.MSGNHT, step_size=0.1, patience=4.0, backend="jax")


@pytest.mark.slow
@pytest.mark.parametrize("method", [sg.MSGNHT, sg.CoRVSGLD])
def test_a_batch_at_a_time_has_steps_that_its_noise_allows(method):
    """One batch, of 200: a variance of 200 in units of the posterior's."""
    y = np.random.default_rng(0).normal(size=20_000)
    with pm.Model() as model:
        batch = pm.Minibatch(y, batch_size=100)
        pm.Normal("y", pm.Normal("x", 0, 10), 1, observed=batch, total_size=len(y))
    step = method(gradient="plain", batches=1, model=model, backend="jax")
    with model:
        x = run(step).posterior["x"].values
    # The sd of an sd by half of the draws, and what noise may change: a tenth of the variance
    assert abs(x.std() * np.sqrt(len(y)) - 1) < STANDARD_ERRORS / np.sqrt(x.size) + 0.05


@pytest.mark.slow
def test_gradients_of_the_only_batch_that_informs_a_coordinate_are_not_cut_off():
    """One batch in 200 has the row, and counts 200 times; without it the effect has its prior."""
    x, y = np.zeros(20_000), np.random.default_rng(0).normal(size=20_000)
    x[6_666] = 1
    with pm.Model() as model:
        batch, of_batch = pm.Minibatch(x, y, batch_size=100)
        mean = pm.Normal("a", 0, 10) + pm.Normal("b", 0, 10) * batch
        pm.Normal("y", mean, 1, observed=of_batch, total_size=len(y))
    posterior = run(sg.MSGNHT(gradient="plain", batches=1, model=model, backend="jax")).posterior
    for name, sd in {"a": len(y) ** -0.5, "b": 1.01**-0.5}.items():
        # Noise that grows with the distance is not taken up as a whole
        assert abs(posterior[name].values.std() / sd - 1) < 0.2


@pytest.mark.slow
def test_euler_thermostat_has_its_first_order_bias():
    # x² on N(0, 1) at Q = 1: -0.022 at h = 0.05, -0.043 at h = 0.1
    step = partial(sg.MSGNHT, integrator="euler", thermostat_mass=1.0)
    for h, bias in ((0.05, -0.022), (0.1, -0.043)):
        target = gaussian(100, thermostat_variance, h)
        [_, square, _] = target.moments
        # The figures are known to half a unit of their last digit
        expected = Moment("x²", square.of, 1 + bias, 0.0005)
        check(Target(target.name, target.model, [expected]), step, step_size=h, patience=8.0)
