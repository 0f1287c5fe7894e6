"""Models whose draws would cost much: right within the bounds of cost, or a warning says so."""

import logging
import re

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_sgmcmc as sg

from helpers.sampling import run
from pymc_sgmcmc.tuning import cost_bounds
from pymc_sgmcmc.tuning.cost_bounds import CostBounds
from pymc_sgmcmc.tuning.trial_chain import TrialChain

# Of each medium: what is kept in a week, what half saturates, and what all of it gains
MEDIA = {"kept": [0.2, 0.5, 0.8], "half": [1.0, 2.0, 4.0], "gain": [1.0, 0.5, 2.0]}

# How many times smaller than users' these models are, and the bounds with them
SMALLER = 8


def sticks():
    """A mixture in the plane of more components than there are clusters, their weights sticks."""
    rng, count, rows, each = np.random.default_rng(1), 8, 400, 40
    y = rng.normal(0, 3, (5, 2))[rng.integers(0, 5, rows)] + rng.normal(size=(rows, 2)) / 2
    with pm.Model() as model:
        sticks = pm.Beta("sticks", 1, pm.Gamma("concentration", 2, 1), shape=count - 1)
        left = pt.concatenate([[1.0], pt.cumprod(1 - sticks)])
        mu, sd = pm.Normal("mu", 0, 3, shape=(count, 2)), pm.HalfNormal("sd", 1, shape=count)
        of = pm.MvNormal.dist(mu, chol=sd[:, None, None] * np.eye(2))
        seen = pm.Minibatch(y, batch_size=each)
        weight = pt.concatenate([sticks, [1.0]]) * left
        pm.Mixture("y", weight, of, observed=seen, total_size=rows)
    return model


def media_mix():
    """Sales of regions by week, on spending that carries over and saturates."""
    rng, regions, weeks, media, lags = np.random.default_rng(2), 8, 52, 3, 6
    spent = rng.gamma(1, 1, (lags - 1 + weeks, regions, media))
    lagged = np.stack([spent[lags - 1 - k :][:weeks] for k in range(lags)], axis=-1)

    def saturated(kept, half, np=np):
        carried = (lagged * kept[:, None] ** np.arange(lags)).sum(axis=-1)
        return np.tanh(carried / half)

    effect = saturated(*map(np.array, (MEDIA["kept"], MEDIA["half"]))) @ MEDIA["gain"]
    sales = rng.normal(5, 1, regions) + effect + rng.normal(0, 0.3, effect.shape)
    with pm.Model() as model:
        kept, half = pm.Beta("kept", 2, 2, shape=media), pm.LogNormal("half", 0, 1, shape=media)
        gain = pm.HalfNormal("gain", 2, shape=media)
        base = pm.Normal("base", pm.Normal("mean", 0, 5), pm.HalfNormal("spread", 2), shape=regions)
        noise = pm.HalfNormal("noise", 1)
        pm.Normal("sales", base + saturated(kept, half, pt) @ gain, noise, observed=sales)
    return model


def convolution():
    """A net of 184 weights: eight filters of 3 by 3 on images of 4 by 4, and two classes."""
    rng, rows, filters = np.random.default_rng(3), 300, 8
    images = rng.normal(size=(rows, 4, 4))
    windows = np.lib.stride_tricks.sliding_window_view(images, (3, 3), axis=(1, 2))
    patches = windows.reshape(rows, 4, 9)
    label = np.tanh(patches @ rng.normal(size=9)).sum(axis=1) > 0
    with pm.Model() as model:
        W, b = pm.Normal("W", 0, 0.5, shape=(9, filters)), pm.Normal("b", shape=filters)
        V, c = pm.Normal("V", 0, 0.5, shape=(4 * filters, 3)), pm.Normal("c", shape=3)
        u = pm.Normal("u", shape=3)
        hidden = pm.math.tanh(pt.constant(patches) @ W + b).reshape((rows, -1))
        logit = pm.Deterministic("logit", pm.math.tanh(hidden @ V + c) @ u)
        pm.Bernoulli("label", logit_p=logit, observed=label)
    return model, label


@pytest.fixture
def counted(monkeypatch):
    """Bounds as much smaller as the models, those that a chain had, and the updates of its runs."""
    bounds, updates, run = [], [], TrialChain.run
    for name in ("_DRAW", "_TRIAL"):
        monkeypatch.setattr(cost_bounds, name, getattr(cost_bounds, name) // SMALLER)

    def bounded(*args):
        bounds.append(CostBounds(*args))
        return bounds[-1]

    def counting(self, step_size, thin, draws):
        updates.append(draws * thin)
        return run(self, step_size, thin, draws)

    monkeypatch.setattr("pymc_sgmcmc.tuning.job.CostBounds", bounded)
    monkeypatch.setattr(TrialChain, "run", counting)
    return bounds, updates


def sampled(model, counted):
    """Return the draws of a chain whose updates, times the numbers that each computes, are few."""
    bounds, updates = counted
    with model:
        result = run(sg.CoRVSGLD(), 50, 1, tune=10)
    thin, batches = (result.sample_stats[name].values[0, -1] for name in ("thin", "batches"))
    surface = bounds[-1].surface
    each = batches * surface.numbers
    assert thin <= 160 if bounds[-1].plan.regime.diagonal else thin * each <= 2**27 / SMALLER
    # All trials, and a burn-in at each of up to four centres
    assert sum(updates) * each <= (2**35 + 4 * 2**33) / SMALLER
    return result.posterior


@pytest.mark.slow
def test_too_many_components_are_told_within_the_bounds(counted, caplog):
    with caplog.at_level(logging.WARNING):
        sampled(sticks(), counted)
    # Whether the draws cost too much or are of too few modes depends on where the chain begins
    assert re.search(r"(would need|far from the Gaussian).*NUTS", caplog.text)


@pytest.mark.slow
def test_spending_that_carries_over_and_saturates_is_right(counted):
    draws = sampled(media_mix(), counted)
    for name, truth in MEDIA.items():
        found = draws[name].values[0]
        assert np.all(np.abs(found.mean(axis=0) - truth) < 4 * found.std(axis=0)), name
        assert np.all(found.std(axis=0) < 0.5 * np.array(truth)), name


@pytest.mark.slow
def test_a_convolutional_net_predicts(counted):
    model, label = convolution()
    predicted = sampled(model, counted)["logit"].values[0].mean(axis=0) > 0
    assert np.mean(predicted == label) > 0.9
