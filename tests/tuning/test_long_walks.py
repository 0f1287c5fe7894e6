"""A walk too long for a matrix: its draws against the exact law."""

import numpy as np
import pymc as pm
import pytest

import pymc_sgmcmc as sg

from helpers.sampling import run

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
        drawn = run(sg.CoRVSGLD()).posterior["w"]
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
