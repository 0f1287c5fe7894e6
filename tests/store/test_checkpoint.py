"""Runs that are kept on disk: the bits of the unbroken run, whatever came between."""

import errno
import itertools
import logging
import os
import re
import shutil

from functools import cache

import numpy as np
import pymc as pm
import pytest

from pymc.exceptions import SamplingError

import pymc_sgmcmc as sg

from helpers.kept import bits, location, run, untuned
from helpers.sampling import QUIET
from pymc_sgmcmc.kernel import tables
from pymc_sgmcmc.store import chain_store, files
from pymc_sgmcmc.store.formats import Records, packed
from pymc_sgmcmc.testing import UNTUNED


class KilledError(BaseException):
    """The process ended here."""


class Killer:
    """Ends the process after so many draws of all chains."""

    def __init__(self, draws):
        self.draws = draws

    def __call__(self, trace, draw):
        self.draws -= 1
        if self.draws < 0:
            raise KilledError


@pytest.fixture(scope="module")
def unbroken():
    return bits(run(None))


@pytest.fixture(scope="module")
def complete(tmp_path_factory):
    """The folder of a run that came to its end, beside other files."""
    path = tmp_path_factory.mktemp("complete")
    (path / "chain-notes").mkdir()
    (path / "chain-notes.txt").write_text("a good run")
    result = run(path)
    return path, bits(result)


@pytest.fixture
def copied(complete, tmp_path):
    return shutil.copytree(complete[0], tmp_path, dirs_exist_ok=True)


def test_a_kept_run_has_the_bits_of_one_that_is_not(complete, unbroken):
    assert complete[1] == unbroken


# While tuning, between tuning and draws, in the second chain, and where it was killed before
@pytest.mark.parametrize("every, kills", [(0.0, [0, 9, 10, 17, 17, 45]), (1e6, [17, 17, 17])])
def test_a_run_killed_between_draws_goes_on_with_the_same_bits(tmp_path, unbroken, every, kills):
    for draws in kills:
        with pytest.raises(KilledError):
            run(tmp_path, every=every, callback=Killer(draws))
    assert bits(run(tmp_path, every=every)) == unbroken


def test_a_run_killed_inside_writes(tmp_path, unbroken, monkeypatch):
    def partial(descriptor, data):
        nonlocal left
        left -= 1
        append(descriptor, data if left >= 0 else data[: len(data) // 2])
        if left < 0:
            raise KilledError

    append = files.append
    for write in (0, 1, 2, 41):
        left = write
        with monkeypatch.context() as patch:
            patch.setattr(files, "append", partial)
            with pytest.raises(KilledError):
                run(tmp_path)
    assert bits(run(tmp_path)) == unbroken


def test_a_run_on_rows_that_chains_share(tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "_LARGE", 0)
    whole = bits(run(None))
    with pytest.raises(KilledError):
        run(tmp_path, callback=Killer(17))
    assert bits(run(tmp_path)) == whole


def contents(path):
    return {p: (p.stat().st_mtime_ns, p.read_bytes()) for p in path.rglob("*") if p.is_file()}


def test_a_chain_that_is_complete_is_not_run_again(complete, unbroken, monkeypatch):
    path, _ = complete
    before = contents(path)

    def refuse(self, point):
        raise AssertionError("a chain was sampled")

    monkeypatch.setattr(sg.SGMCMCStep, "step", refuse)
    assert bits(run(path)) == unbroken
    assert contents(path) == before


def test_more_draws_and_fewer(tmp_path, unbroken):
    run(tmp_path, 20)
    longer = run(tmp_path)
    assert bits(longer) == unbroken
    shorter = run(tmp_path, 10)
    for name, values in shorter.posterior.data_vars.items():
        assert np.array_equal(values, longer.posterior[name][:, :10])


def test_more_chains(tmp_path, unbroken):
    run(tmp_path, chains=1)
    assert bits(run(tmp_path)) == unbroken


def test_the_last_warning_is_that_of_the_whole_run(tmp_path, caplog):
    def too_hot(model):
        return untuned(model, step_size=5e-4)

    def said(path, draws):
        caplog.clear()
        with caplog.at_level(logging.WARNING, logger="pymc"):
            run(path, draws, step=too_hot, as_compiled=untuned, every=1e6, chains=1)
        return [r.message for r in caplog.records if "temperature" in r.message]

    expected, longer = said(None, 150), said(None, 260)
    assert len(expected) == len(longer) == 1
    assert expected != longer
    assert said(tmp_path, 150) == expected
    assert said(tmp_path, 150) == expected
    assert said(tmp_path, 260) == longer
    assert said(tmp_path, 150) == expected
    assert said(tmp_path, 140) == []


def test_a_tuned_run_goes_on(tmp_path):
    def tuned(model):
        return sg.MSGNHT(model=model, backend="jax")

    options = {"step": tuned, "chains": 1}
    with pytest.raises(KilledError):
        run(tmp_path, callback=Killer(25), **options)
    assert bits(run(tmp_path, **options)) == bits(run(None, **options))


def test_a_schedule_and_batches_that_are_planned_ahead(tmp_path):
    def swept(model):
        return untuned(model, step_size=sg.polynomial(1e-4), batch="sweep")

    with pytest.raises(KilledError):
        run(tmp_path, step=swept, callback=Killer(23))
    assert bits(run(tmp_path, step=swept)) == bits(run(None, step=swept))


# ----------------------------------------------------------------------------- other rows


def likelihood(y, **rows):
    pm.Normal("y", pm.Normal("mu", 0, 10), pm.HalfNormal("sigma", 1), observed=y, **rows)


def of_a_dim(path):
    likelihood(pm.Data("rows", np.load(path), dims="obs"), dims="obs")


def of_a_dim_on_disk(path):
    likelihood(sg.on_disk(path, name="rows", dims="obs"), dims="obs")


def minibatch_on_disk(path):
    likelihood(pm.Minibatch(sg.on_disk(path), batch_size=50), total_size=400)


@pytest.mark.parametrize(
    "build", [of_a_dim, pytest.param(of_a_dim_on_disk, marks=pytest.mark.slow), minibatch_on_disk]
)
def test_other_rows_go_on_and_are_compared(tmp_path, build):
    path = tmp_path / "rows.npy"
    np.save(path, np.random.default_rng(0).normal(1, 0.5, size=400))
    options = {} if build is minibatch_on_disk else {"batch_size": 50, "batch_dim": "obs"}

    def written():
        """Write the model anew, as a process that goes on does."""
        with pm.Model() as model:
            build(path)
        return {"make": lambda: model, "step": lambda model: untuned(model, **options), "chains": 1}

    first = written()
    with pytest.raises(KilledError):
        run(tmp_path / "run", callback=Killer(17), **first)
    assert bits(run(tmp_path / "run", **written())) == bits(run(None, **first))
    if options:
        options["batch_size"] = 40
        with pytest.raises(ValueError, match=r"batch_size= of step method 0 was 50 and is 40"):
            run(tmp_path / "run", **written())
        options["batch_size"] = 50
    np.save(path, np.random.default_rng(1).normal(1, 0.5, size=400))
    with pytest.raises(ValueError, match="the data of 'y' differ"):
        run(tmp_path / "run", **written())


# ----------------------------------------------------------------------------- other steps


@cache
def mixture():
    Y = np.concatenate([np.full(15, -1.0), np.full(15, 2.0)])
    with pm.Model() as model:
        z = pm.Bernoulli("z", 0.5, shape=30)
        mu = pm.Normal("mu", 0, 3, shape=2)
        pm.Poisson("n", 3.0)
        pm.Normal("y", mu[z], 1, observed=Y)
    return model


@pytest.mark.slow
def test_a_run_mixed_with_pymcs_steps_goes_on(tmp_path):
    def mixed(model):
        return [
            sg.CoRVSGLD([model["mu"]], step_size=0.02, backend="jax", **UNTUNED),
            pm.BinaryGibbsMetropolis([model["z"]]),
            pm.Metropolis([model["n"]]),
        ]

    options = {"make": mixture, "step": mixed, "chains": 1, "tune": 20}
    # While tuning and after
    for draws in (3, 30):
        with pytest.raises(KilledError):
            run(tmp_path, callback=Killer(draws), **options)
    assert bits(run(tmp_path, **options)) == bits(run(None, **options))


def test_variables_that_are_left_to_other_steps_are_refused(tmp_path):
    with mixture() as model:
        step = sg.CoRVSGLD([model["mu"]], backend="jax")
        with pytest.raises(ValueError, match=r"'z', 'n': sampled by none .* in a list"):
            sg.checkpoint(step, tmp_path)


# ----------------------------------------------------------------------------- what is refused


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    path = tmp_path_factory.mktemp("kept")
    run(path, 5)
    return path


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
    with pytest.raises(KilledError):
        run(tmp_path, callback=Killer(17), **options)
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
    with pytest.raises(SamplingError, match=r"state-0' is damaged, or of another version .*Remove"):
        run(copied, 41)


def test_records_that_do_not_fit_are_named(copied, monkeypatch):
    def fail(*arguments):
        raise KeyError("value mu")

    monkeypatch.setattr(Records, "read", fail)
    with pytest.raises(SamplingError, match=r"draws' is damaged, or of another version .*Remove"):
        run(copied, 41)


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


def test_a_folder_that_is_removed_under_a_run_costs_no_draws(tmp_path, unbroken, caplog):
    def removed(trace, draw):
        shutil.rmtree(tmp_path / "run", ignore_errors=True)

    assert bits(run(tmp_path / "run", every=0, callback=removed)) == unbroken
    assert re.search(r"cannot be written .* was removed.* are in the result alone", caplog.text)


def test_other_files_in_the_folder_are_left_alone(complete, unbroken):
    path, found = complete
    assert found == bits(run(path)) == unbroken
    assert (path / "chain-notes").is_dir()
    assert (path / "chain-notes.txt").read_text() == "a good run"


def test_the_home_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    with location() as model:
        assert sg.checkpoint(untuned(model), "~/run").path == tmp_path / "run"


# ----------------------------------------------------------------------------- seeds


def test_without_a_seed_a_chain_goes_on_with_its_own(tmp_path, caplog):
    with pytest.raises(KilledError):
        run(tmp_path, chains=1, random_seed=None, callback=Killer(25))
    with caplog.at_level(logging.INFO, logger="pymc.sgmcmc"):
        first = run(tmp_path, chains=1, random_seed=None)
    assert "Chain 0 goes on with the seed that it began with." in caplog.messages
    assert bits(run(tmp_path, chains=1, random_seed=None)) == bits(first)
    with pytest.raises(ValueError, match="was begun without random_seed"):
        run(tmp_path, chains=1, random_seed=1)
    # The draws of a chain that was killed are those of its seed
    [begun] = [chain_store.ChainStore(f).begun for f in tmp_path.glob("chain-*")]
    seed = begun.rng.seed_seq_state["entropy"]
    assert bits(run(None, chains=1, random_seed=seed)) == bits(first)


def test_other_kinds_of_seeds(tmp_path):
    for k, seed in enumerate([[1, 2], np.random.default_rng(5)]):
        expected = bits(run(tmp_path / str(k), 5, random_seed=seed))
        assert bits(run(tmp_path / str(k), 5, random_seed=seed)) == expected
    with pytest.raises(ValueError, match=re.escape("random_seed=[1, 2]")):
        run(tmp_path / "0", 5, random_seed=[1, 3])


# ----------------------------------------------------------------------------- errors


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.ESTALE])
@pytest.mark.parametrize("every", [0.0, 1e6])
def test_a_disk_that_fails_is_named_and_costs_no_draws(
    tmp_path, unbroken, monkeypatch, caplog, code, every
):
    # Lock and beginning; with a state for each draw a part of the first chain is written, too
    left = 100 if every == 0.0 else 3

    def failing(descriptor, data):
        nonlocal left
        left -= 1
        if left < 0:
            append(descriptor, data[: len(data) // 2])
            raise OSError(code, os.strerror(code))
        append(descriptor, data)

    append = files.append
    with monkeypatch.context() as patch:
        patch.setattr(files, "append", failing)
        assert bits(run(tmp_path, every=every)) == unbroken
        kept = [int(n) for n in re.findall(r"keeps the first (\d+) draws", caplog.text)]
        assert kept[0] > 10 if every == 0.0 else kept[0] == 0
        for said in (os.strerror(code), str(tmp_path), "chain 0 are in the result alone"):
            assert said in caplog.text
        # One line where it begins, one at each chain's end
        assert len(kept) == (3 if every == 0.0 else 2)
        # As many draws as there are are returned, and nothing is written
        left = 0
        if kept[0] > 10:
            few = run(tmp_path, kept[0] - 10, chains=1)
            assert few.posterior.sizes["draw"] == kept[0] - 10
        # Where nothing can be written when a run begins, nothing would be lost
        with pytest.raises(SamplingError, match=r"cannot be written .* run the same line again"):
            run(tmp_path / "other", every=every)
    assert bits(run(tmp_path, every=every)) == unbroken


def test_a_disk_that_fails_for_a_while_has_all_draws_in_the_end(tmp_path, unbroken, monkeypatch):
    writes = itertools.count()

    def failing(descriptor, data):
        if 20 < next(writes) < 40:
            append(descriptor, data[: len(data) // 2])
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        append(descriptor, data)

    append = files.append
    with monkeypatch.context() as patch:
        patch.setattr(files, "append", failing)
        assert bits(run(tmp_path)) == unbroken
        monkeypatch.setattr(sg.SGMCMCStep, "step", None)
        assert bits(run(tmp_path)) == unbroken


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


# ----------------------------------------------------------------------------- more rows


ROWS = np.random.default_rng(3).normal(1, 0.5, size=3000)


@cache
def rows(count):
    with pm.Model() as model:
        y = pm.Minibatch(ROWS[:count], batch_size=50)
        pm.Normal("y", pm.Normal("mu", 0, 10), 0.5, observed=y, total_size=count)
    return model


@pytest.mark.slow
def test_a_run_of_more_rows_begins_where_another_ended(tmp_path):
    def tuned(model):
        return sg.CoRVSGLD(model=model, backend="jax")

    options = {"step": tuned, "chains": 1}
    first = run(tmp_path / "first", 60, make=lambda: rows(1000), **options)
    options |= {"make": lambda: rows(3000), "after": tmp_path / "first"}
    second = run(tmp_path / "second", 400, every=10.0, **options)
    begun = chain_store.ChainStore(tmp_path / "second" / "chain-0").begun
    assert begun.start["mu"] == first.posterior["mu"][0, -1]
    # Re-anchored: the law of all rows, and of its own draws alone
    draws = second.posterior["mu"].values
    sd = 0.5 / np.sqrt(3000)
    assert draws.shape == (1, 400)
    assert draws.mean() == pytest.approx(ROWS.mean(), abs=4 * sd / np.sqrt(100))
    assert draws.std() == pytest.approx(sd, rel=4 / np.sqrt(2 * 100))
    with pytest.raises(KilledError):
        run(tmp_path / "third", 400, callback=Killer(0), **options)
    # The earlier run is of no more use
    del options["after"]
    assert bits(run(tmp_path / "third", 400, every=10.0, **options)) == bits(second)


def test_an_earlier_run_of_other_variables_is_refused(tmp_path, kept):
    def other():
        with pm.Model() as model:
            pm.Normal("mu", shape=2)
        return model

    with pytest.raises(
        ValueError, match=r"a run of other variables: mu\(\), mu\(2,\), sigma_log__"
    ):
        run(tmp_path, make=other, step=untuned, after=kept)
