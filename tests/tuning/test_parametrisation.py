"""The cost of measuring a block of coefficients."""

import numpy as np
import pytest

from pymc_sgmcmc.tuning.parametrisation import _derivatives

D = 5
ROWS = np.array([1, 3, 4])


class Quadratic:
    """U = x'Hx / 2, whose gradient in each of many batches is that of all, but for an offset."""

    def __init__(self, n_blocks):
        root = np.random.default_rng(0).normal(size=(D, D))
        self.n_blocks, self.hessian, self.evaluations = n_blocks, root @ root.T, 0

    def full(self, points):
        self.evaluations += len(points) * self.n_blocks
        return np.sum(points * (points @ self.hessian), axis=1) / 2, points @ self.hessian

    def draw_rows(self, rng, count):
        return rng.integers(0, self.n_blocks, (count, 1))

    def batch_gradient(self, points, rows):
        assert len(points) == len(rows)
        self.evaluations += len(points)
        return points @ self.hessian + rows


@pytest.mark.parametrize("n_blocks", [1, 10, 100_000])
def test_block_is_measured_at_a_bounded_cost(n_blocks):
    surface = Quadratic(n_blocks)
    at = np.arange(D) / 2
    gradient, curvature = _derivatives(surface, at, ROWS, np.full(3, 0.3), np.random.default_rng(1))
    np.testing.assert_allclose(gradient, (at @ surface.hessian)[ROWS])
    np.testing.assert_allclose(curvature, surface.hessian[np.ix_(ROWS, ROWS)])
    # One pass for the gradient itself
    assert surface.evaluations - n_blocks <= 20_000
