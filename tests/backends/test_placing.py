"""Where arrays are: what a processor holds is never handed to JAX."""

import sys

import numpy as np
import pymc as pm
import pytest

import pymc_sgmcmc as sg

from helpers.interpreting import interpreted_unless_slow  # noqa: F401
from pymc_sgmcmc.backends.placing import every
from pymc_sgmcmc.testing import UNTUNED, run_chain


@pytest.fixture
def no_jax(monkeypatch):
    """No module can import it."""
    for name in [name for name in sys.modules if name.split(".")[0] == "jax"]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, "jax", None)


@pytest.mark.usefixtures("no_jax")
def test_numbers_are_chosen_without_jax():
    np.testing.assert_array_equal(every(np.arange(6.0).reshape(2, 3), 2), [0, 2, 4])
    np.testing.assert_array_equal(every(np.float64(3), 1), [3])


@pytest.mark.slow
@pytest.mark.usefixtures("no_jax")
def test_numba_samples_scalars_without_jax():
    # Each scalar of a draw is a number of NumPy's, and not an array
    with pm.Model() as model:
        mu, scale = pm.Normal("mu"), pm.HalfNormal("scale")
        pm.Normal("y", mu, scale, observed=np.ones(5))
        step = sg.CoRVSGLD(step_size=1e-3, backend="numba", **UNTUNED)
    draws = run_chain(model, step, burn=2, draws=5, seed=1)
    assert draws["mu"].shape == (5,)
    assert np.ptp(draws["mu"]) > 0
