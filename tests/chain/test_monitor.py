"""The monitor of a chain."""

import pickle

import numpy as np
import pymc as pm
import pytest

import pymc_sgmcmc as sg

from helpers.steps import drawn
from pymc_sgmcmc.chain.monitor import Monitor, final_warning, watched
from pymc_sgmcmc.testing import UNTUNED


def watch(draws, dimension, *, variance=1.0, noise_ratio=0.0, seed=0, offset=0.0, slope=1.0):
    """Return a monitor that has seen independent draws of N(offset, variance)."""
    rng = np.random.default_rng(seed)
    monitor = Monitor()
    for _ in range(draws):
        e = np.sqrt(variance) * rng.normal(size=dimension)
        monitor.add(offset + e, slope * e, noise_ratio)
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
    monitor = Monitor()
    for _ in range(2000):
        e = rng.normal(size=5) * [1, 1, np.sqrt(variance), 1, 1]
        monitor.add(e, e, 0.0)
    [text] = monitor.warnings()
    shown = float(text.split("temperature is ")[1].split()[0])
    assert shown == pytest.approx(variance, abs=4 * variance * np.sqrt(2 / 2000))
    assert text.endswith("Take a smaller step_size, or write the model non-centred.")


def test_monitor_flags_many_coordinates_that_are_wrong_together():
    # Few of 1,000 are off by more than what their own errors allow for so many
    monitor = watch(2000, 1000, variance=1.25)
    [text] = monitor.warnings()
    assert "(mean over all coordinates: 1.25). Variances of the draws are wrong" in text


def test_monitor_names_the_noise():
    [text] = watch(2000, 5, variance=1.25, noise_ratio=0.2).warnings()
    assert "larger batch_size" in text
    [text] = watch(2000, 5, noise_ratio=0.2).warnings()
    assert text.startswith("Gradient noise widens the variances by about 20%")
    assert watch(2000, 5, noise_ratio=0.09).warnings() == []
    # A thermostat takes the noise up; the temperature tells if it does not
    absorbed = {"widening": lambda noise: 0.0}
    assert watch(2000, 5, noise_ratio=0.2).warnings(**absorbed) == []
    assert len(watch(2000, 5, variance=1.25, noise_ratio=0.2).warnings(**absorbed)) == 1


def test_monitor_far_from_the_origin():
    monitor = watch(2000, 3, offset=1e3)
    mean, _ = monitor.temperatures()
    np.testing.assert_allclose(mean, 1.0, atol=4 * np.sqrt(2 / 2000))


def test_monitor_says_nothing_of_few_draws():
    assert Monitor().warnings() == []
    assert watch(99, 2, variance=4.0).warnings() == []
    assert len(watch(200, 2, variance=4.0).warnings()) == 1


def test_monitor_does_not_hang_on_how_many_draws_are_to_come():
    # Parts are joined in pairs when there are too many: their sums and number stay right
    rng = np.random.default_rng(3)
    draws = rng.normal(size=(3217, 2))
    monitor = Monitor()
    for e in draws:
        monitor.add(e, e, 0.0)
    assert (monitor.length, monitor.parts, monitor.seen) == (80, 40, 3217)
    assert monitor.counts.sum() == 3217
    assert len(monitor.counts) == len(monitor.sums) == 41
    np.testing.assert_allclose(monitor.sums.sum(axis=0)[1], draws.sum(axis=0))
    np.testing.assert_allclose(monitor.sums[39, 0], (draws[3120:3200] ** 2).sum(axis=0))


def test_monitor_leaves_out_draws_that_are_not_finite():
    rng = np.random.default_rng(2)
    monitor = Monitor()
    for k in range(1000):
        e = rng.normal(size=2)
        bad = k % 4 == 0
        monitor.add(e, np.full(2, np.nan) if bad else e, np.nan if bad else 0.0)
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


def test_monitor_sees_one_wrong_temperature_among_many_right_ones():
    # 1.74 in 13 dimensions, the mean of as many squares as give it an error of 0.14
    sd, seen, chains = np.sqrt([1.74] + [1.0] * 12), 0, 60
    for seed in range(chains):
        monitor = Monitor()
        for e in np.random.default_rng(seed).normal(size=(310, 13)) * sd:
            monitor.add(e, e, 0.0)
        assert monitor.temperatures()[1][0] == pytest.approx(0.14, abs=0.08)
        seen += bool(monitor.warnings())
    # Of four chains in five, and three standard errors of as many chains
    assert seen / chains > 0.8 - 3 * np.sqrt(0.8 * 0.2 / chains)


def test_updates_that_were_scaled_down_are_warned_of_where_they_are_many():
    assert final_warning([], [], rejected=0, tamed=40, updates=1000) is None
    found = final_warning([], [], rejected=0, tamed=200, updates=1000)
    assert found is not None
    assert "In 20% of the updates" in found.message
    assert "initvals" in found.message
    # They act as a temperature, which moves a scale of many elements far
    found = final_warning([], [], rejected=0, tamed=8, updates=1000, dimension=20_000)
    assert found is not None
    assert "In 0.8% of the updates" in found.message
    assert final_warning([], [], rejected=0, tamed=6, updates=1000, dimension=20_000) is None


@pytest.mark.parametrize("variance", [1.6, 1.0])
def test_draws_count_by_their_weights(variance):
    """Long steps come first, widen, and weigh more."""
    rng, monitor = np.random.default_rng(1), Monitor()
    for k in range(4000):
        wide = k < 1000
        e = np.sqrt(variance if wide else 1.0) * rng.normal(size=5)
        monitor.add(e, e, 0.3 if wide else 0.0, 6.0 if wide else 1.0)
    mean, error = monitor.temperatures()
    # 6,000 of 9,000 of the weight
    assert abs(mean.mean() - (1 + 2 * variance) / 3) < 4 * error.mean() / 5**0.5
    assert monitor.noise / monitor.masses.sum() == pytest.approx(0.2)
    if variance == 1:
        # Of squares of normals, of which 1,000 have six times the weight of the others
        assert error.mean() == pytest.approx(np.sqrt(2 * (1000 * 6**2 + 3000)) / 9000, rel=0.2)
    else:
        assert "temperature is 1." in monitor.warnings()[0]


def test_a_chain_watches_its_draws_by_their_weights():
    with pm.Model():
        pm.Normal("x", shape=3)
        step = sg.SGLD(step_size=sg.polynomial(a=1.0, b=10, gamma=0.6), backend="jax", **UNTUNED)
    weights = [stats["weight"] for _, stats in drawn(step, 40)]
    assert weights[0] > 1.5 * weights[-1]
    monitor = step.chain.monitor
    assert monitor.masses.sum() == pytest.approx(sum(weights))
