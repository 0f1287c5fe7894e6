"""Step methods on small models, taken step by step."""

import pickle

import numpy as np
import pymc as pm
import pytensor.tensor as pt

from pymc.step_methods.state import equal_dataclass_values

import pymc_sgmcmc as sg

from pymc_sgmcmc.testing import UNTUNED

SAMPLERS = {
    "CoRVSGLD": (sg.CoRVSGLD, {"step_size": 1e-4}),
    "FLA": (sg.FLA, {"step_size": 1e-4, "alpha": 1.7}),
    "MSGNHT": (sg.MSGNHT, {"step_size": 5e-3}),
    "SMLD": (sg.SMLD, {"step_size": 1e-4}),
    "SGLD": (sg.SGLD, {"step_size": 1e-4}),
    "SGHMC": (sg.SGHMC, {"step_size": 5e-3}),
    "SGNHT": (sg.SGNHT, {"step_size": 5e-3}),
}


def location(rows=400, seed=0, width=10):
    """A small model that has it all: a minibatch, a bounded variable, and little to compile."""
    Y = np.random.default_rng(seed).normal(1, 0.5, size=rows)
    with pm.Model() as model:
        y = pm.Minibatch(Y, batch_size=50)
        mu = pm.Normal("mu", 0, width)
        sigma = pm.HalfNormal("sigma", 1)
        pm.Normal("y", mu, sigma, observed=y, total_size=rows)
    return model


def normal_and_scale():
    with pm.Model() as model:
        pm.Normal("x", shape=2)
        pm.HalfNormal("s")
    return model


def faulty():
    """One row in twenty has no finite density."""
    with pm.Model() as model:
        x = pm.Normal("x")
        bad, y = pm.Minibatch(np.arange(20) == 13, np.zeros(20), batch_size=1)
        pm.Normal("y", x * pt.switch(bad, np.inf, 1.0), observed=y, total_size=20)
    return model


def step_for(name, model, **options):
    method, own = SAMPLERS[name]
    return method(model=model, **{"backend": "jax", **UNTUNED, **own, **options})


def twin(step, **options):
    """A new step that is spared the compilation: what is compiled has no state."""
    new = type(step)(model=step.model, **{**UNTUNED, **options})
    new._engine = step._engine
    return new


def sharing(method):
    """Return a maker of steps that share what is compiled, which has no state."""
    made = []

    def make(**options):
        step = method(**options)
        step._engine = made[-1]._engine if made else None
        made.append(step)
        return step

    return make


def start(step, seed=1, draws=100):
    step.setup_chain(np.random.default_rng(seed), 0, draws)
    return step.model.initial_point()


def drawn(step, draws, seed=1, tune=0):
    """Yield the point and the statistics of each draw of a new chain, those of tuning first."""
    step.setup_chain(np.random.default_rng(seed), tune, draws)
    point = step.model.initial_point()
    for _ in range(tune + draws):
        point, [stats] = step.step(point)
        yield point, stats


def take(step, point, draws=4):
    """Points and statistics of the next draws, each as one line of bytes."""
    taken = []
    for _ in range(draws):
        point, [stats] = step.step(point)
        numbers = [np.asarray(value, float) for value in (*point.values(), *stats_of(stats))]
        taken.append(b"".join(number.tobytes() for number in numbers))
    return point, taken


def assert_goes_on(step, point, make, draws=4):
    """Assert that a new step goes on bit for bit from the pickled state of one that is at a point.

    ``make`` returns the new step, after the other has gone on; it is returned.
    """
    stored = pickle.dumps((step.sampling_state, point))
    _, expected = take(step, point, draws)
    state, point = pickle.loads(stored)
    fresh = make()
    fresh.sampling_state = state
    assert equal_dataclass_values(fresh.sampling_state, state)
    assert take(fresh, point, draws)[1] == expected
    # Nothing of the state that was handed over is changed by sampling on
    assert equal_dataclass_values(state, pickle.loads(stored)[0])
    return fresh


def stats_of(stats):
    return [stats[name] for name in sorted(stats) if name != "warning"]


def draws_of(result):
    return {name: np.asarray(values) for name, values in result.posterior.items()}


def assert_same_bits(one, other):
    assert one.keys() == other.keys()
    for name in one:
        assert one[name].tobytes() == other[name].tobytes(), name
