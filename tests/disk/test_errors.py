"""What cannot be read or drawn is refused in a sentence."""

import errno
import json
import os
import pickle

from contextlib import nullcontext

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
import xarray as xr

from pymc.backends.arviz import find_observations

import pymc_sgmcmc as sg

from pymc_sgmcmc.disk import on_disk
from pymc_sgmcmc.disk.on_disk import opened
from pymc_sgmcmc.testing import UNTUNED


@pytest.fixture
def folder(tmp_path):
    rng = np.random.default_rng(1)
    np.save(tmp_path / "x.npy", rng.normal(size=(1000, 3)))
    np.save(tmp_path / "y.npy", rng.normal(size=1000))
    return tmp_path


def model_of(x, y, batch_size=100, total_size=1000):
    with pm.Model() as model:
        a, b = pm.Minibatch(x, y, batch_size=batch_size)
        beta = pm.Normal("beta", shape=3)
        pm.Normal("y", a @ beta, observed=b, total_size=total_size)
    return model


def of_files(folder):
    return model_of(sg.on_disk(folder / "x.npy"), sg.on_disk(folder / "y.npy"))


def step_of(model, **options):
    with model:
        return sg.SGLD(step_size=1e-5, backend="jax", **{**UNTUNED, **options})


@pytest.mark.parametrize(
    ("name", "array", "message"),
    [
        ("fortran.npy", np.asfortranarray(np.ones((5, 2))), "column by column"),
        ("words.npy", np.array(["a", "b"]), "no numbers"),
        ("empty.npy", np.ones((0, 3)), "no rows"),
        ("number.npy", np.array(1.0), "no rows"),
    ],
)
def test_arrays_that_have_no_rows_of_numbers(tmp_path, name, array, message):
    np.save(tmp_path / name, array)
    with pytest.raises(ValueError, match=message):
        sg.on_disk(tmp_path / name)


def test_files_of_another_kind(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"There is no file"):
        sg.on_disk(tmp_path / "x.npy")
    (tmp_path / "x.csv").write_text("1,2\n")
    with pytest.raises(ValueError, match=r"neither a .npy file"):
        sg.on_disk(tmp_path / "x.csv")
    (tmp_path / "x.npy").write_bytes(b"no array")
    with pytest.raises(ValueError, match=r"no .npy file"):
        sg.on_disk(tmp_path / "x.npy")
    (tmp_path / "rows.parquet" / "part").mkdir(parents=True)
    with pytest.raises(ValueError, match=r"rows.parquet' is neither a .npy file"):
        sg.on_disk(tmp_path / "rows.parquet")


def test_a_file_that_is_shorter_than_it_says(folder):
    with open(folder / "x.npy", "r+b") as file:
        file.truncate(5000)
    with pytest.raises(ValueError, match=r"not a whole one"):
        sg.on_disk(folder / "x.npy")


def test_columns_and_groups(folder):
    pa, zarr = pytest.importorskip("pyarrow"), pytest.importorskip("zarr")
    from pyarrow import parquet

    parquet.write_table(pa.table({"a": [1.0, 2.0], "b": ["u", "v"]}), folder / "t.parquet")
    assert sg.on_disk(folder / "t.parquet", columns="a").type.shape == (2,)
    with pytest.raises(ValueError, match=r"no column 'c': it has 'a', 'b'"):
        sg.on_disk(folder / "t.parquet", columns="c")
    with pytest.raises(ValueError, match=r"column 'b' .* holds no numbers"):
        sg.on_disk(folder / "t.parquet")
    zarr.open_group(folder / "g.zarr", mode="w").create_array("x", data=np.ones(3))
    with pytest.raises(ValueError, match=r"is a zarr group and no array.*'x'"):
        sg.on_disk(folder / "g.zarr")


def test_columns_that_are_no_numbers_in_one_of_the_files(tmp_path):
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    def write(name, **columns):
        tmp_path.joinpath(name).parent.mkdir(exist_ok=True)
        parquet.write_table(pa.table(columns), tmp_path / name)

    codes = pa.array(["u", "v"]).dictionary_encode()
    write("rows/0.parquet", a=[1.0, 2.0], b=[1, 2], c=codes)
    write("rows/1.parquet", a=["u", "v"], c=codes)
    for column, message in [
        ("a", r"column 'a' of '.*1.parquet' holds no numbers \(string\)"),
        ("b", r"1.parquet' has no column 'b': it has 'a', 'c'"),
        ("c", r"column 'c' of '.*0.parquet' holds no numbers \(dictionary<"),
        ([], "columns is empty"),
    ]:
        with pytest.raises(ValueError, match=message):
            sg.on_disk(tmp_path / "rows", columns=column)


def test_columns_are_those_of_a_data_frame_without_its_index(tmp_path):
    pytest.importorskip("pyarrow")
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"a": [1.0, 2.0], "b": [3.0, 4.0]}, index=[7, 5])
    frame.to_parquet(tmp_path / "t.parquet")
    rows = sg.on_disk(tmp_path / "t.parquet").owner.op.source.rows(0, 2)
    np.testing.assert_array_equal(rows, frame)
    chosen = sg.on_disk(tmp_path / "t.parquet", columns=frame.columns[::-1])
    np.testing.assert_array_equal(chosen.owner.op.source.rows(0, 2), frame[["b", "a"]])


def test_what_is_no_path():
    with pytest.raises(TypeError, match=r"got ndarray. Arrays in memory are given"):
        sg.on_disk(np.zeros(3))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": 3}, "name must be a word"),
        ({"dims": 3}, "dims must be a word, or a list of words"),
        ({"dims": ["obs", 3]}, "dims must be a word, or a list of words"),
        ({"dims": "obs"}, "give a dim, or None, for each axis"),
        ({"dims": ("short", None)}, "'x' has 1000 along the dim 'short', whose coords have 7"),
        ({"dims": ("obs", "obs")}, "'x' has 3 along the dim 'obs', whose coords have 1000"),
        ({"dtype": "words"}, "dtype='words' is no type of numbers"),
        ({"dtype": "complex128"}, "dtype='complex128' is no type of numbers"),
        ({"dtype": "longdouble"}, "dtype='longdouble' is no type of numbers"),
        ({"dtype": 7}, "dtype=7 is no type of numbers"),
        ({"columns": "a"}, "of parquet only"),
    ],
)
def test_arguments_are_refused_by_name(folder, options, message):
    with (
        pm.Model(coords={"short": range(7)}),
        pytest.raises((TypeError, ValueError), match=message),
    ):
        sg.on_disk(folder / "x.npy", **options)


@pytest.mark.parametrize("columns", [3, [3], ["a", "a"], {"a": 1}, [["a", "b"]], []])
def test_columns_that_are_no_names(tmp_path, columns):
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    parquet.write_table(pa.table({"a": [1.0], "b": [2.0]}), tmp_path / "t.parquet")
    with pytest.raises(ValueError, match=r"columns (must be different names|is empty)"):
        sg.on_disk(tmp_path / "t.parquet", columns=columns)


@pytest.mark.skipif(os.name != "posix", reason="there are no pipes")
@pytest.mark.parametrize("name", ["p.npy", "p.parquet", "p.zarr/zarr.json", "parts/0.parquet"])
def test_a_pipe_is_not_waited_for(tmp_path, name):
    (tmp_path / name).parent.mkdir(exist_ok=True)
    os.mkfifo(tmp_path / name)
    with pytest.raises((ValueError, sg.DiskError), match=r"is no file|is neither"):
        sg.on_disk(tmp_path / name.split("/")[0])


@pytest.mark.parametrize(
    ("shape", "chunks", "message"),
    [
        ((10**12,), (10,), "these are too many"),
        ((10, 10**12), (1, 10), "these are too many"),
        ((10**12,), (10**12,), r"chunks of 8e\+03 GB"),
        ((10**10,), (10**6,), r"more than 2\^31 - 1"),
        ((0, 3), (1, 3), "has no rows"),
    ],
)
def test_sizes_that_no_file_has(tmp_path, shape, chunks, message):
    zarr = pytest.importorskip("zarr")
    zarr.create_array(tmp_path / "x.zarr", shape=shape, chunks=chunks, dtype="f8")
    with pytest.raises(ValueError, match=message):
        sg.on_disk(tmp_path / "x.zarr")


@pytest.mark.parametrize(
    "header",
    [
        "{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000, 1000000000000)}",
        "{'descr': '<f8', 'fortran_order': False, 'shape': (-1, 2)}",
        "{'descr': '<f8', 'fortran_order': False, 'shape': (True,)}",
        "{'descr': '|O', 'fortran_order': False, 'shape': (2,)}",
        "{'descr': '<f8', 'shape'",
        "(" * 500,
    ],
)
@pytest.mark.filterwarnings("ignore:overflow encountered")
def test_a_header_that_holds_anything(tmp_path, header):
    text = header.encode() + b"\n"
    content = b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + bytes(100)
    (tmp_path / "x.npy").write_bytes(content)
    with pytest.raises(ValueError, match=r"x.npy' is no .npy file of numbers"):
        sg.on_disk(tmp_path / "x.npy")


@pytest.mark.parametrize(
    "codecs", [{"filters": [{"id": "pickle"}]}, {"compressor": {"id": "pickle"}}]
)
@pytest.mark.parametrize("dtype", ["<f8", "|O"])
def test_chunks_that_would_be_unpickled(tmp_path, codecs, dtype):
    zarr = pytest.importorskip("zarr")

    class Touch:
        def __reduce__(self):
            return open, (str(tmp_path / "executed"), "w")

    zarr.create_array(
        tmp_path / "x.zarr", data=np.ones(4), chunks=4, zarr_format=2, compressors=None
    )
    described = tmp_path / "x.zarr" / ".zarray"
    changed = {**json.loads(described.read_text()), **codecs, "dtype": dtype}
    described.write_text(json.dumps(changed))
    (tmp_path / "x.zarr" / "0").write_bytes(pickle.dumps(Touch()))
    with pytest.raises(sg.DiskError, match=r"x.zarr.*pickle"):
        sg.on_disk(tmp_path / "x.zarr")
    assert not (tmp_path / "executed").exists()


@pytest.mark.parametrize("path", ["", "a\0b", "n" * 300, "~nobody-of-this-name/x.npy"])
def test_paths_that_there_cannot_be(path):
    with pytest.raises(ValueError, match=r"path must be the path of a file or folder.*\(.+\)"):
        sg.on_disk(path)


@pytest.mark.parametrize("code", [errno.EIO, errno.ESTALE, errno.ETIMEDOUT])
@pytest.mark.parametrize("call", ["stat", "preadv", "open"])
def test_a_disk_that_fails_is_named(folder, monkeypatch, code, call):
    source = opened(folder / "x.npy")
    original = getattr(os, call)

    def failing(path, *arguments):
        if isinstance(path, str | os.PathLike) and "x.npy" not in str(path):
            return original(path, *arguments)
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patch:
        patch.setattr(os, call, failing)
        with pytest.raises(sg.DiskError, match=rf"x.npy' cannot be .*: {os.strerror(code)}"):
            source.whole()
    assert source.whole().shape == (1000, 3)


def test_arrays_of_different_lengths(folder):
    np.save(folder / "y.npy", np.zeros(999))
    with pytest.raises(ValueError, match=r"different lengths, \[1000, 999\]"):
        step_of(of_files(folder))


@pytest.mark.parametrize(
    ("dtype", "attributes", "refused"),
    [
        ("i2", {"scale_factor": 0.1, "_FillValue": -9}, True),
        ("f4", {"add_offset": 3.0}, True),
        ("f8", {"_FillValue": "AAAAAAAA+H8=", "units": "m"}, False),
        ("f8", {"_FillValue": "AAAAAAA4j8A="}, True),
        ("i8", {"missing_value": -9}, True),
        ("i2", {"_Unsigned": "true"}, True),
    ],
)
def test_numbers_that_xarray_packed(tmp_path, dtype, attributes, refused):
    zarr = pytest.importorskip("zarr")
    array = zarr.create_array(tmp_path / "x.zarr", shape=(9,), chunks=(3,), dtype=dtype)
    array.attrs.update(attributes)
    with pytest.raises(ValueError, match="is packed, with") if refused else nullcontext():
        sg.on_disk(tmp_path / "x.zarr")


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize(
    ("x", "encoding", "refused"),
    [
        ([1.0, np.nan], {"dtype": "int16", "_FillValue": -999}, True),
        ([1.0, np.nan], {"_FillValue": -999.0}, True),
        ([1.0, np.nan], {}, False),
        ([1, 0], {}, False),
    ],
)
def test_missing_numbers_that_xarray_writes(tmp_path, x, encoding, refused, zarr_format):
    pytest.importorskip("zarr")
    rows = xr.Dataset({"x": ("row", x)})
    rows.to_zarr(
        tmp_path / "a", zarr_format=zarr_format, encoding={"x": encoding}, consolidated=False
    )
    with pytest.raises(ValueError, match="_FillValue in its") if refused else nullcontext():
        np.testing.assert_array_equal(sg.on_disk(tmp_path / "a" / "x").eval(), x)


def test_rows_that_are_used_whole(folder):
    with pm.Model() as model:
        beta = pm.Normal("beta", shape=3)
        pm.Normal("y", sg.on_disk(folder / "x.npy") @ beta, observed=np.zeros(1000))
    with pytest.raises(ValueError, match=r"used as a whole.*Pass batch_size= to the step method"):
        step_of(model)


def test_rows_that_are_changed_before_they_are_drawn(folder):
    x = pt.log1p(sg.on_disk(folder / "x.npy") ** 2)
    with pytest.raises(ValueError, match=r"are changed before pm.Minibatch draws from them"):
        step_of(model_of(x, sg.on_disk(folder / "y.npy")))


def test_single_rows_at_random(folder):
    model = of_files(folder)
    with pytest.raises(ValueError, match=r"batch='random'.*on disk"):
        step_of(model, batch="random")


def drawn(step, model, then, draws=40):
    """Draw, do something, and draw on."""
    point = model.initial_point()
    step.setup_chain(np.random.default_rng(1), 0, draws)
    for k in range(draws):
        if k == 2:
            then()
        point, _ = step.step(point)


def test_a_file_that_is_cut_off_while_it_is_sampled_from(folder):
    model = of_files(folder)
    with pytest.raises(sg.DiskError, match=r"x.npy' .*cut off"):
        drawn(step_of(model), model, lambda: os.truncate(folder / "x.npy", 1000))


def test_a_file_that_is_written_to_while_it_is_sampled_from(folder):
    model = of_files(folder)

    def write():
        np.lib.format.open_memmap(folder / "y.npy", "r+")[:] = 1.0
        os.utime(folder / "y.npy", ns=(1, 1))

    with pytest.raises(sg.DiskError, match=r"y.npy' was written to"):
        drawn(step_of(model), model, write)


def test_a_file_that_vanishes(folder):
    model = of_files(folder)
    (folder / "x.npy").unlink()
    with pytest.raises(sg.DiskError, match=r"x.npy' cannot be opened"):
        step_of(model)


def test_a_chunk_that_vanishes(folder):
    zarr = pytest.importorskip("zarr")
    zarr.create_array(folder / "x.zarr", data=np.ones((1000, 3)), chunks=(100, 3))
    model = model_of(sg.on_disk(folder / "x.zarr"), sg.on_disk(folder / "y.npy"))
    step = step_of(model)
    (folder / "x.zarr" / "zarr.json").unlink()
    with pytest.raises(sg.DiskError, match=r"x.zarr.*no longer there|cannot be"):
        drawn(step, model, lambda: None)


def test_rows_that_are_not_finite_are_named(folder):
    y = np.load(folder / "y.npy")
    y[[700, 701]] = np.nan
    np.save(folder / "y.npy", y)
    model = of_files(folder)
    with model, pytest.raises(pm.exceptions.SamplingError, match=r"y.npy' has NaN in 2 of 1000"):
        drawn(sg.MSGNHT(backend="jax"), model, lambda: None)


def test_result_holds_few_observed_rows_and_not_many(folder, monkeypatch, caplog):
    model = of_files(folder)
    caplog.set_level("INFO", logger="pymc.sgmcmc")
    np.testing.assert_array_equal(find_observations(model)["y"], np.load(folder / "y.npy"))
    monkeypatch.setattr(on_disk, "_MOST_OBSERVED", 7999)
    with pytest.warns(UserWarning, match="Could not extract data from symbolic observation y"):
        assert not find_observations(model)
    assert "'y' is left out of observed_data" in caplog.text
    with pytest.raises(TypeError, match="Read some of them"):
        sg.on_disk(folder / "y.npy").eval()


def test_the_length_of_a_batch_is_no_total_size(folder):
    with pm.Model():
        x, y = pm.Minibatch(*map(sg.on_disk, (folder / "x.npy", folder / "y.npy")), batch_size=100)
        mean = x @ pm.Normal("beta", shape=3)
        pm.Normal("y", mean, observed=y, total_size=[y.shape[0]])
        with pytest.warns(
            UserWarning, match=r"total_size=100, but .* 1000 rows: .* counts 0.1 times"
        ):
            sg.SGLD(step_size=1e-5, backend="jax", **UNTUNED)
