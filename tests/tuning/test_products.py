"""Fits and chains of products of factors, along whose ridges there is no mean."""

from types import SimpleNamespace

import numpy as np
import pymc as pm
import pytest

import pymc_sgmcmc as sg

from pymc_sgmcmc.tuning import rounds
from pymc_sgmcmc.tuning.plan import Fit
from pymc_sgmcmc.tuning.rounds import Rounds


class Bowl:
    """U is half the squared distance from zero."""

    def full(self, points):
        return (points**2).sum(axis=1) / 2, points


def test_a_chain_below_the_centre_of_its_fit_is_fitted_again(monkeypatch):
    rng, d = np.random.default_rng(0), 200
    centre, sd = np.full(d, 0.05), np.ones(d)
    drawn = rng.standard_normal((100, d))
    monkeypatch.setattr(rounds, "find_bulk", lambda *_: (centre, sd, False))
    monkeypatch.setattr(rounds, "refuse_stiff", lambda *_: None)
    job = SimpleNamespace(
        state=SimpleNamespace(settings=None), again=False, density=None, rng=rng, report=str
    )

    def refitted(x, centre):
        return Rounds(job, Bowl(), Fit(centre, sd), None)._refitted_below(x) is not None

    assert not any(refitted(x, centre) for x in drawn)
    # A fit that has stopped far away
    assert all(refitted(x, centre + 2) for x in drawn)


def three_way():
    """8,000 rows whose means are products of three factors of rank 2, noise of sd 0.5."""
    rng, sizes = np.random.default_rng(5), (60, 50, 8)
    factors = [rng.normal(0, 0.9, (n, 2)) for n in sizes]
    at = [rng.integers(0, n, 8_000).astype("int32") for n in sizes]
    mean = np.prod([f[k] for f, k in zip(factors, at, strict=True)], axis=0).sum(axis=1)
    y = mean + 0.5 * rng.normal(size=8_000)
    with pm.Model() as model:
        i, j, k, seen = pm.Minibatch(*at, y, batch_size=250)
        scale, noise = pm.HalfNormal("scale", 1, shape=2), pm.HalfNormal("noise", 1)
        U, V = (pm.Normal(n, 0, scale[r], shape=(sizes[r], 2)) for r, n in enumerate("UV"))
        W = pm.Normal("W", 0, 1, shape=(8, 2))
        pm.Normal("y", (U[i] * V[j] * W[k]).sum(-1), noise, observed=seen, total_size=8_000)
    return model


@pytest.mark.slow
def test_a_fit_that_stops_on_its_way_is_begun_again_from_where_the_chain_goes():
    # With this seed the fit leaves half of the variance in the noise
    with three_way():
        posterior = pm.sample(
            200, step=sg.CoRVSGLD(), chains=1, cores=1, random_seed=2, progressbar=False
        ).posterior
    # Near 0.5, known to within 0.5 / √(2 · 8,000)
    noise = posterior["noise"].values
    assert abs(noise.mean() - 0.5) < 0.016
    assert 0.003 < noise.std() < 0.006
    # One that is stuck predicts the same all the time
    assert posterior["W"].std("draw").min() > 0.001
