"""The first draws beside step methods that are as far from the posterior."""

import numpy as np
import pymc as pm
import pytest

from pymc.distributions.transforms import ordered

import pymc_sgmcmc as sg

from pymc_sgmcmc.chain.state import ChainState
from pymc_sgmcmc.tuning.approach import descends
from pymc_sgmcmc.tuning.density import Density

CENTRES = np.array([-4.0, 0.0, 4.0])


def two_blocks():
    """A mixture of three normals and its two steps, all at a start between the centres."""
    rng = np.random.default_rng(3)
    y = rng.normal(CENTRES[rng.choice(3, 4000, p=[0.2, 0.3, 0.5])], 1)
    with pm.Model() as model:
        w = pm.Dirichlet("w", np.ones(3))
        mu = pm.Normal("mu", 0, 5, shape=3, transform=ordered, initval=CENTRES / 2)
        s = pm.HalfNormal("s", 2, shape=3)
        rows = pm.Minibatch(y, batch_size=200)
        pm.NormalMixture("y", w, mu, s, observed=rows, total_size=len(y))
        steps = [sg.SMLD([w], backend="jax"), sg.CoRVSGLD([mu, s], backend="jax")]
    return model, steps


def sampled(model, steps, **options):
    return pm.sample(
        step=steps, model=model, progressbar=False, compute_convergence_checks=False, cores=1,
        discard_tuned_samples=False, **options,
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_all_steps_together_descend_to_the_posterior(seed):
    found = sampled(*two_blocks(), draws=1, tune=60, chains=1, random_seed=seed)
    draws = found.warmup_posterior
    # Before anything was tuned, to within three sds of a posterior of 800 to 2,000 rows
    assert np.abs(draws["mu"].values[0, 19] - CENTRES).max() < 0.3
    assert np.abs(draws["w"].values[0, 19] - [0.2, 0.3, 0.5]).max() < 0.06
    norm = found.warmup_sample_stats["grad_norm"].values
    assert np.isnan(norm[0, :20]).all() and np.isfinite(norm[0, 20:]).all()


def two_normals():
    with pm.Model() as model:
        a, b = pm.Normal("a", 0, 100), pm.Normal("b", 0, 100)
        pm.Normal("y", a + 0.5 * b, 0.01, observed=[200.0])
        pm.Normal("x", b, 0.01, observed=[-200.0])
        steps = [sg.CoRVSGLD([x], backend="jax") for x in (a, b)]
    return model, steps


def test_chains_start_apart():
    found = sampled(*two_normals(), draws=2, tune=8, chains=2, random_seed=1).warmup_posterior
    assert found["a"].values[0, 0] != found["a"].values[1, 0]


def test_a_start_is_moved_once(monkeypatch):
    """Later, as where tuning begins, the step goes on from where the others followed it to."""
    moved = []

    def jittered_start(density, phi):
        moved.append(density)
        return jittered(density, phi)

    jittered = Density.jittered_start
    monkeypatch.setattr(Density, "jittered_start", jittered_start)
    model, steps = two_normals()
    sampled(model, steps, draws=1, tune=8, chains=1, random_seed=1)
    # Once where each descent begins, and in each first tuning, by nothing
    assert len(moved) == 4
    assert [step.chain.jitter for step in steps] == [0, 0]


@pytest.mark.parametrize(
    ("dtype", "dimension", "draws", "expected"),
    [
        ("float64", 8, 100, 20),
        # A third of the tuning draws
        ("float64", 8, 24, 8),
        ("int64", 8, 100, 0),
        # A fit of normals finds the bulk of more, and Newton steps would cost as much
        ("float64", 129, 100, 0),
        # Too few to be tuned again
        ("float64", 8, 5, 0),
    ],
)
def test_how_long(dtype, dimension, draws, expected):
    with pm.Model() as model:
        pm.Normal("z", 0, 1) if dtype == "float64" else pm.Poisson("z", 2)
    state = ChainState.new(np.random.default_rng(0), draws, 10)
    count = 0
    while descends(model.value_vars, state, dimension):
        count += 1
        state.draw += 1
    assert count == expected
