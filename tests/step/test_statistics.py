"""The statistics of a draw: declared, returned, documented."""

import logging
import re

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

from pymc.step_methods import STEP_METHODS

import pymc_sgmcmc as sg

from helpers.backends import BOTH
from helpers.sampling import run
from helpers.steps import SAMPLERS, drawn, faulty, start, step_for, take, twin
from pymc_sgmcmc.store.formats import packed, unpacked
from pymc_sgmcmc.testing import UNTUNED


def documented_statistics(method):
    notes = [
        cls.__doc__.split("Notes\n", 1)[1]
        for cls in (sg.SGMCMCStep, method)
        if "tatistic" in (cls.__doc__ or "") and "Notes\n" in cls.__doc__
    ]
    return {name for text in notes for name in re.findall(r"``([a-z_]+)``", text)}


@pytest.mark.parametrize("name", SAMPLERS)
def test_statistics_are_declared_returned_and_documented(name, new_step):
    step = new_step(name)
    _, [stats] = step.step(start(step))
    declared = step.stats_dtypes_shapes
    assert stats.keys() == declared.keys()
    of_all = {name for name in declared if "[" not in name}
    assert of_all == documented_statistics(type(step))
    assert declared.keys() - of_all == (
        {"config_temperature[mu]", "config_temperature[sigma]"} if name != "FLA" else set()
    )
    for statistic, (dtype, shape) in declared.items():
        if statistic != "warning":
            assert np.shape(stats[statistic]) == tuple(shape), statistic
            assert type(stats[statistic]) is type(np.dtype(dtype).type(0).item()), statistic


def test_statistics_have_the_types_of_those_of_pymc():
    # PyMC refuses a compound step in which one name has two types
    theirs = {
        (name, dtype)
        for method in STEP_METHODS
        if not issubclass(method, sg.SGMCMCStep)
        for name, (dtype, _) in method.stats_dtypes_shapes.items()
    }
    for method, _ in SAMPLERS.values():
        for name, (dtype, _) in method.stats_dtypes_shapes.items():
            assert {other for shared, other in theirs if shared == name} <= {dtype}, name


def test_step_size_and_weight_follow_the_schedule(new_step):
    schedule = sg.polynomial(1e-4, b=10, gamma=1.0)
    step = new_step("SGLD", step_size=schedule, thin=5)
    for draw, (_, stats) in zip(range(3), drawn(step, 100), strict=False):
        h = schedule(np.arange(5 * draw, 5 * draw + 5))
        assert stats["step_size"] == h[-1]
        assert stats["weight"] == pytest.approx(h.sum())


def test_rejected_updates_are_counted_and_reported(caplog):
    with faulty(), caplog.at_level(logging.WARNING):
        step = sg.SGLD(step_size=1e-3, batch="random", backend="jax", **UNTUNED)
        result = run(step, 100, 1, tune=10, compute_convergence_checks=True)
    rejected = result.sample_stats["rejected_updates"]
    assert 0.02 < rejected.mean() / 20 < 0.08
    np.testing.assert_array_equal(result.sample_stats["diverging"], rejected > 0)
    assert np.all(np.isfinite(result.posterior["x"]))
    assert "warning" not in result.sample_stats
    [said] = [text for text in caplog.messages if "were not finite" in text]
    assert said.startswith(f"{rejected.values.sum()} updates (")
    assert "pass a smaller step_size" in said


@BOTH
def test_draws_without_density_are_counted_and_their_variable_is_named(caplog, backend):
    def draws(end):
        caplog.clear()
        with pm.Model():
            a = pm.Normal("a", shape=2)
            pm.Potential("wall", pm.math.switch(pt.all(a > end), 0.0, -np.inf))
            step = sg.SGLD(**UNTUNED | {"step_size": 0.02}, backend=backend)
            result = run(step, 400, seed=5, tune=20, compute_convergence_checks=True)
        said = [text for text in caplog.messages if "where the density" in text]
        return np.min(result.posterior["a"].values, axis=(1, 2)), result.sample_stats, said

    lowest, stats, said = draws(-1.5)
    assert (lowest < -1.5).all()
    zero = np.isneginf(stats["batch_logp"].values).sum(axis=1)
    assert (zero > 0).all()
    for count, message in zip(zero, said, strict=True):
        assert f"{count} of 400 draws lie where the density of 'wall' is zero" in message
        assert "transform=" in message
    lowest, stats, said = draws(-20)
    assert (lowest > -20).all()
    assert said == []


def test_what_had_no_density_first_is_named_by_a_chain_that_goes_on():
    # 400 further in each draw: beyond the near wall in draws 3 to 6, beyond both in the last
    with pm.Model() as model:
        a = pm.Flat("a", initval=0.0)
        pm.Potential("slope", 1000 * a)
        for name, end in {"near": 1000, "far": 2200}.items():
            pm.Potential(name, pm.math.switch(a < end, 0.0, -np.inf))
    step = step_for("SGLD", model, step_size=0.02)
    point, _ = take(step, start(step, draws=6), draws=5)
    fresh = twin(step, step_size=0.02)
    fresh.sampling_state = unpacked(packed(step.sampling_state))
    _, [stats] = fresh.step(point)
    said = "4 of 6 draws lie where the density of 'near' is zero"
    assert said in stats["warning"].message


def test_temperatures_of_a_start_by_hand_without_burn_in_are_about_the_start():
    y = np.random.default_rng(0).normal(30, 1, 1000)
    with pm.Model():
        mu = pm.Normal("mu", 0, 100, initval=30.0)
        pm.Normal("y", mu, 1, observed=y)
        stats = run(sg.SGLD(step_size=1e-4, backend="jax", **UNTUNED), tune=0).sample_stats
    # About 0 a draw's would have the sd 30 / 0.03, as the first one's has
    temperatures = stats["config_temperature"]
    assert temperatures[:, 0].isnull().all()
    assert not temperatures[:, 1:].isnull().any()
    assert float(temperatures.mean()) == pytest.approx(1, abs=0.3)
