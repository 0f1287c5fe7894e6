"""What is computed of many parameters at once is what ArviZ returns of each."""

from __future__ import annotations

import arviz_base
import arviz_stats
import numpy as np
import pandas as pd
import pymc as pm
import pytest

from arviz_stats.base.array import array_stats

import pymc_sgmcmc as sg

from pymc_sgmcmc.convergence import arviz_stats as together
from pymc_sgmcmc.convergence import parts
from pymc_sgmcmc.convergence.effective import effective_draws
from pymc_sgmcmc.convergence.rhat import rank_rhat
from pymc_sgmcmc.convergence.standard_errors import error_of_mean, error_of_sd


def some_draws(chains: int, draws: int) -> np.ndarray:
    rng = np.random.default_rng(1)
    # From antithetic to nearly standing still
    memory = rng.uniform(-0.99, 0.999, size=(100, 1))
    x = np.zeros((100, chains, draws))
    for t in range(1, draws):
        x[..., t] = memory * x[..., t - 1] + rng.normal(size=(100, chains))
    x[0] = 3.0
    x[1] = np.round(x[1])
    x[2] = np.arange(draws)
    x[3] = np.resize([1.0, -1.0], draws)
    x[4, 0, 0] = np.nan
    x[5, 0, 1] = np.inf
    return x


@pytest.mark.parametrize("chains", [1, 2, 4])
@pytest.mark.parametrize("draws", [3, 4, 5, 11, 500, 501])
def test_statistics_are_those_of_arviz(chains, draws, monkeypatch):
    # Several parts, of which the last is shorter
    monkeypatch.setattr(parts, "_TOGETHER", 8 * 30 * chains * draws)
    x = some_draws(chains, draws)
    with np.errstate(all="ignore"):
        expected = {
            effective_draws: array_stats.ess(x),
            rank_rhat: array_stats.rhat(x),
            error_of_mean: array_stats.mcse(x, method="mean"),
            error_of_sd: array_stats.mcse(x, method="sd"),
        }
        for statistic, values in expected.items():
            np.testing.assert_allclose(statistic(x), values, rtol=1e-9, err_msg=statistic.__name__)


def test_there_may_be_no_parameters():
    assert effective_draws(np.empty((0, 1, 500))).shape == (0,)
    assert rank_rhat(np.empty((0, 2, 500))).shape == (0,)


@pytest.fixture
def of_arviz():
    """ArviZ's functions as they were before the test."""
    with arviz_base.rc_context({"stats.module": "base"}):
        yield


def model_of(parameters: int) -> pm.Model:
    with pm.Model() as model:
        pm.Normal("x", shape=parameters)
    return model


def test_many_parameters_are_checked_at_once(of_arviz):
    """What ArviZ returns of a result, by whatever method, is what it was."""
    x = np.moveaxis(some_draws(2, 200), 0, -1).reshape(2, 200, 20, 5)[:, :, 2:]
    dt = arviz_base.from_dict({"posterior": {"x": x, "y": x[..., 0, 0]}})
    methods = [
        *((arviz_stats.ess, {"method": m}) for m in ("bulk", "tail", "mean", "sd", "median")),
        (arviz_stats.ess, {"relative": True}),
        *((arviz_stats.mcse, {"method": m}) for m in ("mean", "sd", "median")),
        *((arviz_stats.rhat, {"method": m}) for m in ("rank", "folded", "split")),
    ]
    before = [f(dt, **options) for f, options in methods]
    table = arviz_stats.summary(dt)
    sg.MSGNHT(model=model_of(1000))
    assert arviz_base.rcParams["stats.module"] is together
    for expected, (f, options) in zip(before, methods, strict=True):
        found = f(dt, **options)
        for name in ("x", "y"):
            np.testing.assert_allclose(
                found[name], expected[name], rtol=1e-10, err_msg=str(options)
            )
            assert found[name].dims == expected[name].dims
    pd.testing.assert_frame_equal(arviz_stats.summary(dt), table)


def test_few_parameters_and_a_users_choice_change_nothing(of_arviz):
    sg.MSGNHT(model=model_of(999))
    assert arviz_base.rcParams["stats.module"] == "base"
    arviz_base.rcParams["stats.module"] = "numba"
    sg.MSGNHT(model=model_of(1000))
    assert arviz_base.rcParams["stats.module"] == "numba"
