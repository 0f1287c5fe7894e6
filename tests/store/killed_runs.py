"""Runs that are killed by the system, each in a process of its own; a program for the tests.

``python killed_runs.py BACKEND KILLS FOLDER``: an unbroken run, and as many that are killed at a
random moment and run again; a line of JSON for each kill. The processes are forks of this one,
which only imports: JAX runs in none that is forked. ``helpers`` must be on the path.
"""

import json
import logging
import multiprocessing
import os
import signal
import sys
import time

from pathlib import Path

import numpy as np

import pymc_sgmcmc as sg

from helpers.kept import bits, location, run
from pymc_sgmcmc.store import chain_store, files


def sampled(folder: Path | None, backend: str, answers, write: int | None = None) -> None:
    """Sample, in a process that may be killed; by itself inside the given write."""
    logging.disable(logging.CRITICAL)
    append, left = files.append, write

    def partial(descriptor: int, data: bytes) -> None:
        nonlocal left
        assert left is not None
        left -= 1
        append(descriptor, data[: len(data) // 2] if left < 0 else data)
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)

    if write is not None:
        files.append = partial
    result = run(
        folder, 500, tune=20, chains=1, every=0.02,
        make=location, step=lambda model: sg.MSGNHT(model=model, backend=backend),
    )  # fmt: skip
    answers.put(bits(result))


def lived(folder, backend, seconds=None, write=None, after_first_state=False):
    """Return the bits of a run, None if it was killed, and the seconds that it took."""
    fork = multiprocessing.get_context("fork")
    answers, began = fork.Queue(), time.monotonic()
    process = fork.Process(target=sampled, args=(folder, backend, answers, write))
    process.start()
    while after_first_state and process.is_alive():
        if (folder / "chain-0" / "state-0").exists():
            break
        time.sleep(0.005)
    process.join(seconds)
    if process.is_alive():
        process.kill()
        process.join()
    took = time.monotonic() - began
    return (answers.get() if process.exitcode == 0 else None), took


def where(folder: Path) -> str:
    """Say in which part of its life the run was killed."""
    store = chain_store.ChainStore(folder / "chain-0")
    store.read()
    if store.begun is None:
        return "before the first draw"
    return f"after {store.saved.draws} draws" if store.saved.draws else "while tuning"


def main() -> None:
    backend, kills, path = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
    lived(None, backend)  # compiled functions that are kept on disk
    expected, took = lived(None, backend)
    rng = np.random.default_rng(1)
    for k in range(kills):
        folder = path / str(k)
        # At any time; once there are draws; inside a write
        kind = k % 4
        inside = int(rng.integers(1, 20)) if kind == 3 else None
        moment = {2: rng.uniform(0, 0.3), 3: None}.get(kind, rng.uniform(0.5, took))
        survived, _ = lived(folder, backend, moment, inside, after_first_state=kind == 2)
        told = {"killed": survived is None, "where": where(folder), "inside a write": inside}
        found, _ = lived(folder, backend)
        print(json.dumps({**told, "same bits": found == expected}), flush=True)


if __name__ == "__main__":
    main()
