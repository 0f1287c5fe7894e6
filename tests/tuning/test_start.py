"""Starts of chains."""

import numpy as np
import pytest

from pymc_sgmcmc.tuning.density import jittered


def test_start_moves_every_coordinate_by_up_to_one():
    start = np.full(1000, 3.0)
    moved = jittered(start, np.random.default_rng(0), lambda x: np.zeros(len(x)))
    assert np.all(abs(moved - start) <= 1)
    # Uniform: 1,000 of them have a standard deviation of 1 / sqrt(3), within 4 of its errors
    assert np.std(moved - start) == pytest.approx(3**-0.5, abs=4 * 0.0082)


def test_start_moves_as_far_as_the_potential_allows():
    def potential(points):
        return np.where(abs(points).max(axis=1) < 0.3, 0.0, np.inf)

    rng = np.random.default_rng(1)
    for _ in range(20):
        moved = jittered(np.zeros(3), rng, potential)
        assert 0 < abs(moved).max() < 0.3


def test_start_stays_where_nothing_else_is_finite():
    def potential(points):
        return np.where(np.all(points == 2.0, axis=1), 5.0, np.inf)

    start = np.full(3, 2.0)
    np.testing.assert_array_equal(jittered(start, np.random.default_rng(2), potential), start)


def test_other_starts_are_tried_where_the_first_is_not_finite():
    def potential(points):
        return np.where(points[:, 0] > 2.3, 5.0, np.nan)

    start = np.full(3, 2.0)
    for seed in range(5):
        moved = jittered(start, np.random.default_rng(seed), potential)
        assert moved[0] > 2.3 and np.all(abs(moved - start) <= 1)
    # A start that shall stay where it is
    assert jittered(start, np.random.default_rng(0), potential, 0.0) is None


def test_no_start_where_the_potential_is_not_finite():
    assert jittered(np.zeros(2), np.random.default_rng(3), lambda x: np.full(1, np.nan)) is None
