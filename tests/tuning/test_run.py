"""Whole runs of tuned chains."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest

import pymc_sgmcmc as sg
import pymc_sgmcmc.tuning.rounds as tuning_rounds
import pymc_sgmcmc.tuning.run as tuning_run

from helpers.conjugate import regression, slopes_of
from helpers.sampling import QUIET, run
from helpers.surfaces import groups
from helpers.z_scores import STANDARD_ERRORS, assert_right


# A small funnel without batches is in test_adversarial.py
@pytest.mark.parametrize("minibatch", [pytest.param(False, marks=pytest.mark.slow), True])
def test_a_mild_funnel_is_right(minibatch):
    # A chain at h = 0.2 misses its neck: the mean of z was 0.2 with the second seed
    with pm.Model():
        z = pm.Normal("z")
        pm.Normal("x", 0.0, pm.math.exp(0.6 * z), shape=3)
        if minibatch:
            batch = pm.Minibatch(np.arange(200.0), batch_size=50)
            pm.Normal("y", pm.Normal("mean", 0, 10), 60, observed=batch, total_size=200)
        draws = run(sg.CoRVSGLD(), draws=2000, seed=2).posterior["z"]
    assert abs(float(draws.mean())) < 0.1
    assert float(draws.std()) == pytest.approx(1, rel=0.1)


@pytest.mark.parametrize(
    "method",
    [
        sg.CoRVSGLD,
        *(pytest.param(m, marks=pytest.mark.slow) for m in (sg.MSGNHT, sg.SMLD, sg.SGLD)),
    ],
)
def test_default_run_with_minibatches_is_right(method):
    model, exact = regression()
    result = run(method(model=model, backend="jax"))
    assert_right(result.posterior, exact)
    assert result.sample_stats["rejected_updates"].sum() == 0


@pytest.mark.slow
def test_default_run_of_heavy_tailed_noise_has_the_right_middle():
    model, exact = regression()
    posterior = run(sg.FLA(model=model, backend="jax"), draws=2000).posterior
    for name, (mean, sd) in exact.items():
        z = (posterior[name].values - mean) / sd
        low, middle, high = np.quantile(z, [0.25, 0.5, 0.75], axis=(0, 1))
        # At α = 1.8 the law is off by 0.028 in total variation, at a density of 0.3 to 0.4
        assert np.all(abs(middle) < 0.1)
        assert np.all(abs((high - low) / 1.349 - 1) < 0.1)


def stop(*args, **kwargs):
    raise KeyboardInterrupt


def test_an_interrupt_ends_tuning_as_it_ends_the_first_draw_of_any_step(monkeypatch, caplog):
    ends = []
    monkeypatch.setattr("pymc_sgmcmc.tuning.run.find_bulk", stop)
    monkeypatch.setattr(pm.Slice, "astep", stop)
    for make_step in (pm.Slice, sg.CoRVSGLD):
        with pm.Model():
            pm.Normal("x")
            step = make_step()
            with pytest.raises(ValueError, match="Not enough samples") as end:
                pm.sample(step=step, draws=10, chains=2, cores=1, **QUIET)
        ends.append(str(end.value))
    assert ends[0] == ends[1]
    assert "The chain was interrupted while it was tuned: it has no draws." in caplog.messages
    # The step can be used again
    monkeypatch.undo()
    with step.model:
        assert run(step, draws=10).posterior.sizes["draw"] == 10


@pytest.mark.slow
def test_single_precision_after_double():
    images = np.random.default_rng(1).normal(size=(200, 3))

    def draws(floatX):
        with pytensor.config.change_flags(floatX=floatX), pm.Model():
            x = pm.Minibatch(images.astype(floatX), batch_size=20)
            first = pm.Beta("first", 0.5, 0.5, shape=(3, 4))
            hidden = pt.maximum(x @ (2 * first - 1), 0)
            label = np.zeros(20, dtype="int16")
            pm.Categorical("label", logit_p=hidden, observed=label, total_size=200)
            step = sg.CoRVSGLD(step_size=1e-3, gradient="plain", thin=5, backend="jax")
            return run(step, draws=5, tune=0).posterior["first"]

    double, single, again = (draws(floatX) for floatX in ("float64", "float32", "float64"))
    assert single.dtype == np.float32
    np.testing.assert_array_equal(again, double)


@pytest.mark.slow
def test_default_run_in_single_precision():
    with pytensor.config.change_flags(floatX="float32"):
        rng = np.random.default_rng(5)
        X = rng.normal(size=(1000, 2)).astype("float32")
        y = (X @ [1.0, -0.5] + 0.8 * rng.normal(size=1000)).astype("float32")
        with pm.Model() as model:
            x, batch = pm.Minibatch(X, y, batch_size=50)
            slopes = pm.Normal("slopes", 0.0, 10.0, shape=2)
            pm.Normal("y", x @ slopes, 0.8, observed=batch, total_size=1000)
        result = run(sg.CoRVSGLD(model=model, backend="jax"))
    assert result.posterior["slopes"].dtype == np.float32
    mean, covariance = slopes_of(X, y, 0.8)
    assert_right(result.posterior, {"slopes": (mean, np.diag(covariance) ** 0.5)})


@pytest.mark.slow
def test_a_centred_hierarchy_that_the_data_determine():
    exact = groups(6.0, 0)
    with pm.Model():
        mu = pm.Normal("mu", 0, 1000)
        tau = pm.HalfNormal("tau", 100)
        a = pm.Normal("a", mu, tau, shape=len(exact.y))
        pm.Normal("y", a, exact.s, observed=exact.y)
        posterior = run(sg.CoRVSGLD(), seed=0).posterior
    found = np.log(posterior["tau"].values)
    mean, sd = exact.log_scale()
    assert abs(found.mean() - mean) < 0.1 * sd
    assert abs(found.std() / sd - 1) < 0.1


@pytest.mark.parametrize("method", [sg.CoRVSGLD, pytest.param(sg.MSGNHT, marks=pytest.mark.slow)])
def test_a_rotated_gaussian_of_wild_scales(method):
    d = 30
    rng = np.random.default_rng(9)
    rotation = np.linalg.qr(rng.normal(size=(d, d)))[0]
    units = 10.0 ** rng.uniform(-4, 4, size=d)
    covariance = (rotation * np.geomspace(0.01, 1, d)) @ rotation.T * np.outer(units, units)
    mean = 5 * units * rng.normal(size=d)
    precision = np.linalg.inv(covariance / np.outer(units, units)) / np.outer(units, units)
    with pm.Model() as model:
        x = pm.Flat("x", shape=d, initval=np.zeros(d))
        pm.Potential("density", -0.5 * ((x - mean) @ precision @ (x - mean)))
    result = run(method(model=model, backend="jax"), draws=1500)
    assert_right(result.posterior, {"x": (mean, np.diag(covariance) ** 0.5)})
    # Along the rotated axes too
    along = (result.posterior["x"].values - mean) / units @ rotation / np.geomspace(0.1, 1, d)
    assert np.all(abs(along.std(axis=(0, 1)) - 1) < 0.1 + STANDARD_ERRORS * (2 * 1000) ** -0.5)


def test_a_large_thin_leaves_a_good_centre_where_it_is(monkeypatch):
    means = np.random.default_rng(2).normal(size=(400, 100))
    with pm.Model():
        y = pm.Minibatch(means, batch_size=40)
        x = pm.Normal("x", 0, 10, shape=100)
        pm.Normal("y", x, observed=y, total_size=400)
        step = sg.CoRVSGLD(gradient=sg.ControlVariates(), batches=1, thin=1000, backend="jax")
    step.setup_chain(np.random.default_rng(1), 10, 10)
    monkeypatch.setattr(tuning_run, "settle", stop)
    with pytest.raises(KeyboardInterrupt):
        step.step(step.model.initial_point())
    [anchor] = step.chain.settings.anchor
    assert np.sqrt(400 * np.mean((anchor - means.mean(axis=0)) ** 2)) < 0.3


@pytest.mark.slow
def test_noise_that_is_met_in_the_last_round_is_planned_for(monkeypatch):
    """Three centres that are none, and a fourth about which batches are noisier than planned."""
    rounds, planned = [], []
    make_plan = tuning_rounds.make_plan

    def burnt_in(chain, h, thin, *, fixed_step, updates):
        rounds.append(1)
        return h, np.full((5, 2), 3.0 if len(rounds) < 4 else 0.0)

    def plan(*args, **options):
        planned.append(options["least_noise"])
        return make_plan(*args, **options)

    monkeypatch.setattr(tuning_rounds, "burn_in", burnt_in)
    monkeypatch.setattr(tuning_rounds, "make_plan", plan)
    monkeypatch.setattr(tuning_run, "settle", stop)
    monkeypatch.setattr(tuning_rounds.Rounds, "_noise_of_burn_in", lambda *args: 100.0)
    model, _ = regression()
    step = sg.CoRVSGLD(model=model, backend="jax")
    step.setup_chain(np.random.default_rng(1), 10, 10)
    with pytest.raises(KeyboardInterrupt):
        step.step(model.initial_point())
    assert planned == [0, 0, 0, 0, 100]


@pytest.mark.slow
def test_thousands_of_parameters_are_anchored_where_the_chain_has_been(monkeypatch):
    groups, each = 1100, 4
    group = np.tile(np.arange(groups), each)
    y = np.random.default_rng(0).normal(size=groups)[group]
    found = tuning_run.find_bulk

    def astray(*args, **kwargs):
        centre, root, collapses = found(*args, **kwargs)
        return centre + 6 * root, root, collapses

    monkeypatch.setattr(tuning_run, "find_bulk", astray)
    with pm.Model():
        g, seen = pm.Minibatch(group, y, batch_size=200)
        theta = pm.Normal("theta", shape=groups)
        pm.Normal("y", theta[g], observed=seen, total_size=len(y))
        step = sg.CoRVSGLD(gradient=sg.ControlVariates())
        run(step, draws=1, chains=1)
    [anchor] = step.chain.settings.anchor
    exact = y[:groups] * each / (1 + each)
    # A mean of the 25 draws of half a burn-in
    assert np.mean((anchor - exact) ** 2) * (1 + each) < 0.5
