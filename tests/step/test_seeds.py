"""Seeds decide the draws, bit for bit."""

import pickle

import numpy as np
import pymc as pm
import pytest

from pymc.step_methods.state import equal_dataclass_values

import pymc_sgmcmc as sg

from helpers.sampling import run
from helpers.steps import assert_same_bits, draws_of, start, take, twin


def test_same_seed_same_bits(compiled_step):
    _, first = take(compiled_step, start(compiled_step, seed=5))
    _, again = take(compiled_step, start(compiled_step, seed=5))
    _, other = take(compiled_step, start(compiled_step, seed=6))
    assert first == again
    assert len({*first, *other}) == len(first) + len(other)


def test_a_fresh_step_gives_the_same_bits(jax_step, new_step):
    fresh = new_step("CoRVSGLD")
    assert fresh._engine is not jax_step._engine
    assert take(fresh, start(fresh))[1] == take(jax_step, start(jax_step))[1]


def test_jax_and_numba_agree(jax_step, numba_step):
    ends = [take(step, start(step))[0] for step in (jax_step, numba_step)]
    for name, value in ends[0].items():
        np.testing.assert_allclose(value, ends[1][name], rtol=1e-10, err_msg=name)


@pytest.mark.filterwarnings("ignore:Only .* samples per chain")
def test_one_core_and_two_give_the_same_bits(numba_step):
    # Forked processes inherit what is compiled. For JAX see tests/test_processes.py.
    def sampled(cores, seed=3):
        return draws_of(run(numba_step, 10, seed=seed, tune=3, cores=cores, mp_ctx="fork"))

    one = sampled(1)
    assert_same_bits(one, sampled(2))
    assert not np.any(one["mu"] == sampled(1, seed=4)["mu"])
    # The chains, too, are different ones
    assert not np.any(one["mu"][0] == one["mu"][1])


def test_chains_differ_in_start_noise_and_batches(jax_step):
    # Of a step this small nothing but the start is seen in the first draw
    step = twin(jax_step, step_size=1e-30)
    states = []
    for rng in np.random.default_rng(1).spawn(2):
        step.setup_chain(rng, 0, 10)
        step.step(step.model.initial_point())
        states.append(step.sampling_state)
    one, other = states
    for a, b in zip(one.chain.psi, other.chain.psi, strict=True):
        assert np.all(np.abs(a - b) > 1e-6)
    for a, b in zip(one.chain.extra["eta"], other.chain.extra["eta"], strict=True):
        assert np.all(a != b)
    for generator in ("tuning_rng", "noise_rng", "batch_rng"):
        assert not equal_dataclass_values(
            getattr(one.chain, generator), getattr(other.chain, generator)
        )
    assert one.chain.row_order != other.chain.row_order
    for state in states:
        assert np.abs(state.chain.values[0] - step.model.initial_point()["mu"]) <= 1


def test_every_update_has_new_noise_and_a_new_batch(jax_step):
    start(jax_step)
    engine = jax_step._engine_at(jax_step.model.initial_point())
    jax_step._runner_at(jax_step.model.initial_point(), [])
    transition = jax_step._runner._transition
    noise = [transition.noise.draw(jax_step.chain.noise_rng, 20, 3)[0].copy() for _ in range(2)]
    assert len(np.unique(noise)) == np.size(noise)
    rng = jax_step.chain.batch_rng
    offsets = [engine.program.draw_batches(rng, transition, 198, [])[0] for _ in range(2)]
    # 400 offsets of 400 rows: 1 - 1/e of them are different ones
    assert 220 < len(np.unique(offsets)) < 290


@pytest.fixture(scope="module")
def of_two_modes():
    """A tuned step that draws the mode in which it begins."""
    with pm.Model():
        x = pm.Flat("x", initval=0.1)
        pm.Potential("wells", -20 * (x**2 - 1) ** 2)
        return sg.CoRVSGLD(backend="jax", thin=2)


@pytest.mark.parametrize("bits", ["PCG64DXSM", "SFC64", "Philox", "MT19937"])
def test_any_bit_generator_seeds_a_run_and_its_restart(bits, of_two_modes):
    step, generator = of_two_modes, getattr(np.random, bits)

    def sampled(seed):
        return draws_of(run(step, 5, 1, np.random.Generator(generator(seed)), tune=5))

    one = sampled(1)
    assert_same_bits(one, sampled(1))
    stored = pickle.loads(pickle.dumps(step.sampling_state)).chain.tuning_rng
    used = step.chain.tuning_rng
    assert used.bit_generator.seed_seq.n_children_spawned > 0
    # The next one is another one than those before, in the chain and where it is restored
    assert stored.spawn(1)[0].random() == used.spawn(1)[0].random()
    assert not np.array_equal(one["x"], sampled(2)["x"])
