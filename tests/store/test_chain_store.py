"""The files of a chain: whole or not there, whatever becomes of a write."""

import errno
import itertools
import multiprocessing

import numpy as np
import pytest

from pymc.exceptions import SamplingError
from pymc.util import get_state_from_generator

from pymc_sgmcmc.store import chain_store, files
from pymc_sgmcmc.store.chain_store import Begin, ChainStore
from pymc_sgmcmc.store.files import DamagedError

RECORD = np.dtype([("value x", "<f8", (2,)), ("statistic 0 h", "<f8")])


class KilledError(BaseException):
    """The process ended here."""


def begun():
    return Begin(
        fingerprint={"version": "1"},
        rng=get_state_from_generator(np.random.default_rng(1)),
        tune=2,
        start={"x": np.arange(2.0)},
        after=None,
        layout=[("value x", "<f8", (2,)), ("statistic 0 h", "<f8", ())],
    )


def record(k):
    return np.array(([k, -k], k / 10), dtype=RECORD)


def sampled(folder, draws, every=2):
    """Go on to so many draws with what is there, as a step method does."""
    store = ChainStore(folder)
    store.open()
    if store.begun is None:
        store.begin(begun(), "1")
    total = store.saved.state["total"] if store.saved.draws else 0
    for k in range(store.saved.draws, draws):
        store.add(record(k).tobytes())
        total += k
        if k % every == every - 1 or k == draws - 1:
            store.save(k + 1, [], {"total": total, "noise": np.arange(5.0)})
    store.close()


def assert_right(folder, draws=None):
    store = ChainStore(folder)
    store.read()
    found = list(store.records()) if store.begun else []
    assert [x.tobytes() for x in found] == [record(k).tobytes() for k in range(store.saved.draws)]
    if store.saved.draws:
        assert store.saved.state["total"] == sum(range(store.saved.draws))
    assert draws is None or len(found) == draws
    return len(found)


def count_of_writes(folder, monkeypatch):
    sizes = []
    with monkeypatch.context() as patch:
        original = files.append

        def counted(descriptor, data):
            sizes.append(len(data))
            original(descriptor, data)

        for module in (files, chain_store):
            patch.setattr(module, "append", counted)
        sampled(folder, 9)
    return sizes


def stopped_at(patch, write, byte, error):
    """Let the given write stop after some bytes."""
    original, numbers = files.append, itertools.count()

    def partial(descriptor, data):
        if next(numbers) == write:
            original(descriptor, data[:byte])
            raise error
        original(descriptor, data)

    for module in (files, chain_store):
        patch.setattr(module, "append", partial)


def test_a_chain_killed_inside_any_write_goes_on_from_the_last_state(tmp_path, monkeypatch):
    sizes = count_of_writes(tmp_path / "whole", monkeypatch)
    assert len(sizes) > 15
    expected = {p.name: p.read_bytes() for p in (tmp_path / "whole").iterdir()}
    for write, size in enumerate(sizes):
        for byte in sorted({0, 1, size // 2, size - 1, size}):
            folder = tmp_path / f"{write}-{byte}"
            with monkeypatch.context() as patch:
                stopped_at(patch, write, byte, KilledError())
                with pytest.raises(KilledError):
                    sampled(folder, 9)
            assert_right(folder)
            sampled(folder, 9)
            assert_right(folder, 9)
            assert (folder / "draws").read_bytes() == expected["draws"]


def test_a_chain_killed_again_and_again(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    for _ in range(40):
        with monkeypatch.context() as patch:
            stopped_at(patch, int(rng.integers(1, 8)), int(rng.integers(0, 40)), KilledError())
            try:
                sampled(tmp_path, 25)
            except KilledError:
                assert_right(tmp_path)
    sampled(tmp_path, 25)
    assert_right(tmp_path, 25)


@pytest.mark.parametrize("name", ["begin", "draws", "state-0", "state-1"])
def test_a_file_damaged_at_any_byte_is_seen(tmp_path, name):
    sampled(tmp_path, 9)
    whole = (tmp_path / name).read_bytes()
    for k in range(0, len(whole), max(1, len(whole) // 80)):
        for damaged in (whole[:k], whole[:k] + bytes([whole[k] ^ 1]) + whole[k + 1 :]):
            (tmp_path / name).write_bytes(damaged)
            try:
                found = assert_right(tmp_path)
            except DamagedError as error:
                assert f"{name}' is damaged" in str(error)
                assert f"Remove the folder '{tmp_path}'" in str(error)
                assert not name.startswith("state")
            else:
                # The other state, of one draw or two before
                assert found in {8, 9}
                assert name != "begin"
            (tmp_path / name).write_bytes(whole)
    assert_right(tmp_path, 9)


def test_a_chain_goes_on_beside_a_damaged_state(tmp_path):
    for name in ("state-0", "state-1"):
        folder = tmp_path / name
        sampled(folder, 8)
        (folder / name).write_bytes(b"damaged")
        sampled(folder, 12)
        assert_right(folder, 12)


def test_states_that_are_both_damaged_are_no_beginning(tmp_path):
    sampled(tmp_path, 9)
    for name in ("state-0", "state-1"):
        (tmp_path / name).write_bytes(b"x")
    with pytest.raises(DamagedError, match="run anew, with the same draws"):
        ChainStore(tmp_path).read()


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_a_full_disk_is_named_and_what_was_written_is_kept(tmp_path, monkeypatch, code):
    sizes = count_of_writes(tmp_path / "whole", monkeypatch)
    for write, size in enumerate(sizes):
        folder = tmp_path / f"{code}-{write}"
        with monkeypatch.context() as patch:
            stopped_at(patch, write, size // 2, OSError(code, "no room"))
            with pytest.raises(SamplingError, match="The disk is full") as caught:
                sampled(folder, 9)
        kept = assert_right(folder)
        assert f"'{folder}' keeps the first {kept} draws." in str(caught.value)
        sampled(folder, 9)
        assert_right(folder, 9)


def test_other_errors_of_a_disk_keep_their_names(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        stopped_at(patch, 2, 0, OSError(errno.EIO, "no longer"))
        with pytest.raises(OSError, match="no longer"):
            sampled(tmp_path, 9)
    stopped_at(monkeypatch, 2, 0, PermissionError(errno.EACCES, "not yours", "run/draws"))
    with pytest.raises(PermissionError, match=r"'run/draws' cannot be written .* another path"):
        sampled(tmp_path, 9)


def test_a_chain_has_one_process_at_a_time(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "_PATIENCE", 0.2)
    sampled(tmp_path, 4)
    ours, theirs = multiprocessing.get_context("fork").Pipe()

    def keep():
        store = ChainStore(tmp_path)
        store.open()
        theirs.send("open")
        theirs.recv()

    other = multiprocessing.get_context("fork").Process(target=keep)
    other.start()
    assert ours.recv() == "open"
    with pytest.raises(SamplingError, match=f"by another process \\(number {other.pid}\\)"):
        ChainStore(tmp_path).open()
    other.kill()
    other.join()
    # The system gives it free, however the process ends
    sampled(tmp_path, 6)
    assert_right(tmp_path, 6)


def test_a_store_of_another_format_is_refused(tmp_path, monkeypatch):
    sampled(tmp_path, 2)
    monkeypatch.setattr(chain_store, "_SCHEMA", 2)
    with pytest.raises(ValueError, match=r"another version of pymc_sgmcmc \(1\)"):
        ChainStore(tmp_path)
