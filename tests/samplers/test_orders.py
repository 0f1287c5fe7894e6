"""How the error falls with the step size: its order, seen on laws whose moments are known."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_sgmcmc as sg

from helpers.steps import drawn
from helpers.z_scores import mean_and_error
from pymc_sgmcmc.testing import run_chain


def potential(x, cos):
    """Of a density with two shoulders: on a normal one the Leimkuhler-Matthews scheme is exact."""
    return x**2 / 2 - cos(2 * x)


GRID = np.linspace(-10, 10, 20_001)
DENSITY = np.exp(-potential(GRID, np.cos))
# Of the moments tried the one whose error is cleanest of second order, and large
SHOULDERS = np.sum(np.cos(4 * GRID) * DENSITY) / np.sum(DENSITY)

ORDERS = {
    # Method and options, step sizes, target, order and tolerance, replicates and draws
    "SGLD": ((sg.SGLD, {}), (0.05, 0.1, 0.2), "normal", (1, 0.15), (8000, 120)),
    "CoRVSGLD-euler": (
        (sg.CoRVSGLD, {"integrator": "euler"}),
        (0.05, 0.1, 0.2),
        "normal",
        (1, 0.15),
        (8000, 120),
    ),
    "CoRVSGLD-lm": ((sg.CoRVSGLD, {}), (0.1, 0.14, 0.2), "shoulders", (2, 0.25), (20_000, 400)),
    "MSGNHT-euler": (
        (sg.MSGNHT, {"integrator": "euler", "thermostat_mass": 1.0}),
        (0.025, 0.05, 0.1),
        "normal",
        (1, 0.15),
        (10_000, 250),
    ),
    "MSGNHT-ssi": (
        (sg.MSGNHT, {"thermostat_mass": 1.0}),
        (0.15, 0.2, 0.3),
        "normal",
        (2, 0.25),
        (20_000, 400),
    ),
    "SGHMC-euler": (
        (sg.SGHMC, {"integrator": "euler"}),
        (0.05, 0.1, 0.2),
        "momentum",
        (1, 0.15),
        (4000, 120),
    ),
}


def moment(method, options, h, target, replicates, draws, seed):
    """Error of a moment of x, or of the momentum, and its standard error."""
    with pm.Model() as model:
        if target == "shoulders":
            x = pm.Flat("x", shape=replicates, initval=np.zeros(replicates))
            pm.Potential("U", -potential(x, pt.cos).sum())
        else:
            pm.Normal("x", shape=replicates)
        length = 2.0 if issubclass(method, sg.MSGNHT | sg.SGHMC) else 1.0
        step = method(
            step_size=h, thin=max(1, round(length / h)), scale=None, gradient="plain", batches=1,
            backend="jax", **options,
        )  # fmt: skip
    if target != "momentum":
        x = run_chain(model, step, burn=60, draws=draws, seed=seed)["x"]
        shoulders = target == "shoulders"
        mean, se = mean_and_error((np.cos(4 * x) if shoulders else x**2).mean(axis=0))
        return mean - (SHOULDERS if shoulders else 1.0), se
    found = [np.square(step.chain.extra["momentum"][0]) for _ in drawn(step, draws, seed)]
    mean, se = mean_and_error(np.mean(found[20:], axis=0))
    return mean - 1.0, se


@pytest.mark.slow
@pytest.mark.parametrize("name", ORDERS)
def test_order(name):
    (method, options), steps, target, (order, tolerance), size = ORDERS[name]
    found = [moment(method, options, h, target, *size, seed) for seed, h in enumerate(steps)]
    errors = np.abs([error for error, _ in found])
    assert max(se for _, se in found) < errors.min() / 10, found
    slope = np.polyfit(np.log(steps), np.log(errors), 1)[0]
    assert abs(slope - order) < tolerance, (slope, found)
