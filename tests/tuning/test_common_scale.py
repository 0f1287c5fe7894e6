"""Thousands of effects of two rows each, whose errors have one learned sd.

An update pulls the effects in its batch towards their centre, so that the next batches differ in
what they say of the sd far more than those of independent draws.
"""

import numpy as np
import pymc as pm
import pytest

import pymc_sgmcmc as sg

from helpers.sampling import run
from helpers.z_scores import STANDARD_ERRORS
from pymc_sgmcmc.tuning.job import LARGEST_GRADIENT

SD_OF_EFFECTS = 3.0


def twins(groups):
    rng = np.random.default_rng(0)
    y = rng.normal(rng.normal(0, SD_OF_EFFECTS, (groups, 1)), 1.0, (groups, 2))
    group = np.repeat(np.arange(groups), 2)
    with pm.Model() as model:
        sigma = pm.HalfNormal("sigma", 10)
        theta = pm.Normal("theta", 0, SD_OF_EFFECTS, shape=groups)
        pm.Normal("y", theta[group], sigma, observed=y.ravel())
    return model, y


def excess_variance(posterior, y):
    """Return the mean relative error of the effects' variances given each draw's sd, and its SE."""
    sigma, theta = posterior["sigma"].values[0][:, None], posterior["theta"].values[0]
    precision = SD_OF_EFFECTS**-2 + 2 / sigma**2
    z = (theta - y.sum(axis=1) / sigma**2 / precision) * np.sqrt(precision)
    return np.mean(z**2) - 1, np.sqrt(2 / z.size)


def test_the_bound_on_gradients_knows_the_noise_along_the_chain():
    model, _ = twins(2000)
    step = sg.CoRVSGLD(model=model, batch_size=200, batches=6, backend="jax")
    result = run(step, draws=200, chains=1)
    settings = step.chain.settings
    variance = max(x.max() for x in settings.variance)
    # An element may be informed by one of 20 batches, of which an update averages K
    largest = LARGEST_GRADIENT * np.sqrt(1 + 20 / 6 * variance)
    assert settings.largest_gradient == pytest.approx(largest)
    assert result.sample_stats["tamed_updates"].sum() == 0


@pytest.mark.slow
def test_a_chain_takes_the_batches_that_the_noise_along_it_needs():
    model, y = twins(2000)
    step = sg.MSGNHT(model=model, batch_size=100, backend="jax")
    result = run(step, draws=2000, chains=1)
    # Independent draws ask for 8, which widen the effects by 0.5 %
    assert result.sample_stats["batches"].min() > 8
    excess, error = excess_variance(result.posterior, y)
    # Without noise SSI's error of a variance at h = 0.1 is 0.0013
    assert abs(excess) < 0.002 + STANDARD_ERRORS * error


@pytest.mark.slow
def test_a_learned_sd_of_twenty_thousand_effects():
    model, y = twins(20_000)
    step = sg.CoRVSGLD(model=model, batches=6, backend="jax")
    result = run(step, draws=500, chains=1)
    assert result.sample_stats["tamed_updates"].sum() == 0
    # With gradients scaled down for the noise along sigma the effects were 1.5 % too wide
    excess, error = excess_variance(result.posterior, y)
    assert abs(excess) < 0.004 + STANDARD_ERRORS * error
