"""Rows on disk give the draws of the same rows in memory."""

import multiprocessing
import os

import arviz as az
import numpy as np
import pymc as pm
import pytensor
import pytest

import pymc_sgmcmc as sg

from helpers.sampling import run
from pymc_sgmcmc.disk.on_disk import opened
from pymc_sgmcmc.model import batch_schemes

N, BATCH = 5003, 100
BY_HAND = {"step_size": 1e-4, "thin": 20, "batches": 1, "scale": None, "gradient": "plain"}
ANCHORED = {"gradient": sg.ControlVariates(), "thin": 20}


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(1)
    x = rng.normal(size=(N, 3)).astype("float32")
    y = rng.random(N) < 1 / (1 + np.exp(-x @ [0.5, -1.0, 0.2]))
    return x, y.astype("int64")


def logistic(x, y):
    with pm.Model() as model:
        a, b = pm.Minibatch(x, y, batch_size=BATCH)
        beta = pm.Normal("beta", 0, 2, shape=3)
        pm.Bernoulli("y", logit_p=a @ beta, observed=b, total_size=N)
    return model


def sampled(x, y, cores, *, chains=1, **options):
    """Return draws, a statistic of each, and the chain."""
    with logistic(x, y):
        method = sg.MSGNHT(**options)
        # Sources are sent to a process that has read nothing
        context = "forkserver" if cores > 1 else None
        result = run(method, 20, chains, 3, tune=10, cores=cores, mp_ctx=context)
    return result["posterior"]["beta"].values, result["sample_stats"]["batch_logp"].values, method


@pytest.fixture(scope="module")
def files(data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    for name, array in zip("xy", data, strict=True):
        np.save(folder / f"{name}.npy", array)
    return folder / "x.npy", folder / "y.npy"


@pytest.fixture(scope="module")
def from_files(files):
    """The draws of two chains, one after the other, in the process that runs the tests."""
    return sampled(*map(sg.on_disk, files), 1, chains=2, backend="jax", **BY_HAND)[0]


@pytest.mark.parametrize(
    ("options", "backend"),
    [
        pytest.param(BY_HAND, "jax", id="plain"),
        pytest.param({**ANCHORED, "batches": 1}, "jax", id="known blocks", marks=pytest.mark.slow),
        pytest.param({**ANCHORED, "batches": 4}, "jax", id="joined blocks", marks=pytest.mark.slow),
        pytest.param(
            {**ANCHORED, "batches": 4}, "numba", id="joined blocks-numba", marks=pytest.mark.slow
        ),
    ],
)
def test_the_bits_of_the_same_rows_in_memory(data, tmp_path, monkeypatch, backend, options):
    # Runs of a single batch: the offsets are those of rows in memory
    monkeypatch.setattr(batch_schemes, "BYTES_OF_A_RUN", 1)
    x, y = data
    draws, logp, method = sampled(x, y.astype("int32"), 1, backend=backend, **options)
    order = np.random.default_rng([method.chain.row_order, 0]).permutation(N)
    np.save(tmp_path / "x.npy", x[order])
    np.save(tmp_path / "y.npy", y[order])
    again, logp_again, _ = sampled(
        sg.on_disk(tmp_path / "x.npy", dtype="float32"),
        sg.on_disk(tmp_path / "y.npy"),
        1,
        backend=backend,
        **options,
    )
    np.testing.assert_array_equal(draws, again)
    np.testing.assert_array_equal(logp, logp_again)


def written(x, y, folder):
    """Return the rows in other formats, float64 and int8 among the types of numbers."""
    pa, zarr = pytest.importorskip("pyarrow"), pytest.importorskip("zarr")
    from pyarrow import parquet

    store = zarr.open_group(folder / "rows.zarr", mode="w")
    store.create_array("x", data=x.astype("float64"), chunks=(70, 2))
    store.create_array("y", data=y.astype("int8"), chunks=(500,), shards=(1000,))
    yield sg.on_disk(folder / "rows.zarr" / "x"), sg.on_disk(folder / "rows.zarr" / "y")
    columns = {"a": x[:, 0].astype("float64"), "b": x[:, 1], "c": x[:, 2], "y": y.astype(bool)}
    table = pa.table(columns)
    (folder / "parts").mkdir()
    parquet.write_table(table[:2000], folder / "parts" / "0.parquet", row_group_size=300)
    parquet.write_table(table[2000:], folder / "parts" / "1.parquet")
    names = ["a", "b", "c"]
    yield (
        sg.on_disk(folder / "parts", columns=names),
        sg.on_disk(folder / "parts", columns="y", dtype="int32"),
    )


def test_all_formats_and_types_of_numbers_give_the_same_draws(data, files, from_files, tmp_path):
    # Rows in memory can be drawn together with rows on disk
    with_memory = sg.on_disk(files[0]), data[1].astype("int32")
    for x, y in (*written(*data, tmp_path), with_memory):
        draws = sampled(x, y, 1, backend="jax", **BY_HAND)[0]
        np.testing.assert_array_equal(draws, from_files[:1])


@pytest.mark.slow
def test_processes_and_threads_change_nothing(files, from_files):
    multiprocessing.set_forkserver_preload(["pymc_sgmcmc"])  # else each process imports it
    draws = sampled(*map(sg.on_disk, files), 2, chains=2, backend="jax", **BY_HAND)[0]
    np.testing.assert_array_equal(draws, from_files)
    assert not np.array_equal(draws[0], draws[1])


def test_rows_of_a_dim_are_drawn_as_by_minibatch(files, from_files):
    with pm.Model() as model:
        rows = sg.on_disk(files[0], dims=("obs", "column"))
        labels = sg.on_disk(files[1], name="labels", dims="obs")
        beta = pm.Normal("beta", 0, 2, shape=3)
        pm.Bernoulli("y", logit_p=rows @ beta, observed=labels, dims="obs")
        step = sg.MSGNHT(backend="jax", batch_size=BATCH, batch_dim="obs", **BY_HAND)
        result = run(step, 20, 1, 3, tune=10)
    assert model.dim_lengths["obs"].eval() == N
    np.testing.assert_array_equal(result["posterior"]["beta"].values, from_files[:1])


@pytest.mark.filterwarnings("ignore:Numba will use object mode to run RowsOnDisk:UserWarning")
def test_pymc_computes_with_rows_of_a_dim_and_leaves_the_file_as_it_is(data, tmp_path):
    found = []
    path = tmp_path / "x.npy"
    np.save(path, data[0].astype("float64"))
    before = path.read_bytes()
    # What is compiled may write into its arguments
    for rows, mode in ((sg.on_disk, "NUMBA"), (np.load, "FAST_COMPILE")):
        with pytensor.config.change_flags(mode=mode):
            with pm.Model() as model:
                dims = {"dims": ("obs", None)} if rows is sg.on_disk else {}
                beta = pm.Normal("beta", 0, 2, shape=3)
                pm.Normal("y", rows(path, **dims) * beta, 1, observed=2 * data[0])
            point = {"beta": np.array([0.1, 0.2, 0.3])}
            drawn = az.from_dict({"posterior": {"beta": point["beta"][None, None]}})
            pm.compute_log_likelihood(drawn, model=model, progressbar=False)
            found.append((model.compile_dlogp()(point), drawn["log_likelihood"]["y"].values))
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10)
    assert path.read_bytes() == before


def test_dims_need_a_model_and_one_for_each_axis(data, tmp_path):
    np.save(tmp_path / "x.npy", data[0])
    with pytest.raises(TypeError, match=r"call sg.on_disk inside a"):
        sg.on_disk(tmp_path / "x.npy", dims=("obs", None))
    with pm.Model(), pytest.raises(ValueError, match="give a dim, or None, for each axis"):
        sg.on_disk(tmp_path / "x.npy", dims="obs")


def test_rows_are_read_where_there_is_no_pread(tmp_path, monkeypatch):
    rows = np.arange(3000.0).reshape(1000, 3)
    np.save(tmp_path / "x.npy", rows)
    usual = opened(tmp_path / "x.npy").fingerprint()
    for name in ("pread", "preadv"):
        monkeypatch.delattr(os, name)
    source = opened(tmp_path / "x.npy")
    np.testing.assert_array_equal(source.rows(10, 900), rows[10:900])
    out = np.empty((20, 3))
    source.read_blocks(np.array([5, 700]), 10, out)
    np.testing.assert_array_equal(out, rows[[*range(5, 15), *range(700, 710)]])
    assert source.fingerprint() == usual
