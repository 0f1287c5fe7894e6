"""Passes over the data, and the gradient noise of coordinates that few rows touch."""

import numpy as np
import pytest

from helpers.policies import LM
from helpers.surfaces_of_rows import Groups
from helpers.z_scores import STANDARD_ERRORS
from pymc_sgmcmc.tuning.noise import measured_noise, turned_noise
from pymc_sgmcmc.tuning.noise_of_many import NoiseOnTheWay, noise_of_pairs
from pymc_sgmcmc.tuning.passes import PAIRS, Passes
from pymc_sgmcmc.tuning.plan import Plan
from pymc_sgmcmc.tuning.regimes import Diagonal
from pymc_sgmcmc.tuning.turn import Turn


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
    plain, controlled = noise_of_pairs(
        surface, surface.mean, np.full(1000, 0.5**0.5), np.random.default_rng(1)
    )
    # One of 20 batches has the row: its gradient is 20 (θ - y) there and 20 σ² of the change
    away = surface.y[np.argsort(surface.group)] - surface.mean
    np.testing.assert_allclose(plain, 19 * (away**2 + 0.5) - 19 * 0.5, rtol=0.1, atol=0.3)
    np.testing.assert_allclose(controlled, 19 * 0.5, rtol=0.05)


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


def test_a_plan_takes_measured_noise():
    plan = Plan(
        centre=np.zeros(3), root=np.array([1.0, 2.0, 1.0]), batches=2, variance=np.ones(3),
        step_size=0.2, relative=np.array([1.0, 0.5, 1.0]), regime=Diagonal(), ratio=0.5,
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
        centre=centre, root=sd, variance=found.plain, step_size=0.2, regime=Diagonal(), turn=turn,
        relative=np.ones(groups + 1), turned=turned_noise(surface, centre, sd, turn, rng)[0],
    ).with_noise(noise.plain / sd**2, 0.2, LM)  # fmt: skip
    assert abs(plan.variance[-1] / found.plain[-1] - 1) < STANDARD_ERRORS * (4 / 500) ** 0.5
