"""Bias by step halving."""

import logging

import matplotlib.pyplot as plt
import numpy as np
import pymc as pm
import pytensor
import pytest

import pymc_sgmcmc as sg

from helpers.z_scores import STANDARD_ERRORS, mean_and_error
from pymc_sgmcmc.diagnostics import bias_report, plot_bias
from pymc_sgmcmc.diagnostics.halving import _report
from pymc_sgmcmc.testing import UNTUNED


def test_bias_report_finds_the_known_bias_of_euler():
    with pm.Model() as model:
        pm.Normal("x", 0.0, 1.0, shape=20)
        step = sg.SGLD(step_size=0.4, **{**UNTUNED, "thin": 5})
    report = bias_report(step, model, draws=500, chains=2, random_seed=11)
    # Var = 2 / (2 − h)
    sds = np.sqrt([2 / 1.6, 2 / 1.8])
    for name, expected in (("estimate", sds[0]), ("half", sds[1]), ("bias", 2 * (sds[0] - sds[1]))):
        found, error = mean_and_error(report[name].sel(statistic="sd"))
        assert abs(found - expected) < STANDARD_ERRORS * error, name
    # The standard errors are those that twenty coordinates show
    bias, se = report["bias"], report["se"]
    spread = bias.std("parameter", ddof=1) / np.sqrt((se**2).mean("parameter"))
    assert (np.abs(spread - 1) < STANDARD_ERRORS / np.sqrt(2 * 19)).all()
    assert not report["flagged"].sel(statistic="mean").any()
    assert report.attrs["order"] == 1
    assert step.options.step_size.h == 0.4


@pytest.mark.filterwarnings("ignore:R-hat:UserWarning")
def test_noise_of_a_gradient_of_the_users_own_makes_a_method_first_order():
    with pm.Model() as model:
        x = pm.Normal("x")
        sg.GradientPotential("y", lambda x, noise: noise.normal(()) - x, [x])
        step = sg.CoRVSGLD(step_size=0.1, **UNTUNED)
    report = bias_report(step, model, draws=50, tune=5, chains=2, random_seed=1)
    assert report.attrs["order"] == 1


@pytest.fixture(scope="module")
def scale_regression():
    rng = np.random.default_rng(12)
    X = rng.normal(size=(5000, 2))
    Y = X @ [1.0, 2.0] + rng.normal(size=5000)
    with pm.Model(coords={"feature": ["age", "height"]}) as model:
        x, y = pm.Minibatch(X, Y, batch_size=50)
        beta = pm.Normal("beta", 0.0, 10.0, dims="feature")
        sigma = pm.HalfNormal("sigma", 1.0)
        pm.Normal("y", x @ beta, sigma, observed=y, total_size=5000)
    return model


def test_bias_report_flags_naive_sgld(scale_regression, caplog):
    # σ² = N/B = 100 in units of posterior sds, h = 0.02: hσ²/2 = 1, variances doubled
    report = bias_report(
        sg.SGLD, scale_regression, step_size=0.02 / 5000, draws=500, tune=100, chains=2,
        random_seed=13, **{**UNTUNED, "thin": 50},
    )  # fmt: skip
    assert list(report["parameter"].values) == ["beta[age]", "beta[height]", "sigma"]
    assert report["flagged"].sel(statistic="sd").all()
    assert (report["relative"].sel(statistic="sd") > 0.2).all()
    assert report.attrs["step_size"] == pytest.approx(0.02 / 5000)

    figure = plot_bias(report, largest=2).viz["figure"].item()
    sd_axis = figure.axes[1]
    assert len(sd_axis.get_yticks()) == 2
    assert "sd" in sd_axis.get_title()
    plt.close(figure)


@pytest.mark.slow
def test_bias_report_does_not_flag_the_default(scale_regression, caplog):
    with caplog.at_level(logging.ERROR):
        report = bias_report(sg.CoRVSGLD, scale_regression, draws=500, chains=2, random_seed=14)
    assert not report["flagged"].any()
    assert (
        np.abs(report["relative"])
        < STANDARD_ERRORS * report["se"] / report["half"].sel(statistic="sd")
    ).all()
    assert report.attrs["step_size"] == pytest.approx(0.2)


def test_draws_of_single_precision_have_no_bias_of_their_own():
    rng = np.random.default_rng(1)
    with pytensor.config.change_flags(floatX="float32"), pm.Model() as model:
        pm.Normal("x", shape=2)
        runs = [
            [{"x": (100_003 + rng.normal(size=(n, 2))).astype("float32")} for _ in range(4)]
            for n in (1000, 2000)
        ]
        report = _report(model, runs, 1, 0.1)
    assert not report["flagged"].any()


def test_a_start_that_is_drawn_from_priors_follows_the_seed():
    with pm.Model() as model:
        pm.Normal("x", 0, 10, initval="prior")
    reports = [
        bias_report(
            sg.SGLD, model, draws=100, tune=1, chains=1, random_seed=seed, step_size=0.1,
            backend="jax", **UNTUNED,
        )
        for seed in (1, 1, 2)
    ]  # fmt: skip
    assert reports[0].equals(reports[1])
    assert not reports[0].equals(reports[2])


def test_what_both_runs_share_is_logged(caplog):
    with pm.Model() as model:
        a = pm.Normal("a", shape=2)
        pm.Potential("wall", pm.math.switch((a > -0.5).all(), 0.0, -np.inf))
        step = sg.SGLD(step_size=0.02, **UNTUNED)
    report = bias_report(step, model, draws=100, chains=1, random_seed=5)
    assert "draws lie where the density of 'wall' is zero" in caplog.text
    assert not report["flagged"].sel(statistic="mean").any()
