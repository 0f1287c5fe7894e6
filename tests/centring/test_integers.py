"""Whole numbers in a model: in a graph 20 is an 8-bit integer, whose square is -112."""

import numpy as np
import pymc as pm
import pytest

import pymc_sgmcmc as sg

from helpers.sampling import run
from helpers.z_scores import assert_right

AREAS, EACH, SD = 8, 5, 20
GROUP = np.repeat(np.arange(AREAS), EACH)
_RNG = np.random.default_rng(0)
SEEN = _RNG.normal(_RNG.normal(0, SD, AREAS)[GROUP], SD)
ADJACENT = np.eye(AREAS, k=1) + np.eye(AREAS, k=-1)
APART, ALIKE = np.eye(AREAS), np.ones((AREAS, AREAS))


def field(sd):
    """Return the covariance of pm.ICAR, whose mean has an sd of 0.001."""
    neighbours = np.diag(ADJACENT.sum(axis=0)) - ADJACENT
    return np.linalg.inv(neighbours / sd**2 + ALIKE / (0.001 * AREAS) ** 2)


def centred():
    return pm.Normal("theta", pm.Normal("mu", 0, 100), 20, shape=AREAS)


def residuals():
    return pm.Normal("mu", 0, 100) + 20 * pm.Normal("z", 0, 1, shape=AREAS)


def product_of_two():
    return pm.Normal("mu", 0, 100) + 10 * (15 * pm.Normal("z", 0, 1, shape=AREAS))


def walk():
    return pm.GaussianRandomWalk("w", sigma=20, init_dist=pm.Normal.dist(0, 20), shape=AREAS)


def areas():
    # PyMC's own density of a field squares a whole sigma
    return 20 * pm.ICAR("field", W=ADJACENT, sigma=1.0)


def areas_beside_effects():
    return pm.ICAR("field", W=ADJACENT, sigma=5.0) + 20 * pm.Normal("z", 0, 1, shape=AREAS)


def halfway():
    by_hand = sg.transforms.Centring(0.5)
    return pm.Normal("theta", pm.Normal("mu", 0, 100), 20, shape=AREAS, transform=by_hand)


COVARIANCES = {
    centred: 100**2 * ALIKE + 20**2 * APART,
    residuals: 100**2 * ALIKE + 20**2 * APART,
    product_of_two: 100**2 * ALIKE + 150**2 * APART,
    walk: 20**2 * np.minimum.outer(np.arange(1, AREAS + 1), np.arange(1, AREAS + 1)),
    areas: 20**2 * field(1),
    areas_beside_effects: field(5) + 20**2 * APART,
    halfway: 100**2 * ALIKE + 20**2 * APART,
}


@pytest.mark.parametrize(
    "effects",
    [
        pytest.param(f, id=f.__name__, marks=() if f in (centred, residuals) else pytest.mark.slow)
        for f in COVARIANCES
    ],
)
def test_whole_numbers_are_numbers(effects):
    with pm.Model():
        found = pm.Deterministic("effects", effects())
        pm.Normal("y", found[GROUP], SD, observed=SEEN)
        result = run(sg.CoRVSGLD(backend="jax"), chains=1)
    covariance = np.linalg.inv(np.linalg.inv(COVARIANCES[effects]) + EACH / SD**2 * APART)
    mean = covariance @ np.bincount(GROUP, SEEN) / SD**2
    assert_right(result.posterior, {"effects": (mean, np.diag(covariance) ** 0.5)})


def test_a_weight_stays_a_weight_beside_a_whole_number():
    by_hand = sg.transforms.Centring(0.5)
    [x, of_float] = [
        by_hand.forward(np.ones(2), *pm.Normal.dist(0, sd).owner.inputs).eval() for sd in (20, 20.0)
    ]
    np.testing.assert_allclose(x, 20**-0.5)
    np.testing.assert_allclose(of_float, x, rtol=1e-6)
