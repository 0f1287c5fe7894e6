"""Step sizes that move: which draws are recorded, and that they are right with their weights."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_sgmcmc as sg

from helpers.sampling import QUIET, run
from helpers.steps import sharing
from helpers.z_scores import STANDARD_ERRORS, z_score
from pymc_sgmcmc.model.initial_point import initial_point
from pymc_sgmcmc.schedules import records, thin_of
from pymc_sgmcmc.testing import UNTUNED


def weighted(result, of):
    """Mean over the weighted draws, of each replicate: shape (replicates,)."""
    weight = result.sample_stats["weight"].values[..., None]
    values = of(result.posterior["x"].values)
    return (weight * values).sum(axis=(0, 1)) / weight.sum()


@pytest.mark.parametrize(
    ("period", "exploration", "thin"),
    [(80, 0.8, None), (80, 0.8, 8), (100, 0.8, 20), (97, 0.5, None), (10, 0.0, 10)],
)
def test_every_cycle_records_as_many_draws(period, exploration, thin):
    schedule = sg.cyclical(0.3, period, exploration)
    thin = thin_of(schedule, thin)
    starts = [t for t in range(0, 20 * period, thin) if records(schedule, t, thin)]
    for t in starts:
        assert t % period >= exploration * period
        assert t % period + thin <= period
    counts = np.bincount([t // period for t in starts], minlength=20)
    assert (counts == schedule.recording // thin).all()


# With the second, one draw in 2,001 would be recorded
@pytest.mark.parametrize(("period", "thin", "cure"), [(80, 20, 16), (2001, 400, 87), (80, 7, 16)])
def test_cycles_without_a_draw_are_refused(period, thin, cure):
    with pm.Model():
        pm.Normal("x")
        with pytest.raises(ValueError, match=f"thin={thin} must divide .* Take thin={cure}, or"):
            sg.CoRVSGLD(step_size=sg.cyclical(h0=0.3, period=period), thin=thin)


def test_a_method_that_nothing_tunes_takes_draws_that_fit_its_cycles():
    with pm.Model():
        pm.HalfNormal("s")
        assert sg.SGRLD(step_size=sg.cyclical(0.01, 50)).options.thin == 10
        assert sg.SGRLD(step_size=0.01).options.thin == 20


def test_a_polynomial_of_integers_is_that_of_floats():
    t = np.arange(5)
    found, expected = sg.polynomial(a=1, b=100, gamma=1), sg.polynomial(a=1.0, b=100.0, gamma=1.0)
    np.testing.assert_allclose(found(t), expected(t), rtol=1e-14)


def test_a_cycle_without_an_update_to_record_is_refused():
    with pytest.raises(ValueError, match="leaves no update"):
        sg.cyclical(0.3, period=4, exploration=0.9)


@pytest.mark.parametrize("method", [sg.CoRVSGLD, pytest.param(sg.MSGNHT, marks=pytest.mark.slow)])
def test_cyclical_is_right_on_a_gaussian(method):
    with pm.Model():
        pm.Normal("x", 3.0, 2.0, shape=200)
        step = method(step_size=sg.cyclical(h0=0.3, period=80), backend="jax")
        result = run(step, 300, tune=20)
    assert np.all(result.sample_stats["thin"] == 16)
    # The splitting's error is 0.2 h² of the variance, and h at most 0.3
    replicates = weighted(result, lambda x: (x - 3) / 2)
    assert abs(z_score(replicates, 0.0)) < STANDARD_ERRORS
    squares = weighted(result, lambda x: ((x - 3) / 2) ** 2)
    error = squares.std(ddof=1) / np.sqrt(len(squares))
    assert abs(squares.mean() - 1) < STANDARD_ERRORS * error + 0.2 * 0.3**2


def test_cycles_leave_a_mode():
    # Two modes at -1 and 1, all chains in one of them at first; by symmetry no step size
    # prefers one
    sd, replicates = 0.4, 400
    with pm.Model():
        x = pm.Flat("x", shape=replicates, initval=np.ones(replicates))
        left, right = (-(((x - m) / sd) ** 2) / 2 for m in (-1, 1))
        pm.Potential("two modes", pt.logaddexp(left, right).sum())
        step = sg.CoRVSGLD(
            step_size=sg.cyclical(h0=0.8, period=200), backend="jax",
            **{**UNTUNED, "thin": 20, "scale": {"x": sd}},
        )  # fmt: skip
        result = pm.sample(step=step, draws=400, tune=40, chains=1, random_seed=2, **QUIET)
    of_left = weighted(result, lambda x: x < 0)
    assert abs(z_score(of_left, 0.5)) < STANDARD_ERRORS
    # Each draw begins a little after the last one of its cycle, or in the next cycle
    side = result.posterior["x"].values[0] < 0
    assert np.all(np.any(side, axis=0) & np.any(~side, axis=0))
    assert abs(z_score(weighted(result, lambda x: x**2), 1 + sd**2)) < STANDARD_ERRORS
    steps = result.sample_stats["step_size"].values
    assert steps.max() <= 0.8 * (1 + np.cos(0.8 * np.pi)) / 2 + 1e-12


@pytest.mark.parametrize("draws", [5, 17])
def test_a_schedule_may_end_with_the_chain(draws):
    """A call makes several draws, and the last one more than are wanted."""
    with pm.Model():
        pm.Normal("x")
        step = sg.SGLD(
            step_size=lambda t: 0.1 * (1 - t / (20 * draws)), backend="jax",
            **{**UNTUNED, "thin": 20},
        )  # fmt: skip
        result = run(step, draws, chains=1, tune=0)
    last = 1 - (20 * np.arange(1, draws + 1) - 1) / (20 * draws)
    np.testing.assert_allclose(result.sample_stats["step_size"].values[0], 0.1 * last)


@pytest.mark.filterwarnings("ignore:The potential:UserWarning")
def test_updates_that_are_rejected_before_a_recorded_draw_are_counted(caplog):
    """One row in a hundred has no gradient beyond 1; batches have ten."""
    limits = np.append(1.0, np.full(99, 1e6))
    with pm.Model():
        x, limit = pm.Normal("x"), pm.Minibatch(limits, batch_size=10)
        pm.Potential("walls", 1e-3 * pt.sqrt(limit - x**2).sum())
        step = sg.SGLD(
            step_size=sg.cyclical(h0=1.0, period=100, exploration=0.95), backend="jax",
            **{**UNTUNED, "thin": 5},
        )  # fmt: skip
        result = run(step, 50, chains=1, tune=0)
    rejected = result.sample_stats["rejected_updates"].values.sum()
    # Of a third of all updates a tenth; those of recorded draws alone are some ten
    assert rejected > 50
    assert f"{rejected} updates ({rejected / 5000:.2%}) were not finite" in caplog.text


def test_chains_with_a_schedule_start_apart():
    with pm.Model() as model:
        pm.Normal("x", 5.0, 3.0, shape=200)
    make = sharing(sg.CoRVSGLD)
    for schedule in (sg.polynomial(0.05), sg.cyclical(0.1, 100)):
        step = make(step_size=schedule, model=model, backend="jax")
        starts = []
        for seed in (1, 2):
            step.setup_chain(np.random.default_rng(seed), 0, 10)
            runner = step._runner_at(initial_point(model), [])
            starts.append(np.concatenate([x.reshape(-1) for x in runner.state.psi]))
        # As draws of the whitening's Gaussian, of which each coordinate is standard normal
        for start in starts:
            assert abs(start.mean()) < STANDARD_ERRORS / np.sqrt(200)
            assert abs(np.mean(start**2) - 1) < STANDARD_ERRORS * np.sqrt(2 / 200)
        assert abs(np.corrcoef(starts)[0, 1]) < STANDARD_ERRORS / np.sqrt(200)
