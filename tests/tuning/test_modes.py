"""Newton steps to a rough mode, and which of several modes a chain begins in."""

import numpy as np
import pytest

from helpers.surfaces import (
    DoubleWell,
    Exact,
    Gaussian,
    LogGamma,
    Walled,
    away_from_identity,
    groups,
    rotated,
)
from helpers.surfaces_of_rows import Rows, logistic
from pymc_sgmcmc.tuning.conditional import Conditional
from pymc_sgmcmc.tuning.modes import best_mode, further_starts, newton, rows_of_a_search
from pymc_sgmcmc.tuning.surface import TuningError
from pymc_sgmcmc.tuning.whiten import inverse_root


def test_newton_on_a_correlated_gaussian_of_wild_scales():
    mean, matrix = np.arange(10.0), rotated(10, 1e4)
    start = mean + 100 * np.diag(matrix) ** -0.5
    centre, hessian, _ = newton(Gaussian(mean, matrix), start, None)
    away = centre - mean
    # The step after which the decrement is below d / 10 comes closer still, on a quadratic
    assert away @ matrix @ away < 0.1 * 10
    np.testing.assert_allclose(hessian, matrix, rtol=1e-6, atol=1e-6 * abs(matrix).max())
    assert away_from_identity(inverse_root(hessian).T @ matrix @ inverse_root(hessian)) < 1.001


def test_newton_leaves_a_saddle():
    start = np.array([0.1, 0.5, -0.5])
    centre, hessian, _ = newton(DoubleWell(3), start, None)
    np.testing.assert_allclose(centre, [1, 0, 0], atol=0.05)
    # The Hessian is that of the place before the last step, which was short
    np.testing.assert_allclose(np.diag(hessian), [2, 100, 100], rtol=0.2)


@pytest.mark.parametrize(
    ("surface", "start"),
    [
        (Gaussian(np.zeros(6), rotated(6, 1e6, seed=3)), np.full(6, 50.0)),
        (DoubleWell(3), np.array([1e-3, 3.0, -2.0])),
        (LogGamma(np.array([0.3, 3.0, 30.0])), np.array([6.0, -8.0, 0.0])),
        (Walled(2), np.array([1e-4, 40.0])),
    ],
    ids=["Gaussian", "saddle", "log-gamma", "walled"],
)
def test_newton_never_climbs(surface, start):
    found = [start, *(newton(surface, start, None, most_steps=k)[0] for k in range(1, 12))]
    u = surface.full(np.array(found))[0]
    assert np.all(np.isfinite(u))
    assert np.all(np.diff(u) <= 0)
    assert u[-1] < u[0]


def test_newton_along_some_coordinates_finds_the_conditional_mode():
    surface, free = groups(3.0, 0), np.arange(32) != 1
    start = np.r_[0.0, 1.0, np.zeros(30)]
    along = Conditional(surface, start, free)
    found = along.whole(newton(along, start[free], None)[0][None])[0]
    tau, s, y = np.exp(1.0), surface.s, surface.y
    # Given τ the model is linear: μ is pulled to 0 by its prior alone
    mu = np.mean(y) / (1 + (tau**2 + s**2) / (30 * 1e6))
    expected = (y / s**2 + mu / tau**2) / (1 / s**2 + 1 / tau**2)
    np.testing.assert_allclose(found, [mu, 1.0, *expected], atol=1e-3)
    np.testing.assert_allclose(along.full(found[free][None])[1], 0, atol=1e-2)


def test_newton_of_no_steps_only_measures():
    surface = LogGamma(np.array([2.0, 5.0]))
    at = np.array([0.3, -0.2])
    centre, hessian, _ = newton(surface, at, None, most_steps=0)
    np.testing.assert_array_equal(centre, at)
    np.testing.assert_allclose(hessian, np.diag(np.exp(at)), rtol=1e-4, atol=1e-6)


def test_newton_on_a_subsample_comes_within_its_noise():
    surface = logistic()
    rows = surface.draw_rows(np.random.default_rng(0), 8)
    centre = newton(surface, np.zeros(5), rows)[0]
    root = inverse_root(surface.mean_hessian(centre, np.zeros((5, 5)), np.random.default_rng(0), 1))
    slope = root.T @ surface.full(centre[None])[1][0]
    # Of 400 rows of 2,000, gradients in whitened coordinates are off by sqrt(5) each
    assert slope @ slope < 5 * 5 * 4


def test_newton_says_what_to_do_without_a_finite_curvature():
    class Broken(Exact):
        def potential(self, points):
            return np.zeros(len(points)), np.full(points.shape, np.nan)

    with pytest.raises(TuningError, match=r"derivatives .* not finite\. Pass initvals="):
        newton(Broken(2), np.zeros(2), None)


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


class Plateau(Exact):
    """Logistic variables: U is linear far from its mode at 0, where the curvature is no width."""

    def potential(self, points):
        u = np.sum(np.abs(points) + 2 * np.log1p(np.exp(-np.abs(points))), axis=1)
        return u, np.tanh(points / 2)


def test_a_plateau_is_no_mode():
    far, near = np.full(2, -52.0), np.array([0.5, -0.3])
    # No step from there is short enough
    np.testing.assert_array_equal(newton(Plateau(2), far, None)[0], far)
    centre, start = found(Plateau(2), [far, near, far])
    np.testing.assert_allclose(centre, 0, atol=0.3)
    np.testing.assert_array_equal(start, near)
    # It serves where no start ends at a mode
    np.testing.assert_array_equal(found(Plateau(2), [far, far])[0], far)


@pytest.mark.parametrize(
    ("surface", "starts", "count"),
    [
        (Plateau(2), [np.full(2, -52.0)] * 9, 3),  # no mode
        (TwoNormals(2), [WIDE] * 9, 3),
        (TwoNormals(2), [NARROW, WIDE, WIDE] * 3, 9),
    ],
)
def test_the_search_goes_on_from_further_starts_where_modes_differ(surface, starts, count):
    begun = []

    def begin(start):
        begun.append(start)
        return start

    best_mode(surface, starts, None, np.random.default_rng(1), begin)
    assert len(begun) == count


@pytest.mark.slow
def test_the_numbers_that_choose_the_starts_do_not_choose_the_mode():
    class Deep(DoubleWell):
        def potential(self, points):
            u, g = super().potential(points)
            return 20 * u, 20 * g

    draws, right = 300, 0
    for seed in range(draws):
        rng = np.random.default_rng(seed)
        starts = [rng.uniform(-1, 1, 1), *further_starts(Deep(1), np.zeros(1), 1.0, rng)]
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


def test_further_starts_are_nearer():
    rng, surface = np.random.default_rng(0), DoubleWell(100)
    state = rng.bit_generator.state
    several = [further_starts(surface, np.zeros(100), 0.8, rng) for _ in range(10)]
    assert rng.bit_generator.state == state
    starts = np.concatenate(several, axis=1)
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


class TwoWells(Rows):
    """Modes near -1 and 1; of 20,000 rows together the first has 20 more, of 400 it is chance."""

    def __init__(self):
        super().__init__(1, 20_000, 50)
        self.slopes = np.random.default_rng(3).normal(0, 0.05, 20_000)
        self.slopes += 5e-4 - self.slopes.mean()

    def prior(self, points):
        x = points[:, 0]
        return 500 * (x**2 - 1) ** 2, 2000 * (points**2 - 1) * points

    def of_rows(self, points, index, counted):
        slope = np.sum(self.slopes[index] * (1 if counted is None else counted), axis=1)
        return slope * points[:, 0], slope[:, None]


def test_modes_in_batches_are_weighed_by_all_rows():
    surface, starts = TwoWells(), [np.array([0.9]), np.array([-0.9]), np.array([0.8])]
    for seed in range(10):
        rng = np.random.default_rng(seed)
        rows = rows_of_a_search(surface, rng)
        assert rows is not None
        centre, *_ = best_mode(surface, starts, rows, rng, lambda x: x)
        # To the mode of all rows, by steps that leave a third of the way
        assert abs(centre[0] + 1) < 0.02


class Counts(Exact):
    """Poisson counts with a column up to a million, whose first look is e^100 times too steep."""

    def __init__(self):
        super().__init__(3)
        rng = np.random.default_rng(0)
        income = np.exp(rng.uniform(np.log(1e3), np.log(1e6), 500))
        self.x = np.stack([np.ones(500), rng.uniform(18, 90, 500), income], axis=1)
        self.y = rng.poisson(np.exp(0.5 + 1e-6 * income))

    def potential(self, points):
        # Sums in one order, so that equal rates have equal gradients
        eta = np.sum(points[:, None] * self.x, axis=2)
        u = np.sum(np.exp(eta) - self.y * eta, axis=1) + np.sum(points**2, axis=1) / 200
        return u, np.sum((np.exp(eta) - self.y)[..., None] * self.x, axis=1) + points / 100


def test_a_first_look_that_is_far_too_steep_is_followed_by_one_that_sees_something():
    surface = Counts()
    centre, hessian, _ = newton(surface, np.zeros(3), None)
    [gradient] = surface.full(centre[None])[1]
    exact = (surface.x.T * np.exp(centre @ surface.x.T)) @ surface.x + np.eye(3) / 100
    # Within a tenth of an sd of the mode
    assert gradient @ np.linalg.solve(exact, gradient) < 0.01
    # That before the last step
    np.testing.assert_allclose(hessian, exact, rtol=1e-2)
