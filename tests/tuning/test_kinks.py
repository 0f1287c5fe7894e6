"""Densities whose gradient jumps: all their curvature may be where it does."""

import numpy as np
import pymc as pm
import pytest

import pymc_sgmcmc as sg

from helpers.sampling import run
from helpers.surfaces import Exact, rotated
from helpers.z_scores import assert_right
from pymc_sgmcmc.model.properties import has_kinks
from pymc_sgmcmc.tuning.curvature import difference_step, mean_curvature
from pymc_sgmcmc.tuning.modes import newton
from pymc_sgmcmc.tuning.whiten import bulk_of_full_data, inverse_root

CONSTANT = np.arange(3.0)


class Laplace(Exact):
    """Independent Laplace distributions of unit scale about 0."""

    def __init__(self, dimension):
        super().__init__(dimension)
        self.kinked = True

    def potential(self, points):
        return np.abs(points).sum(axis=1), np.sign(points)


@pytest.mark.parametrize(
    "of, expected",
    [
        (lambda: pm.Laplace("x", 0, 1), True),
        (lambda: pm.AsymmetricLaplace("x", b=1, kappa=2, mu=0), True),
        (lambda: pm.Laplace("y", pm.Normal("x"), 1, observed=CONSTANT), True),
        (lambda: pm.Potential("l", -pm.math.abs(pm.Flat("x"))), True),
        (lambda: pm.Potential("l", -pm.math.maximum(0.9 * pm.Flat("x"), 0)), True),
        (lambda: pm.Potential("l", pm.math.minimum(0, pm.Flat("x"))), True),
        (lambda: pm.Potential("l", -(pm.Flat("x") ** 2)), False),
        (lambda: pm.StudentT("x", nu=3), False),
        (lambda: pm.Normal("y", abs(pm.Normal("x")), 1, observed=CONSTANT), False),
    ],
)
def test_laplace_distributions_have_kinks(of, expected):
    with pm.Model() as model:
        of()
    assert has_kinks(model) is expected


def test_one_in_batches_has_kinks():
    with pm.Model() as model:
        y = pm.Minibatch(CONSTANT, batch_size=2)
        pm.Laplace("y", pm.Normal("x"), 1, observed=y, total_size=3)
    assert has_kinks(model)


def test_differences_are_wide_only_where_there_are_kinks():
    surface = Laplace(2)
    assert difference_step(surface) == 0.5
    surface.kinked = False
    assert difference_step(surface) < 0.01


def test_newton_steps_reach_a_kink_from_where_the_density_is_flat():
    centre, hessian, collapses = newton(Laplace(4), np.array([0.3, -0.7, 2.0, -40.0]), None)
    assert np.all(np.abs(centre) < 2)
    assert np.all(np.diag(hessian) > 0.05)
    assert not collapses


def test_the_bulk_of_laplace_distributions_has_about_their_width():
    surface, d = Laplace(5), 5
    centre, hessian, _ = newton(surface, np.linspace(-1, 1, d), None)
    root = inverse_root(hessian, surface.circular)
    centre, root, unsettled = bulk_of_full_data(surface, centre, root, np.random.default_rng(1))
    # The normal nearest to a Laplace distribution of unit scale has an sd of √(π/2) = 1.25
    sd = np.sqrt(np.sum(root**2, axis=1))
    assert not unsettled
    assert np.all((0.8 < sd) & (sd < 2))
    assert np.all(np.abs(centre) < 0.7)


class Tied(Laplace):
    """Those of which data tell four sums closely."""

    def __init__(self, dimension):
        super().__init__(dimension)
        self.sums = np.random.default_rng(5).normal(size=(4, dimension))
        self.precision_of_sums = 1e6

    def potential(self, points):
        told, (u, slope) = points @ self.sums.T, super().potential(points)
        u = u + self.precision_of_sums * np.sum(told**2, axis=1) / 2
        return u, slope + self.precision_of_sums * told @ self.sums

    def covariance(self, rng):
        """Given the precisions of a mixture of normals, each Laplace variable is normal."""
        d, x, draws = self.dimension, np.ones(self.dimension), []
        told = self.precision_of_sums * self.sums.T @ self.sums
        for _ in range(4000):
            root = np.linalg.cholesky(told + np.diag(rng.wald(1 / np.abs(x), 1)))
            x = np.linalg.solve(root.T, rng.normal(size=d))
            draws.append(x)
        return np.cov(np.array(draws[100:]).T)


def test_the_bulk_is_found_where_data_tie_coordinates_together():
    surface, d, rng = Tied(20), 20, np.random.default_rng(2)
    centre, hessian, _ = newton(surface, np.linspace(-1, 1, d), None)
    root = inverse_root(hessian, surface.circular)
    centre, root, unsettled = bulk_of_full_data(surface, centre, root, rng)
    inverse = np.linalg.inv(root)
    found = np.linalg.eigvalsh(inverse @ surface.covariance(rng) @ inverse.T)
    # The variance of one Laplace distribution is 4/π of that of the nearest normal. Along single
    # coordinates differences reach no kink: by them 16 variances were below 1e-4 of what L says
    assert not unsettled
    assert 0.6 < found.min() and found.max() < 2


def test_curvature_of_a_normal_density_has_no_error():
    rng = np.random.default_rng(3)
    matrix, root = rotated(6, 1e3), rng.normal(size=(6, 6))
    found = mean_curvature(lambda x: x @ matrix, np.ones(6), root, rng, 20)
    np.testing.assert_allclose(found, root.T @ matrix @ root, rtol=1e-8, atol=1e-8)


def test_curvature_of_kinks_is_that_of_steins_identity():
    rng = np.random.default_rng(4)
    found = mean_curvature(np.sign, np.zeros(10), np.eye(10), rng, 640)
    # E|e| = √(2/π). Slope and length of a pair hardly depend on one of ten coordinates; the error
    # of the mean of ten is .007
    assert np.mean(np.diag(found)) == pytest.approx(np.sqrt(2 / np.pi), abs=0.03)


def test_a_few_steep_pairs_do_not_count_for_all():
    def steep(x):
        return x * np.where(np.abs(x[:, :1]) > 2.5, 1e4, 1.0)

    found = mean_curvature(steep, np.zeros(8), np.eye(8), np.random.default_rng(5), 400)
    assert np.linalg.eigvalsh(found).max() < 1.5


def test_far_from_all_kinks_there_is_no_curvature():
    found = mean_curvature(np.sign, np.full(4, 50.0), np.eye(4), np.random.default_rng(6), 40)
    np.testing.assert_allclose(found, 0, atol=1e-12)


def test_curvature_is_unknown_where_few_gradients_are_finite():
    def broken(x):
        return np.where(np.abs(x[:, :1]) > 0.3, np.nan, x)

    found = mean_curvature(broken, np.zeros(4), np.eye(4), np.random.default_rng(6), 16)
    assert np.all(np.isnan(found))


@pytest.mark.slow
def test_a_penalty_of_ones_own_on_effects_that_data_tie_together():
    """Written as a potential, that effects are small: Laplace distributions of another name."""
    rng = np.random.default_rng(8)
    t = np.linspace(0, 1, 2000)
    hinges = np.maximum(t[:, None] - np.linspace(0, 0.9, 12), 0)
    y = hinges @ rng.laplace(0, 0.3, 12) + rng.normal(0, 0.1, len(t))
    with pm.Model():
        x, seen = pm.Minibatch(hinges, y, batch_size=500)
        bend = pm.Flat("bend", shape=12)
        pm.Potential("small", -pm.math.abs(bend).sum() / 0.3)
        pm.Normal("y", x @ bend, 0.1, observed=seen, total_size=len(y))
        drawn = run(sg.MSGNHT(), compute_convergence_checks=True).posterior["bend"]
    told, linear, exact = 100 * hinges.T @ hinges, 100 * hinges.T @ y, []
    b = np.ones(12)
    for _ in range(6000):
        root = np.linalg.cholesky(told + np.diag(rng.wald(1 / (0.3 * np.abs(b)), 0.3**-2)))
        mean = np.linalg.solve(root.T, np.linalg.solve(root, linear))
        b = mean + np.linalg.solve(root.T, rng.normal(size=12))
        exact.append(b)
    mean, sd = np.mean(exact[100:], axis=0), np.std(exact[100:], axis=0)
    # Of a thousand effective draws the worst of 12 is off by 3 / 1000 ** 0.5, and of the two
    # thousand of the exact law's draws by another .06
    assert np.abs((drawn.mean(("chain", "draw")).values - mean) / sd).max() < 0.2
    assert np.abs(drawn.std(("chain", "draw")).values / sd - 1).max() < 0.15


@pytest.mark.parametrize("method", [sg.CoRVSGLD, pytest.param(sg.MSGNHT, marks=pytest.mark.slow)])
def test_laplace_distributions_are_sampled_untuned(method):
    with pm.Model():
        pm.Laplace("x", 1, 2, shape=5)
        result = run(method(backend="jax"), compute_convergence_checks=True)
    assert_right(result.posterior, {"x": (1.0, np.sqrt(8))})
