"""Measured gradient noise, also of coordinates that few rows touch."""

import numpy as np
import pytest

from helpers.policies import LM
from helpers.surfaces_of_rows import Groups, Means, Noisy, Rows, logistic
from helpers.z_scores import STANDARD_ERRORS, z_score
from pymc_sgmcmc.model.batch_schemes import BATCH_SCHEMES
from pymc_sgmcmc.tuning.directions import Turn
from pymc_sgmcmc.tuning.noise import (
    NoiseOnTheWay,
    measured_noise,
    noise_along_burn_in,
    turned_noise,
)
from pymc_sgmcmc.tuning.passes import PAIRS, Passes
from pymc_sgmcmc.tuning.plan import Plan
from pymc_sgmcmc.tuning.regimes import Regime
from pymc_sgmcmc.tuning.whiten import bulk_of_minibatches


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


class OneRow(Rows):
    """Two coordinates, the second of which a single row of 10,000 informs."""

    def __init__(self):
        super().__init__(2, 10_000, 5)

    def prior(self, points):
        return np.sum(points**2, axis=1) / 2, points

    def of_rows(self, points, index, counted):
        there = points * [0, 1] * np.any(index == 4321, axis=1)[:, None]
        return np.sum(there**2, axis=1) / 2, there


def test_the_noise_of_a_coordinate_that_one_row_informs_is_seen():
    """By half a thousand independent batches of two thousand it is missed by three in four."""
    for seed in range(10):
        noise = measured_noise(OneRow(), np.zeros(2), np.eye(2), np.random.default_rng(seed))
        # At 1 or -1 it is that of 2,000 at one batch in 2,000
        np.testing.assert_allclose(noise.controlled.max(), 2_000, rtol=0.02)
        np.testing.assert_allclose(noise.plain.max(), 2_000, rtol=0.02)


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
        noise_along_burn_in(
            surface, np.zeros(3), root, psi, psi * root, np.random.default_rng(seed)
        )
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


@pytest.mark.parametrize("batch_size", [50, 1])
def test_a_pass_takes_each_row_once(batch_size):
    surface = Groups(800, 1, seed=0, batch_size=batch_size)
    passes = Passes(surface, np.random.default_rng(0))
    steps = 800 // (PAIRS * passes.batches * batch_size)
    assert passes.batches == {50: 1, 1: 5}[batch_size]
    for _ in range(3):
        drawn = np.concatenate([passes.draw().ravel() for _ in range(steps)])
        rows = (drawn[:, None] + np.arange(batch_size)) % 800
        assert np.array_equal(np.sort(rows.ravel()), np.arange(800))


def test_noise_of_groups_of_one_row():
    surface = Groups(1000, 1, seed=0)
    ones, rng = np.ones(1000), np.random.default_rng(1)
    found = measured_noise(surface, surface.mean, ones, rng, 0.5**0.5 * ones, many=True)
    # One of 20 batches has the row: its gradient is 20 (θ - y) there and 20 σ² of the change
    away = surface.y[np.argsort(surface.group)] - surface.mean
    np.testing.assert_allclose(found.plain, 19 * (away**2 + 0.5) - 19 * 0.5, rtol=0.1, atol=0.3)
    # A batch that two passes have in one step of eight counts a seventh less
    np.testing.assert_allclose(found.controlled, 19 * 0.5, rtol=1 / 7)
    assert abs(found.controlled.mean() / (19 * 0.5) - 1) < 0.02


@pytest.mark.parametrize("anchored", [True, False])
def test_noise_on_the_way_is_that_of_the_positions(anchored):
    surface, rng = Groups(1000, 1, seed=0), np.random.default_rng(1)
    # Off the anchor, and wider than any fit
    centre, spread = surface.mean + 1.5, 2.0
    noise = NoiseOnTheWay(surface, surface.mean if anchored else None, rng)
    assert noise.variance() is None
    places = centre + spread * rng.standard_normal((noise.positions, 1000))
    for place in places:
        noise.add(place)
    away = places - (surface.mean if anchored else surface.y[np.argsort(surface.group)])
    exact = 19 * np.mean(away**2, axis=0)
    found = noise.variance()
    # A row is in a batch of few of the positions
    assert abs(np.mean(found / exact) - 1) < 4 * np.std(found / exact) / 1000**0.5
    assert np.std(found / exact) < 1.0
    noise.forget()
    assert noise.variance() is None


def test_noise_on_the_way_is_that_of_neighbouring_batches():
    """Where neighbouring batches are alike the mean of five is no less noisy than one."""
    row = np.arange(800)[:, None]
    surface = Means(np.cos(2 * np.pi * row * [1, 2, 3] / 800), 20)
    # All runs of 100 rows, wrapped round, of which eight make up a pass
    means = [8 * np.roll(surface.data, -k, axis=0)[:100].sum(axis=0) for k in range(800)]
    noise = NoiseOnTheWay(surface, None, np.random.default_rng(0), batches=5)
    for _ in range(noise.positions):
        noise.add(np.zeros(3))
    found = noise.variance() * BATCH_SCHEMES["shuffled"].variance_ratio(800, 20, 5)
    np.testing.assert_allclose(found, np.var(means, axis=0), rtol=1e-3)


def test_a_plan_takes_measured_noise():
    plan = Plan(
        centre=np.zeros(3), root=np.array([1.0, 2.0, 1.0]), batches=2, variance=np.ones(3),
        step_size=0.2, relative=np.array([1.0, 0.5, 1.0]), regime=Regime(diagonal=True), ratio=0.5,
    ).with_noise(np.array([0.1, 0.5, 8.0]), 0.1, LM)  # fmt: skip
    np.testing.assert_allclose(plan.variance, [0.05, 1.0, 4.0])
    assert LM.widening == 0.15
    np.testing.assert_allclose(0.1 * plan.relative, [0.1, 0.05, 0.15 / 4])


class UnderAMean(Groups):
    """Groups below a mean of their own, on which no row depends: N(θ; m, 1), the last coordinate.

    Beside it the third derivatives of other scales leave a noise of nearly nothing.
    """

    def __init__(self, groups, each, seed):
        super().__init__(groups, each, seed)
        self.dimension = groups + 1
        self.unbounded, self.widest = np.ones(groups + 1, bool), np.full(groups + 1, np.inf)
        self.circular, self.kinked = np.zeros(groups + 1, bool), False

    def prior(self, points):
        theta, mean = points[:, :-1], points[:, -1:]
        away, trace = theta - mean, 1e-9 * np.sum(theta**4, axis=1, keepdims=True)
        u = np.sum(away**2, axis=1) / 2 + (mean**2)[:, 0] / 2 + (mean * trace)[:, 0]
        last = mean - away.sum(axis=1, keepdims=True) + trace
        return u, np.concatenate([away + 4e-9 * mean * theta**3, last], axis=1)


def test_a_direction_in_the_place_of_a_coordinate_without_noise():
    groups = 600
    surface = UnderAMean(groups, 5, seed=0)
    sd = np.append(np.full(groups, 6**-0.5), groups**-0.5)
    centre = np.append(surface.mean, surface.mean.mean())
    # Most of it is the mean's own
    direction = np.append(np.full(groups, 0.4 * groups**-0.5), 0.84**0.5)[:, None]
    turn = Turn.to(direction, np.array([1.5]), [groups, 1], sd)
    assert turn.coordinates.tolist() == [groups]
    rng = np.random.default_rng(1)
    noise = measured_noise(surface, centre, sd, rng, sd, many=True)
    assert noise.plain[-1] < 1e-6
    found = noise.turned(*turned_noise(surface, centre, sd, turn, rng))
    g = surface.batch_gradient(np.repeat([centre], 2000, axis=0), surface.draw_rows(rng, 2000))
    pulled = turn.pull_back((g - g.mean(axis=0)) * sd)[:, -1]
    # Of a normal variance the relative error is √(2 / n), at the centre as all around
    assert abs(found.plain[-1] / pulled.var() - 1) < STANDARD_ERRORS * 2 * (2 / 500) ** 0.5
    assert found.plain[-1] > 0.1
    np.testing.assert_array_equal(found.plain[:-1], noise.plain[:-1])
    # And where the chain passes it is no more
    plan = Plan(
        centre=centre, root=sd, variance=found.plain, step_size=0.2,
        regime=Regime(diagonal=True), turn=turn, relative=np.ones(groups + 1),
        turned=turned_noise(surface, centre, sd, turn, rng)[0],
    ).with_noise(noise.plain / sd**2, 0.2, LM)  # fmt: skip
    assert abs(plan.variance[-1] / found.plain[-1] - 1) < STANDARD_ERRORS * (4 / 500) ** 0.5


class Coupled(Noisy):
    """Coordinates with correlations of 0.3, and batches without noise."""

    def __init__(self, dimension):
        super().__init__(np.zeros(dimension), np.zeros(dimension))
        self.matrix = 0.3 + 0.7 * np.eye(dimension)

    def full(self, points):
        gradient = points @ self.matrix
        return np.sum(points * gradient, axis=1) / 2, gradient


def test_correlations_of_thousands_are_no_noise():
    """An opposite move of the others changes the gradient of all rows, too."""
    surface, ones = Coupled(40), np.ones(40)
    found = measured_noise(surface, 0 * ones, ones, np.random.default_rng(0), ones, many=True)
    assert found.plain.max() < 1e-12
    assert found.controlled.max() < 1e-12
