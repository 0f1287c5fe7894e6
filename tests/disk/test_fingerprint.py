"""A store knows rows on disk by what they are, and not by where they are."""

import shutil

import numpy as np
import pymc as pm
import pytest

import pymc_sgmcmc as sg

from pymc_sgmcmc.store.fingerprint import differences, fingerprint


def lines_of(folder, format_of="npy"):
    with pm.Model() as model:
        x = sg.on_disk(folder / f"x.{format_of}", columns="x" if format_of == "parquet" else None)
        mu = pm.Normal("mu")
        pm.Normal(
            "y", mu, observed=pm.Minibatch(x, batch_size=10), total_size=len(x.owner.op.source)
        )
    return fingerprint(model, [])


def write(folder, rows, format_of="npy"):
    folder.mkdir(exist_ok=True)
    if format_of == "npy":
        np.save(folder / "x.npy", rows)
    elif format_of == "zarr":
        zarr = pytest.importorskip("zarr")
        zarr.create_array(folder / "x.zarr", data=rows, chunks=(100,))
    else:
        pa = pytest.importorskip("pyarrow")
        from pyarrow import parquet

        parquet.write_table(pa.table({"x": rows}), folder / "x.parquet", row_group_size=100)


@pytest.mark.parametrize("format_of", ["npy", "zarr", "parquet"])
def test_the_same_rows_elsewhere_are_the_same(tmp_path, format_of):
    write(tmp_path / "a", np.arange(1000.0), format_of)
    first = lines_of(tmp_path / "a", format_of)
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    assert not differences(first, lines_of(tmp_path / "b", format_of))
    write(tmp_path / "c", np.arange(1000.0)[::-1].copy(), format_of)
    assert differences(first, lines_of(tmp_path / "c", format_of)) == ["the data of 'y' differ"]


@pytest.mark.parametrize("format_of", ["npy", "zarr", "parquet"])
@pytest.mark.parametrize("row", [0, 150, 499, 999])
def test_one_other_row_of_few_is_seen(tmp_path, format_of, row):
    rows = np.arange(1000.0)
    write(tmp_path / "a", rows, format_of)
    rows[row] += 1e-9
    write(tmp_path / "b", rows, format_of)
    lines = [lines_of(tmp_path / name, format_of) for name in "ab"]
    assert differences(*lines) == ["the data of 'y' differ"]


def test_other_rows_have_other_fingerprints(tmp_path):
    write(tmp_path / "a", np.arange(1000.0))
    first = lines_of(tmp_path / "a")
    write(tmp_path / "a", np.arange(1001.0))
    assert "the data of 'y' differ" in differences(first, lines_of(tmp_path / "a"))


def test_the_type_that_rows_are_read_as_counts(tmp_path):
    write(tmp_path / "a", np.arange(1000.0))
    read = [sg.on_disk(tmp_path / "a" / "x.npy", dtype=dtype) for dtype in ("float64", "float32")]
    first, second = (x.owner.op.source.fingerprint() for x in read)
    assert first != second
