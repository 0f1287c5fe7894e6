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
    said = [text for text in caplog.messages if "R-hat does not see it" in text]
    return result.posterior["mu"].values, said


# Each makes the sds about 10 % too wide: 2 / (2 - h) = 1.21, and 1 + h σ² / 2 at σ² = N / B = 10,
# for which CoRVSGLD would make up
TOO_WIDE = {
    "a long Euler step": (False, lambda **o: sg.SGLD(step_size=0.35, **o)),
    "noisy gradients": (
        True,
        lambda **o: sg.SGLD(step_size=0.04, gradient="plain", batches=1, **o),
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


@pytest.mark.parametrize("batch", ["sweep", "symmetric"])
def test_noise_that_a_sweep_cancels_is_no_reason_to_warn(batch, caplog):
    """With h m = 0.4, noise_ratio is 0.04 × 9.5 / 2 = 0.19, of which a sweep leaves a seventh."""
    model, sd = three_means()
    draws, said = sampled(
        model,
        lambda **o: sg.CoRVSGLD(step_size=0.04, gradient="plain", batches=1, batch=batch, **o),
        caplog,
    )
    assert said == []
    assert draws.std(axis=(0, 1)).mean() / sd == pytest.approx(1.02, abs=0.03)


@pytest.mark.parametrize(
    "step_of",
    [
        lambda **o: sg.MirrorSGLD(step_size=1e-5, **o),
        lambda **o: sg.FLA(
            step_size=0.05, thin=20, gradient="plain", batches=1, scale={"mu": 0.01}, **o
        ),
    ],
    ids=["in the variables themselves", "heavy tails"],
)
def test_noise_is_told_where_there_is_no_temperature(step_of, caplog):
    """With σ² = 99 in units of the posterior; sds are twice the right ones."""
    data = np.random.default_rng(0).normal(size=(10_000, 1))
    model, _, sd = normal_means(data, 1.0, batch_size=100)
    draws, said = sampled(model, step_of, caplog)
    low, high = np.quantile(draws, [0.25, 0.75])
    assert (high - low) / 1.349 / sd > 1.5
    assert [bool(re.search(r"Gradient noise widens the variances", text)) for text in said] == [
        True
    ] * 2


@pytest.mark.parametrize("method", [sg.MSGNHT, sg.SGNHT])
def test_noise_that_thermostats_cannot_absorb_is_told(method, caplog):
    """With σ² = 199 in units of the posterior, u of asinh(4.18) and h = 0.2: a variance of 1.62."""
    data = np.random.default_rng(0).normal(size=(20_000, 3))
    model, _, sd = normal_means(data, 1.0, batch_size=100)
    by_hand = {"step_size": 0.2, "thin": 20, "scale": {"mu": sd}, "gradient": "plain", "batches": 1}
    draws, said = sampled(model, lambda **o: method(**by_hand, thermostat_mass=100.0, **o), caplog)
    assert draws.std(axis=(0, 1)).mean() / sd == pytest.approx(1.62**0.5, abs=0.05)
    assert len(said) == 2
    for text in said:
        assert re.search(r"(temperature is 1\.[4-9]|widens the variances by about 6\d%)", text)
