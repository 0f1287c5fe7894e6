"""Simplexes from the masses of their entries: the map, its Jacobian, its total, its moments."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest

from scipy.special import gammaln
from scipy.stats import gamma

import pymc_sgmcmc as sg

from helpers.sampling import run
from helpers.z_scores import STANDARD_ERRORS, mean_and_error, means_of_parts
from pymc_sgmcmc.model.coordinates import at_scales, coordinates_at, rescaled
from pymc_sgmcmc.model.expanded_simplex import ExpandedSimplex, fitted_total

CONCENTRATION = np.array([0.1, 0.7, 2.0, 5.0])


def map_of(total):
    """Return x, the log Jacobian determinant and the gradient of the latter, of φ."""
    transform, phi = ExpandedSimplex(pt.as_tensor(np.array([total]))), pt.vector("phi")
    log_jacobian = transform.log_jac_det(phi)
    outputs = [transform.backward(phi), log_jacobian, pytensor.grad(log_jacobian, phi)]
    return pytensor.function([phi], outputs), transform


@pytest.mark.parametrize("phi", [[0.3, -2.0, 1.0, 4.0], [-3.0, -14.9, -1.0, -15.1]])
def test_with_its_density_masses_are_independent(phi):
    phi = np.array(phi)
    x, log_jacobian, _ = map_of(CONCENTRATION.sum())[0](phi)
    root = np.logaddexp(0, 2 * phi) / 2
    slope = root / 2 / (1 + np.exp(-2 * phi))
    masses = gamma.logpdf(root**2 / 4, CONCENTRATION) + np.log(slope)
    # SciPy's Dirichlet refuses sums that are 1 only to rounding
    constant = gammaln(CONCENTRATION.sum()) - gammaln(CONCENTRATION).sum()
    of_simplex = constant + np.sum((CONCENTRATION - 1) * np.log(x))
    assert of_simplex + log_jacobian == pytest.approx(masses.sum())


def test_the_total_has_its_law_whatever_the_simplex():
    phi = np.array([0.3, -2.0, 1.0, 4.0])
    total = np.sum(np.logaddexp(0, 2 * phi) ** 2) / 16
    one, other = (map_of(A)[0](phi)[1] for A in (0.5, 30.0))
    assert other - one == pytest.approx(gamma.logpdf(total, 30.0) - gamma.logpdf(total, 0.5))


def test_there_and_back():
    function, transform = map_of(2.5)
    for x in ([0.25] * 4, [1e-200, 0.2, 0.3, 0.5], [0.0, 0.0, 0.0, 1.0]):
        phi = transform.forward(np.array(x)).eval()
        np.testing.assert_allclose(function(phi)[0], x, rtol=1e-12, atol=1e-300)
        assert np.sum(np.logaddexp(0, 2 * phi) ** 2) / 16 == pytest.approx(2.5)


def test_nothing_is_infinite_far_away():
    function, _ = map_of(2.5)
    for phi in ([-1e5, 0.0, 3.0, 1e5], [-1e5] * 4, [1e5] * 4):
        x, log_jacobian, gradient = function(np.array(phi))
        assert np.all(x > 0) and np.isfinite(log_jacobian) and np.all(np.isfinite(gradient))


def test_the_total_that_makes_masses_independent_is_found():
    x, counts, A = np.array([[0.1, 0.4, 0.5], [0.2, 0.3, 0.5]]), np.array([[0.0], [900.0]]), 300.0
    root = 2 * np.sqrt(A * x)
    sd = (1 + (1 - x) * counts / A) ** -0.5
    phi, above, below = (np.log(np.expm1(2 * root + 2 * s * sd)) / 2 for s in (0, 1, -1))
    found = fitted_total(np.full((2, 1), A), phi, above, below)
    np.testing.assert_allclose(found, A + counts)


def test_another_total_is_the_same_simplex():
    with pm.Model() as model:
        pm.Dirichlet("p", np.array([1.0, 2.0, 3.0]), shape=(2, 3))
    point = {"p_simplex__": np.array([[0.3, -1.0], [2.0, 0.5]])}
    (coordinate,), (phi,), (total,) = coordinates_at(
        model, model.value_vars, "mirror", point, expanded=True
    )
    np.testing.assert_array_equal(total, [[6.0], [6.0]])
    blocks = [[phi], [phi + 0.1], [phi - 0.1]]
    (new,), moved = rescaled([coordinate], [total], blocks)
    assert np.all(new > 2 * total)
    x = pytensor.function(
        [coordinate.phi, coordinate.scale],
        coordinate.transform.backward(coordinate.phi),
        on_unused_input="ignore",
    )
    for (before,), (after,) in zip(blocks, moved, strict=True):
        np.testing.assert_allclose(x(after, new), x(before, total))
    # Without widths nothing is known of it
    assert rescaled([coordinate], [total], [[phi]])[0][0] is total
    (back,) = at_scales([coordinate], [new], [total], moved[0])
    np.testing.assert_allclose(back, phi)


@pytest.mark.slow
def test_moments_of_multinomials():
    """180 simplexes of 4 entries, sparse ones too, with 1 to 40 counts: exact Dirichlet laws."""
    rng = np.random.default_rng(0)
    concentration = np.repeat([[0.1], [1.0]], 90, axis=0) * np.ones(4)
    p = rng.dirichlet(np.ones(4), 180)
    row = np.repeat(np.arange(180), np.geomspace(1, 40, 180).astype(int)).astype("int32")
    seen = (rng.random(len(row))[:, None] > np.cumsum(p, axis=1)[row, :-1]).sum(axis=1)
    with pm.Model():
        rows, entries = pm.Minibatch(row, seen.astype("int32"), batch_size=200)
        x = pm.Dirichlet("x", concentration)
        pm.Categorical("seen", x[rows], observed=entries, total_size=len(row))
        step = sg.SMLD(backend="jax")
    posterior = run(step, draws=1000, tune=50).posterior
    a = concentration.copy()
    np.add.at(a, (row, seen), 1)
    total = a.sum(axis=1, keepdims=True)
    mean = a / total
    draws = (posterior["x"].values - mean) / np.sqrt(mean * (1 - mean) / (total + 1))
    for power, slack in ((1, 0.1), (2, 0.2)):
        found, error = mean_and_error(means_of_parts(draws**power))
        assert np.all(abs(found - (power - 1)) < slack + STANDARD_ERRORS * error)
        # What many coordinates say together: as right as that, within a few hundredths
        assert np.quantile(abs(found - (power - 1)), 0.9) < slack
        assert abs(found.mean() - (power - 1)) < slack / 5
