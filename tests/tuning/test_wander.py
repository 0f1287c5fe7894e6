"""Chains that no Gaussian is near: nets."""

import logging

from pathlib import Path

import numpy as np
import pymc as pm
import pytest

from pymc.exceptions import SamplingError

import pymc_sgmcmc as sg

from helpers.nets import net
from helpers.subprocesses import run_python
from helpers.surfaces import Gaussian
from pymc_sgmcmc.kernel.estimators import Plain
from pymc_sgmcmc.tuning.nearness import refuse_stiff
from pymc_sgmcmc.tuning.surface import NoGaussianError, TuningError
from pymc_sgmcmc.tuning.wander import wandering_plan

OPTIONS = {"chains": 2, "cores": 1, "random_seed": 1, "progressbar": False}


def predicted(posterior, x):
    W, b, V, c, u = (posterior[name].values for name in "WbVcu")
    h = np.tanh(x[:, None] @ W + b[:, :, None, :])
    return (np.tanh(h @ V + c[:, :, None, :]) @ u[..., None])[..., 0]


@pytest.mark.slow
def test_predictions_of_a_net_are_right_and_the_warning_says_what_is_not(caplog):
    with net(batch_size=50), caplog.at_level(logging.WARNING):
        result = pm.sample(draws=300, step=sg.MSGNHT(), **OPTIONS)
    x = np.linspace(-1.8, 1.8, 37)
    of_chains = predicted(result.posterior, x).mean(axis=1)
    # A curve of ten or so degrees of freedom from 400 rows of noise 0.1: sds near 0.1 √(10/400)
    assert np.sqrt(np.mean((of_chains - np.sin(3 * x)) ** 2)) < 0.04
    assert any("modes by permutation" in r.getMessage() for r in caplog.records)


def test_what_is_no_sign_of_another_regime_reaches_the_user(monkeypatch):
    def broken(*args, **kwargs):
        assert kwargs["permutable"]
        raise TuningError("gradients are not finite")

    monkeypatch.setattr("pymc_sgmcmc.tuning.run.find_bulk", broken)
    with net(hidden=3), pytest.raises(SamplingError, match=r"Tuning failed: gradients are not"):
        pm.sample(draws=5, step=sg.MSGNHT(), **OPTIONS)


def test_normals_without_a_width_are_no_fit():
    surface, rng = Gaussian(np.ones(3), np.eye(3)), np.random.default_rng(0)
    refuse_stiff(surface, np.ones(3), np.ones(3), rng)
    with pytest.raises(NoGaussianError):
        refuse_stiff(surface, np.ones(3), np.array([1.0, 1.0, 1e-18]), rng)


def test_a_gradient_by_hand_is_taken_or_refused():
    def plan_of(gradient):
        options = sg.MSGNHT(gradient=gradient, model=net(batch_size=50)).options
        return wandering_plan(np.zeros(3), np.ones(3), options)

    assert plan_of(sg.SVRG(refresh=200)).gradient == sg.SVRG(refresh=200)
    assert plan_of("auto").gradient == plan_of("plain").gradient == Plain()
    with pytest.raises(TuningError, match=r"needs a centre.*SVRG"):
        plan_of(sg.ControlVariates())


@pytest.mark.slow
def test_a_net_that_explodes_ends_in_draws_or_in_a_sentence():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(100, 4)), rng.normal(size=100)
    with pm.Model():
        h = X
        for k, rows in enumerate([4, 16, 16, 16]):
            W = pm.Normal(f"W{k}", 0, 1e30, shape=(rows, 16))
            h = pm.math.maximum(h @ W, 0)
        pm.Normal("y", h.sum(axis=1), 1, observed=y)
        try:
            result = pm.sample(draws=50, step=sg.MSGNHT(), **OPTIONS)
        except SamplingError as error:
            assert "tighter priors" in str(error) or "initvals" in str(error)
        else:
            assert all(np.all(np.isfinite(x)) for x in result.posterior.data_vars.values())


# In a process of its own: what other tests left behind is given back to the system at any time
SOAK = """
import sys
from pathlib import Path
from resource import getpagesize

import numpy as np
import pymc as pm

import pymc_sgmcmc as sg

sys.path[:0] = sys.argv[1:]
from helpers.nets import net
from test_wander import OPTIONS

resident = []


def watch(trace, draw):
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    resident.append(pages * getpagesize())


with net(batch_size=50):
    step = sg.MSGNHT(thin=1000)
    pm.sample(draws=1000, step=step, callback=watch, **{**OPTIONS, "chains": 1})
print(np.median(resident[-250:]) - np.median(resident[100:350]))
"""


@pytest.mark.slow
def test_memory_stays_flat_over_a_million_updates_of_a_net():
    if not Path("/proc/self/statm").exists():
        pytest.skip("the resident memory is read from Linux's /proc")
    here = Path(__file__).parent
    done = run_python(SOAK, str(here), str(here.parent), timeout=600)
    assert done.returncode == 0, done.stderr
    # A leak of a hundred bytes an update would be 75 MB from the first quarter to the last
    assert float(done.stdout.splitlines()[-1]) < 30e6
