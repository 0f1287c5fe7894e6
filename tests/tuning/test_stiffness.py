"""The largest curvatures, and the steps that they allow."""

import numpy as np
import pytest

from helpers.surfaces import Exact
from pymc_sgmcmc.kernel.policy import Policy
from pymc_sgmcmc.tuning.bounds import not_too_stiff
from pymc_sgmcmc.tuning.stiffness import largest_curvatures


@pytest.mark.parametrize("kind", ["dense", "diagonal"])
def test_largest_curvatures_are_the_largest_eigenvalues(kind):
    rng = np.random.default_rng(8)
    axes, _ = np.linalg.qr(rng.normal(size=(6, 6)))
    hessian = (axes * [-2.0, 1.0, 1.0, 1.0, 1.0, 9.0]) @ axes.T
    root = {"dense": axes * rng.uniform(0.5, 2, 6), "diagonal": np.full(6, 2.0)}[kind]

    class Quadratic(Exact):
        def potential(self, points):
            return np.zeros(len(points)), points @ hessian

    whole = root * np.eye(6) if root.ndim == 1 else root
    exact = np.abs(np.linalg.eigvalsh(whole.T @ hessian @ whole)).max()
    found = largest_curvatures(Quadratic(6), rng.normal(size=(30, 6)), root, rng)
    assert found.shape == (30,)
    # From below, and from each direction nearly there
    assert np.all(found < exact * (1 + 1e-6))
    assert np.all(found > 0.95 * exact)


def test_steps_are_lowered_to_what_the_curvature_allows():
    squared_length, length = Policy(step_size=0.2), Policy(step_size=0.2, power=1)
    assert not_too_stiff(0.2, np.full(20, 4.9), squared_length) == 0.2
    assert not_too_stiff(0.2, np.full(20, 6.0), squared_length) == pytest.approx(0.125)
    assert not_too_stiff(0.2, np.full(20, 24.0), length) == 0.2
    assert not_too_stiff(0.2, np.full(20, 48.0), length) == pytest.approx(0.125)
    # At few places, or where nothing is known
    assert not_too_stiff(0.2, np.repeat([1.0, 50.0, np.nan], [19, 1, 10]), squared_length) == 0.2
    assert not_too_stiff(0.2, np.full(20, np.nan), squared_length) == 0.2
