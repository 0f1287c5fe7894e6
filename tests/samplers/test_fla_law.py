"""FLA with default arguments: its exact law, its taming, potentials steeper than a parabola."""

import numpy as np
import pymc as pm
import pytest

from scipy import stats

import pymc_sgmcmc as sg

from helpers.laws import stable_scale
from helpers.sampling import run
from helpers.steps import start
from pymc_sgmcmc.testing import UNTUNED

STANDARD_ERRORS = 3.0


def sampled(model, *, draws, chains=2, seed=3, **options):
    return run(sg.FLA(model=model, backend="jax", **options), draws, chains, seed)


def normal(dimension):
    with pm.Model() as model:
        pm.Normal("x", shape=dimension)
    return model


def relative_ranges(dt, alpha, share):
    """Ranges of the draws over the exact law's: mean over coordinates, and error."""
    h = float(dt.sample_stats["step_size"].values[0, -1])
    assert np.all(dt.sample_stats["step_size"].values == h)
    exact = 2 * stable_scale(alpha, h) * stats.levy_stable(alpha, 0).ppf((1 + share) / 2)
    x = dt.posterior["x"].values
    # The centre is known: quantiles of |x| vary less than ranges of x
    x = np.abs(x).reshape(x.shape[0] * 10, -1, x.shape[-1]) / (exact / 2)
    parts = np.quantile(x, share, axis=1).mean(axis=1)
    # Of few draws a quantile is off by their inverse number: of all at once
    mean = np.quantile(x, share, axis=(0, 1)).mean()
    return mean, parts.std(ddof=1) / np.sqrt(len(parts))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("alpha", "dimension", "draws"),
    [(1.8, 1, 50_000), (1.5, 10, 8000), (1.8, 100, 2000), (1.5, 1000, 500)],
)
def test_default_run_has_the_exact_stable_law(alpha, dimension, draws):
    dt = sampled(normal(dimension), draws=draws, alpha=alpha)
    for share in (0.5, 0.9):
        mean, error = relative_ranges(dt, alpha, share)
        assert STANDARD_ERRORS * error < 0.03
        assert abs(mean - 1) < 0.03


@pytest.mark.parametrize(("dimension", "draws"), [(100, 600)])
def test_one_jump_does_not_slow_the_other_coordinates(dimension, draws):
    options = {**UNTUNED, "thin": 40, "scale": {"x": 1.0}}
    dt = sampled(normal(dimension), draws=draws, alpha=1.5, step_size=0.05, **options)
    for share in (0.5, 0.9):
        mean, error = relative_ranges(dt, 1.5, share)
        assert abs(mean - 1) < STANDARD_ERRORS * error
        assert error < 0.02


def test_only_jumps_are_tamed_on_a_normal_posterior():
    options = {"alpha": 1.5, "step_size": 0.05, **UNTUNED, "scale": {"x": 1.0}}
    model = normal(100)
    tamed = sampled(model, draws=200, largest_jump=None, **options)
    free = sampled(model, draws=200, largest_jump=None, largest_drift=None, **options)
    # Two compiled functions: up to rounding
    np.testing.assert_allclose(tamed.posterior["x"], free.posterior["x"], rtol=1e-9, atol=1e-9)
    assert tamed.sample_stats["tamed_updates"].sum() == 0


STEEP = {
    "quartic": lambda x: x**4 / 4,
    "double well": lambda x: (x + 5) * (x + 1) * (x - 1.02) * (x - 5) / 10 + 0.5,
}


@pytest.mark.slow
@pytest.mark.parametrize(("name", "alpha"), [("quartic", 1.5), ("double well", 1.8)])
def test_no_chain_diverges_on_a_steep_potential(name, alpha):
    with pm.Model() as model:
        x = pm.Flat("x", shape=5, initval=np.zeros(5))
        pm.Potential("steep", -STEEP[name](x).sum())
    dt = sampled(model, draws=2000, chains=4, alpha=alpha)
    assert not dt.sample_stats["diverging"].any()
    assert dt.sample_stats["tamed_updates"].sum() > 0
    # No chain is stuck far out
    assert np.abs(np.median(dt.posterior["x"].values, axis=1)).max() < 6


def test_the_way_back_leads_to_the_tuned_centre_without_whitening():
    with pm.Model() as model:
        pm.Normal("x", 1e4, shape=2)
        step = sg.FLA(backend="jax", scale=None, alpha=1.8)
    step.setup_chain(np.random.default_rng(0), 5, 10)
    point = model.initial_point()
    for _ in range(7):
        point, _ = step.step(point)
    assert np.abs(step.chain.origin[0] - 1e4).max() < 1


def test_clamped_gradients_are_counted():
    with pm.Model():
        pm.Normal("x", shape=3)
        step = sg.CoRVSGLD(backend="jax", step_size=0.1, thin=20)
    _, [stats_of_draw] = step.step(start(step, 0, 10))
    assert stats_of_draw["tamed_updates"] == 0
    far = {"x": np.full(3, 30.0)}
    _, [stats_of_draw] = step.step(far)
    assert 0 < stats_of_draw["tamed_updates"] < 20
