"""Long walks in coordinates that prior and data standardise: the map, its choice, and the draws."""

from functools import cache

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest

from pytensor.graph.replace import graph_replace

from pymc_sgmcmc.backends.compiling import INTERPRETER
from pymc_sgmcmc.backends.workarounds import interpreted
from pymc_sgmcmc.centring import InformedWalk, WalkCentring
from pymc_sgmcmc.model.coordinates import coordinates_at


@cache
def compiled(shape):
    """Return θ, φ of it and the log-Jacobian as a function of φ, weights, μ and σ."""
    with pm.Model() as model:
        mu, sd = pm.Normal("mu"), pm.HalfNormal("sd")
        x = pm.GaussianRandomWalk("x", mu, sd, init_dist=pm.Normal.dist(0, 2), shape=shape)
    weight, phi = pt.tensor(shape=(4, *shape)), pt.tensor(shape=shape)
    map_, inputs = InformedWalk(weight), x.owner.inputs
    theta = map_.backward(phi, *inputs)
    found = [theta, map_.forward(theta, *inputs), pt.sum(map_.log_jac_det(phi, *inputs))]
    at = {model["mu"]: pt.dscalar(), model["sd"]: pt.dscalar()}
    return pytensor.function(
        [phi, weight, *at.values()],
        graph_replace(found, at, strict=False),
        mode=INTERPRETER,
        on_unused_input="ignore",
    )


@pytest.mark.parametrize("shape", [(2, 7), (3, 2)])
@pytest.mark.parametrize("kind", ["centred", "non-centred", "informed"])
def test_map_inverse_and_jacobian(kind, shape):
    rng = np.random.default_rng(1)
    function = compiled(shape)
    weight = np.zeros((4, *shape))
    weight[0] = kind == "centred"
    if kind == "informed":
        weight[1:] = rng.exponential(3, (3, *shape)) * (rng.random(shape) < 0.7)
    at, phi = (weight, 0.3, 0.6), rng.normal(size=shape)
    theta, back, slope = function(phi, *at)
    np.testing.assert_allclose(back, phi, rtol=0, atol=1e-12)
    if kind == "centred":
        np.testing.assert_array_equal(theta, phi)
    if kind == "non-centred":
        np.testing.assert_allclose(np.diff(theta, axis=-1), 0.3 + 0.6 * phi[:, 1:], rtol=1e-12)
    moves = 1e-5 * np.eye(phi.size).reshape(-1, *shape)
    rows = [(function(phi + m, *at)[0] - function(phi - m, *at)[0]).ravel() for m in moves]
    found = np.linalg.slogdet(np.array(rows) / 2e-5)[1]
    # Differences have errors of the second order in 1e-5
    np.testing.assert_allclose(slope, found, rtol=0, atol=1e-7)


LENGTH, MU, SD = 60, 0.05, 0.2


def normal_walk():
    """Return I and h of a likelihood, some values without any, and precision and mean given σ."""
    rng = np.random.default_rng(2)
    information = rng.exponential(5, LENGTH) * (rng.random(LENGTH) < 0.3)
    information[20:35] = 0
    score = information * rng.normal(2, 1, LENGTH)

    def law(sd):
        innovation = np.diff(np.eye(LENGTH), axis=0)
        precision = innovation.T @ innovation / sd**2 + np.diag(information)
        precision[0, 0] += 1 / 4
        linear = score + innovation.T @ np.full(LENGTH - 1, MU) / sd**2
        return precision, np.linalg.solve(precision, linear)

    return information, score, law


def told(weight, phi, theta_of, law):
    """Return what the map chooses from the gradients of a normal law at φ."""
    map_ = InformedWalk().with_weight(weight)
    spread = np.array([1.0, *[SD] * (LENGTH - 1)])
    location = np.array([0.0, *[MU] * (LENGTH - 1)])
    precision, mean = law(SD)
    jacobian = np.array([theta_of(phi + e) - theta_of(phi - e) for e in np.eye(LENGTH)]).T / 2

    def gradient(x):
        return jacobian.T @ precision @ (theta_of(x) - mean)

    move = 0.01 * map_.shift(location, spread)
    np.testing.assert_allclose(jacobian @ move, 0.01, rtol=1e-9)
    there, opposite = gradient(phi + move), gradient(phi - move)
    return map_.told(phi, (there + opposite) / 2, (there - opposite) / 0.02, location, spread)


def test_weights_are_found_in_any_coordinates_and_standardise_the_walk():
    information, score, law = normal_walk()
    function, rng = compiled((LENGTH,)), np.random.default_rng(3)
    start = np.zeros((4, LENGTH))
    other = np.concatenate([[np.full(LENGTH, 0.5)], rng.exponential(1, (3, LENGTH))])
    for weight in (start, other):
        found = told(
            weight,
            rng.normal(size=LENGTH),
            lambda x, weight=weight: function(x, weight, MU, SD)[0],
            law,
        )
        # The prior of the first value counts as what is known of it
        known = information + np.eye(LENGTH)[0] / 4
        np.testing.assert_allclose(found[3], known, rtol=0, atol=1e-9)
        np.testing.assert_allclose(found[2], score, rtol=0, atol=1e-7)
    for sd, slack in ((SD, 1e-9), (0.7 * SD, 0.5), (1.4 * SD, 0.5)):
        precision, mean = law(sd)
        origin = function(np.zeros(LENGTH), found, MU, sd)[0]
        columns = [function(e, found, MU, sd)[0] - origin for e in np.eye(LENGTH)]
        root = np.transpose(columns)
        lengths = np.linalg.eigvalsh(root.T @ precision @ root)
        assert lengths.min() > 1 - slack and lengths.max() < 1 + slack
        assert np.abs(np.linalg.solve(root, mean - origin)).max() < max(slack, 1e-7)


@pytest.mark.parametrize("length, kind", [(100, WalkCentring), (1000, InformedWalk)])
def test_walks_too_long_to_be_whitened_are_standardised(length, kind):
    with pm.Model() as model:
        sd = pm.HalfNormal("sd")
        pm.GaussianRandomWalk("x", 0, sd, init_dist=pm.Normal.dist(0, 2), shape=length)
    with interpreted():
        point = model.initial_point()
    found, _, _ = coordinates_at(model, model.value_vars, "lipschitz", point, centring=True)
    assert type(next(c for c in found if c.name == "x").transform) is kind
