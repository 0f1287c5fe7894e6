"""Stochastic-gradient HMC: its known laws, its temperature, known gradient noise."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_sgmcmc as sg

from helpers.backends import BOTH
from helpers.conjugate import flat_means
from helpers.laws import sghmc_variance
from helpers.sampling import run
from helpers.steps import drawn
from helpers.z_scores import STANDARD_ERRORS, mean_and_error, mean_and_error_of_chain, z_score
from pymc_sgmcmc.kernel.blocks import Blocks
from pymc_sgmcmc.kernel.noise import Noise
from pymc_sgmcmc.testing import UNTUNED, check, correlated_gaussian, run_chain


def test_law_on_a_correlated_gaussian():
    # Friction 1 is another one in units of a direction that is wider than 1
    target = correlated_gaussian(10, sghmc_variance, 0.2, unknown=0.04)
    check(target, sg.SGHMC, step_size=0.2, backend="jax")


class Measured:
    """A gradient of zero, with noise of a known variance."""

    def __init__(self, variance):
        self.variance = Blocks([pt.constant(variance)])

    def __call__(self, position):
        return position * 0.0


@pytest.mark.parametrize("integrator", ["ssi", "euler"])
def test_noise_that_tuning_has_measured_is_not_injected_again(integrator):
    h, C, variance = 0.1, 2.0, np.array([0.0, 5.0, 1000.0])
    with pm.Model():
        pm.Normal("x", shape=3)
        step = sg.SGHMC(integrator=integrator, friction=C, step_size=h, **UNTUNED)
    noise, zero = Noise([(3,)], ["float64"]), Blocks([pt.zeros(3)])
    _, extra = step.update(zero, {"momentum": zero}, Measured(variance), h, noise)
    [eta] = noise.requests["normal"]
    [momentum] = (part.eval({eta: np.ones(3)}) for part in extra["momentum"])
    kick = np.sqrt(2 * h * np.maximum(C - h * variance / 2, 0))
    damped = np.exp(-C * h / 2) if integrator == "ssi" else 1.0
    np.testing.assert_allclose(momentum, damped * kick)


@pytest.mark.slow
def test_noise_ratio_is_of_what_is_not_made_up_for():
    data = np.random.default_rng(0).normal(size=(400, 50))
    model = flat_means(data, 1.0, batch_size=200)
    step = sg.SGHMC(model=model, gradient="plain", batches=1, backend="jax")
    draws = run(step, 300, 1, tune=50)
    x = (draws.posterior["x"].values[0] - data.mean(axis=0)) * np.sqrt(400)
    mean, se = mean_and_error((x**2).mean(axis=0))
    assert abs(mean - 1) < STANDARD_ERRORS * se + 0.01
    # With half of the rows the noise has about unit variance
    h = float(draws.sample_stats["step_size"].values[0, -1])
    ratio, se = mean_and_error_of_chain(draws.sample_stats["noise_ratio"].values[0])
    assert abs(ratio) + STANDARD_ERRORS * se < 0.5 * h / 2


@pytest.mark.parametrize("friction", [0, -1.0, np.nan, "one"])
def test_friction_out_of_range(friction):
    with pm.Model():
        pm.Normal("x")
        with pytest.raises((ValueError, TypeError), match="friction"):
            sg.SGHMC(friction=friction)


def test_kinetic_temperature_of_the_splitting():
    with pm.Model():
        pm.Normal("x", shape=4000)
        step = sg.SGHMC(step_size=0.2, backend="jax", **UNTUNED)
    found = [stats["kinetic_temperature"] for _, stats in drawn(step, 60)]
    # Second order in h; momenta that never change have an error of 0.02, too
    assert abs(np.mean(found[20:]) - 1) < 0.02
    assert np.std(found[20:]) > 0.01


@BOTH
def test_euler_is_second_order_in_x_by_luck(backend):
    with pm.Model() as model:
        pm.Normal("x", shape=4000)
        step = sg.SGHMC(step_size=0.1, integrator="euler", backend=backend, **UNTUNED)
    x = run_chain(model, step, burn=10, draws=40, seed=2)["x"]
    assert abs(z_score((x**2).mean(axis=0), 1.0)) < STANDARD_ERRORS
