"""The schemes by which batches are drawn, and what pm.Minibatch says of itself."""

import numpy as np
import pymc as pm
import pytest

import pymc_sgmcmc as sg

from helpers.laid_out import laid_out
from helpers.minibatched_models import data
from helpers.z_scores import STANDARD_ERRORS, z_score
from pymc_sgmcmc.model.minibatch import BATCH_SCHEMES
from pymc_sgmcmc.testing import UNTUNED


@pytest.fixture(scope="module", params=["shuffled", "random"])
def scheme(request):
    return request.param


def test_every_row_is_drawn_equally_often(scheme):
    rows, size, updates = 30, 7, 60_000
    drawn = BATCH_SCHEMES[scheme].draw(np.random.default_rng(6), rows, size, updates)
    counts = np.bincount(drawn.ravel(), minlength=rows)
    assert len(counts) == rows
    expected = drawn.size / rows
    # Of 30 Poisson-like counts; a chain keeps one order of its rows, so that each must hold
    assert abs(counts - expected).max() < 4 * np.sqrt(expected)


def test_noise_is_that_of_the_scheme(scheme):
    """Sampling with replacement, or in blocks of permuted rows: without."""
    rows, size, updates = 300, 20, 200
    [y] = data(5, rows)
    squares = []
    for seed in range(400):
        rng = np.random.default_rng(seed)
        table = laid_out(BATCH_SCHEMES[scheme], y, rng, size)
        drawn = BATCH_SCHEMES[scheme].draw(rng, rows, size, updates)
        if scheme == "shuffled":
            drawn = drawn[:, None] + np.arange(size)
        sums = rows / size * table[drawn].sum(axis=1)
        squares.append(np.mean((sums - y.sum()) ** 2))
    variance = rows**2 / size * y.var()
    if scheme == "shuffled":
        variance *= (rows - size) / (rows - 1)
    assert abs(z_score(np.array(squares), variance)) < STANDARD_ERRORS


def test_total_size_that_is_not_the_number_of_rows_is_warned_of():
    with pm.Model() as model:
        data = pm.Data("data", np.zeros(100))
        batch = pm.Minibatch(data, batch_size=10)
        x = pm.Normal("x")
        pm.Normal("y", x, 1, observed=batch, total_size=100)
        pm.Normal("z", x, 1, observed=pm.Minibatch(data, batch_size=10), total_size=[data.shape[0]])
    step = sg.SGLD(step_size=1e-3, model=model, **UNTUNED)
    step.setup_chain(np.random.default_rng(0), 0, 2)
    step.step({"x": np.zeros(())})
    with model:
        pm.set_data({"data": np.zeros(1000)})
    with pytest.warns(UserWarning, match="'y' has total_size=100, but its pm.Minibatch .* 1000"):
        step.setup_chain(np.random.default_rng(0), 0, 2)


CASES = [
    (600, 512, 2),  # the second batch overlaps the first
    (600, 512, 5),
    (60, 7, 3),
    (60, 7, 9),  # one more block than there are rows
    (60, 20, 3),  # all rows, once
    (60, 20, 7),
    (12, 1, 5),  # numbers of blocks
]


@pytest.mark.parametrize(("rows", "size", "batches"), CASES)
def test_variance_of_a_mean_of_batches_is_that_of_the_scheme(scheme, rows, size, batches):
    """The ratio of two means of squares over orders of the rows, to that of single blocks."""
    drawn, [y] = BATCH_SCHEMES[scheme], data(7, rows)
    squares = np.zeros((1000, 2))
    for seed in range(len(squares)):
        for j, (kind, k) in enumerate(((BATCH_SCHEMES["shuffled"], 1), (drawn, batches))):
            rng = np.random.default_rng([seed, j])
            table = laid_out(kind, y - y.mean(), rng, size)
            which = kind.draw(rng, rows, size, 20, k).reshape(20, k, -1)
            if kind.contiguous:
                which = which + np.arange(size)
            squares[seed, j] = np.mean(table[which].mean(axis=(1, 2)) ** 2)
    ratio = drawn.variance_ratio(rows, size, batches)
    if ratio == 0:
        assert squares[:, 1].max() < 1e-28
        return
    # Zero on average if the ratio is right
    difference = squares[:, 1] - ratio * squares[:, 0]
    assert abs(z_score(difference, 0)) < STANDARD_ERRORS


def test_all_rows_equally_often_leave_no_noise():
    shuffled = BATCH_SCHEMES["shuffled"]
    assert shuffled.variance_ratio(60, 20, 3) == shuffled.variance_ratio(60, 24, 5) == 0
    assert shuffled.variance_ratio(8, 1, 8) == 0  # all blocks, where a batch is one of them
    assert shuffled.variance_ratio(600, 512, 2) > 0


def test_more_rows_than_offsets_can_count_are_refused(monkeypatch):
    monkeypatch.setattr("pymc_sgmcmc.model.minibatch.MOST_ROWS", 99)
    with pm.Model():
        y = pm.Minibatch(np.zeros(100), batch_size=10)
        pm.Normal("y", pm.Normal("x"), observed=y, total_size=100)
        with pytest.raises(ValueError, match=r"100 rows, more than 2\^31 - 1.*several likelihoods"):
            sg.SGLD(step_size=1e-3, **UNTUNED)


def test_as_many_rows_with_replacement_as_there_are_are_refused():
    with pm.Model():
        y = pm.Minibatch(np.zeros(100), batch_size=100)
        pm.Normal("y", pm.Normal("x"), observed=y, total_size=100)
        with pytest.raises(ValueError, match=r"with replacement: .*Leave batch out"):
            sg.SGLD(batch="random")
