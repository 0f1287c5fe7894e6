"""Files that are moved, written anew, cut off or gone: draws stay, rows are those of before."""

import gc
import os
import pickle
import weakref

import numpy as np
import pymc as pm
import pytest

import pymc_sgmcmc as sg

from helpers.rows_in_files import columns_of, write_rows
from helpers.sampling import QUIET
from pymc_sgmcmc.disk import npy, source
from pymc_sgmcmc.disk.on_disk import opened
from pymc_sgmcmc.testing import UNTUNED

ROWS = np.random.default_rng(1).normal(size=400)


def sampled(path, then):
    """Sample, and do something after the last draw."""
    with pm.Model() as model:
        y = pm.Minibatch(sg.on_disk(path, **columns_of(path)), batch_size=50)
        pm.Normal("y", pm.Normal("mu"), observed=y, total_size=len(ROWS))
        step = sg.SGLD(step_size=1e-4, backend="jax", **{**UNTUNED, "thin": 2})
        return model, pm.sample(
            20, tune=0, step=step, chains=1, cores=1, random_seed=1, **QUIET,
            callback=lambda trace, draw: then(path) if draw.draw_idx == 19 else None,
        )  # fmt: skip


def remove(path):
    path.unlink()


def cut_off(path):
    os.truncate(path, path.stat().st_size - 1000)


def rename_over(path):
    other = path.with_name("other" + path.suffix)
    write_rows(other, ROWS[::-1])
    os.replace(other, path)


def write_anew(path):
    write_rows(path, ROWS[::-1])
    file = path / "zarr.json" if path.is_dir() else path
    os.utime(file, ns=(1, 1))


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    path = tmp_path_factory.mktemp("rows") / "x.npy"
    write_rows(path, ROWS)
    return sampled(path, lambda path: None)[1]


@pytest.mark.parametrize(
    ("suffix", "change", "observed"),
    [
        # The descriptor that is open has the rows of before
        (".npy", remove, True),
        (".npy", rename_over, True),
        (".npy", cut_off, False),
        (".npy", write_anew, False),
        # And so have chunks that are kept decoded
        (".parquet", remove, True),
        (".parquet", remove, False),
        (".parquet", rename_over, False),
        (".zarr", write_anew, False),
    ],
)
def test_no_draws_are_lost_by_what_becomes_of_the_file(
    tmp_path, undisturbed, caplog, monkeypatch, suffix, change, observed
):
    path = tmp_path / f"x{suffix}"
    write_rows(path, ROWS)
    if not observed:
        monkeypatch.setattr(source, "_LARGEST_CACHE", 0)
    if observed:
        model, result = sampled(path, change)
        np.testing.assert_array_equal(result.observed_data["y"], ROWS)
        # Of all rows, too
        point = {"mu": np.array(0.3)}
        density = sg.full_data(model).compile_logp(mode="FAST_COMPILE")(point)
        squares = np.append((ROWS - 0.3) ** 2, 0.3**2)
        assert density == pytest.approx(-0.5 * np.sum(squares + np.log(2 * np.pi)), rel=1e-9)
    else:
        with pytest.warns(UserWarning, match="Could not extract data"):
            model, result = sampled(path, change)
        assert "y" not in result["observed_data"]
        assert f"'{tmp_path}" in caplog.text
        assert "left out of observed_data" in caplog.text
        with pytest.raises(sg.DiskError, match=str(tmp_path)):
            source_of(model).whole()
    np.testing.assert_array_equal(result.posterior["mu"], undisturbed.posterior["mu"])


def source_of(model):
    return model.rvs_to_values[model["y"]].owner.inputs[0].owner.op.source


@pytest.mark.parametrize("change", ["removed", "written anew", "a pipe"])
def test_chunks_that_are_changed_before_they_are_read(tmp_path, change):
    path = tmp_path / "x.zarr"
    write_rows(path, ROWS)
    found = opened(path)
    np.testing.assert_array_equal(found.rows(0, 100), ROWS[:100])
    chunk = path / "c" / "2"
    data = chunk.read_bytes()
    chunk.unlink()
    if change == "written anew":
        chunk.write_bytes(data)
        os.utime(chunk, ns=(1, 1))
    elif change == "a pipe":
        if os.name != "posix":
            pytest.skip("there are no pipes")
        os.mkfifo(chunk)
    np.testing.assert_array_equal(found.rows(100, 200), ROWS[100:200])
    with pytest.raises(sg.DiskError, match=r"Rows 200 to 300 .* since the model|2' is no file"):
        found.rows(150, 250)
    with pytest.raises(sg.DiskError, match=r"Rows 200 to 300 .* since the model|2' is no file"):
        found.whole()


def test_chunks_that_were_never_written_are_the_fill_value(tmp_path):
    zarr = pytest.importorskip("zarr")
    array = zarr.create_array(
        tmp_path / "x.zarr", shape=(300,), chunks=(100,), dtype="f8", fill_value=7
    )
    array[100:200] = 1.0
    rows = pickle.loads(pickle.dumps(opened(tmp_path / "x.zarr"))).rows(0, 300)
    np.testing.assert_array_equal(rows, np.repeat([7.0, 1.0, 7.0], 100))


def test_one_file_of_a_folder_is_open_at_a_time(tmp_path):
    for k in range(3):
        write_rows(tmp_path / f"{k}.parquet", ROWS[100 * k : 100 * (k + 1)])
    source = opened(tmp_path, columns="x")
    np.testing.assert_array_equal(source.rows(0, 300), ROWS[:300])
    assert len(source.handles) <= 1
    np.testing.assert_array_equal(source.rows(50, 250), ROWS[50:250])
    assert len(source.handles) <= 1


@pytest.mark.parametrize("mapped", [False, True])
def test_what_was_read_whole_stays_when_the_file_is_cut_off(tmp_path, monkeypatch, mapped):
    monkeypatch.setattr(npy, "_READ", 0 if mapped else 2**20)
    write_rows(tmp_path / "x.npy", ROWS)
    rows = opened(tmp_path / "x.npy")
    os.replace(tmp_path / "x.npy", tmp_path / "moved.npy")
    with pytest.raises(sg.DiskError, match="cannot be opened"):
        rows.whole()
    os.replace(tmp_path / "moved.npy", tmp_path / "x.npy")
    found = rows.whole()
    np.testing.assert_array_equal(found, ROWS)
    found[0] = 3.0
    np.testing.assert_array_equal(rows.whole(), ROWS)
    if not mapped:
        os.truncate(tmp_path / "x.npy", 10)
        # Pages of a mapped file would be gone
        assert found[-1] == ROWS[-1]


@pytest.mark.parametrize("suffix", [".npy", ".zarr", ".parquet"])
def test_a_model_that_is_done_with_takes_no_memory(tmp_path, suffix):
    path = tmp_path / f"x{suffix}"
    write_rows(path, ROWS)

    def used():
        model, _ = sampled(path, lambda path: None)
        rows = source_of(model)
        again = pickle.loads(pickle.dumps(model.rvs_to_values[model["y"]].owner.inputs[0]))
        assert again.owner.op.source is not rows
        np.testing.assert_array_equal(again.eval(), ROWS)
        return weakref.ref(rows), rows.name

    before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    rows, name = used()
    gc.collect()
    assert rows() is None, name
    if before and suffix == ".npy":
        assert len(os.listdir("/proc/self/fd")) <= before


@pytest.mark.parametrize(
    ("rows", "dtype", "said"),
    [
        (ROWS, "int32", r"beyond the range of int32, or not whole, such as 0\.34"),
        (np.array([1.0, np.nan]), "int32", "such as nan"),
        (np.array([1.0, 2.0]), "bool", r"range of bool, or not whole, such as 2\.0"),
        (np.array([1, 300]), "int8", "such as 300"),
        (np.array([1, 2**40]), None, "beyond the range of int32"),
        (np.array([1, 1e300]), "float32", r"range of float32, such as 1e\+300\. .*, or scale them"),
    ],
)
def test_numbers_that_a_type_cannot_hold_are_refused(tmp_path, monkeypatch, rows, dtype, said):
    np.save(tmp_path / "x.npy", rows)
    stored = opened(tmp_path / "x.npy", dtype=dtype)
    message = f"x.npy' has numbers that are .*{said}"
    with pytest.raises(sg.DiskError, match=message):
        stored.rows(0, 2)
    # Mapped into memory
    monkeypatch.setattr(npy, "_READ", 0)
    with pytest.raises(sg.DiskError, match=message):
        stored.whole()


def test_a_refused_chunk_is_refused_again(tmp_path):
    path = tmp_path / "x.parquet"
    write_rows(path, np.full(10, 2**32 + 3))
    stored = opened(path, **columns_of(path))
    for _ in range(2):
        with pytest.raises(sg.DiskError, match="beyond the range of int32"):
            stored.rows(0, 3)


def test_numbers_that_a_type_can_hold_are_taken(tmp_path):
    for rows, dtype in [
        ([1.0, 2.0], "int32"), ([0, 1], "bool"), ([True, False], "int32"),
        ([-np.inf, np.nan], "float32"),
    ]:  # fmt: skip
        np.save(tmp_path / "x.npy", np.array(rows))
        found = opened(tmp_path / "x.npy", dtype=dtype).rows(0, 2)
        np.testing.assert_array_equal(found, rows)
        assert found.dtype == dtype
