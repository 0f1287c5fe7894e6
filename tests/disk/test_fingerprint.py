"""A store knows rows on disk by what they are, and not by where they are."""

import shutil

import numpy as np
import pymc as pm
import pytest

import pymc_sgmcmc as sg

from helpers.rows_in_files import columns_of, write_rows
from pymc_sgmcmc.store.fingerprint import differences, fingerprint


def lines_of(path):
    with pm.Model() as model:
        x = sg.on_disk(path, **columns_of(path))
        mu = pm.Normal("mu")
        pm.Normal(
            "y", mu, observed=pm.Minibatch(x, batch_size=10), total_size=len(x.owner.op.source)
        )
    return fingerprint(model, [])


@pytest.mark.parametrize("name", ["x.npy", "x.zarr", "x.parquet"])
def test_the_same_rows_elsewhere_are_the_same(tmp_path, name):
    write_rows(tmp_path / "a" / name, np.arange(1000.0))
    first = lines_of(tmp_path / "a" / name)
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    assert not differences(first, lines_of(tmp_path / "b" / name))
    write_rows(tmp_path / "c" / name, np.arange(1000.0)[::-1].copy())
    assert differences(first, lines_of(tmp_path / "c" / name)) == ["the data of 'y' differ"]


@pytest.mark.parametrize("name", ["x.npy", "x.zarr", "x.parquet"])
@pytest.mark.parametrize("row", [0, 150, 499, 999])
def test_one_other_row_of_few_is_seen(tmp_path, name, row):
    rows = np.arange(1000.0)
    write_rows(tmp_path / "a" / name, rows)
    rows[row] += 1e-9
    write_rows(tmp_path / "b" / name, rows)
    lines = [lines_of(tmp_path / folder / name) for folder in "ab"]
    assert differences(*lines) == ["the data of 'y' differ"]


def test_other_rows_have_other_fingerprints(tmp_path):
    path = tmp_path / "x.npy"
    write_rows(path, np.arange(1000.0))
    first = lines_of(path)
    write_rows(path, np.arange(1001.0))
    assert "the data of 'y' differ" in differences(first, lines_of(path))


def test_the_type_that_rows_are_read_as_counts(tmp_path):
    write_rows(tmp_path / "x.npy", np.arange(1000.0))
    read = [sg.on_disk(tmp_path / "x.npy", dtype=dtype) for dtype in ("float64", "float32")]
    first, second = (x.owner.op.source.fingerprint() for x in read)
    assert first != second
