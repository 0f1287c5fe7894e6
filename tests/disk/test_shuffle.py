"""Rows that are brought into random order, and the warning where they are not."""

import errno
import itertools
import multiprocessing
import os
import signal

import numpy as np
import pymc as pm
import pytest

from scipy import stats

import pymc_sgmcmc as sg

from helpers.sampling import QUIET
from helpers.z_scores import assert_right
from pymc_sgmcmc.disk import fetch, shuffle
from pymc_sgmcmc.disk.fetch import design_effect, warn_of_order
from pymc_sgmcmc.disk.on_disk import opened
from pymc_sgmcmc.testing import UNTUNED


@pytest.fixture
def small(monkeypatch):
    """Buckets and parts of a few rows."""
    monkeypatch.setattr(shuffle, "_BUCKET", 4000)
    monkeypatch.setattr(shuffle, "_PART", 1700)


def test_rows_stay_together_and_none_is_lost(small, tmp_path):
    n = 5000
    np.save(tmp_path / "x.npy", np.arange(2 * n, dtype="float32").reshape(n, 2))
    files = sg.shuffle_to_disk(
        {"x": tmp_path / "x.npy", "y": 2 * np.arange(n)}, tmp_path / "out", seed=1
    )
    x, y = np.load(files["x"]), np.load(files["y"])
    assert (x.dtype, y.dtype) == (np.float32, np.int64)
    np.testing.assert_array_equal(x[:, 0], y)
    np.testing.assert_array_equal(np.sort(y), 2 * np.arange(n))
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["x.npy", "y.npy"]
    again = sg.shuffle_to_disk({"y": 2 * np.arange(n)}, tmp_path / "again", seed=1)
    other = sg.shuffle_to_disk({"y": 2 * np.arange(n)}, tmp_path / "other", seed=2)
    assert not np.array_equal(np.load(again["y"]), np.load(other["y"]))


def test_every_order_is_equally_likely(monkeypatch, tmp_path):
    monkeypatch.setattr(shuffle, "_BUCKET", 16)
    monkeypatch.setattr(shuffle, "_PART", 24)
    # Most of the time would go by in waiting for the disk
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    counts = np.zeros((4, 4, 4))
    for seed in range(1200):
        files = sg.shuffle_to_disk(
            {"y": np.arange(4)}, tmp_path / str(seed), seed=seed, progressbar=False
        )
        order = np.load(files["y"])
        counts[order[0], order[1], order[2]] += 1
    orders = counts[counts > 0]
    assert len(orders) == 24
    assert stats.chisquare(orders).pvalue > 1e-4


def test_parquet_to_npy(tmp_path):
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    table = pa.table({"a": np.arange(100.0), "b": np.arange(100), "y": np.arange(100)})
    parquet.write_table(table, tmp_path / "t.parquet")
    files = sg.shuffle_to_disk(
        {"x": tmp_path / "t.parquet", "y": tmp_path / "t.parquet"},
        tmp_path / "out",
        columns={"x": ["a", "b"], "y": "y"},
        progressbar=False,
    )
    x, y = np.load(files["x"]), np.load(files["y"])
    assert (x.shape, y.shape) == ((100, 2), (100,))
    np.testing.assert_array_equal(x, np.stack([y, y], axis=1))


@pytest.mark.parametrize("dtype", [">f4", ">f8", ">i4"])
def test_numbers_in_the_byte_order_of_another_machine(tmp_path, dtype):
    rows = np.arange(6).reshape(3, 2)
    np.save(tmp_path / "x.npy", rows.astype(dtype))
    np.testing.assert_array_equal(sg.on_disk(tmp_path / "x.npy").eval(), rows)
    files = sg.shuffle_to_disk(
        {"x": tmp_path / "x.npy"}, tmp_path / "out", seed=1, progressbar=False
    )
    np.testing.assert_array_equal(np.sort(np.load(files["x"]), axis=0), rows)


@pytest.mark.parametrize(
    ("arrays", "options", "message"),
    [
        ({}, {}, "empty"),
        ([np.zeros(3)], {}, "must be a dict"),
        ({"a": np.zeros(3), "b": np.zeros(4)}, {}, "different lengths"),
        ({"a": np.ma.masked_less(np.arange(3), 1)}, {}, "missing values"),
        ({"a": np.zeros((3, 0))}, {}, r"shape \(3, 0\)"),
        ({"a": np.array(["u"])}, {}, "no array of numbers"),
        ({"a": None}, {}, "no array of numbers"),
        ({"a": [[1], [1, 2]]}, {}, r"arrays\['a'\] has rows of different lengths"),
        ({"a/b": np.zeros(3)}, {}, "no name of a file"),
        ({"": np.zeros(3)}, {}, "no name of a file"),
        ({1: np.zeros(3)}, {}, "1 is no name of a file"),
        ({"a\0b": np.zeros(3)}, {}, "no name of a file"),
        ({"n" * 300: np.zeros(3)}, {}, "cannot be written .*too long"),
        ({"a": np.zeros(3)}, {"seed": -1}, "seed must be a whole number of at least 0"),
        ({"a": np.zeros(3)}, {"seed": 0.5}, "seed must be a whole number"),
        ({"a": np.zeros(3)}, {"seed": True}, "seed must be a whole number"),
        ({"a": np.zeros(3)}, {"columns": ["a"]}, "columns must be a dict"),
        ({"a": np.zeros(3)}, {"columns": {"b": "c"}}, "columns has 'b', which is none"),
        ({"a": np.zeros(3)}, {"columns": {"a": "c"}}, "columns has 'a', which is none"),
        ({"a": np.zeros(3)}, {"folder": 3}, "folder must be the path of a folder"),
        ({"a": np.zeros(3)}, {"folder": ""}, "folder must be the path of a folder"),
        ({"a": np.zeros(3)}, {"folder": "n" * 300}, "folder must be the path of a folder"),
    ],
)
def test_what_is_refused(tmp_path, arrays, options, message):
    with pytest.raises((TypeError, ValueError, sg.DiskError), match=message):
        sg.shuffle_to_disk(arrays, **{"folder": tmp_path, "progressbar": False, **options})
    assert not list(tmp_path.iterdir())


def test_files_that_are_there_are_left_alone(tmp_path):
    (tmp_path / "x.npy").touch()
    with pytest.raises(FileExistsError, match="is there already"):
        sg.shuffle_to_disk({"x": np.zeros(3)}, tmp_path)
    with pytest.raises(FileExistsError, match="Pass a folder"):
        sg.shuffle_to_disk({"a": np.zeros(3)}, tmp_path / "x.npy")
    assert (tmp_path / "x.npy").stat().st_size == 0


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.ESTALE, errno.EROFS])
@pytest.mark.parametrize("call", ["fsync", "replace", "mkdir"])
def test_a_disk_that_fails_is_named_and_nothing_is_left(tmp_path, monkeypatch, code, call):
    original, calls = getattr(os, call), itertools.count()

    def failing(*arguments, **options):
        if next(calls) < (call != "mkdir"):
            return original(*arguments, **options)
        raise OSError(code, os.strerror(code))

    arrays = {"x": np.arange(6), "y": np.arange(6)}
    with monkeypatch.context() as patch:
        patch.setattr(os, call, failing)
        said = rf"cannot be written to '{tmp_path}/out' \({os.strerror(code)}\).* Make room for"
        with pytest.raises(sg.DiskError, match=said):
            sg.shuffle_to_disk(arrays, tmp_path / "out", progressbar=False)
    assert not (tmp_path / "out").exists() or not list((tmp_path / "out").iterdir())
    sg.shuffle_to_disk(arrays, tmp_path / "out", progressbar=False)


@pytest.mark.skipif(os.name != "posix", reason="there are no forks")
def test_what_a_call_that_was_killed_left_is_removed_by_the_next(small, tmp_path, monkeypatch):
    def killed(*arguments):
        os.kill(os.getpid(), signal.SIGKILL)

    def call():
        monkeypatch.setattr(os, "fsync", killed)
        sg.shuffle_to_disk({"x": np.arange(5000)}, tmp_path, progressbar=False)

    fork = multiprocessing.get_context("fork")
    process = fork.Process(target=call)
    process.start()
    process.join()
    [left] = tmp_path.iterdir()
    assert sum(file.stat().st_size for file in left.iterdir()) >= 40_000
    # One that is at work is not
    alive = tmp_path / ".shuffle-alive"
    alive.mkdir()
    with open(alive / "lock", "w+") as lock:
        pytest.importorskip("fcntl").flock(lock, 2)
        print("kept", file=lock, flush=True)
        sg.shuffle_to_disk({"x": np.arange(5)}, tmp_path, progressbar=False)
        assert sorted(p.name for p in tmp_path.iterdir()) == [".shuffle-alive", "x.npy"]
    sg.shuffle_to_disk({"y": np.arange(5)}, tmp_path, progressbar=False)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["x.npy", "y.npy"]


def step_of(x, y, method=sg.SGLD, **options):
    with pm.Model():
        a, b = pm.Minibatch(x, y, batch_size=100)
        beta = pm.Normal("beta", shape=2)
        pm.Normal("y", a @ beta, observed=b, total_size=20_000)
        return method(**(options or {"step_size": 1e-5, "backend": "jax", **UNTUNED}))


ORDERS = {
    "a trend": lambda x, t: (x, x[:, 0] + 3 * t),
    "sorted": lambda x, t: (np.sort(x, axis=0), x[:, 0]),
    "a spread that drifts": lambda x, t: (x * (1 + np.floor(8 * t) % 2)[:, None], 0 * t),
    "an effect that drifts": lambda x, t: (x, x[:, 0] * np.sin(6 * t)),
}


@pytest.mark.parametrize("name", ORDERS)
def test_ordered_rows_are_warned_of_until_they_are_shuffled(tmp_path, name):
    rng = np.random.default_rng(1)
    x, y = ORDERS[name](rng.normal(size=(20_000, 2)), np.linspace(0, 1, 20_000))
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "y.npy", y + 0.5 * rng.normal(size=20_000))
    arrays = {"x": tmp_path / "x.npy", "y": tmp_path / "y.npy"}
    with pytest.warns(UserWarning, match="are not in random order"):
        step_of(*map(sg.on_disk, arrays.values()))
    files = sg.shuffle_to_disk(arrays, tmp_path / "shuffled", seed=1, progressbar=False)
    # Warnings are errors
    step_of(*map(sg.on_disk, files.values()))


def test_an_order_that_single_batches_do_not_show_is_warned_of(tmp_path):
    """Stores are open for half of the time each: a run of many batches has rows of few of them."""
    n, stores = 400_000, 500
    rng = np.random.default_rng(1)
    start, t = rng.random(stores), np.arange(n) / n
    store = rng.integers(stores, size=n)
    while len(closed := np.flatnonzero((t - start[store]) % 1 > 0.5)):
        store[closed] = rng.integers(stores, size=len(closed))
    y = rng.normal(size=stores)[store] + rng.normal(size=n)
    np.save(tmp_path / "store.npy", store.astype("int32"))
    np.save(tmp_path / "y.npy", y)
    files = tmp_path / "store.npy", tmp_path / "y.npy"
    assert design_effect(list(map(opened, files)), 100)[0] < 2.5
    with pm.Model():
        a, b = pm.Minibatch(*map(sg.on_disk, files), batch_size=100)
        pm.Normal("y", pm.Normal("u", shape=stores)[a], 1, observed=b, total_size=n)
        with pytest.warns(UserWarning, match="means of blocks of 6250 rows vary"):
            sg.SGLD(step_size=1e-5, backend="jax", **UNTUNED)


@pytest.mark.slow
def test_ordered_rows_give_the_right_posterior_once_they_are_shuffled(tmp_path):
    rng = np.random.default_rng(1)
    x, y = ORDERS["a trend"](rng.normal(size=(20_000, 2)), np.linspace(0, 1, 20_000))
    y = y + 0.5 * rng.normal(size=20_000)
    files = sg.shuffle_to_disk({"x": x, "y": y}, tmp_path, seed=1, progressbar=False)
    step = step_of(*map(sg.on_disk, files.values()), method=sg.MSGNHT, backend="jax")
    with step.model:
        dt = pm.sample(1000, step=step, chains=2, cores=1, random_seed=1, **QUIET)
    # The prior is standard, as the noise of the model
    covariance = np.linalg.inv(np.eye(2) + x.T @ x)
    mean, sd = covariance @ x.T @ y, np.sqrt(np.diag(covariance))
    assert_right(dt["posterior"], {"beta": (mean, sd)})


def test_random_orders_are_not_warned_of(tmp_path):
    # Rare events, heavy tails and booleans among the columns
    rng = np.random.default_rng(1)
    largest = []
    for k in range(20):
        x = np.stack(
            [rng.random(20_000) < 1e-3, rng.standard_t(2, 20_000), rng.random(20_000) < 0.5], axis=1
        )
        np.save(tmp_path / f"{k}.npy", x)
        np.save(tmp_path / f"y{k}.npy", rng.standard_cauchy(20_000))
        group = [opened(tmp_path / f"{k}.npy"), opened(tmp_path / f"y{k}.npy")]
        largest.append(design_effect(group, 100)[0])
    assert max(largest) < 2.5


def test_rare_columns_in_random_order_are_not_warned_of(tmp_path):
    """Of few ones in the blocks some column has three in one of them, by chance."""
    x = (np.random.default_rng(13).random((40_000, 250)) < 1.5e-4).astype("float32")
    np.save(tmp_path / "x.npy", x)
    group = [opened(tmp_path / "x.npy")]
    assert design_effect(group, 600)[0] > 2.5
    # Warnings are errors
    warn_of_order(group, 600, ())


def test_blocks_are_as_long_as_the_chunks_that_a_chain_reads(tmp_path, monkeypatch):
    """Of 1,000 stores half are seen more often than the others, in turns."""
    monkeypatch.setattr(fetch, "BYTES_OF_A_RUN", 80)
    rng = np.random.default_rng(1)
    often = np.tile([0.4, 0.6], 5).repeat(60_000)
    first = rng.random(len(often)) < often
    np.save(tmp_path / "store.npy", rng.integers(500, size=len(often)) + 500 * first)
    source = opened(tmp_path / "store.npy")
    monkeypatch.setattr(source, "chunk_rows", 10)
    warn_of_order([source], 10, ())
    monkeypatch.setattr(source, "chunk_rows", 5000)
    with pytest.warns(UserWarning, match="means of blocks of 5000 rows vary"):
        warn_of_order([source], 10, ())
