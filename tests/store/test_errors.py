"""Runs that cannot go on are refused by name; a disk that fails costs no draws."""

import errno
import logging
import os
import re
import shutil

from contextlib import suppress

import numpy as np
import pymc as pm
import pytest

from pymc.exceptions import SamplingError

import pymc_sgmcmc as sg

from helpers.kept import (
    bits,
    failing_writes,
    killed,
    location,
    open_in_another_process,
    run,
    untuned,
)
from helpers.sampling import QUIET
from pymc_sgmcmc.store import chain_store, files
from pymc_sgmcmc.store.formats import Records, packed

FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    path = tmp_path_factory.mktemp("kept")
    run(path, 5)
    return path


@pytest.fixture
def copied(complete, tmp_path):
    return shutil.copytree(complete[0], tmp_path, dirs_exist_ok=True)


# ----------------------------------------------------------------------------- another run


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"make": lambda: location(seed=1)}, "the data of 'y' differ"),
        ({"make": lambda: location(width=9.0)}, "the model's 'mu' differs"),
        ({"make": lambda: location(rows=300)}, "the model's 'y' differs; the data of 'y' differ"),
        ({"step": lambda m: untuned(m, thin=6)}, "thin= of step method 0 was 5 and is 6"),
        (
            {"step": lambda m: untuned(m, step_size=2e-4)},
            "step_size= of step method 0 was constant",
        ),
        (
            {"step": lambda m: sg.SGLD(model=m)},
            "was CoRVSGLD of mu, sigma and is SGLD of mu, sigma",
        ),
        ({"random_seed": 2}, "was begun with random_seed=1"),
        ({"tune": 11}, "was begun with tune=10, not 11"),
    ],
)
def test_a_store_of_another_run_is_refused_by_name(kept, options, said):
    with pytest.raises(ValueError, match=re.escape(said)):
        run(kept, 5, **options)


@pytest.mark.parametrize("package", ["pymc_sgmcmc", "PyMC"])
def test_a_store_of_another_version_is_refused_by_name(kept, monkeypatch, package):
    from pymc_sgmcmc.store import fingerprint

    of = fingerprint if package == "pymc_sgmcmc" else pm
    monkeypatch.setattr(of, "__version__", "7.0")
    with pytest.raises(ValueError, match=rf"version of {package} was .* and is 7\.0"):
        run(kept, 5)


def test_initvals_that_are_changed_are_refused_by_name(tmp_path, caplog):
    options = {"chains": 1, "initvals": {"sigma": 2.0}}
    killed(tmp_path, 17, **options)
    expected = bits(run(None, **options))
    for draws in (3, 30):
        with pytest.raises(ValueError, match="The initvals of 'sigma' are others than those"):
            run(tmp_path, draws, **{**options, "initvals": {"sigma": 3.0}})
    assert bits(run(tmp_path, **options)) == expected
    # Without a seed they may be random
    seedless = {"chains": 1, "random_seed": None}
    run(tmp_path / "seedless", 5, initvals={"mu": "prior"}, **seedless)
    with caplog.at_level(logging.INFO, logger="pymc.sgmcmc"):
        run(tmp_path / "seedless", 9, initvals={"mu": "prior"}, **seedless)
    assert "The initvals of 'mu' are not used" in caplog.text


def test_an_earlier_run_that_was_forgotten_is_named(kept, tmp_path):
    """A chain that has begun would go on from its own start."""
    run(tmp_path / "ours", 5)
    with pytest.raises(ValueError, match=r"was begun with after=None, not '.*Leave after out"):
        run(tmp_path / "ours", 9, after=kept)


@pytest.mark.skipif(os.name != "posix", reason="there are no forks")
def test_a_chain_that_another_process_samples_is_refused(tmp_path, monkeypatch):
    """Where it goes on in memory a kill would lose it."""
    monkeypatch.setattr(files, "_PATIENCE", 0.2)
    run(tmp_path, 5)
    with (
        open_in_another_process(tmp_path / "chain-0"),
        pytest.raises(SamplingError, match="is being sampled by another process"),
    ):
        run(tmp_path, 9)
    assert run(tmp_path, 9).posterior.sizes["draw"] == 9


def test_data_that_are_set_anew_are_seen(tmp_path):
    with pm.Model() as model:
        y = pm.Data("data", np.zeros(20))
        pm.Normal("y", pm.Normal("mu"), observed=y)
        step = sg.checkpoint(untuned(model), tmp_path)
        options = {"draws": 5, "tune": 2, "chains": 1, "cores": 1, "random_seed": 1, **QUIET}
        pm.sample(step=step, **options)
        pm.sample(step=step, **options)
        pm.set_data({"data": np.ones(20)})
        with pytest.raises(ValueError, match="the data of 'y' differ"):
            pm.sample(step=step, **options)


def test_an_earlier_run_of_other_variables_is_refused(tmp_path, kept):
    def other():
        with pm.Model() as model:
            pm.Normal("mu", shape=2)
        return model

    with pytest.raises(
        ValueError, match=r"a run of other variables: mu\(\), mu\(2,\), sigma_log__"
    ):
        run(tmp_path, make=other, step=untuned, after=kept)


# ----------------------------------------------------------------------------- arguments


def test_bad_arguments_are_refused(tmp_path):
    with location() as model:
        step = untuned(model)
        with pytest.raises(ValueError, match="every must be a finite number of at least 0"):
            sg.checkpoint(step, tmp_path, every="10 s")
        with pytest.raises(ValueError, match="a checkpoint already"):
            sg.checkpoint(sg.checkpoint(step, tmp_path), tmp_path)
        with pytest.raises(ValueError, match="must be the folder of another run"):
            sg.checkpoint(step, tmp_path, after=tmp_path / "none")
        with pytest.raises(ValueError, match="path must be the path of a folder"):
            sg.checkpoint(step, "")
        (tmp_path / "file").write_text("")
        for path in (tmp_path / "file", tmp_path / "file" / "run"):
            with pytest.raises(ValueError, match=r"cannot be the folder of a run: .*file' is a f"):
                sg.checkpoint(step, path)
        (tmp_path / "link").symlink_to("nowhere")
        with pytest.raises(ValueError, match=r"folder of a run: '.*link' is a link to nothing"):
            sg.checkpoint(step, tmp_path / "link")
        for path in ("n" * 300, "a\0b", "~nobody-of-this-name/run", b"run", 3, None):
            with pytest.raises(ValueError, match=r"path must be the path of a folder.*\(.+\)\.$"):
                sg.checkpoint(step, path)
        for steps in ([], (), None, [None], sg.MSGNHT, {step}):
            with pytest.raises(TypeError, match="step must be a step method, or a list of them"):
                sg.checkpoint(steps, tmp_path)
        with pytest.raises(ValueError, match="a checkpoint already"):
            sg.checkpoint([sg.checkpoint(step, tmp_path)], tmp_path)
        with pytest.raises(ValueError, match="model is none of the step methods': it has no 'mu'"):
            sg.checkpoint(step, tmp_path, model=pm.Model())


# ----------------------------------------------------------------------------- spoilt folders


def test_a_damaged_chain_is_named_with_its_cure(copied, unbroken):
    draws = copied / "chain-1" / "draws"
    data = bytearray(draws.read_bytes())
    data[100] ^= 1
    draws.write_bytes(data)
    with pytest.raises(SamplingError, match=r"draws' is damaged.* Remove the folder '.*chain-1'"):
        run(copied)
    for file in draws.parent.iterdir():
        file.unlink()
    draws.parent.rmdir()
    assert bits(run(copied)) == unbroken


def test_a_chain_in_the_folder_of_another_is_refused(copied, unbroken):
    shutil.rmtree(copied / "chain-1")
    shutil.copytree(copied / "chain-0", copied / "chain-1")
    with pytest.raises(SamplingError, match=r"chain-1' is a copy of another chain's.* Remove it"):
        run(copied)
    shutil.rmtree(copied / "chain-1")
    assert bits(run(copied)) == unbroken


# Of the tree in a state's file, where there is what, and what is put there
STATES = {
    "a position of another shape": lambda chain: chain.psi.__setitem__(0, np.zeros((2, 3))),
    "no position": lambda chain: setattr(chain, "psi", 3),
    "no settings": lambda chain: setattr(chain, "settings", None),
    "no batches": lambda chain: setattr(chain, "batches_left", "x"),
    "no generator": lambda chain: setattr(chain, "noise_rng", 1.5),
    "no monitor": lambda chain: setattr(chain, "monitor", [1]),
    "a draw that is no number": lambda chain: setattr(chain, "draw", None),
}


@pytest.mark.parametrize("fault", STATES)
def test_a_state_that_does_not_fit_is_named(copied, fault):
    store = chain_store.ChainStore(copied / "chain-0")
    store.read()
    STATES[fault](store.saved.state.methods[0].chain)
    for path in store.states:
        path.unlink()
    files.write_whole(store.folder / "state-0", packed(vars(store.saved)))
    with pytest.raises(SamplingError, match=r"in '.*chain-0' failed.*remove the folder"):
        run(copied, 41)


def test_records_that_do_not_fit_are_named(copied, monkeypatch):
    def fail(*arguments):
        raise KeyError("value mu")

    monkeypatch.setattr(Records, "read", fail)
    with pytest.raises(SamplingError, match=r"draws' is damaged, or of another version .*Remove"):
        run(copied, 41)


@pytest.mark.parametrize("name", ["begin", "draws"])
def test_a_folder_in_place_of_a_file_is_named(copied, name):
    (copied / "chain-0" / name).unlink()
    (copied / "chain-0" / name).mkdir()
    with pytest.raises(SamplingError, match=rf"{name}' is .* Remove the folder '.*chain-0'"):
        run(copied, 41)


def test_a_file_in_place_of_a_chain_is_named(tmp_path):
    (tmp_path / "chain-0").write_text("")
    with pytest.raises(
        SamplingError, match=r"chain-0/begin' is no file .* Remove the file '.*chain-0'"
    ):
        run(tmp_path)


# ----------------------------------------------------------------------------- disks that fail


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.ESTALE])
@pytest.mark.parametrize("every", [0.0, 1e6])
def test_a_disk_that_fails_is_named_and_costs_no_draws(
    tmp_path, unbroken, monkeypatch, caplog, code, every
):
    # Lock and beginning; with a state for each draw a part of the first chain is written, too
    first = 100 if every == 0.0 else 3
    with monkeypatch.context() as patch:
        error = OSError(code, os.strerror(code))
        failing_writes(patch, lambda number: number >= first, error)
        assert bits(run(tmp_path, every=every)) == unbroken
        kept = [int(n) for n in re.findall(r"keeps the first (\d+) draws", caplog.text)]
        assert kept[0] > 10 if every == 0.0 else kept[0] == 0
        for said in (os.strerror(code), str(tmp_path), "chain 0 are in the result alone"):
            assert said in caplog.text
        # One line where it begins, one at each chain's end
        assert len(kept) == (3 if every == 0.0 else 2)
        # As many draws as there are are returned, and nothing is written
        if kept[0] > 10:
            few = run(tmp_path, kept[0] - 10, chains=1)
            assert few.posterior.sizes["draw"] == kept[0] - 10
        # Where nothing can be written when a run begins, nothing would be lost
        with pytest.raises(SamplingError, match=r"cannot be written .* run the same line again"):
            run(tmp_path / "other", every=every)
    assert bits(run(tmp_path, every=every)) == unbroken


def test_a_chain_without_a_store_goes_on_from_its_own_draws(tmp_path, kept, monkeypatch):
    """Not from the end of the earlier run at each draw."""
    whole = bits(run(tmp_path / "whole", after=kept))
    failing_writes(monkeypatch, lambda number: number >= 3, FULL, byte=0)
    assert bits(run(tmp_path / "full", after=kept)) == whole


def test_a_disk_that_fails_for_a_while_has_all_draws_in_the_end(tmp_path, unbroken, monkeypatch):
    with monkeypatch.context() as patch:
        error = OSError(errno.EIO, os.strerror(errno.EIO))
        failing_writes(patch, lambda number: 20 < number < 40, error)
        assert bits(run(tmp_path)) == unbroken
        monkeypatch.setattr(sg.SGMCMCStep, "step", None)
        assert bits(run(tmp_path)) == unbroken


def test_a_folder_that_is_removed_under_a_run_costs_no_draws(tmp_path, unbroken, caplog):
    def removed(trace, draw):
        shutil.rmtree(tmp_path / "run", ignore_errors=True)

    assert bits(run(tmp_path / "run", every=0, callback=removed)) == unbroken
    assert re.search(r"cannot be written .* was removed.* are in the result alone", caplog.text)


@pytest.mark.skipif(os.name != "posix", reason="there are no forks")
def test_a_disk_that_is_full_before_a_later_chain_begins_costs_no_draws(tmp_path, monkeypatch):
    full, seen = tmp_path / "full", set()

    def fill(trace, draw):
        seen.add(draw.chain)
        if seen >= {0, 1}:
            full.touch()

    failing_writes(monkeypatch, lambda number: full.exists(), FULL, byte=0)
    with pm.Model():
        step = sg.checkpoint(pm.Metropolis([pm.Normal("x")]), tmp_path / "run", every=0)
        dt = pm.sample(
            300, tune=10, step=step, chains=3, cores=2, mp_ctx="fork", random_seed=1,
            callback=fill, **QUIET,
        )  # fmt: skip
    assert dict(dt.posterior.sizes) == {"chain": 3, "draw": 300}


def test_a_disk_that_fails_as_a_chain_begins_beside_others_costs_no_draws(
    tmp_path, monkeypatch, caplog
):
    """As in a process of its own, which knows of the others by their files alone."""
    run(tmp_path, chains=1)
    failing_writes(monkeypatch, lambda number: True, FULL, byte=0)
    assert dict(run(tmp_path, chains=2).posterior.sizes)["chain"] == 2
    assert "The other draws of chain 1 are in the result alone." in caplog.text


@pytest.mark.skipif(os.name != "posix", reason="there are no forks")
@pytest.mark.parametrize("error", [KeyboardInterrupt, ZeroDivisionError])
def test_a_run_that_a_callback_ended_goes_on_in_other_processes(tmp_path, monkeypatch, error):
    """By the same step after an interruption, and after an error by one that is made anew."""
    monkeypatch.setattr(files, "_PATIENCE", 1.0)

    def stop(trace, draw):
        if draw.draw_idx == 5:
            raise error

    with pm.Model():
        x = pm.Normal("x")
        options = {"tune": 2, "chains": 2, "random_seed": 1, **QUIET}
        step = first = sg.checkpoint(pm.Metropolis([x]), tmp_path, every=0)
        with suppress(ZeroDivisionError):
            pm.sample(20, step=first, cores=1, callback=stop, **options)
        if error is ZeroDivisionError:
            step = sg.checkpoint(pm.Metropolis([x]), tmp_path, every=0)
        dt = pm.sample(20, step=step, cores=2, mp_ctx="fork", **options)
    assert dict(dt.posterior.sizes) == {"chain": 2, "draw": 20}


def test_an_error_of_the_first_new_draw_is_named(tmp_path):
    """A table of step sizes that is too short for more draws is no damage."""
    table = np.full(40 * 5, 1e-4)

    def step(model):
        return untuned(model, step_size=lambda t: table[t])

    run(tmp_path, 30, chains=1, step=step)
    with pytest.raises(SamplingError, match=r"failed \(.*another path, too, the store is sound"):
        run(tmp_path, 50, chains=1, step=step)
