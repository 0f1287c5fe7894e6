"""Correlated effects with one learned scale."""

import numpy as np
import pymc as pm
import pytest

import pymc_sgmcmc as sg

from helpers.grids import moments, weights
from helpers.sampling import run
from helpers.z_scores import assert_right

ROWS, NOISE = 400, 0.3


def columns():
    """Changes of a trend's slope, and of its level that keep it connected."""
    t, at = np.linspace(0, 1, ROWS), np.linspace(0, 0.8, 8)
    after = (t[:, None] > at).astype(float)
    return t, after, after * at


def rows():
    t, after, levels = columns()
    rng = np.random.default_rng(3)
    bends = rng.normal(0, 1, 8)
    return (0.5 + after @ bends) * t - levels @ bends + rng.normal(0, NOISE, ROWS)


def trend(written):
    t, after, levels = columns()
    with pm.Model() as model:
        slope, scale = pm.Normal("slope", 0, 1), pm.HalfNormal("scale", 1)
        if written == "centred":
            bends = pm.Normal("bends", 0, scale, shape=8)
        else:
            bends = pm.Deterministic("bends", scale * pm.Normal("z", 0, 1, shape=8))
        mean = (slope + after @ bends) * t - levels @ bends
        pm.Normal("y", mean, NOISE, observed=rows())
    return model


def exact():
    """Return means and sds: Gaussian given the scale, which has a grid."""
    t, after, levels = columns()
    X, y = np.column_stack([t, after * t[:, None] - levels]), rows()
    grid = np.exp(np.linspace(-6, 2, 400))
    log_weights, means, variances = [], [], []
    for s in grid:
        prior = np.r_[1.0, np.full(8, s**-2)]
        precision = X.T @ X / NOISE**2 + np.diag(prior)
        mean = np.linalg.solve(precision, X.T @ y / NOISE**2)
        # With the measure of a logarithmic grid
        log_weights.append(
            (np.linalg.slogdet(np.diag(prior))[1] - np.linalg.slogdet(precision)[1]) / 2
            + mean @ precision @ mean / 2 - s**2 / 2 + np.log(s)
        )  # fmt: skip
        means.append(mean)
        variances.append(np.diag(np.linalg.inv(precision)))
    w = weights(log_weights)
    mean, sd = moments(w, means, variances)
    return {"slope": (mean[0], sd[0]), "bends": (mean[1:], sd[1:]), "scale": moments(w, grid)}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "written"), [(sg.CoRVSGLD, "centred"), (sg.MSGNHT, "non-centred")]
)
def test_a_trend_is_right(method, written):
    pytest.importorskip("jax")
    with trend(written):
        found = run(method(backend="jax"))
    assert_right(found.posterior, exact())
    assert found.sample_stats["thin"].values.max() <= 40


@pytest.mark.slow
def test_a_trend_is_right_in_numba():
    with trend("centred"):
        found = run(sg.CoRVSGLD(backend="numba"))
    assert_right(found.posterior, exact())
