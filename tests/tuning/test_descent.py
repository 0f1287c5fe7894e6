"""The way down from random weights."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pymc as pm
import pytest

import pymc_sgmcmc as sg

from helpers.surfaces import Exact, Gaussian
from pymc_sgmcmc.tuning.descent import descended, held_of
from pymc_sgmcmc.tuning.wander import heed

DATA = Path(__file__).parents[1] / "data"
NONE_HELD = np.array(False)
OPTIONS = {"cores": 1, "random_seed": 1, "progressbar": False}


def test_the_descent_ends_lower_whatever_the_units_of_the_potential():
    rng = np.random.default_rng(0)
    for unit in (1e-6, 1.0, 1e6):
        surface = Gaussian(np.full(5, 0.2), unit * np.diag([1.0, 3, 10, 30, 100]))
        jitter = rng.uniform(-1, 1, 5)
        end = descended(surface, np.zeros(5), np.ones(5), jitter, NONE_HELD, rng)
        before, after = (surface.full(x[None])[0][0] for x in (0.3 * jitter, end))
        assert after < 0.5 * before


def test_the_descent_moves_weights_in_units_of_their_priors():
    rng, jitter = np.random.default_rng(0), np.array([1.0, -1.0])
    width = np.array([1e-3, 1e3])
    surface = Gaussian(np.zeros(2), np.diag(width**-2.0))
    end = descended(surface, np.zeros(2), width, jitter, NONE_HELD, rng) / width
    assert end == pytest.approx(np.abs(end[0]) * jitter)
    assert 0 < abs(end[0]) < 0.3


def test_what_shapes_the_priors_of_others_stays_where_it_begins():
    with pm.Model() as model:
        scale = pm.HalfNormal("scale", 1)
        effects = pm.Normal("effects", 0, scale, shape=3)
        rest = pm.Normal("rest", 0, 1, shape=2)
        pm.Normal("y", effects.sum() + rest.sum(), scale, observed=0.0)
    blocks = [np.zeros(rv.type.shape) for rv in model.free_RVs]
    held = held_of([SimpleNamespace(rv=rv) for rv in model.free_RVs], blocks)
    np.testing.assert_array_equal(held, [True, False, False, False, False, False])
    surface, jitter = Gaussian(np.zeros(6), np.eye(6)), np.ones(6)
    end = descended(surface, np.zeros(6), np.ones(6), jitter, held, np.random.default_rng(0))
    assert end[0] == pytest.approx(0.3)
    assert np.all(end[1:] < 0.2)


def test_the_descent_begins_nearer_where_priors_reach_too_far():
    class Overflowing(Exact):
        def potential(self, points):
            u = np.where(np.abs(points).max(axis=1) < 2, 0.0, np.inf)
            return u, np.where(np.abs(points) < 2, points, np.nan)

    jitter = np.array([0.5, -0.5, 1.0])
    widths, rng = np.full(3, 1e30), np.random.default_rng(0)
    end = descended(Overflowing(3), np.zeros(3), widths, jitter, NONE_HELD, rng)
    assert np.all(np.abs(end) < 2)


@pytest.mark.parametrize("minibatches", [[], ["one"]])
def test_a_burn_in_with_large_gradients_lowers_the_step_size(minibatches):
    settings = SimpleNamespace(step_size=0.1, largest_gradient=8.0)
    runner = SimpleNamespace(
        settings=settings,
        engine=SimpleNamespace(posterior=SimpleNamespace(minibatches=minibatches)),
    )
    heed(runner, 0.04)
    assert (settings.step_size, settings.largest_gradient) == (0.1, 8)
    heed(runner, 0.06)
    assert settings.step_size == pytest.approx(0.095)
    # A larger bound lets noise of batches through; without any it would let heat in
    assert settings.largest_gradient == pytest.approx(8.8 if minibatches else 8)


@pytest.mark.slow
def test_no_chain_of_a_net_with_a_learned_sd_is_stuck():
    with np.load(DATA / "uci" / "bikesharing.npz") as file:
        X, y = (file[name].astype(float) for name in "Xy")
    X, y = (X - X.mean(axis=0)) / X.std(axis=0), (y - y.mean()) / y.std()
    order = np.random.default_rng(0).permutation(len(y))
    X, y, unseen = X[order[:12_000]], y[order[:12_000]], (X[order[12_000:]], y[order[12_000:]])
    sizes = X.shape[1], 16, 16, 2

    def outputs(weights, x, maximum):
        for k in range(3):
            x = x @ weights[f"W{k}"] + weights[f"b{k}"]
            x = maximum(x, 0) if k < 2 else x
        return x[:, 0], x[:, 1]

    with pm.Model():
        xb, yb = pm.Minibatch(X, y, batch_size=500)
        weights = {f"W{k}": pm.Normal(f"W{k}", shape=sizes[k : k + 2]) for k in range(3)}
        weights |= {f"b{k}": pm.Normal(f"b{k}", shape=sizes[k + 1]) for k in range(3)}
        mean, log_sd = outputs(weights, xb, pm.math.maximum)
        pm.Normal("y", mean, pm.math.exp(log_sd), observed=yb, total_size=len(y))
        result = pm.sample(draws=100, step=sg.MSGNHT(), chains=3, **OPTIONS)
    for chain in result.posterior.chain.values:
        draws = result.posterior.sel(chain=chain)
        each = []
        for k in draws.draw.values:
            mean, log_sd = outputs({n: draws[n].values[k] for n in weights}, unseen[0], np.maximum)
            z = (unseen[1] - mean) * np.exp(-log_sd)
            each.append(-(z**2) / 2 - log_sd - np.log(2 * np.pi) / 2)
        # Chains that had begun at random weights and were stuck had -1.3 to 0.2
        assert np.mean(np.logaddexp.reduce(each, axis=0) - np.log(len(each))) > 0.3
