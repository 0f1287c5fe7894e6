"""SMLD-approximate: its means, and its known flaw."""

import numpy as np
import pymc as pm
import pytest

import pymc_sgmcmc as sg

from helpers.conjugate import simplexes
from pymc_sgmcmc.testing import run_chain


def test_means_are_right_and_sds_are_a_third_too_large():
    model, law = simplexes(1000)
    options = {"step_size": 0.01, "thin": 100, "backend": "jax"}
    step = sg.SMLD(exp="linear", integrator="euler", model=model, **options)
    x = run_chain(model, step, burn=20, draws=40, seed=1)["x"]
    np.testing.assert_allclose(x.mean(axis=(0, 1)), law.mean(), rtol=0.01)
    ratios = x.std(axis=(0, 1)) / law.var() ** 0.5
    assert np.all((ratios > 1.23) & (ratios < 1.36)), ratios


def test_other_variables_are_as_ever():
    with pm.Model() as model:
        pm.Dirichlet("p", [2.0, 3.0])
        pm.Normal("x", 0, 1, shape=2000)
        step = sg.SMLD(exp="linear", step_size=0.1, backend="jax")
    x = run_chain(model, step, burn=20, draws=60, seed=1)["x"]
    assert abs((x**2).mean() - 1) < 4 * np.sqrt(2 / x.size)


def test_nothing_is_tuned():
    with pm.Model():
        pm.Dirichlet("p", [2.0, 3.0])
        with pytest.raises(ValueError, match=r"SMLD.*Pass step_size"):
            sg.SMLD(exp="linear")
        with pytest.raises(ValueError, match="exp"):
            sg.SMLD(exp="square", step_size=0.1)
