"""The code that a GPU runs, on a processor: what a device would do otherwise is arithmetic."""

import pickle

import numpy as np
import pytest

import pymc_sgmcmc as sg

from helpers.conjugate import regression
from helpers.sampling import run
from helpers.z_scores import assert_right
from pymc_sgmcmc.backends import compiling, jax_loop
from pymc_sgmcmc.kernel import noise


@pytest.fixture(autouse=True)
def as_on_a_gpu(monkeypatch):
    pytest.importorskip("jax")
    for module in (compiling, jax_loop, noise):
        monkeypatch.setattr(module, "on_processor", lambda backend: False)


@pytest.mark.slow
def test_an_untuned_run_is_right():
    model, exact = regression()
    found = run(sg.CoRVSGLD(model=model, backend="jax"))
    assert_right(found.posterior, exact)


def test_an_untuned_run_is_right_and_draws_made_ahead_may_be_forgotten():
    model, exact = regression()
    step = sg.MSGNHT(model=model, backend="jax")
    assert_right(run(step).posterior, exact)
    state, draws = pickle.dumps(step.chain), []
    for forgets in (False, True):
        step.chain = pickle.loads(state)
        point = dict(zip([v.name for v in step.vars], step.chain.values, strict=True))
        for _ in range(30):
            point, _ = step.step(point)
            if forgets:
                assert step._runner._ahead.count > 1
                step._runner.settle()
            draws.append(np.concatenate([np.ravel(x) for x in point.values()]))
    np.testing.assert_array_equal(draws[:30], draws[30:])
