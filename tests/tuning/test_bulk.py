"""The bulk of posteriors whose mode is elsewhere."""

import numpy as np
import pymc as pm
import pytest

import pymc_sgmcmc as sg

from helpers.sampling import run
from helpers.steps import start
from helpers.surfaces import Exact, ItemResponse, OneScale, groups
from helpers.z_scores import STANDARD_ERRORS, mean_and_error_of_chain
from pymc_sgmcmc.tuning import bulk
from pymc_sgmcmc.tuning.bulk import _Search, find_bulk
from pymc_sgmcmc.tuning.modes import newton
from pymc_sgmcmc.tuning.start import Beginning
from pymc_sgmcmc.tuning.surface import NoGaussianError, TuningError


@pytest.mark.parametrize("seed", range(3))
def test_a_hierarchy_does_not_collapse(seed):
    """Its mode is at τ = 0, its mass is not; a start far from the data is nearer to the mode."""
    surface, rng = groups(14.0, seed), np.random.default_rng(seed)
    mean, sd = surface.log_scale()
    z = (newton(surface, np.r_[240.0, 4.0, surface.y], None)[0][1] - mean) / sd
    assert abs(z) < 3
    start = rng.uniform(-1, 1, size=32)
    centre, root, _ = find_bulk(Beginning(surface, OneScale(), start), rng, print)
    assert abs(centre[1] - mean) < sd
    assert abs(np.linalg.norm(root[1]) / sd - 1) < 0.5
    # As the conjugate update of a_j for the mean scale
    weight = 1 / (1 + (surface.s / np.exp(mean)) ** 2)
    expected = weight * surface.y + (1 - weight) * surface.y.mean()
    assert np.all(np.abs(centre[2:] - expected) < surface.s)


@pytest.mark.parametrize("seed", range(4))
def test_a_bulk_that_newton_misses_is_found(seed):
    """Slopes of items are positive, and their common scale may fall to 0: two of four ways do."""
    rng = np.random.default_rng(seed)
    logit = rng.lognormal(0, 0.5, 8) * (rng.normal(size=(30, 1)) - rng.normal(size=8))
    surface = ItemResponse((rng.random((30, 8)) < 1 / (1 + np.exp(-logit))).astype(float))
    rng = np.random.default_rng(seed)
    start = rng.uniform(-1, 1, size=surface.dimension)
    centre, root, _ = find_bulk(Beginning(surface, OneScale(), start), rng, print)
    e = rng.standard_normal((400, surface.dimension))
    whitened = surface.full(centre + e @ root.T)[1] @ root
    # 1 in every direction where the posterior is a Gaussian
    forms = np.mean(whitened * e, axis=0)
    assert 0.2 < forms.min() < forms.max() < 10


def test_scales_that_move_take_the_start_along_and_are_fitted_to_one_sd(monkeypatch):
    """Each search hands the centre, one sd above and below it, and its start, to the scales."""

    class Moved(Exact):
        scales = ()

        def rescale(self, points):
            asked.append(points)
            return 2 * points

        def is_bent(self, centre):
            return True

    asked, surface, start, sd = [], Moved(2), np.full(2, 3.0), np.array([1.0, 2.0])
    monkeypatch.setattr(bulk, "diagonal_gaussian", lambda *args: (np.ones(2), sd))
    begin = Beginning(surface, surface, start)
    search = _Search(begin, np.random.default_rng(0), print)
    reached = search._rough_normals(begin.start)
    np.testing.assert_allclose([reached.centre, reached.root], [[2, 2], np.minimum(2 * sd, 4)])
    np.testing.assert_allclose(reached.start, 6)
    reached.root = np.array([[3.0, 0.0], [4.0, 1.0]])
    assert search._straighten(reached)
    away = asked[1][:4] - asked[1][0]
    np.testing.assert_allclose(away, [[0, 0], [3, 17**0.5], [-3, -(17**0.5)], [4, 4]])
    np.testing.assert_allclose(reached.start, 12)
    np.testing.assert_allclose(reached.root, [[6, 0], [8, 2]])


def test_a_second_attempt_begins_at_the_start_in_the_coordinates_of_the_start(monkeypatch):
    """θ = unit φ, and the search in other units ends nowhere."""

    class InUnits(OneScale, Exact):
        unit, scales = 1.0, (1.0,)

        def potential(self, points):
            return np.sum((self.unit * points) ** 2, axis=1) / 2, self.unit**2 * points

        def rescale(self, points):
            self.set_scales((7.0,))
            return points / 7

        def set_scales(self, scales):
            self.scales = scales
            [self.unit] = scales

    def nowhere(*args):
        raise TuningError("no bulk")

    def second(surface, start, rng, **options):
        begun.append(surface.unit * start)
        return start, np.ones(2)

    begun, surface = [], InUnits(2)
    monkeypatch.setattr(bulk, "bulk_of_full_data", nowhere)
    monkeypatch.setattr(bulk, "diagonal_gaussian", nowhere)
    monkeypatch.setattr(bulk, "fitted_in_blocks", second)
    rng, start = np.random.default_rng(0), np.full(2, 3.0)
    find_bulk(Beginning(surface, surface, start), rng, print)
    np.testing.assert_allclose(begun, [start])


@pytest.mark.parametrize(("exchangeable", "error"), [(True, NoGaussianError), (False, TuningError)])
def test_a_net_that_no_normals_fit_is_tuned_another_way(monkeypatch, exchangeable, error):
    def fails(*args):
        raise TuningError("gradients are not finite")

    class WithScales(Exact):
        scales = ()

        def set_scales(self, scales):
            self.scales = scales

    monkeypatch.setattr("pymc_sgmcmc.tuning.bulk._Search.dense", fails)
    monkeypatch.setattr("pymc_sgmcmc.tuning.bulk._Search.diagonal", fails)
    surface, start = WithScales(2), np.zeros(2)
    begin = Beginning(surface, surface, start, exchangeable=exchangeable)
    with pytest.raises(error):
        find_bulk(begin, np.random.default_rng(0), print)


@pytest.mark.slow
def test_a_small_hierarchy_has_widths_where_no_matrix_was_found(no_matrix):
    y = np.random.default_rng(1).normal(3, 1, size=(40, 10))
    with pm.Model():
        tau = pm.HalfNormal("tau", 5)
        mu = pm.Normal("mu", 0, tau, shape=10)
        pm.Normal("y", mu, 1, observed=y)
        posterior = run(sg.CoRVSGLD(backend="jax"), draws=500, tune=50, chains=1).posterior
    for draws, expected in zip(posterior["mu"].values[0].T, y.mean(axis=0), strict=True):
        mean, error = mean_and_error_of_chain(draws)
        # tau is near 3: it shrinks a mean of 3 by 1 / (40 * 9)
        assert abs(mean - expected) < 0.01 + STANDARD_ERRORS * error
        assert error < 0.02


@pytest.mark.slow
def test_a_half_line_whose_bulk_is_far_above_the_mode_is_log_like_there():
    """The concentration of scattered rates: 19 in the bulk, near 0 at the mode."""
    rng = np.random.default_rng(12)
    trials = rng.integers(8, 60, 25)
    successes = rng.binomial(trials, rng.beta(4, 8, 25))
    with pm.Model():
        mean, concentration = pm.Beta("mean", 1, 1), pm.LogNormal("concentration", 2, 1)
        p = pm.Beta("p", mean * concentration, (1 - mean) * concentration, shape=25)
        pm.Binomial("successes", trials, p, observed=successes)
        step = sg.MSGNHT(backend="jax")
    step.step(start(step, draws=500))
    settings = step._runner.settings
    assert settings.centre[1] < 0
    # Where the bulk is skewed, a draw takes more updates
    assert settings.thin == 20


@pytest.mark.slow
def test_a_simplex_keeps_its_total_beside_a_coefficient_of_large_numbers():
    rng = np.random.default_rng(1)
    population = 1e8 * rng.normal(size=500)
    with pm.Model():
        p = pm.Dirichlet("p", np.ones(4))
        pm.Multinomial("n", 100, p, observed=[70, 25, 5, 0])
        b = pm.Normal("b", 0, 1)
        pm.Normal("y", b * population, 1, observed=rng.normal(size=500))
        step = sg.CoRVSGLD(backend="jax")
        run(step, 10, 1, tune=10)
    [total] = step.chain.scales
    assert 50 < float(np.ravel(total)[0]) < 210
