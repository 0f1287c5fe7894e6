"""The noise ratio is what the batches add to the variance."""

import numpy as np
import pymc as pm
import pytest

import pymc_sgmcmc as sg

from helpers.conjugate import normal_means
from helpers.laws import lm_variance
from helpers.sampling import run as sampled
from helpers.steps import drawn
from helpers.z_scores import STANDARD_ERRORS, mean_and_error_of_chain
from pymc_sgmcmc.testing import UNTUNED

TOLERANCE = 0.2  # what noise_ratio may be off, relative
ROWS, BATCH, COLUMNS = 50, 10, 400


def unit_scale(minibatched, unit=1.0):
    """Columns of data with Gaussian posteriors of this sd; in it, gradient noise of variance 5."""
    sd = unit * np.sqrt(ROWS - 1.0)
    data = np.random.default_rng(1).normal(0.0, sd, size=(ROWS, COLUMNS))
    return normal_means(data, sd, prior=100.0 * unit, batch_size=BATCH if minibatched else None)


def run(model, method, h, draws, burn):
    """Draws one relaxation time apart, with their statistics."""
    options = {**UNTUNED, "thin": round(1 / h)}
    step = method(model=model, step_size=h, batch="random", backend="jax", **options)
    kept = list(drawn(step, draws, tune=burn))[burn:]
    x = np.array([point["mu"] for point, _ in kept])
    return x, {k: np.array([s[k] for _, s in kept]) for k in kept[0][1] if k != "warning"}


def with_and_without_batches(method, h, draws, burn):
    """Run twice with the same noise: all that differs is what the batches do."""
    model, mean, sd = unit_scale(minibatched=True)
    x, statistics = run(model, method, h, draws, burn)
    exact_x, exact = run(unit_scale(minibatched=False)[0], method, h, draws, burn)
    excess = ((x - mean) ** 2 - (exact_x - mean) ** 2).mean(axis=1) / sd**2
    return excess, statistics, exact


@pytest.mark.slow
def test_noise_is_made_up_for_at_a_step_size_by_hand():
    """At this step the batches would widen the variance by a quarter."""
    model, mean, sd = unit_scale(minibatched=True)
    options = {"gradient": "plain", "batches": 1, "batch": "random", "backend": "jax"}
    step = sg.CoRVSGLD(model=model, step_size=0.1, **options)
    result = sampled(step, draws=1000, chains=1)
    excess = ((result.posterior["mu"].values[0] - mean) ** 2).mean(axis=1) / sd**2 - 1
    measured, error = mean_and_error_of_chain(excess)
    assert STANDARD_ERRORS * error < 0.04
    assert abs(measured) < STANDARD_ERRORS * error
    assert abs(result.sample_stats["noise_ratio"].mean()) < 0.04


# Over two decades; the variance of N(0, 1) with exact gradients is 2 / (2 - h) and 1
WIDENED = [
    pytest.param(method, h, variance, id=f"{method.__name__}-{h}", marks=marks)
    for method, variance in ((sg.SGLD, lambda h: 2 / (2 - h)), (sg.CoRVSGLD, lambda h: 1.0))
    for h, marks in ((0.005, pytest.mark.slow), (0.05, pytest.mark.slow), (0.5, ()))
]


@pytest.mark.parametrize(("method", "h", "exact_variance"), WIDENED)
def test_noise_ratio_is_the_widening_of_the_posterior(method, h, exact_variance):
    excess, statistics, exact = with_and_without_batches(method, h, draws=800, burn=20)
    measured, error = mean_and_error_of_chain(excess / exact_variance(h))
    predicted = statistics["noise_ratio"].mean()
    assert STANDARD_ERRORS * error < TOLERANCE * predicted
    # Exact on a Gaussian, for noise that does not depend on the position
    assert abs(measured - predicted) < STANDARD_ERRORS * error
    assert np.all(exact["noise_ratio"] == 0)


@pytest.mark.parametrize(
    ("h", "draws"),
    [
        *(pytest.param(h, n, marks=pytest.mark.slow) for h, n in ((0.003, 3000), (0.03, 1000))),
        (0.3, 1000),
    ],
)
def test_noise_ratio_is_the_excess_of_the_thermostat(h, draws):
    diffusion = 1.0
    excess, statistics, exact = with_and_without_batches(sg.MSGNHT, h, draws, burn=100)
    measured, error = mean_and_error_of_chain(
        (statistics["thermostat"] - exact["thermostat"]) / diffusion
    )
    predicted = statistics["noise_ratio"].mean()
    assert abs(measured - predicted) + STANDARD_ERRORS * error < TOLERANCE * predicted
    # The thermostat itself, not only the difference: without batches it rests at D
    alone, error = mean_and_error_of_chain(exact["thermostat"] - diffusion)
    assert abs(alone) < STANDARD_ERRORS * error + 0.2 * h**2
    if h == 0.3:
        # Positions widen far less than that
        measured, error = mean_and_error_of_chain(excess)
        assert measured + STANDARD_ERRORS * error < 0.1 * predicted


def test_noise_ratio_of_the_thermostat_is_relative_to_its_diffusion():
    model, *_ = unit_scale(minibatched=True)
    ratios = []
    for diffusion in (1.0, 4.0):

        def method(diffusion=diffusion, **options):
            return sg.MSGNHT(diffusion=diffusion, **options)

        _, statistics = run(model, method, 0.1, draws=200, burn=10)
        ratios.append(statistics["noise_ratio"].mean())
    # Each is a mean over 400 columns and 200 draws of squares: a standard error of 0.5 %
    assert ratios[0] / ratios[1] == pytest.approx(4.0, rel=0.03)


@pytest.mark.parametrize("method", [sg.CoRVSGLD, sg.FLA])
def test_noise_ratio_is_right_where_wide_coordinates_have_long_steps(method):
    model, *_ = unit_scale(minibatched=True, unit=10.0)
    step = method(model=model, step_size=5.0, batch="random", backend="jax", **UNTUNED)
    found = np.mean([stats["noise_ratio"] for _, stats in drawn(step, 50)])
    # In units of the sds
    exact = lm_variance(5.0 / 10**2, 5.0) - 1
    assert abs(found - exact) < TOLERANCE * exact


def test_noise_ratio_of_a_cycle_is_not_that_of_its_last_step():
    """With a period of 80 a cycle's sampled fifth begins at a step 246 times as long."""
    model, *_ = unit_scale(minibatched=True)
    schedule = sg.cyclical(h0=0.3, period=80)
    options = {**UNTUNED, "thin": 16}
    step = sg.SGLD(model=model, step_size=schedule, batch="random", backend="jax", **options)
    kept = [stats for _, stats in drawn(step, 50)]
    found = np.mean([stats["noise_ratio"] for stats in kept])
    steps = [schedule(t) for t in range(80)]
    assert found == pytest.approx(steps[-16] * 5 / 2, rel=TOLERANCE)


@pytest.mark.parametrize(
    ("method", "h", "metric"),
    [
        # In units of the noise that an update injects: √θ times the gradient's, and over f′
        (sg.SGRLD, 1e-6, lambda lam: lam),
        (sg.ItoSGLD, 5e-6, lambda lam: 1.0),
        (sg.MirrorSGLD, 5e-6, lambda lam: 1.0),
    ],
)
def test_noise_ratio_is_in_the_metric_of_the_method(method, h, metric):
    y = np.random.default_rng(0).poisson(50, 10_000).astype("int32")
    with pm.Model():
        lam = pm.Gamma("lam", 2, 0.1, initval=50.0)
        pm.Poisson("y", lam, observed=pm.Minibatch(y, batch_size=100), total_size=10_000)
        step = method(step_size=h, batch="random", backend="jax")
    ratios = [statistics["noise_ratio"] for _, statistics in drawn(step, 800)]
    # N²/B times the variance y/λ² of a row's gradient for λ
    expected = h / 2 * metric(50) * 10_000**2 / 100 * y.var() / 50**2
    measured, error = mean_and_error_of_chain(np.array(ratios))
    assert error < 0.1 * expected
    assert abs(measured - expected) < STANDARD_ERRORS * error + 0.02 * expected


def test_noise_ratio_of_a_simplex_is_that_along_it():
    counts = np.array([200, 300, 500])
    y = np.random.default_rng(0).permutation(np.repeat(np.arange(3, dtype="int32"), 10 * counts))
    h = 1e-7
    with pm.Model():
        p = pm.Dirichlet("p", np.ones(3), initval=counts / 1000)
        batch = pm.Minibatch(y, batch_size=100)
        pm.Categorical("y", p, observed=batch, total_size=len(y))
        step = sg.SGRLD(step_size=h, batch="random", backend="jax")
    ratios = [statistics["noise_ratio"] for _, statistics in drawn(step, 800)]
    # θ has the mean A = 3; of the noise N²/B (1/π_k) in an entry's gradient K − 1 directions stay
    expected = h / 2 * len(y) ** 2 / 100 / 3
    measured, error = mean_and_error_of_chain(np.array(ratios))
    assert abs(measured - expected) < STANDARD_ERRORS * error + 0.3 * expected


def test_noise_that_is_more_than_friction_can_make_up_for_widens():
    """SGHMC makes up for at most the noise that it injects."""
    step = sg.SGHMC(model=unit_scale(minibatched=False)[0], friction=0.5)
    assert float(step.widening(0.1, 40.0, 40.0).eval()) == pytest.approx((2.0 - 0.5) / 0.5)
    assert float(step.widening(0.1, 4.0, 4.0).eval()) == 0
