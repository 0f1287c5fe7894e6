"""Which of several modes a chain begins in."""

import numpy as np
import pytest

from helpers.surfaces import DoubleWell, Exact, Gaussian, rotated
from pymc_sgmcmc.tuning.modes import best_mode, more_starts
from pymc_sgmcmc.tuning.newton import newton

NARROW, WIDE = np.full(2, -10.0), np.full(2, 10.0)


class TwoNormals(Exact):
    """A fifth of the mass in a normal of sd 0.1, which is the higher one, and the rest in sd 1."""

    def potential(self, points):
        sds, weights = np.array([0.1, 1.0]), np.array([0.2, 0.8])
        away = points[:, None] - np.stack([NARROW, WIDE])
        logs = np.log(weights) - points.shape[1] * np.log(sds)
        logs = logs - np.sum(away**2, axis=2) / 2 / sds**2
        # Where both underflow, the nearer one is all there is
        u = -np.logaddexp(*logs.T)
        shares = np.exp(logs + u[:, None])
        return u, np.sum(shares[:, :, None] * away / sds[:, None] ** 2, axis=1)


def found(surface, starts, seed=0):
    rng = np.random.default_rng(seed)
    before = rng.bit_generator.state
    centre, start, collapses = best_mode(surface, starts, None, rng, begin=lambda x: x)
    assert rng.bit_generator.state == before
    assert not collapses
    return centre, start


@pytest.mark.parametrize("first", [NARROW, WIDE])
def test_modes_are_drawn_in_proportion_to_their_masses(first):
    starts = [first + 0.3, NARROW + 0.1, WIDE + 0.1]
    draws = 200
    centres = np.array([found(TwoNormals(2), starts, seed)[0] for seed in range(draws)])
    share = np.mean(centres[:, 0] > 0)
    # Within 3 standard errors
    assert abs(share - 0.8) < 3 * np.sqrt(0.8 * 0.2 / draws)


def test_the_numbers_that_choose_the_starts_do_not_choose_the_mode():
    class Deep(DoubleWell):
        def potential(self, points):
            u, g = super().potential(points)
            return 20 * u, 20 * g

    draws, right = 300, 0
    for seed in range(draws):
        rng = np.random.default_rng(seed)
        starts = [rng.uniform(-1, 1, 1), *more_starts(np.zeros(1), 1.0, rng)]
        centre, _, _ = best_mode(Deep(1), starts, None, rng, begin=lambda x: x)
        right += centre[0] > 0
    # The wells are alike: within 3 standard errors
    assert abs(right / draws - 0.5) < 3 * 0.5 / np.sqrt(draws)


def test_of_many_rows_the_mode_with_the_mass_is_taken():
    class OfManyRows(TwoNormals):
        def potential(self, points):
            u, g = super().potential(points)
            return 100 * u, 100 * g

    # A hundred such rows: the height, 25 times that of the other, is then worth more than the width
    starts = [WIDE + 0.1, NARROW + 0.1]
    for seed in range(5):
        centre, start = found(OfManyRows(2), starts, seed)
        np.testing.assert_allclose(centre, NARROW, atol=0.05)
        np.testing.assert_array_equal(start, starts[1])


def test_one_mode_is_what_the_first_start_alone_finds():
    surface = Gaussian(np.arange(5.0), rotated(5, 100))
    starts = [np.full(5, 3.0), np.zeros(5), np.full(5, -2.0)]
    centre, start = found(surface, starts)
    np.testing.assert_array_equal(centre, newton(surface, starts[0], None)[0])
    np.testing.assert_array_equal(start, starts[0])


def test_a_start_that_leads_nowhere_is_not_taken():
    class Holed(Gaussian):
        def potential(self, points):
            u, g = super().potential(points)
            bad = points[:, 0] > 50
            return np.where(bad, np.nan, u), np.where(bad[:, None], np.nan, g)

    surface = Holed(np.zeros(2), np.eye(2))
    centre, _ = found(surface, [np.ones(2), np.full(2, 100.0)])
    np.testing.assert_allclose(centre, 0, atol=0.3)


def test_more_starts_are_nearer():
    rng = np.random.default_rng(0)
    state = rng.bit_generator.state
    starts = more_starts(np.zeros(1000), 0.8, rng)
    assert rng.bit_generator.state == state
    assert [round(np.abs(x).max(), 2) for x in starts[:3]] == [0.4, 0.2, 0.8]
    correlations = np.corrcoef(starts) - np.eye(len(starts))
    assert np.abs(correlations).max() < 5 / np.sqrt(1000)


def test_more_than_three_starts_are_used_where_these_lead_to_several_modes():
    class Seen(TwoNormals):
        points = 0

        def potential(self, points):
            self.points += len(points)
            return super().potential(points)

    def cost(starts):
        surface = Seen(2)
        found(surface, starts)
        return surface.points

    wide, narrow = WIDE + 0.1, NARROW + 0.02
    assert cost([wide, wide, wide, narrow]) == cost([wide] * 3)
    assert cost([wide, narrow, wide, wide]) > cost([wide, narrow, wide])
