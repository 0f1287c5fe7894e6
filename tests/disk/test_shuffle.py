"""Rows that are brought into random order, and the warning where they are not."""

import os

import numpy as np
import pymc as pm
import pytest

from scipy import stats

import pymc_sgmcmc as sg

from helpers.sampling import QUIET
from helpers.z_scores import assert_right
from pymc_sgmcmc.disk import shuffle
from pymc_sgmcmc.disk.on_disk import opened
from pymc_sgmcmc.disk.order import design_effect
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


def test_what_is_refused(tmp_path):
    (tmp_path / "x.npy").touch()
    with pytest.raises(FileExistsError, match="is there already"):
        sg.shuffle_to_disk({"x": np.zeros(3)}, tmp_path)
    with pytest.raises(ValueError, match="different lengths"):
        sg.shuffle_to_disk({"a": np.zeros(3), "b": np.zeros(4)}, tmp_path)
    with pytest.raises(ValueError, match="empty"):
        sg.shuffle_to_disk({}, tmp_path)
    with pytest.raises(ValueError, match="missing values"):
        sg.shuffle_to_disk({"a": np.ma.masked_less(np.arange(3), 1)}, tmp_path)
    with pytest.raises(ValueError, match="columns has 'b', which is none of the arrays"):
        sg.shuffle_to_disk({"a": np.zeros(3)}, tmp_path, columns={"b": "c"})
    with pytest.raises(ValueError, match="no name of a file"):
        sg.shuffle_to_disk({"a/b": np.zeros(3)}, tmp_path)
    with pytest.raises(ValueError, match=r"shape \(3, 0\)"):
        sg.shuffle_to_disk({"a": np.zeros((3, 0))}, tmp_path)
    with pytest.raises(FileExistsError, match="Pass a folder"):
        sg.shuffle_to_disk({"a": np.zeros(3)}, tmp_path / "x.npy")
    with pytest.raises(TypeError, match="must be a dict"):
        sg.shuffle_to_disk([np.zeros(3)], tmp_path)


def step_of(x, y, method=sg.SGLD, **options):
    with pm.Model():
        a, b = pm.Minibatch(x, y, batch_size=100)
        beta = pm.Normal("beta", shape=2)
        pm.Normal("y", a @ beta, observed=b, total_size=20_000)
        return method(**(options or {"step_size": 1e-5, "backend": "jax", **UNTUNED}))


ORDERS = {
    "a trend": lambda x, t: (x, x[:, 0] + 3 * t),
    "sorted": lambda x, t: (np.sort(x, axis=0), x[:, 0]),
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
