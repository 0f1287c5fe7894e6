"""Simplexes and gamma variables as masses: the maps, their Jacobians, their scales, their laws."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest

from scipy.special import gammaln
from scipy.stats import gamma

import pymc_sgmcmc as sg

from helpers.modes import REWRITTEN
from helpers.sampling import run
from helpers.z_scores import STANDARD_ERRORS, mean_and_error, means_of_parts
from pymc_sgmcmc.model.coordinates import at_scales, coordinates_at, rescaled
from pymc_sgmcmc.model.masses import ExpandedSimplex, Mass

CONCENTRATION = np.array([0.1, 0.7, 2.0, 5.0])


def root_of(phi):
    return np.logaddexp(0, phi - np.logaddexp(0, -phi) ** 2 / 2)


def map_of(total):
    """Return x, the log Jacobian determinant and the gradient of the latter, of φ."""
    transform, phi = ExpandedSimplex(pt.as_tensor(np.array([total]))), pt.vector("phi")
    log_jacobian = transform.log_jac_det(phi)
    outputs = [transform.backward(phi), log_jacobian, pytensor.grad(log_jacobian, phi)]
    return pytensor.function([phi], outputs, mode=REWRITTEN), transform


@pytest.mark.parametrize("phi", [[0.3, -2.0, 1.0, 4.0], [-3.0, -6.9, -1.0, -7.1]])
def test_with_its_density_masses_are_independent(phi):
    phi = np.array(phi)
    x, log_jacobian, _ = map_of(CONCENTRATION.sum())[0](phi)
    root, step = root_of(phi), 1e-5
    slope = root / 2 * (root_of(phi + step) - root_of(phi - step)) / (2 * step)
    masses = gamma.logpdf(root**2 / 4, CONCENTRATION) + np.log(slope)
    # SciPy's Dirichlet refuses sums that are 1 only to rounding
    constant = gammaln(CONCENTRATION.sum()) - gammaln(CONCENTRATION).sum()
    of_simplex = constant + np.sum((CONCENTRATION - 1) * np.log(x))
    assert of_simplex + log_jacobian == pytest.approx(masses.sum())


def test_the_total_has_its_law_whatever_the_simplex():
    phi = np.array([0.3, -2.0, 1.0, 4.0])
    total = np.sum(root_of(phi) ** 2) / 4
    one, other = (map_of(A)[0](phi)[1] for A in (0.5, 30.0))
    assert other - one == pytest.approx(gamma.logpdf(total, 30.0) - gamma.logpdf(total, 0.5))


def test_there_and_back():
    function, transform = map_of(2.5)
    for x in ([0.25] * 4, [1e-200, 0.2, 0.3, 0.5], [0.0, 0.0, 0.0, 1.0]):
        phi = transform.forward(np.array(x)).eval(mode=REWRITTEN)
        np.testing.assert_allclose(function(phi)[0], x, rtol=1e-12, atol=1e-300)
        assert np.sum(root_of(phi) ** 2) / 4 == pytest.approx(2.5)


def test_nothing_is_infinite_far_away():
    function, _ = map_of(2.5)
    for phi in ([-1e5, 0.0, 3.0, 1e5], [-1e5] * 4, [1e5] * 4):
        x, log_jacobian, gradient = function(np.array(phi))
        assert np.all(x > 0) and np.isfinite(log_jacobian) and np.all(np.isfinite(gradient))


def mode_of(log_density, transform, phi, start):
    """Return φ of the mode, and the curvatures there to the power -1/2."""
    logp = log_density(transform.backward(phi)) + pt.sum(transform.log_jac_det(phi))
    slope = pytensor.grad(-logp, phi)
    function = pytensor.function(
        [phi], [slope, pytensor.gradient.jacobian(slope, phi)], mode=REWRITTEN
    )
    at = np.array(start)
    for _ in range(200):
        g, h = function(at)
        at = at - np.clip(np.linalg.solve(h + 0.1 * np.diag(np.abs(np.diag(h))), g), -1, 1)
    np.testing.assert_allclose(g, 0, atol=1e-6)
    return at, np.diag(h) ** -0.5


@pytest.mark.slow
def test_the_total_that_makes_masses_independent_is_found():
    """Of a posterior with rare entries and empty ones, at its mode with quite another total."""
    a, A = np.array([0.1, 6.1, 30.1, 800.1, 0.1]), np.array([5.0])
    transform, phi = ExpandedSimplex(pt.as_tensor(A)), pt.vector("phi", shape=(5,))
    start = transform.forward(a / a.sum()).eval(mode=REWRITTEN)
    at, sd = mode_of(lambda x: pt.sum((a - 1) * pt.log(x)), transform, phi, start)
    np.testing.assert_allclose(transform.fitted(A, at, sd), [a.sum()], rtol=1e-3)


@pytest.mark.slow
def test_the_unit_of_gamma_posteriors_is_found():
    a, rate, s = np.array([0.1, 3.1, 50.1]), np.array([2.0, 0.01, 400.0]), np.ones(3)
    transform, phi = Mass(pt.as_tensor(s)), pt.vector("phi", shape=(3,))
    start = transform.forward(a / rate).eval(mode=REWRITTEN)
    at, sd = mode_of(lambda x: pt.sum((a - 1) * pt.log(x) - rate * x), transform, phi, start)
    np.testing.assert_allclose(transform.fitted(s, at, sd), 1 / rate, rtol=1e-3)


def test_gamma_coordinates_there_and_back():
    scale = np.array([0.5, 3.0, 1e4, 1.0])
    transform, phi = Mass(pt.as_tensor(scale)), pt.vector("phi")
    theta = np.array([1e-300, 0.2, 3e5, 1e9])
    found = transform.forward(theta).eval(mode=REWRITTEN)
    outputs = [transform.backward(phi), transform.log_jac_det(phi)]
    function = pytensor.function([phi], outputs, mode=REWRITTEN)
    np.testing.assert_allclose(function(found)[0], theta, rtol=1e-9)
    step = 1e-5
    slope = (function(found + step)[0] - function(found - step)[0]) / (2 * step)
    np.testing.assert_allclose(function(found)[1], np.log(slope), rtol=1e-5, atol=1e-5)


def test_another_total_is_the_same_simplex():
    with pm.Model() as model:
        pm.Dirichlet("p", np.array([1.0, 2.0, 3.0]), shape=(2, 3))
    point = {"p_simplex__": np.array([[0.3, -1.0], [2.0, 0.5]])}
    (coordinate,), (phi,), (total,) = coordinates_at(
        model, model.value_vars, "mirror", point, bend=1
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
    assert rescaled([coordinate], [total], [[phi], [phi]])[0][0] is total
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
