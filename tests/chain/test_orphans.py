"""Chains whose parent is killed alone."""

import os
import signal
import subprocess
import sys
import time

import pytest

from pymc_sgmcmc.store.files import locked

pytestmark = pytest.mark.skipif(os.name != "posix", reason="there are no forks")

# As PyMC samples two chains: processes that hold each other's pipes
PROGRAM = """
import multiprocessing, sys, time
from pathlib import Path
from pymc_sgmcmc.store.files import locked
from pymc_sgmcmc.chain.orphans import end_with_parent

def chain(path, pipe):
    lock = locked(Path(path))
    end_with_parent()
    print("locked", flush=True)
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
    main.send_signal(signal.SIGKILL)
    main.wait()
    main.stdout.close()
    monkeypatch.setattr("pymc_sgmcmc.store.files._PATIENCE", 10.0)
    try:
        for path in paths:
            locked(path).close()
    finally:
        for path in paths:
            if path.read_text() in map(str, chains):
                os.kill(int(path.read_text()), signal.SIGKILL)
