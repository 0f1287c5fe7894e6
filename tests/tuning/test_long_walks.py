"""Walks too long or too many for a matrix: their draws against the exact law."""

import numpy as np
import pymc as pm
import pytest

import pymc_sgmcmc as sg

LENGTH, SD, START = 700, 0.03, 2.0


@pytest.mark.slow
def test_a_smooth_walk_with_a_gap_is_sampled_right():
    """Neighbours move together: each alone is known 20 times better than its mean of hundreds."""
    rng = np.random.default_rng(1)
    step = rng.integers(0, LENGTH, 6000)
    step = step[(step < 300) | (step >= 420)]
    y = np.cumsum(SD * rng.normal(size=LENGTH))[step] + rng.normal(size=len(step))
    with pm.Model():
        t, seen = pm.Minibatch(step, y, batch_size=500)
        start = pm.Normal.dist(0, START)
        w = pm.GaussianRandomWalk("w", 0, SD, init_dist=start, shape=LENGTH)
        pm.Normal("y", w[t], 1, observed=seen, total_size=len(y))
        drawn = pm.sample(
            step=sg.CoRVSGLD(), chains=2, cores=1, random_seed=1, progressbar=False
        ).posterior["w"]
    innovation = np.diff(np.eye(LENGTH), axis=0) / SD
    precision = innovation.T @ innovation + np.diag(np.bincount(step, minlength=LENGTH))
    precision[0, 0] += START**-2
    covariance = np.linalg.inv(precision)
    sd = np.sqrt(np.diag(covariance))
    found = drawn.mean(("chain", "draw")).values
    error = (found - covariance @ np.bincount(step, y, LENGTH)) / sd
    ratio = drawn.std(("chain", "draw")).values / sd
    # About a thousand draws are effective: the worst of 700 values is off by 3.5 / 1000 ** 0.5
    assert np.abs(error).max() < 0.15
    assert np.abs(ratio - 1).max() < 0.12


WALKS, TIMES = 60, 10


@pytest.mark.slow
def test_a_panel_of_short_walks_is_sampled_right():
    """Written with one weight for each walk, its scale was off by four sds."""
    rng = np.random.default_rng(2)
    person, time = rng.integers(0, WALKS, 6000), rng.integers(0, TIMES, 6000)
    walks = np.cumsum(0.3 * rng.normal(size=(WALKS, TIMES)), axis=1)
    y = walks[person, time] + rng.normal(size=len(person))
    with pm.Model():
        i, t, seen = pm.Minibatch(person, time, y, batch_size=500)
        s = pm.HalfNormal("s", 1)
        start = pm.Normal.dist(0, START)
        w = pm.GaussianRandomWalk("w", 0, s, init_dist=start, shape=(WALKS, TIMES))
        pm.Normal("y", w[i, t], 1, observed=seen, total_size=len(y))
        drawn = pm.sample(
            step=sg.CoRVSGLD(), chains=2, cores=1, random_seed=1, progressbar=False
        ).posterior
    # The law of s on a grid, and given it those of the walks
    cell = person * TIMES + time
    count = np.bincount(cell, minlength=WALKS * TIMES).reshape(WALKS, TIMES)
    total = np.bincount(cell, y, WALKS * TIMES).reshape(WALKS, TIMES)
    steps, grid = np.diff(np.eye(TIMES), axis=0), np.linspace(0.2, 0.4, 101)
    logs, means, squares = [], [], []
    for sd in grid:
        precision = steps.T @ steps / sd**2 + count[:, None] * np.eye(TIMES)
        precision[:, 0, 0] += START**-2
        covariance = np.linalg.inv(precision)
        mean = np.einsum("wij,wj->wi", covariance, total)
        log = np.sum(total * mean) / 2 - np.linalg.slogdet(precision)[1].sum() / 2
        logs.append(log - WALKS * (TIMES - 1) * np.log(sd) - sd**2 / 2)
        means.append(mean)
        squares.append(np.einsum("wii->wi", covariance) + mean**2)
    weight = np.exp(np.array(logs) - max(logs))
    weight /= weight.sum()
    expected = np.tensordot(weight, means, 1)
    sd = np.sqrt(np.tensordot(weight, squares, 1) - expected**2)
    of_s, sd_of_s = weight @ grid, np.sqrt(weight @ grid**2 - (weight @ grid) ** 2)
    # About a thousand draws are effective: the worst of 600 values is off by 3.5 / 1000 ** 0.5
    found = drawn["w"].mean(("chain", "draw")).values
    assert np.abs((found - expected) / sd).max() < 0.15
    assert np.abs(drawn["w"].std(("chain", "draw")).values / sd - 1).max() < 0.12
    assert abs(float(drawn["s"].mean()) - of_s) < 0.15 * sd_of_s
    assert abs(float(drawn["s"].std()) / sd_of_s - 1) < 0.12
