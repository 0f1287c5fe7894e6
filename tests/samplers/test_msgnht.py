"""The thermostat against its exact law and its known bias."""

from functools import partial

import pytest

import pymc_sgmcmc as sg

from helpers.laws import thermostat_variance
from pymc_sgmcmc.testing import Moment, Target, check, correlated_gaussian, gaussian


def test_thermostat_is_exact_on_a_gaussian():
    target = correlated_gaussian(10, thermostat_variance, 0.1, unknown=0.2)
    check(target, sg.MSGNHT, step_size=0.1, patience=4.0, backend="jax")


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
