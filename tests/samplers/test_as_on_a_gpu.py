"""The code that a GPU runs, on a processor: what a device would do otherwise is arithmetic."""

import pickle

from itertools import islice

import numpy as np
import pytest

import pymc_sgmcmc as sg

from helpers.conjugate import regression
from helpers.sampling import run
from helpers.steps import drawn, faulty
from helpers.z_scores import assert_right
from pymc_sgmcmc.backends import compiling, jax_loop, once
from pymc_sgmcmc.kernel import noise, transition, update
from pymc_sgmcmc.kernel.program import Program
from pymc_sgmcmc.testing import UNTUNED


@pytest.fixture(autouse=True)
def as_on_a_gpu(monkeypatch):
    pytest.importorskip("jax")
    for module in (compiling, jax_loop, noise, once, transition):
        monkeypatch.setattr(module, "on_processor", lambda backend: False)


@pytest.mark.slow
def test_an_untuned_run_is_right():
    model, exact = regression()
    found = run(sg.CoRVSGLD(model=model, backend="jax"))
    assert_right(found.posterior, exact)


@pytest.mark.slow
@pytest.mark.parametrize("one_at_a_time", [False, True])
def test_an_untuned_run_is_right_and_draws_made_ahead_may_be_forgotten(one_at_a_time, monkeypatch):
    if one_at_a_time:
        # As of many parameters: a call makes one draw while the last one is read
        monkeypatch.setattr(Program, "draws_per_call", lambda *_: 1)
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
                runner = step._runner
                assert runner._next_call if one_at_a_time else runner._current.count > 1
                step._runner.settle()
            draws.append(np.concatenate([np.ravel(x) for x in point.values()]))
    np.testing.assert_array_equal(draws[:30], draws[30:])


@pytest.mark.parametrize(
    ("method", "largest", "shapes"),
    [
        # The slopes are large
        (sg.MSGNHT, 1, [(1,), (2,)]),
        *(
            pytest.param(method, update._LARGE, [(3,)], marks=pytest.mark.slow)
            for method in (sg.MSGNHT, sg.SGLD, sg.CoRVSGLD, sg.SGHMC, sg.FLA)
        ),
    ],
)
def test_small_blocks_joined_in_one_vector_give_the_same_draws(
    method, largest, shapes, monkeypatch
):
    for module in (compiling, jax_loop, noise, once):
        monkeypatch.setattr(module, "on_processor", lambda backend: True)
    monkeypatch.setattr(update, "_LARGE", largest)
    model, _ = regression()
    draws = []
    for joined in (False, True):
        monkeypatch.setattr(transition, "on_processor", lambda backend, joined=joined: not joined)
        step = method(model=model, backend="jax", **{**UNTUNED, "step_size": 1e-3, "thin": 6})
        for point, _ in islice(drawn(step, 100), 4):
            draws.append(np.concatenate([np.ravel(x) for x in point.values()]))
        assert step._runner._transition.noise._ravel.shapes == (shapes if joined else [(), (2,)])
    # Sums are taken in another order
    np.testing.assert_allclose(draws[4:], draws[:4], rtol=1e-9)
    assert np.ptp(draws[:4], axis=0).min() > 0


def test_updates_in_a_row_are_rejected_together():
    """One row in twenty has no finite density; of 12 updates of a draw the last 2 are alone."""
    model = faulty()
    options = {**UNTUNED, "step_size": 1e-3, "thin": 12, "batch": "random", "backend": "jax"}
    step = sg.SGLD(model=model, **options)
    before, rejected = model.initial_point(), []
    for point, statistics in drawn(step, 400):
        rejected.append(statistics["rejected_updates"])
        assert np.isfinite(point["x"])
        assert (point["x"] == before["x"]) == (rejected[-1] == 12)
        before = point
    assert set(rejected) <= {0, 2, 5, 7, 10, 12}
    of_five, of_two = 1 - 0.95**5, 1 - 0.95**2
    expected = 10 * of_five + 2 * of_two
    variance = 2 * 25 * of_five * (1 - of_five) + 4 * of_two * (1 - of_two)
    assert abs(np.mean(rejected) - expected) < 4 * np.sqrt(variance / len(rejected))
