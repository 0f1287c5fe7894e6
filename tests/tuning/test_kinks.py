"""Densities whose gradient jumps: all their curvature may be where it does."""

import numpy as np
import pymc as pm
import pytest

import pymc_sgmcmc as sg

from helpers.surfaces import Exact
from helpers.z_scores import assert_right
from pymc_sgmcmc.model.kinks import has_kinks
from pymc_sgmcmc.tuning.newton import newton
from pymc_sgmcmc.tuning.surface import difference_step
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
    centre, root, astray = bulk_of_full_data(surface, centre, root, np.random.default_rng(1))
    # The normal nearest to a Laplace distribution of unit scale has an sd of √(π/2) = 1.25
    sd = np.sqrt(np.sum(root**2, axis=1))
    assert not astray
    assert np.all((0.8 < sd) & (sd < 2))
    assert np.all(np.abs(centre) < 0.7)


@pytest.mark.parametrize(
    "method, backend",
    [
        (sg.CoRVSGLD, "jax"),
        (sg.MSGNHT, "jax"),
        pytest.param(sg.MSGNHT, "numba", marks=pytest.mark.slow),
    ],
)
def test_laplace_distributions_are_sampled_untuned(method, backend):
    with pm.Model():
        pm.Laplace("x", 1, 2, shape=5)
        result = pm.sample(
            step=method(backend=backend), chains=2, cores=1, random_seed=1, progressbar=False
        )
    assert_right(result.posterior, {"x": (1.0, np.sqrt(8))})
