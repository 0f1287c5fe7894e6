"""Langevin dynamics by Itô's formula: exact where maps are flat, of no use at bounds."""

import numpy as np
import pymc as pm
import pytest

import pymc_sgmcmc as sg

from helpers.laws import euler_variance
from helpers.steps import drawn, sharing, start
from helpers.z_scores import STANDARD_ERRORS
from pymc_sgmcmc.testing import UNTUNED, check, gaussian


def test_without_a_map_it_is_sgld():
    check(gaussian(10, euler_variance, 0.1), sg.ItoSGLD, step_size=0.1, backend="jax")


def test_drift_and_noise_are_those_of_the_formula():
    phi, h, n = 0.4, 1e-2, 100_000
    with pm.Model():
        pm.Gamma("x", 3.0, 2.0, shape=n)
        softplus = {"x": sg.transforms.Softplus()}
        options = {**UNTUNED, "thin": 1, "transforms": softplus, "backend": "jax"}
        step = sg.ItoSGLD(step_size=h, **options)
    point, _ = step.step(start(step, 1, 2))
    state = step.chain
    state.psi = [np.full(n, phi)]
    step.chain = state
    step.step(point)
    moved = step.chain.psi[0] - phi
    theta, slope = np.logaddexp(0, phi), 1 / (1 + np.exp(-phi))
    second = slope * (1 - slope)
    of_theta = -(2 / theta - 2.0)
    drift, sd = -of_theta / slope - second / slope**3, np.sqrt(2 * h) / slope
    assert abs(moved.mean() - h * drift) < STANDARD_ERRORS * sd / np.sqrt(n)
    assert abs(moved.std() / sd - 1) < STANDARD_ERRORS / np.sqrt(2 * n)
    # Without Itô's term the drift would be another
    assert abs(h * second / slope**3) > 5 * STANDARD_ERRORS * sd / np.sqrt(n) / 2


@pytest.mark.parametrize(
    "build",
    [
        lambda: pm.Gamma("x", 0.5, 2.0),
        lambda: pm.TruncatedNormal("x", 0.5, 1.0, lower=0.0, upper=2.0),
    ],
)
def test_every_chain_becomes_non_finite_on_a_bounded_target(build):
    make = sharing(sg.ItoSGLD)
    with pm.Model() as model:
        build()
    for h in (0.01, 0.001):
        step = make(step_size=h, model=model, backend="jax")
        for seed in range(5):
            assert any(stats["rejected_updates"] for _, stats in drawn(step, 3000, seed))


def test_nothing_is_tuned():
    with pm.Model():
        pm.Gamma("x", 3, 1)
        with pytest.raises(ValueError, match=r"ItoSGLD.*Pass step_size"):
            sg.ItoSGLD()
