"""FLA's drift as a fractional difference: coefficients, weights of modes, bad input."""

from math import gamma

import numpy as np
import pymc as pm
import pytensor
import pytest

import pymc_sgmcmc as sg

from helpers.sampling import run
from helpers.z_scores import STANDARD_ERRORS, mean_and_error
from pymc_sgmcmc.backends.interpreting import INTERPRETER
from pymc_sgmcmc.kernel.blocks import Blocks
from pymc_sgmcmc.samplers.riesz import coefficients, riesz_drift
from pymc_sgmcmc.testing import UNTUNED


@pytest.mark.parametrize("alpha", [1.2, 1.5, 1.8])
def test_coefficients(alpha):
    power, found = alpha - 2, coefficients(alpha, 6)
    exact = [
        (-1) ** k * gamma(power + 1) / gamma(power / 2 - k + 1) / gamma(power / 2 + k + 1)
        for k in range(-6, 7)
    ]
    np.testing.assert_allclose(found, exact, rtol=1e-12)
    assert np.all(found > 0)


class Quartic:
    """U of two blocks, with a term that joins them."""

    @staticmethod
    def potential(x):
        a, b = x
        return (a**4 / 4).sum() + (b**2).sum() / 2 + 0.3 * a[0] * b[1]

    def __call__(self, x):
        return Blocks(pytensor.grad(self.potential(x), list(x)))


def test_drift_is_the_sum_of_the_definition():
    alpha, delta, terms = 1.6, 0.3, 4
    a, b = (pytensor.tensor.vector(n, shape=(2,), dtype="float64") for n in "ab")
    signs, logs = riesz_drift(Quartic(), Blocks([a, b]), alpha, delta, terms)
    x = np.array([0.4, -1.1, 0.7, 2.0])
    at = {a: x[:2], b: x[2:]}
    found = np.concatenate(
        [(s * part.exp()).eval(at, mode=INTERPRETER) for s, part in zip(signs, logs, strict=True)]
    )

    def potential(x):
        return (x[:2] ** 4 / 4).sum() + (x[2:] ** 2).sum() / 2 + 0.3 * x[0] * x[3]

    def slope(x, i):
        return [x[0] ** 3 + 0.3 * x[3], x[1] ** 3, x[2], x[3] + 0.3 * x[0]][i]

    g = coefficients(alpha, terms)
    exact = np.zeros(4)
    for i in range(4):
        for k in range(-terms, terms + 1):
            shifted = x - k * delta * np.eye(4)[i]
            share = np.exp(potential(x) - potential(shifted))
            exact[i] += g[k + terms] * share * slope(shifted, i) * delta ** (2 - alpha)
    np.testing.assert_allclose(found, exact, rtol=1e-10)


def left_mass(terms):
    with pm.Model():
        x = pm.Flat("x", initval=0.0)
        pm.Potential("U", -((x + 5) * (x + 1) * (x - 1.02) * (x - 5) / 10 + 0.5))
        step = sg.FLA(
            alpha=1.5, drift="riesz", delta=0.2, terms=terms, step_size=0.01, backend="jax",
            **{**UNTUNED, "thin": 50},
        )  # fmt: skip
        dt = run(step, 3000, 16, 2, tune=100)
    assert not dt.sample_stats["diverging"].values.any()
    return mean_and_error((dt.posterior["x"].values < 0).mean(axis=1))


@pytest.mark.slow
def test_weights_of_modes_are_right_once_the_sum_reaches_the_other_mode():
    near, se = left_mass(5)
    assert abs(near - 0.50) < STANDARD_ERRORS * se
    far, se = left_mass(50)
    assert abs(far - 0.5426) < STANDARD_ERRORS * se
    assert far - near > 0


@pytest.mark.slow
def test_several_variables_tuned():
    with pm.Model():
        pm.Normal("x", [0.0, 3.0], 2.0)
        pm.HalfNormal("s", 1.0)
        step = sg.FLA(alpha=1.8, drift="riesz", delta=0.2, terms=3, backend="jax")
        dt = run(step, 500, tune=100)
    assert np.all(np.abs(dt.posterior["x"].median(("chain", "draw")) - [0.0, 3.0]) < 0.5)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"delta": 0.1}, "delta belongs to drift='riesz'"),
        ({"terms": 3}, "terms belongs to drift='riesz'"),
        ({"drift": "riesz", "delta": 0.0}, "delta"),
        ({"drift": "riesz", "terms": 0}, "terms"),
        ({"drift": "riesz", "terms": 2.5}, "terms"),
        ({"drift": "rise"}, "drift"),
        ({"drift": "riesz", "alpha": 2.0}, "alpha=2"),
        ({"drift": "riesz", "gradient": sg.ControlVariates()}, "Pass gradient='plain'"),
    ],
)
def test_bad_input(options, said):
    with pm.Model():
        pm.Normal("x")
        with pytest.raises((ValueError, TypeError), match=said):
            sg.FLA(**options)


def test_a_potential_of_which_the_gradient_alone_is_known_is_refused():
    with pm.Model():
        x = pm.Normal("x")
        sg.GradientPotential("y", lambda x, noise: noise.normal(()) - x, [x])
        sg.FLA(step_size=0.1)
        with pytest.raises(NotImplementedError, match=r"a gradient alone\. Leave drift out"):
            sg.FLA(step_size=0.1, drift="riesz")
