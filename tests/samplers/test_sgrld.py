"""Riemannian Langevin dynamics: right for dense simplexes, of order √h at a bound."""

import numpy as np
import pymc as pm
import pytest

from scipy import stats

import pymc_sgmcmc as sg

from helpers.backends import BOTH
from helpers.conjugate import chances_of_labels, simplexes
from helpers.laws import error_of_cdf
from helpers.z_scores import STANDARD_ERRORS, mean_and_error
from pymc_sgmcmc.testing import run_chain


@BOTH
def test_dirichlet(backend):
    model, law = simplexes(2000)
    step = sg.SGRLD(step_size=0.002, thin=200, backend=backend, model=model)
    x = run_chain(model, step, burn=20, draws=40, seed=1)["x"]
    for power, exact in ((1, law.mean()), (2, law.var() + law.mean() ** 2)):
        mean, se = mean_and_error((x**power).mean(axis=0))
        assert np.all(np.abs(mean - exact) < STANDARD_ERRORS * se + 0.01 * exact)


@pytest.mark.slow
def test_minibatched_counts():
    model, posterior = chances_of_labels()
    step = sg.SGRLD(step_size=2e-4, thin=200, backend="jax", model=model)
    x = run_chain(model, step, burn=50, draws=1000, seed=0)["x"].reshape(40, 25, 4)
    mean, se = mean_and_error(x.mean(axis=1))
    assert np.all(np.abs(mean - posterior.mean()) < STANDARD_ERRORS * se)
    np.testing.assert_allclose(x.std(axis=(0, 1)), posterior.var() ** 0.5, rtol=0.15)


@pytest.mark.slow
def test_error_falls_like_the_root_of_the_step():
    errors = []
    for h in (0.04, 0.01, 0.0025):
        with pm.Model() as model:
            pm.Gamma("x", 0.5, 1.0, shape=8000)
            step = sg.SGRLD(step_size=h, thin=int(2 / h), backend="jax")
        error, se = error_of_cdf(model, step, stats.gamma(0.5), seed=3, draws=20, burn=4)
        assert se < abs(error) / 10
        errors.append(abs(error))
    slope = np.polyfit(np.log([0.04, 0.01, 0.0025]), np.log(errors), 1)[0]
    assert abs(slope - 0.5) < 0.15, errors


def test_an_upper_bound_mirrors_a_lower_one():
    def draws(side, bound):
        with pm.Model() as model:
            pm.TruncatedNormal("x", 1.5 * side, 1.0, shape=20, **{bound: side})
            step = sg.SGRLD(step_size=0.01, thin=20, backend="jax")
        return run_chain(model, step, burn=2, draws=20, seed=1)["x"]

    below, above = draws(-1.0, "upper"), draws(1.0, "lower")
    assert np.all(below < -1)
    np.testing.assert_allclose(below, -above, rtol=1e-6)


def test_mass_of_the_prior():
    with pm.Model():
        a = pm.Dirichlet("a", [0.1, 0.2, 0.3])
        b = pm.Dirichlet("b", pm.HalfNormal("h", shape=4))
        c = pm.Dirichlet("c", np.ones((2, 5)))
        d = pm.Dirichlet("d", pm.HalfCauchy("t", 1) * np.ones(3))
        masses = sg.SGRLD([a, b, c, d], step_size=0.01)._masses
    np.testing.assert_allclose(masses[0], [0.6])
    np.testing.assert_allclose(masses[1], [4.0])
    np.testing.assert_allclose(masses[2], [[5.0], [5.0]])
    np.testing.assert_allclose(masses[3], [3.0])


def test_bad_input():
    with pm.Model():
        x = pm.Normal("x")
        with pytest.raises(NotImplementedError, match="'x' is of the kind real"):
            sg.SGRLD([x], step_size=0.01)
        with pytest.raises(ValueError, match="Pass step_size"):
            sg.SGRLD([pm.HalfNormal("s")])


@pytest.mark.parametrize("method", [sg.SGRLD, sg.SMLD, sg.CoRVSGLD])
def test_simplex_of_one_entry(method):
    with pm.Model():
        p = pm.Dirichlet("p", [1.0])
        with pytest.raises(ValueError, match="'p' is a simplex of one entry"):
            method([p], step_size=0.01)
