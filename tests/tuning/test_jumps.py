"""Jumps of the density are named where its gradient shows nothing, and nothing else is."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_sgmcmc as sg

from pymc_sgmcmc.tuning.jumps import jumps

RNG = np.random.default_rng(81)
X = np.sort(RNG.normal(size=60))
Y = (X > 0.3) + RNG.normal(size=60)


def wall():
    a = pm.Normal("a")
    pm.Potential("positive", pm.math.switch(a > 0, 0.0, -np.inf))


def threshold():
    a, mean = pm.Normal("a"), pm.Normal("mean")
    pm.Normal("y", mean + pm.math.switch(a < X, 1.0, 0.0), pm.HalfNormal("sd"), observed=Y)


def threshold_in_batches():
    a = pm.Normal("a")
    x, y = pm.Minibatch(np.tile(X, 100), np.tile(Y, 100), batch_size=60)
    pm.Normal("y", pm.math.switch(a < x, 1.0, 0.0), 1, observed=y, total_size=6000)


def rounded():
    pm.Normal("y", pt.floor(pm.Uniform("a", 0, 5)), 0.5, observed=np.full(3, 2.0))


def hinge():
    """A slope that begins at a knot: the gradient jumps, and U does not."""
    knot, b = pm.Normal("knot"), pm.Normal("b")
    pm.Normal("y", b * pt.maximum(X - knot, 0), 1, observed=Y)


def kinks():
    b = pm.Laplace("b", 0, 1, shape=30)
    pm.Laplace("y", RNG.normal(size=(60, 30)) @ b, 1, observed=Y)


def funnel():
    pm.Normal("x", 0, pt.exp(pm.Normal("v", 0, 3) / 2), shape=9)


def narrow():
    """U is 1e8 and more, and its rounding errors with it."""
    a, b = pm.Normal("a", 0, 1e6), pm.Normal("b", 0, 10)
    pm.Normal("y", a + b * X, 1e-3, observed=1e5 + 3 * X + 1e-3 * Y)


def warnings_of(build, monkeypatch):
    """Return what is found before the burn-in, or of a wall what the chain has at the end."""
    found = []

    def until_here(*args):
        found.extend(jumps(*args))
        raise KeyboardInterrupt

    with pm.Model() as model:
        build()
        step = sg.CoRVSGLD(backend="jax")
    step.setup_chain(np.random.default_rng(1), 0, 10)
    if build is wall:
        step.step(model.initial_point())
        return dict(step.chain.settings.warnings)
    monkeypatch.setattr("pymc_sgmcmc.tuning.run.jumps", until_here)
    with pytest.raises(KeyboardInterrupt):
        step.step(model.initial_point())
    return dict(found)


@pytest.mark.parametrize("build", [wall, threshold, threshold_in_batches, rounded])
def test_a_jump_is_named_with_its_variable(build, monkeypatch):
    found = warnings_of(build, monkeypatch)["jumps"]
    assert found["along"] == "'a'"
    assert ("to 0" in found["size"]) == (build is wall)


@pytest.mark.parametrize("build", [hinge, kinks, funnel, narrow])
def test_what_gradients_show_is_no_jump(build, monkeypatch):
    assert "jumps" not in warnings_of(build, monkeypatch)


def test_they_are_logged_before_the_draws_of_a_long_run(monkeypatch, caplog):
    monkeypatch.setattr("pymc_sgmcmc.tuning.run._LONG", 0.0)
    with pm.Model() as model:
        rounded()
        step = sg.CoRVSGLD(backend="jax")
    step.setup_chain(np.random.default_rng(0), 5, 10)
    with caplog.at_level("WARNING", logger="pymc.sgmcmc"):
        step.step(model.initial_point())
    [said] = [text for text in caplog.messages if text.startswith("Tuning: ")]
    assert "a" in said and "jump" in said
