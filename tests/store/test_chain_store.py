"""The files of a chain: whole or not there, whatever becomes of a write."""

import dataclasses
import errno
import multiprocessing
import os
import shutil
import threading

import numpy as np
import pytest

from pymc.exceptions import SamplingError
from pymc.util import get_state_from_generator

from helpers.kept import KilledError, failing_writes, open_in_another_process
from pymc_sgmcmc.store import chain_store, files
from pymc_sgmcmc.store.chain_store import ChainStore
from pymc_sgmcmc.store.files import DamagedError
from pymc_sgmcmc.store.formats import SCHEMA, Begin, Saved, packed, unpacked

RECORD = np.dtype([("value x", "<f8", (2,)), ("statistic 0 h", "<f8")])


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
        store.begin(begun())
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

        patch.setattr(files, "append", counted)
        sampled(folder, 9)
    return sizes


def stopped_at(patch, write, byte, error):
    """Let the given write stop after some bytes."""
    failing_writes(patch, lambda number: number == write, error, byte)


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


def test_a_lack_of_memory_is_no_damage(tmp_path, monkeypatch):
    sampled(tmp_path, 9)
    store = ChainStore(tmp_path)

    def too_large(data):
        if "schema" not in (tree := unpacked(data)):
            raise MemoryError
        return tree

    monkeypatch.setattr(chain_store, "unpacked", too_large)
    with pytest.raises(MemoryError):
        store.read()


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_a_full_disk_is_named_and_what_was_written_is_kept(tmp_path, monkeypatch, code):
    sizes = count_of_writes(tmp_path / "whole", monkeypatch)
    for write, size in enumerate(sizes):
        folder = tmp_path / f"{code}-{write}"
        with monkeypatch.context() as patch:
            stopped_at(patch, write, size // 2, OSError(code, "no room"))
            with pytest.raises(SamplingError, match="the disk is full") as caught:
                sampled(folder, 9)
        kept = assert_right(folder)
        assert f"'{folder}' keeps the first {kept} draws." in str(caught.value)
        sampled(folder, 9)
        assert_right(folder, 9)


@pytest.mark.parametrize(
    "code", [errno.EIO, errno.ESTALE, errno.ETIMEDOUT, getattr(errno, "EREMOTEIO", errno.EIO)]
)
@pytest.mark.parametrize("call", ["write", "fsync", "open", "replace"])
def test_other_errors_of_a_disk_are_named_and_what_was_written_is_kept(
    tmp_path, monkeypatch, code, call
):
    sampled(tmp_path, 4)
    original = getattr(os, call)

    def failing(*arguments):
        if call in ("open", "replace") and "state" not in str(arguments[0]):
            return original(*arguments)
        raise OSError(code, os.strerror(code), *arguments[:1] if call == "open" else ())

    with monkeypatch.context() as patch:
        patch.setattr(os, call, failing)
        with pytest.raises(SamplingError, match=r"cannot be (written|read)") as caught:
            sampled(tmp_path, 9)
    assert str(tmp_path) in str(caught.value)
    assert os.strerror(code) in str(caught.value)
    assert "run the same line again" in str(caught.value)
    assert_right(tmp_path, 4)
    sampled(tmp_path, 9)
    assert_right(tmp_path, 9)


def test_a_folder_that_is_not_ours_to_write_is_named(tmp_path, monkeypatch):
    stopped_at(monkeypatch, 2, 0, PermissionError(errno.EACCES, "not yours", "run/draws"))
    with pytest.raises(SamplingError, match=r"'run/draws' cannot be written .* another path"):
        sampled(tmp_path, 9)


@pytest.mark.parametrize("code", [errno.EINVAL, errno.ENOTSUP, errno.EBADF])
def test_a_file_system_that_does_not_sync_holds_a_store(tmp_path, monkeypatch, code):
    def refuse(descriptor):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "fsync", refuse)
    sampled(tmp_path, 9)
    assert_right(tmp_path, 9)


# ----------------------------------------------------------------------------- what is no file


@pytest.mark.skipif(os.name != "posix", reason="there are no pipes")
@pytest.mark.parametrize("name", ["begin", "draws", "state-0", "state-1", "lock", "state-0.new"])
def test_a_pipe_in_place_of_a_file_is_not_waited_for(tmp_path, name):
    sampled(tmp_path, 9)
    (tmp_path / name).unlink(missing_ok=True)
    os.mkfifo(tmp_path / name)
    try:
        sampled(tmp_path, 12)
    except SamplingError as error:
        assert f"{name}'" in str(error)
        assert name in ("begin", "draws", "lock")
    else:
        assert_right(tmp_path, 12)


@pytest.mark.parametrize("name", ["draws", "lock", "state-0.new", "state-1.new", "begin.new"])
def test_a_link_that_was_planted_is_not_written_through(tmp_path, name):
    victim = tmp_path / "diary"
    victim.write_text("dear diary")
    chain = tmp_path / "chain"
    chain.mkdir()
    (chain / name).symlink_to(victim)
    try:
        sampled(chain, 9)
    except SamplingError as error:
        assert name in str(error)
        assert "Remove" in str(error) or "another path" in str(error)
    else:
        assert_right(chain, 9)
        assert name.endswith(".new")
    assert victim.read_text() == "dear diary"


# ----------------------------------------------------------------------------- files of another


def other_beginning(folder):
    """A chain of another seed, in a folder of its own."""
    store = ChainStore(folder)
    store.open()
    store.begin(dataclasses.replace(begun(), tune=3))
    for k in range(9):
        store.add(record(k + 100).tobytes())
        store.save(k + 1, [], {"total": 0})
    store.close()


def no_begin(folder, other):
    (folder / "begin").unlink()


def begin_of_another(folder, other):
    shutil.copy(other / "begin", folder)


def states_and_draws_of_another(folder, other):
    for name in ("draws", "state-0", "state-1"):
        shutil.copy(other / name, folder)


@pytest.mark.parametrize("fault", [no_begin, begin_of_another, states_and_draws_of_another])
def test_what_belongs_to_another_beginning_is_not_taken(tmp_path, fault):
    sampled(tmp_path / "ours", 9)
    other_beginning(tmp_path / "theirs")
    fault(tmp_path / "ours", tmp_path / "theirs")
    before = (tmp_path / "ours" / "draws").read_bytes()
    with pytest.raises(DamagedError, match=r"(no file 'begin'|another run).*Remove the folder"):
        sampled(tmp_path / "ours", 12)
    # Whoever finds the right file again has all draws
    assert (tmp_path / "ours" / "draws").read_bytes() == before


def test_one_state_of_another_beginning_is_no_harm(tmp_path):
    sampled(tmp_path / "ours", 9)
    other_beginning(tmp_path / "theirs")
    shutil.copy(tmp_path / "theirs" / "state-1", tmp_path / "ours")
    sampled(tmp_path / "ours", 12)
    assert_right(tmp_path / "ours", 12)


def test_draws_that_are_cut_off_after_they_were_checked(tmp_path):
    sampled(tmp_path, 9)
    store = ChainStore(tmp_path)
    store.read()
    os.truncate(tmp_path / "draws", 5 * RECORD.itemsize)
    with pytest.raises(DamagedError, match="draws' was cut off"):
        list(store.records())


# Content that is not what is written, under a checksum that is right
CONTENTS = {
    "begin": [
        {}, [], None, {"schema": SCHEMA},
        {"schema": SCHEMA, "version": "9"},
        {"schema": SCHEMA, "version": "9", "begin": {"fingerprint": {}}},
        {"schema": SCHEMA, "version": "9", "begin": 3},
        {
            "schema": SCHEMA, "version": "9",
            "begin": {**vars(begun()), "layout": [["x", "no type", [2]]]},
        },
        {"schema": SCHEMA, "version": "9", "begin": {**vars(begun()), "later": 1}},
    ],
    "state-0": [{}, [], None, 3, {"draws": 9}, {**vars(Saved()), "draws": "nine"}],
}  # fmt: skip


@pytest.mark.parametrize("name", CONTENTS)
def test_content_that_is_not_known_is_named(tmp_path, name):
    sampled(tmp_path, 9)
    (tmp_path / "state-1").unlink()
    for content in CONTENTS[name]:
        files.write_whole(tmp_path / name, packed(content))
        with pytest.raises(DamagedError, match=rf"{name}' is (damaged|of another run).* Remove"):
            ChainStore(tmp_path).read()
    for payload in (b"", b"PK no archive", packed({})[:-30]):
        files.write_whole(tmp_path / name, payload)
        with pytest.raises(DamagedError, match=rf"{name}' is damaged.* Remove"):
            ChainStore(tmp_path).read()


# ----------------------------------------------------------------------------- whose chain it is


@pytest.mark.skipif(os.name != "posix", reason="there are no forks")
def test_a_chain_has_one_thread_at_a_time(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "_PATIENCE", 0.2)
    sampled(tmp_path, 4)
    taken, ended = threading.Event(), threading.Event()

    def keep():
        store = ChainStore(tmp_path)
        store.open()
        taken.set()
        ended.wait(60)

    other = threading.Thread(target=keep, name="other cell")
    other.start()
    assert taken.wait(60)
    with pytest.raises(SamplingError, match=r"another thread of this process \('other cell'\)"):
        ChainStore(tmp_path).open()
    ended.set()
    other.join()
    sampled(tmp_path, 6)
    # What the same thread has left open it takes anew, and keeps from others
    left = ChainStore(tmp_path)
    left.open()
    store = ChainStore(tmp_path)
    store.open()
    left.close()
    with multiprocessing.get_context("fork").Pool(1) as pool:
        assert pool.apply(refused, (tmp_path,))
        store.close()
        assert not pool.apply(refused, (tmp_path,))


def refused(folder):
    try:
        ChainStore(folder).open()
    except SamplingError:
        return True
    return False


@pytest.mark.skipif(os.name != "posix", reason="there are no forks")
def test_a_chain_has_one_process_at_a_time(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "_PATIENCE", 0.2)
    sampled(tmp_path, 4)
    with (
        open_in_another_process(tmp_path) as number,
        pytest.raises(SamplingError, match=f"by another process \\(number {number}\\)"),
    ):
        ChainStore(tmp_path).open()
    # The system gives it free, however the process ends
    sampled(tmp_path, 6)
    assert_right(tmp_path, 6)


def test_a_store_of_another_format_is_refused(tmp_path, monkeypatch):
    sampled(tmp_path, 2)
    monkeypatch.setattr(chain_store, "SCHEMA", 99)
    with pytest.raises(ValueError, match=r"another version of .*, in another format"):
        ChainStore(tmp_path)
