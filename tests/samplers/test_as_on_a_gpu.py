"""The code that a GPU runs, on a processor: what a device would do otherwise is arithmetic."""

import pytest

import pymc_sgmcmc as sg

from helpers.conjugate import regression
from helpers.sampling import run
from helpers.steps import assert_same_bits, draws_of
from helpers.z_scores import assert_right
from pymc_sgmcmc.backends import compiling, jax_loop
from pymc_sgmcmc.kernel import noise


@pytest.fixture(autouse=True)
def as_on_a_gpu(monkeypatch):
    pytest.importorskip("jax")
    for module in (compiling, jax_loop, noise):
        monkeypatch.setattr(module, "on_processor", lambda backend: False)


@pytest.mark.parametrize("method", [sg.CoRVSGLD, sg.MSGNHT])
def test_an_untuned_run_is_right(method):
    model, exact = regression()
    with model:
        found = run(method(backend="jax"))
    assert_right(found.posterior, exact)


def test_draws_made_ahead_may_be_forgotten():
    model, _ = regression()
    draws = []
    for forgets in (False, True):
        with model:
            step = sg.MSGNHT(backend="jax", step_size=0.05, thin=2, gradient="plain", batches=1)
        forget = (lambda *, step=step, **_: step._runner.settle()) if forgets else None
        draws.append(draws_of(run(step, draws=30, chains=1, callback=forget)))
    assert_same_bits(*draws)
