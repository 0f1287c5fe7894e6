"""Runs that are kept on disk: the bits of the unbroken run, whatever came between."""

import itertools
import logging
import re

from functools import cache
from types import SimpleNamespace

import numpy as np
import pymc as pm
import pytest

import pymc_sgmcmc as sg

from helpers.attempts import location_and_scale
from helpers.kept import (
    KilledError,
    Killer,
    assert_goes_on,
    bits,
    failing_writes,
    killed,
    location,
    run,
    untuned,
)
from helpers.sampling import QUIET
from pymc_sgmcmc.kernel import tables
from pymc_sgmcmc.store import chain_store, checkpoint
from pymc_sgmcmc.testing import UNTUNED


def test_a_kept_run_has_the_bits_of_one_that_is_not(complete, unbroken):
    assert complete[1] == unbroken


# While tuning, between tuning and draws, in the second chain, and where it was killed before
@pytest.mark.parametrize("every, kills", [(0.0, [0, 9, 10, 17, 17, 45]), (1e6, [17, 17, 17])])
def test_a_run_killed_between_draws_goes_on_with_the_same_bits(tmp_path, unbroken, every, kills):
    killed(tmp_path, *kills, every=every)
    assert bits(run(tmp_path, every=every)) == unbroken


def test_a_run_killed_inside_writes(tmp_path, unbroken, monkeypatch):
    for write in (0, 1, 2, 41):
        with monkeypatch.context() as patch:
            failing_writes(patch, lambda number, first=write: number >= first, KilledError())
            with pytest.raises(KilledError):
                run(tmp_path)
    assert bits(run(tmp_path)) == unbroken


def test_a_run_on_rows_that_chains_share(tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "_LARGE", 0)
    assert_goes_on(tmp_path, 17)


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


def test_draws_are_written_every_so_many_seconds(tmp_path, monkeypatch):
    """A draw takes a second here, by a clock that goes on whenever it is read."""
    written, clock = [], itertools.count()
    save = chain_store.ChainStore.save

    def counted(store, draws, *state):
        written.append(draws)
        return save(store, draws, *state)

    monkeypatch.setattr(chain_store.ChainStore, "save", counted)
    monkeypatch.setattr(checkpoint, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    run(tmp_path, chains=1, every=10.0)
    assert written == [10, 20, 30, 40]


def test_what_a_store_holds_is_told_without_the_burn_in(tmp_path, caplog):
    for draws in (20, 30):
        with location_and_scale(), caplog.at_level("INFO", "pymc.sgmcmc"):
            step = sg.checkpoint(sg.SGLD(step_size=0.01, backend="jax", **UNTUNED), tmp_path)
            options = {"chains": 1, "cores": 1, "progressbar": False, "random_seed": 1}
            pm.sample(step=step, draws=draws, tune=10, compute_convergence_checks=False, **options)
    assert "20 of its 30 draws are in the store, after 10 of burn-in." in caplog.text


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
        return [text for text in caplog.messages if "temperature" in text]

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

    assert_goes_on(tmp_path, 25, step=tuned, chains=1)


def test_a_variable_that_two_step_methods_move(tmp_path):
    def both(path, callback=None):
        with pm.Model():
            x = pm.Normal("x")
            step = [sg.SGLD(step_size=0.1, backend="jax", **UNTUNED), pm.Metropolis([x])]
            if path:
                step = sg.checkpoint(step, path, every=0)
            return pm.sample(
                20, step=step, tune=10, chains=1, cores=1, random_seed=1, callback=callback, **QUIET
            )

    # A proposal that was rejected would hide which of them a run goes on from
    for draws in (12, 17, 21, 26):
        with pytest.raises(KilledError):
            both(tmp_path, Killer(draws))
    assert bits(both(tmp_path)) == bits(both(None))


def test_terms_that_are_added_after_a_run_are_another_model(tmp_path):
    with pm.Model():
        x = pm.Normal("x")
        step = sg.checkpoint(sg.SGLD(step_size=0.01, backend="jax", **UNTUNED), tmp_path)
        options = {"step": step, "tune": 5, "chains": 1, "cores": 1, "random_seed": 1, **QUIET}
        pm.sample(10, **options)
        pm.Potential("pull", -50 * (x - 3) ** 2)
        with pytest.raises(ValueError, match=r"is of another run: .*'pull'"):
            pm.sample(10, **options)


@pytest.mark.slow
def test_a_run_in_several_processes_goes_on(tmp_path):
    assert_goes_on(tmp_path, 25, unbroken={}, cores=2, mp_ctx="spawn")


def test_a_schedule_and_batches_that_are_planned_ahead(tmp_path):
    def swept(model):
        return untuned(model, step_size=sg.polynomial(1e-4), batch="sweep")

    assert_goes_on(tmp_path, 23, step=swept)


def test_other_files_in_the_folder_are_left_alone(complete, unbroken):
    path, found = complete
    assert found == bits(run(path)) == unbroken
    assert (path / "chain-notes").is_dir()
    assert (path / "chain-notes.txt").read_text() == "a good run"


def test_the_home_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    with location() as model:
        assert sg.checkpoint(untuned(model), "~/run").path == tmp_path / "run"


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
    killed(tmp_path / "run", 17, **first)
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

    # Killed while tuning and after
    assert_goes_on(tmp_path, 3, 30, make=mixture, step=mixed, chains=1, tune=20)


def test_variables_that_are_left_to_other_steps_are_refused(tmp_path):
    with mixture() as model:
        step = sg.CoRVSGLD([model["mu"]], backend="jax")
        with pytest.raises(ValueError, match=r"'z', 'n': sampled by none .* in a list"):
            sg.checkpoint(step, tmp_path)


# ----------------------------------------------------------------------------- seeds


def test_without_a_seed_a_chain_goes_on_with_its_own(tmp_path, caplog):
    killed(tmp_path, 25, chains=1, random_seed=None)
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
    killed(tmp_path / "third", 0, draws=400, **options)
    # The earlier run is of no more use
    del options["after"]
    assert bits(run(tmp_path / "third", 400, every=10.0, **options)) == bits(second)
