"""What is computed of many parameters at once is what ArviZ returns of each."""

from __future__ import annotations

import numpy as np
import pytest

from arviz_stats.base.array import array_stats

from pymc_sgmcmc import convergence
from pymc_sgmcmc.convergence import effective_draws, error_of_mean, error_of_sd, rank_rhat


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
    monkeypatch.setattr(convergence, "_TOGETHER", 8 * 30 * chains * draws)
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


@pytest.mark.parametrize("statistic", [effective_draws, rank_rhat, error_of_mean, error_of_sd])
def test_other_numbers_of_axes_are_refused(statistic):
    with pytest.raises(ValueError, match=r"^draws must be numbers of shape .*pass draws\[None\]"):
        statistic(np.zeros((2, 500)))


def test_errors_are_in_the_unit_of_the_draws():
    x = np.cumsum(np.random.default_rng(1).normal(size=(1, 2, 400)), axis=2)
    np.testing.assert_allclose(error_of_sd(1e-10 * x), 1e-10 * error_of_sd(x), rtol=1e-6)


@pytest.mark.parametrize("dtype", [bool, np.int8])
@pytest.mark.parametrize("statistic", [effective_draws, rank_rhat, error_of_mean, error_of_sd])
def test_draws_may_be_whole_numbers(statistic, dtype):
    walk = np.cumsum(np.random.default_rng(2).normal(size=(1, 2, 400)), axis=2)
    # Further apart than the largest number of eight bits
    x = (walk > 0 if dtype is bool else np.clip(9 * walk, -120, 120)).astype(dtype)
    np.testing.assert_array_equal(statistic(x), statistic(x.astype(float)))
