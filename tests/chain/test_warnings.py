"""What pm.sample logs of a run that is too wide."""

import logging
import re

import numpy as np
import pytest

import pymc_sgmcmc as sg

from helpers.conjugate import normal_means
from helpers.sampling import run


def three_means(minibatched=True):
    data = np.random.default_rng(3).normal([1.0, 0.0, -1.0], 2.0, size=(400, 3))
    model, _, sd = normal_means(data, 2.0, batch_size=40 if minibatched else None)
    return model, sd


def sampled(model, step_of, caplog, draws=2000):
    """Draws, and the warnings that name a temperature or noise."""
    with model, caplog.at_level(logging.WARNING, logger="pymc"):
        result = run(step_of(backend="jax"), draws, seed=4, compute_convergence_checks=True)
    said = [r.getMessage() for r in caplog.records]
    return result.posterior["mu"].values, [s for s in said if "R-hat does not see it" in s]


# Each makes the sds about 10 % too wide: 2 / (2 - h) = 1.21, and 1 + h σ² / 2 at σ² = N / B = 10
TOO_WIDE = {
    "a long Euler step": (False, lambda **o: sg.SGLD(step_size=0.35, **o)),
    "noisy gradients": (
        True,
        lambda **o: sg.CoRVSGLD(step_size=0.04, gradient="plain", batches=1, **o),
    ),
}


@pytest.mark.parametrize("why", TOO_WIDE)
def test_a_run_that_is_too_wide_is_told(why, caplog):
    minibatched, step_of = TOO_WIDE[why]
    model, sd = three_means(minibatched)
    draws, said = sampled(model, step_of, caplog)
    assert draws.std(axis=(0, 1)).mean() / sd == pytest.approx(1.1, abs=0.03)
    assert len(said) == 2  # once a chain
    for text in said:
        noise = bool(re.search(r"Gradient noise widens the variances by about (19|2\d)%", text))
        assert "The configurational temperature is 1." in text or (minibatched and noise)
        assert "R-hat does not see it" in text
        assert "Take a smaller step_size" in text


@pytest.mark.parametrize("minibatched", [True, False], ids=["minibatches", "full data"])
def test_a_default_run_is_right_and_silent(minibatched, caplog):
    model, sd = three_means(minibatched)
    draws, said = sampled(model, sg.CoRVSGLD, caplog)
    assert said == []
    # 4,000 draws with an effective one each: a standard error of 1.1 %, of the mean of three .6 %
    assert draws.std(axis=(0, 1)).mean() / sd == pytest.approx(1.0, abs=0.03)
