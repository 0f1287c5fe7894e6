"""Newton's method towards a rough centre."""

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
from helpers.surfaces_of_rows import logistic
from pymc_sgmcmc.tuning.conditional import Conditional
from pymc_sgmcmc.tuning.newton import newton
from pymc_sgmcmc.tuning.surface import TuningError
from pymc_sgmcmc.tuning.whiten import (
    inverse_root,
)


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

    with pytest.raises(TuningError, match=r"non-finite curvature\. Pass initvals="):
        newton(Broken(2), np.zeros(2), None)
