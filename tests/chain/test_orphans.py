"""Chains whose parent is killed alone."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pymc as pm
import pytest

import pymc_sgmcmc as sg

from pymc_sgmcmc.step import step
from pymc_sgmcmc.store.files import locked
from pymc_sgmcmc.testing import UNTUNED

pytestmark = pytest.mark.skipif(os.name != "posix", reason="there are no forks")

# As PyMC samples two chains: processes that hold each other's pipes
PROGRAM = """
import multiprocessing, os, sys, time
from pathlib import Path
from pymc_sgmcmc.store.files import locked
from pymc_sgmcmc.chain.orphans import end_with_parent

def chain(path, pipe):
    lock = locked(Path(path))
    end_with_parent()
    os.write(1, b"locked\\n")  # at once: print may write the end of the line apart
    pipe.recv()

fork = multiprocessing.get_context("fork")
ours, theirs = zip(*[fork.Pipe() for _ in sys.argv[1:]])
for k, path in enumerate(sys.argv[1:]):
    fork.Process(target=chain, args=(path, theirs[k]), name=f"worker_chain_{k}").start()
time.sleep(100)
"""


def test_a_chain_is_given_free_when_only_the_main_process_is_killed(tmp_path, monkeypatch):
    paths = [tmp_path / str(k) for k in range(2)]
    main = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *map(str, paths)], stdout=subprocess.PIPE, text=True
    )
    assert main.stdout is not None
    assert [main.stdout.readline() for _ in paths] == ["locked\n"] * 2
    chains = [int(path.read_text()) for path in paths]
    time.sleep(1.5)
    # Not while it lives
    for chain in chains:
        os.kill(chain, 0)
    kill(main)
    assert_are_free(paths, chains, monkeypatch)


def kill(main):
    main.send_signal(signal.SIGKILL)
    main.wait()
    main.stdout.close()


def assert_are_free(paths, chains, monkeypatch):
    """Assert that the locks of these chains can be had; end the chains that have not."""
    monkeypatch.setattr("pymc_sgmcmc.store.files._PATIENCE", 10.0)
    try:
        for path in paths:
            locked(path).close()
    finally:
        for path in paths:
            if path.read_text() in map(str, chains):
                os.kill(int(path.read_text()), signal.SIGKILL)


# Without a pipe that it reads: it computes, as in tuning
SERVED = """
import multiprocessing, sys, time
from pathlib import Path
from pymc_sgmcmc.store.files import locked
from pymc_sgmcmc.chain.orphans import end_with_parent

def chain(path):
    lock = locked(Path(path))
    end_with_parent()
    print("locked", flush=True)
    time.sleep(100)

if __name__ == "__main__":
    server = multiprocessing.get_context("forkserver")
    server.Process(target=chain, args=(sys.argv[1],), name="worker_chain_0").start()
    time.sleep(100)
"""


@pytest.mark.slow
def test_a_chain_of_a_forkserver_ends_with_the_main_process(tmp_path, monkeypatch):
    program, path = tmp_path / "served.py", tmp_path / "lock"
    program.write_text(SERVED)
    main = subprocess.Popen([sys.executable, program, path], stdout=subprocess.PIPE, text=True)
    assert main.stdout is not None
    assert main.stdout.readline() == "locked\n"
    chain = int(path.read_text())
    kill(main)
    assert_are_free([path], [chain], monkeypatch)


def test_every_step_method_ends_with_its_parent(monkeypatch):
    called = []
    monkeypatch.setattr(step, "end_with_parent", lambda: called.append(True))
    with pm.Model():
        pm.Normal("x")
        sg.SGLD(step_size=0.1, backend="jax", **UNTUNED).setup_chain(np.random.default_rng(1), 0, 1)
    assert called


# A run that is not kept
SAMPLED = """
import multiprocessing

import pymc as pm

import pymc_sgmcmc as sg

from pymc_sgmcmc.testing import UNTUNED


def tell(trace, draw):
    print(*(child.pid for child in multiprocessing.active_children()), flush=True)


with pm.Model():
    pm.Normal("x")
    step = sg.SGLD(step_size=0.1, backend="jax", **UNTUNED)
    pm.sample(10**7, tune=0, step=step, cores=2, chains=2, progressbar=False, callback=tell)
"""


@pytest.mark.slow
def test_chains_that_are_not_kept_end_with_the_main_process():
    main = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", SAMPLED], stdout=subprocess.PIPE, text=True
    )
    assert main.stdout is not None
    chains = [int(word) for word in main.stdout.readline().split()]
    assert len(chains) == 2
    kill(main)
    end = time.monotonic() + 20
    try:
        while alive := [chain for chain in chains if is_alive(chain)]:
            assert time.monotonic() < end, alive
            time.sleep(0.1)
    finally:
        for chain in filter(is_alive, chains):
            os.kill(chain, signal.SIGKILL)


def is_alive(process):
    """Whether it is there, and no zombie that nobody waits for."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    told = subprocess.run(
        ["ps", "-o", "stat=", "-p", str(process)], capture_output=True, text=True, check=False
    )
    return not told.stdout.startswith("Z")
