"""The fit of independent normals."""

import numpy as np
import pytest

from helpers.surfaces import Exact, Gaussian
from helpers.surfaces_of_rows import Groups, Means, Quartic, Rows
from pymc_sgmcmc.tuning.curvature import Stiffness
from pymc_sgmcmc.tuning.normal_fit import diagonal_gaussian, gaussian_of_many
from pymc_sgmcmc.tuning.passes import Passes
from pymc_sgmcmc.tuning.surface import TuningError


@pytest.mark.parametrize("at_mode", [False, True])
@pytest.mark.parametrize("condition", [1.0, 1e6])
def test_diagonal_gaussian_of_independent_coordinates(condition, at_mode):
    d = 600
    precisions = np.random.default_rng(0).permutation(np.geomspace(1, condition, d))
    mean = np.linspace(-5, 5, d)
    surface, start = Gaussian(mean, precisions), mean if at_mode else np.zeros(d)
    found, sd = diagonal_gaussian(surface, start, np.random.default_rng(1))
    assert np.mean((found - mean) ** 2 * precisions) < 0.02
    # A precision is a moving mean of eight squared normals, weight 0.3: relative sd 0.21
    ratio = np.log(sd * precisions**0.5)
    assert np.std(ratio) < 0.15
    assert abs(np.mean(ratio)) < 0.03


@pytest.mark.parametrize("seed", range(4))
def test_a_plateau_beside_a_wall_does_not_end_the_fit(seed):
    """U falls towards 0 without curvature, and beyond it rises like the exponential of one."""

    class Wall(Exact):
        def potential(self, points):
            x = points[:, 0]
            with np.errstate(over="ignore"):
                power = np.exp(x)
                wall = np.exp(power)
                u = np.log1p(x**2) + wall + np.sum(points[:, 1:] ** 2, axis=1) / 2
            slope = 2 * x / (1 + x**2) + wall * power
            return u, np.concatenate([slope[:, None], points[:, 1:]], axis=1)

    surface, start = Wall(6), np.r_[-12.0, np.zeros(5)]
    found, sd = diagonal_gaussian(surface, start, np.random.default_rng(seed))
    assert surface.full(found[None])[0][0] < surface.full(start[None])[0][0]
    assert np.all(sd > 0)


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


def test_groups_that_few_batches_touch():
    surface = Groups(1000, 10, seed=0)
    found, sd = gaussian_of_many(surface, np.zeros(1000), np.random.default_rng(1))
    # A tenth to a fifth of the 200 batches of the averaged passes leaves a tenth of a variance
    assert np.mean((found - surface.mean) ** 2) * 11 < 0.3
    # Ten rows in a pass: a precision of the noise is known within 30 %, one of curvature exactly
    assert abs(np.median(sd) * 11**0.5 - 1) < 0.1
    assert np.all(sd < 1.0)


def test_a_known_start_keeps_its_sds():
    surface = Groups(1000, 10, seed=0)
    known = np.full(1000, 11**-0.5)
    found, sd = gaussian_of_many(surface, surface.mean, np.random.default_rng(1), known)
    assert np.mean((found - surface.mean) ** 2) * 11 < 0.3
    assert abs(np.median(sd) * 11**0.5 - 1) < 0.1


class Slope(Groups):
    """y ~ N(s θ_g, 1): the last coordinate is the slope log s, which effects wait for."""

    def __init__(self, groups, each, seed):
        super().__init__(groups, each, seed)
        super(Groups, self).__init__(groups + 1, groups * each, 50)
        self.unbounded = np.arange(groups + 1) < groups

    def of_rows(self, points, index, counted):
        s = np.exp(points[:, -1:])
        u, g = super().of_rows(s * points, index, counted)
        theta = points[:, :-1]
        return u, np.column_stack([s * g[:, :-1], s[:, 0] * np.sum(theta * g[:, :-1], axis=1)])


def test_a_slope_waits_until_the_effects_have_followed_the_data():
    surface = Slope(1000, 10, seed=0)
    start = np.append(np.random.default_rng(2).uniform(-1, 1, 1000), 0.0)
    found, _ = gaussian_of_many(surface, start, np.random.default_rng(1))
    # Effects of sd 1 and a slope of 1 made the data; independent normals see the scale to a tenth
    assert abs(found[-1]) < 0.15
    assert np.corrcoef(found[:-1], surface.mean)[0, 1] > 0.95


def test_the_curvature_of_a_step_is_that_of_all_its_batches(monkeypatch):
    surface = Groups(1000, 20, seed=0)
    rng, sd = np.random.default_rng(3), np.full(1000, 21**-0.5)
    rows = Passes(surface, rng).draw()
    assert rows.shape == (8, 2, 1)
    stiffness = Stiffness(surface, rng)
    assert stiffness.several
    with monkeypatch.context() as patch:
        patch.setattr(Passes, "draw", lambda self: rows)
        found = [stiffness.at(surface.mean, sd) for _ in range(17)][-1]
    # Each batch's 50 rows stand for all 20,000, and a group's prior has a precision of 1
    index = (rows.reshape(-1, 1) + np.arange(50)) % 20_000
    touched = np.bincount(surface.group[index].reshape(-1), minlength=1000)
    assert found == pytest.approx((1 + touched.max() * 20_000 / index.size) / 21, rel=0.03)
    # A later look goes on from where the first one ended
    stiffness = Stiffness(surface, rng)
    looks = [stiffness.at(surface.mean, sd) for _ in range(3)]
    assert np.all((np.array(looks) > 1.5) & (np.array(looks) < 3 * found))


class Scale(Groups):
    """Groups, and a coordinate of which so much is known that its start is far away."""

    def __init__(self, groups, each, seed):
        super().__init__(groups, each, seed)
        super(Groups, self).__init__(groups + 1, groups * each, 50)

    def of_rows(self, points, index, counted):
        u, g = super().of_rows(points[:, :-1], index, counted)
        return u, np.column_stack([g, np.zeros(len(points))])

    def prior(self, points):
        away = points - np.append(np.zeros(self.dimension - 1), 1.0)
        precision = np.append(np.ones(self.dimension - 1), 1e8)
        return np.sum(precision * away**2, axis=1) / 2, precision * away


def test_a_scale_that_begins_ten_thousand_of_its_sds_away():
    surface = Scale(600, 40, seed=0)
    start = np.append(surface.mean, 0.0)
    found, sd = gaussian_of_many(surface, start, np.random.default_rng(1))
    assert abs(found[-1] - 1) < 1e-4
    assert sd[-1] == pytest.approx(1e-4, rel=0.01)
    assert np.mean((found[:-1] - surface.mean) ** 2) * 41 < 0.3


class Vectors(Rows):
    """y ~ N(xᵀθ_g, sd²) with five effects for each of many groups, θ ~ N(0, 1)."""

    def __init__(self, groups, each, sd, seed):
        super().__init__(5 * groups, groups * each, 500)
        rng = np.random.default_rng(seed)
        self.sd, self.group = sd, rng.integers(0, groups, self.rows)
        self.x = rng.normal(size=(self.rows, 5))
        self.truth = rng.normal(size=(groups, 5))
        self.y = np.sum(self.x * self.truth[self.group], axis=1) + sd * rng.normal(size=self.rows)

    def prior(self, points):
        return np.sum(points**2, axis=1) / 2, points

    def of_rows(self, points, index, counted):
        theta = points.reshape(len(points), -1, 5)
        g, x = self.group[index], self.x[index]
        away = np.sum(x * theta[np.arange(len(points))[:, None], g], axis=2) - self.y[index]
        away = away if counted is None else away * counted
        slope = np.zeros_like(theta)
        for k, row in enumerate(away):
            np.add.at(slope[k], g[k], x[k] * row[:, None] / self.sd**2)
        return np.sum(away**2, axis=1) / (2 * self.sd**2), slope.reshape(points.shape)


@pytest.mark.parametrize("patient", [True, False])
def test_a_fit_that_is_patient_goes_on_while_the_potential_falls(patient):
    surface = Vectors(150, 100, 0.6, seed=4)
    start = np.random.default_rng(5).uniform(-1, 1, 750)
    found, sd = gaussian_of_many(surface, start, np.random.default_rng(6), patient=patient)
    u = surface.full(np.stack([found, surface.truth.reshape(-1)]))[0]
    # At the truth U is above its least value by d / 2, as at a draw. The noise of batches alone,
    # which moves x by about an sd, is worth as much
    assert bool(u[0] - u[1] < 750) is patient
    if patient:
        # Each effect is told by its 100 rows
        assert abs(np.median(sd) * 10 / 0.6 - 1) < 0.1


def test_an_ill_conditioned_gaussian():
    d = 600
    precisions = np.random.default_rng(0).permutation(np.geomspace(1, 1e6, d))
    mean = np.linspace(-1, 1, d)
    surface = Gaussian(mean, precisions)
    found, sd = gaussian_of_many(surface, np.zeros(d), np.random.default_rng(1))
    assert np.mean((found - mean) ** 2 * precisions) < 0.02
    np.testing.assert_allclose(sd * precisions**0.5, 1, rtol=1e-3)


def test_a_density_without_curvature_is_refused():
    class Flat(Exact):
        def potential(self, points):
            return np.zeros(len(points)), np.zeros_like(points)

    with pytest.raises(TuningError, match="proper prior"):
        gaussian_of_many(Flat(600), np.zeros(600), np.random.default_rng(1))


def test_a_narrow_coordinate_does_not_narrow_the_others():
    precisions = np.ones(600)
    precisions[0] = 1e16
    surface = Gaussian(np.zeros(600), precisions)
    _, sd = gaussian_of_many(surface, np.zeros(600), np.random.default_rng(1))
    np.testing.assert_allclose(sd * precisions**0.5, 1, rtol=1e-3)
