"""The schemes by which batches are drawn, with a plan for several updates or without."""

import numpy as np
import pymc as pm
import pytest

import pymc_sgmcmc as sg

from helpers.conjugate import flat_means
from helpers.laid_out import laid_out
from helpers.minibatched_models import data
from helpers.sampling import run
from helpers.steps import assert_goes_on, location, start, step_for, take, twin
from helpers.z_scores import STANDARD_ERRORS, z_score
from pymc_sgmcmc.model.batch_schemes import BATCH_SCHEMES, BatchDraw, Runs
from pymc_sgmcmc.testing import UNTUNED, run_chain


@pytest.fixture(scope="module", params=["shuffled", "random"])
def scheme(request):
    return request.param


def test_every_row_is_drawn_equally_often(scheme):
    rows, size, updates = 30, 7, 60_000
    drawn = BATCH_SCHEMES[scheme].draw(BatchDraw(np.random.default_rng(6), rows, size, updates))
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
        drawn = BATCH_SCHEMES[scheme].draw(BatchDraw(rng, rows, size, updates))
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
    step.step(start(step, 0, 2))
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
            which = kind.draw(BatchDraw(rng, rows, size, 20, k)).reshape(20, k, -1)
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
    monkeypatch.setattr("pymc_sgmcmc.model.minibatch_checks.MOST_ROWS", 99)
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


NOTHING = np.zeros(0, dtype=np.int32)
SWEEPS = pytest.mark.parametrize("name", ["sweep", "symmetric"])


@SWEEPS
@pytest.mark.parametrize(("rows", "size"), [(60, 20), (60, 7), (12, 1)])
def test_a_sweep_visits_every_block_once(name, rows, size):
    blocks = -(-rows // size)
    each = blocks * (2 if name == "symmetric" else 1)
    starts, _ = BATCH_SCHEMES[name].follow(
        BatchDraw(np.random.default_rng(1), rows, size, 6 * each), NOTHING
    )
    for sweep in starts.reshape(6, each):
        forth = sweep[:blocks]
        # Neighbours from an offset on, whichever of them came first
        expected = np.arange(blocks) * size
        assert any(np.array_equal(np.sort((forth - o) % rows), expected) for o in forth)
        np.testing.assert_array_equal(sweep[blocks:], forth[::-1][: each - blocks])


@SWEEPS
def test_a_plan_goes_on_where_it_was_left(name):
    scheme, whole = BATCH_SCHEMES[name], np.random.default_rng(2)
    together, _ = scheme.follow(BatchDraw(whole, 60, 7, 40), NOTHING)
    rng, left, parts = np.random.default_rng(2), NOTHING, []
    for updates in (1, 14, 3, 22):
        part, left = scheme.follow(BatchDraw(rng, 60, 7, updates), left)
        parts.append(part)
    np.testing.assert_array_equal(np.concatenate(parts), together)


@SWEEPS
@pytest.mark.parametrize("batches", [1, 3, 9, 20])
def test_all_rows_count_alike(name, batches):
    rows, size, updates = 60, 7, 4000
    starts, _ = BATCH_SCHEMES[name].follow(
        BatchDraw(np.random.default_rng(3), rows, size, updates, batches), NOTHING
    )
    starts = starts.reshape(updates, batches)
    values = np.random.default_rng(4).normal(size=rows)
    table = laid_out(BATCH_SCHEMES[name], values, np.random.default_rng(5), size)
    means = table[starts[..., None] + np.arange(size)].mean(axis=(1, 2))
    # Updates of one sweep belong together: means over many sweeps are independent
    assert abs(z_score(means.reshape(40, -1).mean(axis=1), values.mean())) < STANDARD_ERRORS


@pytest.mark.parametrize(
    ("name", "batches"),
    [*(("sweep", k) for k in (1, 3, 4, 7, 8, 9, 20)), *(("symmetric", k) for k in (3, 5, 16, 20))],
)
@pytest.mark.parametrize("rows", [56, 51])  # where 5 rows of a sweep count twice
def test_variance_of_a_mean_of_batches_of_a_sweep(name, batches, rows):
    size = 7  # 8 blocks
    scheme, squares = BATCH_SCHEMES[name], []
    values = np.random.default_rng(6).normal(size=rows)
    values -= values.mean()
    for seed in range(400):
        rng = np.random.default_rng(seed)
        table = laid_out(scheme, values, rng, size)
        means = []
        for k in (1, batches):
            starts, _ = scheme.follow(BatchDraw(rng, rows, size, 64, k), NOTHING)
            means.append(table[starts.reshape(64, k, 1) + np.arange(size)].mean(axis=(1, 2)))
        squares.append([np.mean(m**2) for m in means])
    alone, together = np.array(squares).T
    ratio = scheme.variance_ratio(rows, size, batches)
    if batches % 8 == 0 and rows == 56:
        assert ratio == 0
        assert together.max() < 1e-28
    else:
        assert abs(z_score(together - ratio * alone, 0)) < STANDARD_ERRORS


@pytest.mark.parametrize(("name", "expected"), [("shuffled", 1.0), ("sweep", 0.28)])
def test_sweeps_cut_the_widening(name, expected):
    # h m = 1, at all places of a sweep alike: 0.28 of what independent batches bring
    rows, batch, columns, h = 200, 20, 400, 0.1
    data = np.random.default_rng(1).normal(0.0, np.sqrt(rows), size=(rows, columns))
    noise = rows**2 / batch * data.var(axis=0).mean() / rows**2 * (1 - batch / rows)
    model = flat_means(data, np.sqrt(rows), batch)
    options = {**UNTUNED, "thin": 7}
    step = sg.SGLD(model=model, step_size=h, batch=name, backend="jax", **options)
    draws = run_chain(model, step, burn=20, draws=300, seed=3)["x"] - data.mean(axis=0)
    variances = (draws**2).mean(axis=0)
    error = variances.std(ddof=1) / np.sqrt(columns)
    widening = (variances.mean() * (2 - h) / 2 - 1) / (h * noise / 2)
    error = error * (2 - h) / 2 / (h * noise / 2)
    # One permutation of the rows: its noise varies by 1.15 sqrt(B/N) from column to column
    assert abs(widening - expected) < STANDARD_ERRORS * error + 0.02


@SWEEPS
def test_restored_sweep_continues_bit_for_bit(name):
    step = step_for("CoRVSGLD", location(), batch=name, batches=3, thin=7)
    point, _ = take(step, start(step), draws=3)
    options = {"batch": name, "batches": 3, "thin": 7}
    assert_goes_on(step, point, lambda: twin(step, step_size=1e-4, **options), draws=20)


@pytest.mark.parametrize("name", ["sweep", pytest.param("symmetric", marks=pytest.mark.slow)])
def test_untuned_sweeps_are_right(name):
    data = np.random.default_rng(0).normal(1, 0.5, size=4000)
    with pm.Model():
        y = pm.Minibatch(data, batch_size=100)
        mu, sigma = pm.Normal("mu", 0, 10), pm.HalfNormal("sigma", 1)
        pm.Normal("y", mu, sigma, observed=y, total_size=4000)
        step = sg.CoRVSGLD(batch=name, backend="jax")
    result = run(step, compute_convergence_checks=True)
    sd = data.std(ddof=1)
    exact = {"mu": (data.mean(), sd / np.sqrt(4000)), "sigma": (sd, sd / np.sqrt(8000))}
    for variable, (mean, spread) in exact.items():
        draws = result.posterior[variable].values
        assert abs(draws.mean() - mean) < 0.1 * spread
        assert abs(draws.std() / spread - 1) < 0.1


@pytest.mark.slow
@pytest.mark.parametrize("name", ["symmetric", "sweep"])
def test_noise_that_cancels_is_not_made_up_for(name):
    # Plain gradients of forty blocks, two for an update: what they bring is a few percent
    data = np.random.default_rng(0).normal(size=(4000, 20))
    with pm.Model():
        y = pm.Minibatch(data, batch_size=100)
        mu = pm.Normal("mu", 0, 10, shape=20)
        pm.Normal("y", mu, 1.0, observed=y, total_size=4000)
        step = sg.CoRVSGLD(batch=name, gradient="plain", batches=2, backend="jax")
    result = run(step, 1500)
    squares = (result.posterior["mu"].values - data.mean(axis=0)) ** 2 * 4000
    means = squares.mean(axis=(0, 1))
    error = means.std(ddof=1) / np.sqrt(20)
    widening = float(result.sample_stats["noise_ratio"].mean())
    assert -STANDARD_ERRORS * error < means.mean() - 1 < STANDARD_ERRORS * error + widening


@pytest.mark.parametrize("batches", [2, 8, 40])
def test_variance_of_a_mean_of_batches_of_runs(batches):
    """Runs begin anywhere, so that as many batches as make up the data are no pass."""
    rows, size = 4000, 100
    scheme, squares = Runs(8), np.zeros((2000, 2))
    values = np.random.default_rng(6).normal(size=rows)
    values -= values.mean()
    for seed in range(len(squares)):
        rng = np.random.default_rng(seed)
        table = np.resize(rng.permutation(values), rows + size)
        for j, k in enumerate((1, batches)):
            starts, _ = scheme.follow(BatchDraw(rng, rows, size, 1, k), NOTHING)
            means = table[starts.reshape(k, 1) + np.arange(size)].mean()
            squares[seed, j] = means**2
    ratio = scheme.variance_ratio(rows, size, batches)
    assert abs(z_score(squares[:, 1] - ratio * squares[:, 0], 0)) < STANDARD_ERRORS
    assert scheme.variance_ratio(rows, rows, batches) == 0


@pytest.mark.parametrize("batched", [True, False])
def test_rows_are_along_one_axis(batched):
    table = np.zeros((60, 3))
    y = pm.Minibatch(table, batch_size=10) if batched else table
    with pm.Model() as model:
        pm.Normal("y", pm.Normal("x"), observed=y, total_size=[60, 6])
    with pytest.raises(ValueError, match="'y' has total_size=6 on axis 1, which has 3 entries"):
        sg.SGLD(model=model)
    with pm.Model() as model:
        pm.Normal("y", pm.Normal("x"), observed=y, total_size=[60, 3])
    sg.SGLD(model=model)
