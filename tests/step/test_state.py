"""The state of a chain: stored, restored and pickled."""

import logging
import multiprocessing
import pickle

from dataclasses import replace

import cloudpickle
import numpy as np
import pymc as pm
import pytensor
import pytest

from pymc.step_methods.state import equal_dataclass_values

import pymc_sgmcmc as sg

from helpers.steps import (
    SAMPLERS,
    assert_goes_on,
    location,
    normal_and_scale,
    start,
    step_for,
    take,
    twin,
)


@pytest.mark.parametrize(
    ("name", "batch"),
    [
        *((name, "shuffled") for name in ("CoRVSGLD", "FLA", "MSGNHT", "SMLD")),
        ("FLA", "random"),
        *(pytest.param(n, "shuffled", marks=pytest.mark.slow) for n in ("SGLD", "SGHMC", "SGNHT")),
        pytest.param("MSGNHT", "random", marks=pytest.mark.slow),
    ],
)
def test_restored_state_continues_bit_for_bit(name, batch, new_step):
    options = {"batch": batch, "step_size": sg.polynomial(SAMPLERS[name][1]["step_size"])}
    step = new_step(name, **options)
    point, _ = take(step, start(step))
    assert_goes_on(step, point, lambda: new_step(name, **options))


@pytest.mark.parametrize("name", ["FLA", "MSGNHT"])
def test_draws_made_ahead_are_those_made_one_by_one(name, new_step):
    step = new_step(name, batch="random" if name == "FLA" else "shuffled")
    _, ahead = take(step, start(step), draws=20)
    calls = step._runner._current
    assert calls.count == 16
    # The first one, by hand and without burn-in, is where temperatures are measured from
    assert calls.taken == 3
    point, one_by_one = start(step), []
    for k in range(20):
        if k % 3:
            step.chain = step.chain  # drops the runner
        elif k:
            step._runner.settle()
        point, [line] = take(step, point, draws=1)
        one_by_one.append(line)
    assert one_by_one == ahead


@pytest.mark.parametrize(
    "changed",
    [
        {"variance": 3.0},
        {"relative": 0.1},
        {"largest_gradient": 0.01},
        {"centre": 7.0},
        {"root": 5.0},
    ],
    ids=str,
)
def test_a_setting_that_changes_is_heeded_by_the_next_draw(changed, new_step):
    """As by a runner that is made with it, whoever sets it."""
    step = new_step("SGHMC")
    point, _ = take(step, start(step), draws=1)
    old = step.chain
    known = {name: [np.ones_like(x) for x in old.psi] for name in ("variance", "relative")}
    known |= {name: [np.ones_like(x) for x in old.psi] for name in ("centre", "root")}
    settings = replace(old.settings, largest_gradient=1e3, **known)
    step.chain = replace(old, settings=settings)
    point, _ = take(step, point, draws=1)
    [[name, value]] = changed.items()
    value = [np.full_like(x, value) for x in old.psi] if name in known else value
    stored = pickle.loads(pickle.dumps(step.chain))
    setattr(step.chain.settings, name, value)
    _, now = take(step, point, draws=2)
    step.chain = replace(stored, settings=replace(stored.settings, **{name: value}))
    _, expected = take(step, point, draws=2)
    step.chain = stored
    assert now == expected != take(step, point, draws=2)[1]


@pytest.mark.slow
def test_restored_state_continues_bit_for_bit_in_numba(numba_step):
    point, _ = take(numba_step, start(numba_step))
    assert_goes_on(numba_step, point, lambda: twin(numba_step, step_size=1e-4))


def test_state_round_trips_before_the_first_draw():
    step = step_for("SGLD", normal_and_scale())
    start(step)
    state = step.sampling_state
    assert state.chain.psi is None
    assert equal_dataclass_values(pickle.loads(pickle.dumps(state)), state)
    other = step_for("SGLD", normal_and_scale())
    start(other, seed=2)
    assert not equal_dataclass_values(other.sampling_state, state)
    other.sampling_state = state
    assert equal_dataclass_values(other.sampling_state, state)


def test_state_of_other_variables_is_refused():
    state = step_for("SGLD", normal_and_scale(), vars=["x"]).sampling_state
    with pytest.raises(ValueError, match="var_names"):
        step_for("SGLD", normal_and_scale(), vars=["s"]).sampling_state = state


def test_pickled_step_continues_bit_for_bit(jax_step):
    point, _ = take(jax_step, start(jax_step))
    pickled = cloudpickle.dumps(jax_step)
    _, expected = take(jax_step, point)
    # What is compiled stays behind, and so do the data as the backend has them
    assert len(pickled) < 1.1 * len(cloudpickle.dumps(step_for("CoRVSGLD", jax_step.model)))
    copy = cloudpickle.loads(pickled)
    assert copy.model is not jax_step.model
    assert take(copy, point)[1] == expected


def test_restored_state_continues_bit_for_bit_where_tuning_raised_thin():
    # Tuning compiles draws of 20 updates, finds that it takes 40, and makes two calls for each
    step = step_for("CoRVSGLD", location(), batch="shuffled")
    point, _ = take(step, start(step), draws=1)
    step.chain = replace(step.chain, settings=replace(step.chain.settings, thin=40, each=20))
    point, _ = take(step, point)
    fresh = assert_goes_on(step, point, lambda: step_for("CoRVSGLD", location(), batch="shuffled"))
    assert fresh._runner._transition.layout.updates == 20


@pytest.mark.slow
def test_a_chain_whose_thin_was_raised_is_restored_bit_for_bit():
    # A chain that mixes slowly in a direction that whitening does not see
    with pm.Model() as model:
        y = pm.Minibatch(np.random.default_rng(0).normal(size=2000), batch_size=100)
        x = pm.Normal("x", shape=2)
        pm.Normal("y", x[0] * x[1], 1, observed=y, total_size=2000)
    step = sg.CoRVSGLD(model=model, backend="jax")
    point, _ = take(step, start(step), draws=3)
    assert step.chain.settings.thin > step.chain.settings.each

    def fresh():
        made = sg.CoRVSGLD(model=model, backend="jax")
        # What is compiled has no state
        made._engine = step._engine
        made.setup_chain(np.random.default_rng(9), 0, 100)
        return made

    assert_goes_on(step, point, fresh)


def test_the_process_of_a_chain_is_set_as_that_of_its_step(monkeypatch):
    logger = logging.getLogger("pymc")
    monkeypatch.setattr(logger, "level", logging.ERROR)
    with pytensor.config.change_flags(floatX="float32"):
        pickled = cloudpickle.dumps(step_for("SGLD", normal_and_scale()))
    logger.setLevel(logging.INFO)
    with pytensor.config.change_flags(floatX="float64"):
        cloudpickle.loads(pickled)
        assert (pytensor.config.floatX, logger.level) == ("float64", logging.INFO)
        monkeypatch.setattr(multiprocessing.current_process(), "name", "worker_chain_0")
        cloudpickle.loads(pickled)
        assert (pytensor.config.floatX, logger.level) == ("float32", logging.ERROR)
