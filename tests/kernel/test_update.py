"""One update in symbols."""

import numpy as np
import pymc as pm
import pytest

import pymc_sgmcmc as sg

from pymc_sgmcmc.backends import once


@pytest.mark.parametrize("method", [sg.MSGNHT, sg.CoRVSGLD])
def test_large_parts_of_a_state_are_computed_once_and_stay_the_same(method, monkeypatch):
    pytest.importorskip("jax")
    rng = np.random.default_rng(0)
    group, y = rng.integers(0, 200, 2000), rng.normal(size=2000)

    def draw():
        with pm.Model() as model:
            rows = pm.Minibatch(group, y, batch_size=50)
            theta = pm.Normal("theta", 0, 1, shape=200)
            pm.Normal("y", theta[rows[0]], 1, observed=rows[1], total_size=2000)
            step = method(
                step_size=0.01, thin=10, gradient="plain", batches=1, scale=None, backend="jax"
            )
        step.setup_chain(np.random.default_rng(1), 0, 1)
        return step.step(model.initial_point())[0]["theta"]

    usual = draw()
    held = []
    make = once.Once.make_node
    monkeypatch.setattr(once, "_LARGE", 100)
    monkeypatch.setattr(once.Once, "make_node", lambda op, x: held.append(x) or make(op, x))
    np.testing.assert_allclose(draw(), usual, rtol=1e-9, atol=1e-12)
    # The position's, of which momentum and thermostat or the like are made, and what is made of it
    assert len(held) >= 2
