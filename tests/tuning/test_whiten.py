"""The centre and the whitening of a posterior."""

import numpy as np
import pytest

from helpers.surfaces import Gaussian, LogGamma, Walled, away_from_identity, rotated
from helpers.surfaces_of_rows import logistic
from pymc_sgmcmc.tuning.modes import newton
from pymc_sgmcmc.tuning.whiten import (
    _Whitening,
    bulk_of_full_data,
    bulk_of_minibatches,
    inverse_root,
    refined,
    rewhitened,
    upright,
)


def descended(surface, centre, root, rng):
    """Return where a descent ends, and the mean curvature along L."""
    bulk = _Whitening(surface, centre, root, rng)
    curvature = bulk.descend()
    return bulk.centre, curvature


def test_refined_is_exact_where_it_may_be():
    matrix = rotated(8, 1e4)
    exact = inverse_root(matrix)
    rng = np.random.default_rng(0)
    # No direction of this root is longer than twice the right one, or needs to be
    bend = np.linalg.qr(rng.normal(size=(8, 8)))[0] * rng.uniform(0.6, 3.0, size=8)
    old = exact @ bend
    root, change = refined(old, old.T @ matrix @ old)
    assert away_from_identity(root.T @ matrix @ root) < 1 + 1e-8
    w = np.linalg.eigvalsh(bend.T @ bend)
    assert change == pytest.approx(max(w.max(), 1 / w.min()) ** 0.5)


def test_refined_makes_no_direction_more_than_twice_as_long():
    root = np.eye(3)
    # Too short by far, of no curvature, of negative curvature
    new, change = refined(root, np.diag([1e-4, 0.0, -5.0]))
    np.testing.assert_allclose(np.sort(np.linalg.norm(new, axis=0)), [2, 2, 2])
    assert change == 2.0
    new, change = refined(root, np.diag([100.0, 1.0, 1.0]))
    assert np.linalg.norm(new[0]) == pytest.approx(0.1)
    assert change == pytest.approx(10.0)


def test_inverse_root_of_a_saddle_takes_magnitudes():
    hessian = np.array([[4.0, 0.0], [0.0, -9.0]])
    root = inverse_root(hessian)
    np.testing.assert_allclose(root @ root.T, np.diag([1 / 4, 1 / 9]), atol=1e-12)


def test_the_upright_root_mixes_no_independent_coordinates():
    rng = np.random.default_rng(0)
    rotation = np.linalg.qr(rng.normal(size=(3, 3)))[0]
    scales = np.array([1e-3, 1.0, 50.0])
    np.testing.assert_allclose(
        upright(scales[:, None] * rotation), np.diag(scales), rtol=1e-10, atol=1e-12
    )
    root = rng.normal(size=(3, 3))
    found = upright(root)
    np.testing.assert_allclose(found @ found.T, root @ root.T, rtol=1e-10)
    unit = found / np.sqrt(np.sum(root**2, axis=1))[:, None]
    np.testing.assert_allclose(unit, unit.T, atol=1e-12)


def test_whitening_of_a_gaussian_is_exact():
    matrix, mean = rotated(20, 1e6), np.arange(20.0)
    surface = Gaussian(mean, matrix)
    exact = inverse_root(matrix)
    # One sd off in every direction, and ten times too long
    centre, root, _ = bulk_of_full_data(
        surface, mean + exact @ np.ones(20), 10 * exact, np.random.default_rng(0)
    )
    assert away_from_identity(root.T @ matrix @ root) < 1.001
    away = centre - mean
    assert away @ matrix @ away < 0.1 * 20


def test_whitening_of_a_gaussian_from_a_root_that_is_too_short():
    matrix = rotated(5, 100)
    surface = Gaussian(np.zeros(5), matrix)
    short = inverse_root(matrix) / 30
    _, root, _ = bulk_of_full_data(surface, np.zeros(5), short, np.random.default_rng(0))
    assert away_from_identity(root.T @ matrix @ root) < 1.001


def test_whitening_of_a_skewed_posterior_is_that_of_its_best_gaussian():
    # E e^φ = a under N(m, s²) says m + s² / 2 = log a, and E U'' = a says s² = 1 / a
    shapes = np.repeat([2.0, 5.0, 20.0], 10)
    surface = LogGamma(shapes)
    mode, hessian, _ = newton(surface, np.zeros(30), None)
    found = [
        bulk_of_full_data(surface, mode, inverse_root(hessian), np.random.default_rng(seed))
        for seed in range(4)
    ]
    centres = np.array([centre for centre, _, _ in found]).reshape(12, 10)
    sds = np.array([np.sqrt(np.sum(root**2, axis=1)) for _, root, _ in found]).reshape(12, 10)
    a = np.tile([2.0, 5.0, 20.0], 4)[:, None]
    off = (centres - (np.log(a) - 1 / (2 * a))) * a**0.5
    assert abs(off.mean(axis=1)).max() < 0.25
    # Of 32 antithetic points: the mean of e^φ is known to 14 % at a = 2
    ratio = np.log(sds * a**0.5)
    assert abs(ratio.mean(axis=1)).max() < 0.1
    # The mode's curvature is a as well, but its place is not that of the bulk
    assert np.all((mode - np.log(shapes)) ** 2 < 1e-3)


@pytest.mark.parametrize("too_long", [1.0, 1.6, 1.8])
def test_the_centre_is_found_with_lengths_that_are_wrong(too_long):
    """Newton steps of 0.7 overshoot where L is more than 1.7 times too long."""
    surface = logistic()
    centre, hessian, _ = newton(surface, np.zeros(5), None)
    exact = inverse_root(hessian)
    root = exact.copy()
    root[:, 0] *= too_long
    rng = np.random.default_rng(0)
    found, _ = descended(surface, centre + exact @ np.full(5, 3.0), root, rng)
    assert np.linalg.norm(np.linalg.solve(exact, found - centre)) < 1


@pytest.mark.parametrize("kinked", [False, True])
@pytest.mark.parametrize("rows", [2000, 2007, pytest.param(50_000, marks=pytest.mark.slow)])
def test_whitening_by_minibatches(rows, kinked):
    """At 50,000 rows curvatures are of batches, else of all blocks."""
    surface = logistic(rows=rows, batch_size=5 if rows == 50_000 else 50)
    # As if there were kinks, curvature is found by regression
    surface.kinked = kinked
    start, hessian, _ = newton(surface, np.zeros(5), surface.draw_rows(np.random.default_rng(0), 8))
    rng = np.random.default_rng(1)
    centre, root = bulk_of_minibatches(surface, start, inverse_root(hessian), rng)
    mean_hessian = surface.mean_hessian(centre, root, rng, points=500)
    assert away_from_identity(root.T @ mean_hessian @ root) < 1.25
    e = rng.standard_normal((200, 5))
    points = centre + np.concatenate([e, -e]) @ root.T
    slope = surface.full(points)[1].mean(axis=0) @ root
    assert slope @ slope < 0.1 * 5


def test_whitening_finds_a_bulk_that_is_narrower_than_the_first_guess():
    surface = Walled(3)
    centre, root, _ = bulk_of_full_data(
        surface, np.full(3, 2.0), 5 * np.eye(3), np.random.default_rng(0)
    )
    assert np.all(np.isfinite(centre))
    # Gamma(3, 1) has a standard deviation of sqrt(3)
    assert np.all(np.linalg.norm(root, axis=1) < 2 * 3**0.5)


def of_many_blocks(surface, blocks=5000):
    """Let a surface pass for a sum over blocks, all alike, and count its passes."""
    surface.n_blocks, surface.passes = blocks, 0
    full, potential = surface.full, surface.potential

    def counted(points):
        surface.passes += len(points)
        return full(points)

    surface.full = counted
    surface.batch_gradient = lambda points, rows: potential(points)[1]
    surface.block = lambda points, which: potential(points)[1] / blocks
    return surface


def test_from_far_away_the_centre_of_many_blocks_takes_few_passes():
    matrix = rotated(8, 1e4)
    surface = of_many_blocks(Gaussian(np.arange(8.0), matrix))
    rng = np.random.default_rng(1)
    # The lengths of L are off by a few per cent, as averaged Hessians of some batches are
    root = inverse_root(matrix) * rng.uniform(0.95, 1.05, size=8)
    start = surface.mean + 200 * root @ rng.standard_normal(8)
    centre, form = descended(surface, start, root, rng)
    assert np.abs(np.linalg.solve(root, centre - surface.mean)).max() < 0.3
    assert form == pytest.approx(1.0, abs=0.1)
    assert surface.passes <= 6


def test_the_centre_of_many_blocks_is_that_of_the_bulk():
    shapes = np.array([5.0, 20.0])
    centres = []
    for blocks in (500, 5000):
        surface = of_many_blocks(LogGamma(shapes), blocks)
        root = np.diag(shapes**-0.5)
        centres.append(descended(surface, np.log(shapes), root, np.random.default_rng(1))[0])
    # The bulk is half a variance below the mode
    assert np.all(centres[0] < np.log(shapes) - 0.3 / shapes)
    np.testing.assert_allclose(centres[1], centres[0], atol=0.3 * shapes.min() ** -0.5)


def test_where_whole_steps_do_not_help_all_blocks_are_passed():
    found = []
    for blocks in (2000, 5000):
        surface = of_many_blocks(LogGamma(np.array([5.0])), blocks)
        rng = np.random.default_rng(1)
        # A whole step leaves nearly all of the slope
        found.append(descended(surface, np.array([-3.0]), np.array([[0.45]]), rng)[0])
        assert surface.passes == (2 if blocks > 2000 else 0)
    np.testing.assert_allclose(*found, atol=0.05)
    assert found[0] > -2.0


class Counted(LogGamma):
    """Skewed; a gradient computes as many numbers as it is told to."""

    def __init__(self, shapes, numbers):
        super().__init__(shapes)
        self.numbers, self.computed = numbers, 0

    def potential(self, points):
        self.computed += self.numbers * len(points)
        return super().potential(points)


@pytest.mark.parametrize(("numbers", "least"), [(1, 32), (10**6, 2), (4 * 10**6, 2)])
def test_a_whitening_knows_what_a_gradient_costs(numbers, least):
    shapes = np.full(60, 8.0)
    dear, cheap = Counted(shapes, numbers), Counted(shapes, 1)
    for surface in (dear, cheap):
        centre, root, unsettled = bulk_of_full_data(
            surface, np.log(shapes), 0.5 * np.eye(60), np.random.default_rng(0)
        )
        assert not unsettled
        # The best Gaussian has sd 8^-1/2 and mean log 8 - 1/16
        np.testing.assert_allclose(np.linalg.norm(root, axis=1), 8**-0.5, rtol=0.15)
        np.testing.assert_allclose(centre, np.log(8) - 1 / 16, atol=0.1)
    # Slopes at 32 points come to it
    assert dear.computed <= max(1.1 * 2.5e10, 10 * (least * 61 + 32) * numbers)
    if numbers == 1:
        assert dear.computed == cheap.computed


@pytest.mark.parametrize("numbers", [10**5, 10**7])
def test_a_whitening_by_batches_knows_what_a_gradient_costs(numbers):
    surface, d = logistic(4000, 20, 100), 20
    exact = newton(surface, np.zeros(d), None)
    gradients = []

    def counted(original):
        def evaluate(points, which):
            gradients.append(len(points))
            return original(points, which)

        return evaluate

    surface.batch_gradient = counted(surface.batch_gradient)
    surface.block = counted(surface.block)
    surface.numbers = numbers
    centre, root = bulk_of_minibatches(
        surface, exact[0], inverse_root(exact[1]), np.random.default_rng(0)
    )
    hessian = surface.mean_hessian(centre, root, np.random.default_rng(1))
    assert away_from_identity(root.T @ hessian @ root) < (1.5 if numbers == 10**5 else 4)
    # Descents are passes over the data
    first = sum(gradients) * numbers
    assert first < 1.5 * 2.5e10 or numbers == 10**7
    # Where the chain finds a better centre L is corrected, and not found anew
    gradients.clear()
    rewhitened(surface, centre, root, np.random.default_rng(2))
    again = sum(gradients) * numbers
    assert again < (first if numbers == 10**5 else first / 5)
