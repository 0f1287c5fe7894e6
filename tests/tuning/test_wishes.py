"""What is set by hand stays; the rest is tuned."""

from functools import cache

import numpy as np
import pytest

import pymc_sgmcmc as sg

from helpers.conjugate import regression
from helpers.sampling import run
from helpers.z_scores import assert_right

WISHES = {
    "step_size": {"step_size": 0.1},
    "a schedule": {"step_size": sg.polynomial(20.0, b=10_000.0, gamma=0.55)},
    "thin": {"thin": 11},
    "dense": {"scale": "dense"},
    "diagonal": {"scale": "diagonal"},
    "no whitening": {"scale": None},
    "half of the root": {"scale": lambda root: 0.5 * root},
    "scale by hand": {"scale": {"slopes": 0.025, "precision": 0.05}},
    "plain": {"gradient": "plain"},
    "control variates": {"gradient": sg.ControlVariates()},
    "svrg": {"gradient": sg.SVRG(refresh=1000)},
    "batches": {"batches": 3},
    "random": {"batch": "random"},
}


ANCHORS = "control variates", "svrg"


@cache
def sampled():
    """The model, its exact moments and what is compiled of it, which has no state."""
    return *regression(), {}


@pytest.mark.slow
@pytest.mark.parametrize("name", WISHES)
def test_what_is_set_by_hand_stays_and_the_rest_is_tuned(name):
    model, exact, engines = sampled()
    wish = WISHES[name]
    step = sg.CoRVSGLD(model=model, backend="jax", **wish)
    kind = step.options.batch, step.options.bend(3), step.options.centring
    step._engine = engines.get(kind)
    result = run(step)
    engines[kind] = step._engine
    # What the step knows is of its last chain
    statistics, settings = result.sample_stats.isel(chain=-1), step.chain.settings
    if name == "step_size":
        assert np.all(statistics["step_size"] == 0.1)
    elif name == "a schedule":
        h = statistics["step_size"].values
        assert np.all(np.diff(h) < 0)
    else:
        assert np.all(statistics["step_size"] == settings.step_size)
    assert np.all(statistics["thin"] == (11 if name == "thin" else settings.thin))
    assert np.all(statistics["batches"] == (3 if name == "batches" else settings.batches))
    dimensions = {"diagonal": [2, 1], "scale by hand": [2, 1], "no whitening": None}.get(name, [9])
    if dimensions is None:
        assert settings.root is None
    elif dimensions == [9]:
        assert settings.root.shape == (3, 3)
    else:
        assert sorted(x.size for x in settings.root) == [1, 2]
    if name == "scale by hand":
        assert {float(x.flat[0]) for x in settings.root} == {0.025, 0.05}
    assert bool(settings.anchor) == (name != "plain")
    assert settings.refresh == (1000 if name == "svrg" else None)
    # LM's own bias is of second order, h² / 4 of a variance at h = 0.2
    assert_right(result.posterior, exact, slack=0.005 if name in ANCHORS else 0.1)
