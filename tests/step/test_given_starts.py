"""Where nothing is left to tuning, a chain begins exactly where ``initvals`` say."""

import numpy as np
import pymc as pm
import pytest

import pymc_sgmcmc as sg

from helpers.sampling import run
from pymc_sgmcmc.testing import UNTUNED


def first_draws(initvals):
    """Return of two chains the first draws of a and of log b, after updates of 1e-9."""
    with pm.Model():
        pm.Normal("a", shape=3)
        pm.HalfNormal("b")
        step = sg.SGLD(step_size=1e-18, backend="jax", **UNTUNED)
        draws = run(step, 1, tune=0, initvals=initvals).posterior
    return draws["a"].values[:, 0], np.log(draws["b"].values[:, 0])


@pytest.mark.filterwarnings("ignore")
def test_a_start_of_the_users_own_is_kept():
    a, log_b = first_draws({"b": 0.03})
    np.testing.assert_allclose(a, 0.0, atol=1e-7)
    np.testing.assert_allclose(log_b, np.log(0.03), atol=1e-7)
    chains = [{"a": np.full(3, 0.2)}, {"a": np.full(3, -0.2)}]
    np.testing.assert_allclose(first_draws(chains)[0], [[0.2] * 3, [-0.2] * 3], atol=1e-7)


@pytest.mark.filterwarnings("ignore")
def test_chains_begin_apart_from_the_models_own_start():
    a, log_b = first_draws(None)
    assert np.all(np.abs(a) > 1e-3)
    assert abs(log_b[0] - log_b[1]) > 1e-3
