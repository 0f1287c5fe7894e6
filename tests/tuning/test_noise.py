"""Measured gradient noise."""

import numpy as np

from helpers.surfaces_of_rows import Means, Noisy, logistic
from helpers.z_scores import STANDARD_ERRORS, z_score
from pymc_sgmcmc.tuning.noise import measured_noise, met_noise
from pymc_sgmcmc.tuning.whiten import (
    bulk_of_minibatches,
)


def test_noise_of_means_is_known():
    data = np.random.default_rng(0).normal(size=(1000, 4)) * [1.0, 2.0, 3.0, 4.0]
    surface = Means(data, 20)
    root = np.full(4, 1000**-0.5)
    # All contiguous batches, wrapped round
    sums = np.array([np.roll(data, -k, axis=0)[:20].sum(axis=0) for k in range(1000)])
    exact = (50 * sums * root).var(axis=0)
    found = [
        measured_noise(surface, data.mean(axis=0), root, np.random.default_rng(seed))
        for seed in range(20)
    ]
    assert all(noise.rotation is None for noise in found)
    assert abs(z_score([noise.plain for noise in found], exact)).max() < STANDARD_ERRORS
    assert max(noise.controlled.max() for noise in found) < 1e-20


def test_noise_grows_with_the_distance_from_the_centre():
    additive, multiplicative = np.array([1.0, 5.0, 0.5]), np.array([0.2, 0.0, 2.0])
    surface = Noisy(additive, multiplicative)
    root = np.array([1.0, 2.0, 0.5])
    found = [
        measured_noise(surface, np.zeros(3), root, np.random.default_rng(seed))
        for seed in range(40)
    ]
    # At points of N(0, root²), in units of root
    controlled = (multiplicative * root) ** 2 * root**2
    plain = (additive * root) ** 2 + controlled
    z = z_score([noise.plain for noise in found], plain)
    assert abs(z).max() < STANDARD_ERRORS
    z = z_score([noise.controlled for noise in found], controlled)
    assert abs(z[[0, 2]]).max() < STANDARD_ERRORS
    assert max(noise.controlled[1] for noise in found) < 1e-20


def test_noise_that_a_chain_meets_counts_with_its_squared_distance():
    multiplicative = np.array([0.2, 0.0, 2.0])
    surface, root = Noisy(np.ones(3), multiplicative), np.array([1.0, 2.0, 0.5])
    at_unit_distance = (multiplicative * root) ** 2 * root**2
    psi = np.repeat([[1.0], [3.0]], 20, axis=0) * np.ones(3)
    found = [
        met_noise(surface, np.zeros(3), root, psi, psi * root, np.random.default_rng(seed))
        for seed in range(20)
    ]
    # E vψ² / E ψ² of v = v₁ψ²: (1 + 3⁴) / (1 + 3²) of that at distance 1
    z = z_score(found, 8.2 * at_unit_distance)
    assert abs(z[[0, 2]]).max() < STANDARD_ERRORS
    assert max(met[1] for met in found) < 1e-20


def test_noise_is_turned_to_its_own_axes():
    surface = logistic(d=6)
    rng = np.random.default_rng(0)
    centre, root = bulk_of_minibatches(surface, np.zeros(6), np.eye(6) / 10, rng)
    noise = measured_noise(surface, centre, root, rng)
    np.testing.assert_allclose(noise.rotation.T @ noise.rotation, np.eye(6), atol=1e-12)
    # All contiguous batches, at many points
    offsets = np.arange(2000)[:, None]
    covariance, turned = np.zeros((6, 6)), root @ noise.rotation
    for e in rng.standard_normal((100, 6)):
        x = np.repeat((centre + turned @ e)[None], 2000, axis=0)
        at = np.repeat(centre[None], 2000, axis=0)
        difference = surface.batch(x, offsets)[1] - surface.batch(at, offsets)[1]
        covariance += np.cov(difference @ turned, rowvar=False) / 100
    # Of 16 points, each a quadratic form of normals: a quarter, and 512 batches
    np.testing.assert_allclose(noise.controlled.sum(), np.trace(covariance), rtol=0.5)
    along, most = np.diag(covariance).max(), np.linalg.eigvalsh(covariance).max()
    assert along > 0.7 * most
