"""Variables on a circle: right with default arguments, wrapped, and without false warnings."""

import logging

import numpy as np
import pymc as pm
import pytest

from scipy import stats

import pymc_sgmcmc as sg

from helpers.sampling import run
from helpers.z_scores import STANDARD_ERRORS, mean_and_error, means_of_parts

DRAWS = 2000


def sampled(model, caplog, method=sg.CoRVSGLD, seed=5, **options):
    with model, caplog.at_level(logging.WARNING, logger="pymc"):
        dt = run(method(model=model, backend="jax", **options), DRAWS, seed=seed)
    assert caplog.messages == []
    return dt


def assert_near(values, exact):
    mean, error = mean_and_error(means_of_parts(values, 10))
    assert np.all(error < 0.05)
    # Splittings of second order with h = 0.2: a percent
    assert np.all(np.abs(mean - exact) < STANDARD_ERRORS * error + 0.01), (mean, exact, error)


# One between the two is beside other variables below
CIRCLES = {"nearly flat": (0.0, 0.1), "across the cut": (3.0, 4.0)}


@pytest.mark.parametrize("name", CIRCLES)
@pytest.mark.parametrize("scale", ["auto", pytest.param("diagonal", marks=pytest.mark.slow), None])
def test_a_circle_is_right_and_silent(name, scale, caplog):
    mu, kappa = CIRCLES[name]
    with pm.Model() as model:
        pm.VonMises("angle", mu, kappa)
    dt = sampled(model, caplog, scale=scale)
    angle = dt.posterior["angle"].values
    assert np.abs(angle).max() <= np.pi
    law = stats.vonmises(kappa)
    assert_near(np.cos(angle - mu), law.expect(np.cos, lb=-np.pi, ub=np.pi))
    assert_near(np.sin(angle - mu), 0.0)
    assert_near(np.cos(2 * (angle - mu)), law.expect(lambda x: np.cos(2 * x), lb=-np.pi, ub=np.pi))
    # h was not halved for a temperature that a circle does not have
    assert scale is None or dt.sample_stats["step_size"].values.min() == 0.2


def circle_and_line(x, y, minibatched):
    with pm.Model() as model:
        pm.VonMises("angle", 0.5, 1.0)
        if minibatched:
            x, y = pm.Minibatch(x, y, batch_size=200)
        a, b = pm.Normal("a", 0, 10), pm.Normal("b", 0, 10)
        size = {"total_size": 2000} if minibatched else {}
        pm.Normal("y", a + b * x, 1.0, observed=y, **size)
    return model


@pytest.mark.parametrize(
    "minibatched",
    [False, pytest.param(True, marks=pytest.mark.slow)],
    ids=["full data", "minibatches"],
)
def test_a_circle_beside_correlated_variables(minibatched, caplog):
    rng = np.random.default_rng(2)
    x, y = rng.normal(size=(2, 2000))
    y += 1.0 + 0.5 * x
    x = x + 2.0
    design = np.stack([np.ones(2000), x], axis=1)
    precision = design.T @ design + np.eye(2) / 100
    mean, covariance = np.linalg.solve(precision, design.T @ y), np.linalg.inv(precision)
    dt = sampled(circle_and_line(x, y, minibatched), caplog)
    angle = dt.posterior["angle"].values
    assert np.abs(angle).max() <= np.pi
    assert_near(np.cos(angle - 0.5), stats.vonmises(1.0).expect(np.cos, lb=-np.pi, ub=np.pi))
    assert_near(np.sin(angle - 0.5), 0.0)
    z = np.stack([dt.posterior[name].values for name in ("a", "b")], axis=-1) - mean
    assert_near(z / np.sqrt(np.diag(covariance)), 0.0)
    assert_near(z[..., 0] * z[..., 1] / covariance[0, 1], 1.0)


def test_a_circle_that_depends_on_a_line(caplog):
    with pm.Model() as model:
        x = pm.Normal("x")
        pm.VonMises("angle", x, 2.0)
    dt = sampled(model, caplog)
    x, angle = dt.posterior["x"].values, dt.posterior["angle"].values
    assert_near(x, 0.0)
    assert_near(x**2, 1.0)
    assert_near(np.cos(angle - x), stats.vonmises(2.0).expect(np.cos, lb=-np.pi, ub=np.pi))
