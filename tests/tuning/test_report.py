"""What the log says of tuning."""

import logging
import multiprocessing
import pickle
import re

from types import SimpleNamespace

import numpy as np
import pymc as pm
import pytest

import pymc_sgmcmc as sg

from helpers.sampling import run
from pymc_sgmcmc.tuning import report
from pymc_sgmcmc.tuning.report import LoggedLines, Report


def told(caplog):
    return [r.getMessage() for r in caplog.records if r.name == "pymc.sgmcmc"]


@pytest.fixture(autouse=True)
def level(caplog):
    """That which users see."""
    caplog.set_level(logging.INFO, "pymc.sgmcmc")


@pytest.fixture
def clock(monkeypatch):
    """A clock that is set by hand, and nothing said before."""
    now = SimpleNamespace(seconds=0.0)
    monkeypatch.setattr(report.time, "perf_counter", lambda: now.seconds)
    return now


def model():
    with pm.Model() as found:
        mu = pm.Normal("mu", 0, 10)
        y = np.random.default_rng(1).normal(size=4000)
        pm.Normal("y", mu, 1, observed=pm.Minibatch(y, batch_size=100), total_size=len(y))
    return found


def test_a_run_that_is_tuned_soon_says_one_line_for_all_chains(caplog):
    with model():
        step = sg.CoRVSGLD()
        for _ in range(2):
            caplog.clear()
            run(step, chains=3, draws=20, tune=10)
            [line] = told(caplog)
            assert re.fullmatch(
                r"Tuned in [\d.]+ s: 20 updates a draw, 1 batch an update; "
                r"30 draws are [\d.]+ passes over the data\.",
                line,
            )


def test_chains_that_differ_say_so(clock, caplog):
    logged = LoggedLines()
    for thin in (20, 20, 40, 20):
        Report(logged).end(f"{thin} updates a draw.", 0.0)
    assert told(caplog) == [f"Tuned in 0.0 s: {thin} updates a draw." for thin in (20, 40)]


def test_steps_are_told_once_after_a_while(clock, caplog):
    logged = LoggedLines()
    for _ in range(2):
        chain = Report(logged)
        for step in ("first", "second", "third"):
            chain(step)
            chain.trial(500, 20, 1e-6)
            clock.seconds += 10
        chain.trial(500, 640, 1e-3)
        chain.still()
        clock.seconds += 100
        chain.still()
        chain.end("LoggedLines by each.", 7.0)
    assert chain.step == "third"
    assert told(caplog) == [
        "Tuning: third (after 20 s).",
        "Tuning: a run of 500 draws with 640 updates each, about 5.3 minutes (after 30 s).",
        "Tuning: still third (after 130 s).",
        "Tuned in 130.0 s: LoggedLines by each. The draws take about 7 s.",
        # Of the second chain, which has nothing new to say for half a minute
        "Tuning: still third (after 30 s).",
        "Tuned in 130.0 s: LoggedLines by each. The draws take about 7 s.",
    ]


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="no forks")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning", "ignore:.*fork:RuntimeWarning")
def test_forked_processes_share_what_was_said():
    said = LoggedLines()
    child = multiprocessing.get_context("fork").Process(target=said.is_new, args=("a",))
    child.start()
    child.join()
    assert child.exitcode == 0
    assert [said.is_new(text) for text in "abb"] == [False, True, False]
    # A process that shares no memory begins anew
    assert pickle.loads(pickle.dumps(said)).is_new("a")
