"""Where arrays are: what a processor holds is never handed to JAX."""

import sys

import numpy as np
import pymc as pm
import pytensor
import pytest

import pymc_sgmcmc as sg

from helpers.interpreting import interpreted_unless_slow  # noqa: F401
from pymc_sgmcmc.backends.errors import BackendError
from pymc_sgmcmc.backends.placing import every, place
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


def test_whole_numbers_that_single_precision_would_cut_off_are_refused():
    pytest.importorskip("jax")
    fits, large = np.array([-(2**31), 2**31 - 1]), np.array([0, 2**31])
    with pytensor.config.change_flags(floatX="float32"):
        np.testing.assert_array_equal(place([fits], "jax")[0], fits)
        for array, shown in ((large, "2,147,483,648"), (-large - 1, "-2,147,483,649")):
            with pytest.raises(BackendError, match=f"the data have {shown}; write .* as floats"):
                place([array], "jax")
    np.testing.assert_array_equal(place([large], "jax")[0], large)
