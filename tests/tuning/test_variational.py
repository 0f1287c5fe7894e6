"""The fit of independent normals."""

import numpy as np
import pytest

from helpers.surfaces import Exact
from helpers.surfaces_of_rows import Means, Quartic
from pymc_sgmcmc.tuning.variational import diagonal_gaussian


@pytest.mark.parametrize(
    "condition",
    [
        1.0,
        1e6,
    ],
)
def test_diagonal_gaussian_of_independent_coordinates(condition):
    d = 600
    precisions = np.random.default_rng(0).permutation(np.geomspace(1, condition, d))
    mean = np.linspace(-5, 5, d)

    class Independent(Exact):
        def potential(self, points):
            g = (points - mean) * precisions
            return np.sum((points - mean) * g, axis=1) / 2, g

    found, sd = diagonal_gaussian(Independent(d), np.zeros(d), np.random.default_rng(1))
    assert np.mean((found - mean) ** 2 * precisions) < 0.02
    # A precision is a moving mean of eight squared normals, weight 0.3: relative sd 0.21
    ratio = np.log(sd * precisions**0.5)
    assert np.std(ratio) < 0.15
    assert abs(np.mean(ratio)) < 0.03


def test_diagonal_gaussian_of_minibatches():
    data = np.random.default_rng(2).normal(3.0, 1.0, size=(4000, 200))
    surface = Means(data, 100)
    found, sd = diagonal_gaussian(surface, np.zeros(200), np.random.default_rng(3))
    # The mean of eight batches of a hundred rows has a noise of 40 / 8 posterior variances: the
    # average over a hundred steps leaves about a twentieth of one
    assert np.mean((found - data.mean(axis=0)) ** 2) * 4000 < 0.2
    ratio = np.log(sd * 4000**0.5)
    assert np.std(ratio) < 0.15
    assert abs(np.mean(ratio)) < 0.04


def test_noise_of_batches_does_not_widen_the_diagonal_gaussian():
    sds = []
    for noise in (0.0, 10.0):
        surface = Quartic(np.full(50, noise), np.zeros(50))
        _, sd = diagonal_gaussian(surface, np.ones(50), np.random.default_rng(0))
        sds.append(sd.mean())
    # At a constant rate a quarter less: x on the move is as if the posterior were wider
    assert sds[1] == pytest.approx(sds[0], rel=0.1)
