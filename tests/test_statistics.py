"""What the statistics of a draw say about its law, and the warnings that come of them."""

import logging
import pickle
import re

import numpy as np
import pymc as pm
import pytest

import pymc_sgmcmc as sg

from pymc_sgmcmc.monitor import Monitor, watched
from pymc_sgmcmc.testing import UNTUNED

STANDARD_ERRORS = 4.0
TOLERANCE = 0.2  # what noise_ratio may be off, relative
ROWS, BATCH, COLUMNS = 50, 10, 400


def normal_mean(minibatched):
    """Columns of data with unit-scale Gaussian posteriors; gradient noise of variance 5."""
    sd = np.sqrt(ROWS - 1.0)
    data = np.random.default_rng(1).normal(0.0, sd, size=(ROWS, COLUMNS))
    with pm.Model() as model:
        x = pm.Normal("x", 0, 100, shape=COLUMNS)
        observed = pm.Minibatch(data, batch_size=BATCH) if minibatched else data
        total = {"total_size": ROWS} if minibatched else {}
        pm.Normal("y", x, sd, observed=observed, **total)
    precision = 1e-4 + ROWS / sd**2
    return model, data.sum(axis=0) / sd**2 / precision, precision


def run(model, method, h, draws, burn):
    """Draws one relaxation time apart, with their statistics."""
    options = {**UNTUNED, "thin": round(1 / h)}
    step = method(model=model, step_size=h, batch="random", backend="jax", **options)
    step.setup_chain(np.random.default_rng(1), burn, draws)
    point, x, statistics = model.initial_point(), [], []
    for i in range(burn + draws):
        point, [of_draw] = step.step(point)
        if i >= burn:
            x.append(point["x"])
            statistics.append({k: v for k, v in of_draw.items() if k != "warning"})
    return np.array(x), {k: np.array([s[k] for s in statistics]) for k in statistics[0]}


def of_parts(series, parts=20):
    """Mean of a series, and its standard error from the means of consecutive parts."""
    means = series[: len(series) // parts * parts].reshape(parts, -1).mean(axis=1)
    return means.mean(), means.std(ddof=1) / np.sqrt(parts)


def with_and_without_batches(method, h, draws, burn):
    """Run twice with the same noise: all that differs is what the batches do."""
    model, mean, precision = normal_mean(minibatched=True)
    x, statistics = run(model, method, h, draws, burn)
    exact_x, exact = run(normal_mean(minibatched=False)[0], method, h, draws, burn)
    excess = precision * ((x - mean) ** 2 - (exact_x - mean) ** 2).mean(axis=1)
    return excess, statistics, exact


# Over two decades; the variance of N(0, 1) with exact gradients is 2 / (2 - h) and 1
WIDENED = [
    pytest.param(method, h, variance, id=f"{method.__name__}-{h}", marks=marks)
    for method, variance in ((sg.SGLD, lambda h: 2 / (2 - h)), (sg.CoRVSGLD, lambda h: 1.0))
    for h, marks in ((0.005, pytest.mark.slow), (0.05, ()), (0.5, ()))
]


@pytest.mark.parametrize(("method", "h", "exact_variance"), WIDENED)
def test_noise_ratio_is_the_widening_of_the_posterior(method, h, exact_variance):
    excess, statistics, exact = with_and_without_batches(method, h, draws=800, burn=20)
    measured, error = of_parts(excess / exact_variance(h))
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
    measured, error = of_parts((statistics["thermostat"] - exact["thermostat"]) / diffusion)
    predicted = statistics["noise_ratio"].mean()
    assert abs(measured - predicted) + STANDARD_ERRORS * error < TOLERANCE * predicted
    # The thermostat itself, not only the difference: without batches it rests at D
    alone, error = of_parts(exact["thermostat"] - diffusion)
    assert abs(alone) < STANDARD_ERRORS * error + 0.2 * h**2
    if h == 0.3:
        # Positions widen far less than that
        measured, error = of_parts(excess)
        assert measured + STANDARD_ERRORS * error < 0.1 * predicted


def test_noise_ratio_of_the_thermostat_is_relative_to_its_diffusion():
    model, *_ = normal_mean(minibatched=True)
    ratios = []
    for diffusion in (1.0, 4.0):

        def method(diffusion=diffusion, **options):
            return sg.MSGNHT(diffusion=diffusion, **options)

        _, statistics = run(model, method, 0.1, draws=200, burn=10)
        ratios.append(statistics["noise_ratio"].mean())
    # Each is a mean over 400 columns and 200 draws of squares: a standard error of 0.5 %
    assert ratios[0] / ratios[1] == pytest.approx(4.0, rel=0.03)


# ---------------------------------------------------------------- configurational temperature

BOUNDED = {
    "half-normal": lambda: pm.HalfNormal("x", 1, shape=1000),
    "gamma": lambda: pm.Gamma("x", 2, 1, shape=1000),
    "beta": lambda: pm.Beta("x", 2, 3, shape=1000),
    "normal": lambda: pm.Normal("x", 3, 1, shape=1000),
}


@pytest.mark.parametrize("name", BOUNDED)
@pytest.mark.parametrize(("method", "h"), [(sg.CoRVSGLD, 0.05), (sg.MSGNHT, 0.1)])
def test_config_temperature_is_one_under_the_exact_law(name, method, h):
    with pm.Model() as model:
        BOUNDED[name]()
        step = method(step_size=h, backend="jax", **{**UNTUNED, "thin": round(1 / h)})
    step.setup_chain(np.random.default_rng(2), 40, 200)
    point, found = model.initial_point(), []
    for _ in range(240):
        point, [statistics] = step.step(point)
        found.append(statistics["config_temperature"])
    mean, error = of_parts(np.array(found[40:]))
    assert error < 0.01
    # Both integrators are of second order
    assert abs(mean - 1) < STANDARD_ERRORS * error + h**2


@pytest.mark.parametrize("h", [0.1, 0.35])
def test_config_temperature_is_the_variance_of_a_run_that_is_too_wide(h):
    with pm.Model() as model:
        pm.Normal("x", shape=1000)
        step = sg.SGLD(step_size=h, backend="jax", **{**UNTUNED, "thin": 10})
    step.setup_chain(np.random.default_rng(2), 40, 200)
    point, found = model.initial_point(), []
    for _ in range(240):
        point, [statistics] = step.step(point)
        found.append(statistics["config_temperature"])
    mean, error = of_parts(np.array(found[40:]))
    assert abs(mean - 2 / (2 - h)) < STANDARD_ERRORS * error
    assert error < 0.01


# ---------------------------------------------------------------- what pm.sample logs


def three_means(minibatched=True):
    data = np.random.default_rng(3).normal([1.0, 0.0, -1.0], 2.0, size=(400, 3))
    with pm.Model() as model:
        y = pm.Minibatch(data, batch_size=40) if minibatched else data
        mu = pm.Normal("mu", 0, 10, shape=3)
        pm.Normal("y", mu, 2.0, observed=y, **({"total_size": 400} if minibatched else {}))
    return model, (0.01 + 100) ** -0.5


def sampled(model, step_of, caplog, draws=2000):
    """Draws, and the warnings that name a temperature or noise."""
    with model, caplog.at_level(logging.WARNING, logger="pymc"):
        result = pm.sample(
            step=step_of(backend="jax"),
            draws=draws, chains=2, cores=1, random_seed=4, progressbar=False,
        )  # fmt: skip
    said = [r.getMessage() for r in caplog.records]
    return result.posterior["mu"].values, [s for s in said if "R-hat does not see it" in s]


# Each makes the sds about 10 % too wide: 2 / (2 - h) = 1.21, and 1 + h σ² / 2 at σ² = N / B = 10
TOO_WIDE = {
    "a long Euler step": (False, lambda **o: sg.SGLD(step_size=0.35, **o)),
    "noisy gradients": (
        True,
        lambda **o: sg.CoRVSGLD(step_size=0.04, gradient="plain", batches=1, **o),
    ),
}


@pytest.mark.parametrize("why", TOO_WIDE)
def test_a_run_that_is_too_wide_is_told(why, caplog):
    minibatched, step_of = TOO_WIDE[why]
    model, sd = three_means(minibatched)
    draws, said = sampled(model, step_of, caplog)
    assert draws.std(axis=(0, 1)).mean() / sd == pytest.approx(1.1, abs=0.03)
    assert len(said) == 2  # once a chain
    for text in said:
        noise = bool(re.search(r"Gradient noise widens the variances by about (19|2\d)%", text))
        assert "The configurational temperature is 1." in text or (minibatched and noise)
        assert "R-hat does not see it" in text
        assert "Take a smaller step_size" in text


@pytest.mark.parametrize("minibatched", [True, False], ids=["minibatches", "full data"])
def test_a_default_run_is_right_and_silent(minibatched, caplog):
    model, sd = three_means(minibatched)
    draws, said = sampled(model, sg.CoRVSGLD, caplog)
    assert said == []
    # 4,000 draws with an effective one each: a standard error of 1.1 %, of the mean of three .6 %
    assert draws.std(axis=(0, 1)).mean() / sd == pytest.approx(1.0, abs=0.03)


# ---------------------------------------------------------------- the monitor alone


def watch(draws, dimension, *, variance=1.0, noise_ratio=0.0, seed=0, offset=0.0, slope=1.0):
    """Return a monitor that has seen independent draws of N(offset, variance)."""
    rng = np.random.default_rng(seed)
    monitor = Monitor(draws)
    for _ in range(draws):
        e = np.sqrt(variance) * rng.normal(size=dimension)
        monitor.add([offset + e], [slope * e], noise_ratio)
    return monitor


def test_monitor_of_the_exact_law_is_silent():
    for dimension in (1, 10, 1000):
        monitor = watch(1000, dimension)
        mean, error = monitor.temperatures()
        assert mean.shape == error.shape == (dimension,)
        # A temperature is the mean of 1,000 squares of standard normals
        assert np.mean(error) == pytest.approx(np.sqrt(2 / 1000), rel=0.5)
        assert np.mean(mean) == pytest.approx(1.0, abs=4 * np.sqrt(2 / 1000 / dimension))
        assert monitor.warnings() == []


def test_monitor_is_as_often_wrong_as_it_says():
    # One run in a hundred, at the most, with room of a tenth on top
    assert sum(bool(watch(200, 3, seed=seed).warnings()) for seed in range(200)) <= 6


@pytest.mark.parametrize("variance", [0.65, 1.4])
def test_monitor_flags_a_wrong_spread_of_one_coordinate(variance):
    rng = np.random.default_rng(1)
    monitor = Monitor(2000)
    for _ in range(2000):
        e = rng.normal(size=5) * [1, 1, np.sqrt(variance), 1, 1]
        monitor.add([e], [e], 0.0)
    [text] = monitor.warnings()
    shown = float(text.split("temperature is ")[1].split()[0])
    assert shown == pytest.approx(variance, abs=4 * variance * np.sqrt(2 / 2000))
    assert text.endswith("Take a smaller step_size, or write the model non-centred.")


def test_monitor_flags_many_coordinates_that_are_wrong_together():
    # Few of 1,000 are off by more than what their own errors allow for so many
    monitor = watch(2000, 1000, variance=1.25)
    [text] = monitor.warnings()
    assert "(mean 1.25): spreads are wrong" in text


def test_monitor_names_the_noise():
    [text] = watch(2000, 5, variance=1.25, noise_ratio=0.2).warnings()
    assert "larger batch_size" in text
    [text] = watch(2000, 5, noise_ratio=0.2).warnings()
    assert text.startswith("Gradient noise widens the variances by about 20%")
    assert watch(2000, 5, noise_ratio=0.09).warnings() == []
    # A thermostat takes the noise up; the temperature tells if it does not
    assert watch(2000, 5, noise_ratio=0.2).warnings(absorbed=True) == []
    assert len(watch(2000, 5, variance=1.25, noise_ratio=0.2).warnings(absorbed=True)) == 1


def test_monitor_far_from_the_origin():
    monitor = watch(2000, 3, offset=1e3)
    mean, _ = monitor.temperatures()
    np.testing.assert_allclose(mean, 1.0, atol=4 * np.sqrt(2 / 2000))


def test_monitor_says_nothing_of_few_or_unfinished_draws():
    assert watch(99, 2, variance=4.0).warnings() == []
    monitor = watch(200, 2, variance=4.0)
    assert len(monitor.warnings()) == 1
    monitor.draws = 201
    assert monitor.warnings() == []
    assert Monitor(1000).warnings() == []


def test_monitor_leaves_out_draws_that_are_not_finite():
    rng = np.random.default_rng(2)
    monitor = Monitor(1000)
    for k in range(1000):
        e = rng.normal(size=2)
        bad = k % 4 == 0
        monitor.add([e], [np.full(2, np.nan) if bad else e], np.nan if bad else 0.0)
    assert monitor.seen == 1000
    mean, _ = monitor.temperatures()
    np.testing.assert_allclose(mean, 1.0, atol=4 * np.sqrt(2 / 750))
    assert monitor.warnings() == []


def test_monitor_watches_at_most_1024_elements_of_all_blocks():
    blocks = [np.zeros((300, 10)), np.ones(()), np.full(2000, 2.0)]
    found = watched(blocks)
    assert len(found) <= 1024
    assert {0.0, 1.0, 2.0} == set(found)
    assert np.array_equal(watched(blocks[1:2]), [1.0])
    # As many of a block as its share of all elements
    assert np.mean(found == 2.0) == pytest.approx(2000 / 5001, abs=0.01)


def test_monitor_is_state():
    monitor = watch(150, 3)
    copy = pickle.loads(pickle.dumps(monitor))
    assert copy == monitor
    copy.noise += 0.1
    assert copy != monitor


def test_a_step_can_be_taken_on_beyond_its_draws():
    with pm.Model() as model:
        pm.Normal("x")
        step = sg.SGLD(step_size=0.1, backend="jax", **UNTUNED)
    step.setup_chain(np.random.default_rng(0), 0, 2)
    point = model.initial_point()
    for _ in range(4):
        point, _ = step.step(point)
    assert np.isfinite(point["x"])
