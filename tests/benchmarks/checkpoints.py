"""Chains that are kept on disk: what keeping them costs, and their memory in a long run.

``python tests/benchmarks/checkpoints.py`` draws one tuned chain of a linear regression, whose rows
are taken by ``batch_dim``: not kept at all, kept with a state every 10 seconds (the default), and
every second. Each makes the same draws twice, in two orders, and the faster run counts. Seconds are
of the clock, so that waiting for the disk counts, with those of the processor in brackets. What one
state takes is measured on a run that writes one after each draw.

``--soak 1e7`` makes so many updates of one kept chain instead and prints the resident memory of the
process as they go on, its growth since the first tenth, and how long reading all draws again takes.

``--full`` keeps a chain on a file system of 256 KiB instead, which ``unshare`` and ``mount`` make
where the system lets a user do so, and reads what it holds once it is full.

``--write FILE`` also writes the costs as a Markdown table.
"""

from __future__ import annotations

import argparse
import logging
import os
import subprocess
import sys
import tempfile
import time

from pathlib import Path
from typing import Any

import numpy as np
import pymc as pm

from table import Table

import pymc_sgmcmc as sg

from pymc_sgmcmc.store.chain_store import ChainStore

COLUMNS_OF_TABLE = "a chain", "of parameters", "figures"
ROWS, BATCH, THIN = 100_000, 500, 20
WAYS = {"not kept": None, "a state every 10 s": 10.0, "a state every second": 1.0}
ALONE = "a state alone"


def model_of(columns: int, rows: int) -> pm.Model:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(rows, columns))
    y = x @ rng.normal(size=columns) + rng.normal(size=rows)
    with pm.Model() as model:
        data = pm.Data("x", x, dims=("obs", None))
        slopes, sigma = pm.Normal("slopes", shape=columns), pm.HalfNormal("sigma")
        pm.Normal("y", data @ slopes, sigma, observed=y, dims="obs")
    return model


def drawn(step: Any, start: dict[str, np.ndarray], draws: int) -> tuple[float, float]:
    """Make all draws of a chain; return seconds of the clock and of the processor after tuning."""
    step.setup_chain(np.random.default_rng(1), 0, draws)
    point, _ = step.step(start)
    clock, processor = time.perf_counter(), time.process_time()
    for _ in range(draws - 1):
        point, _ = step.step(point)
    return time.perf_counter() - clock, time.process_time() - processor


def costs(columns: int, seconds: float, backend: str, table: Table) -> None:
    model = model_of(columns, ROWS)
    start = model.initial_point()
    step = sg.MSGNHT(model=model, backend=backend, thin=THIN, batch_size=BATCH, batch_dim="obs")

    def run(every: float | None, draws: int) -> tuple[float, float]:
        with tempfile.TemporaryDirectory() as folder:
            kept = step if every is None else sg.checkpoint(step, folder, every=every)
            return drawn(kept, start, draws)

    def told(way: str, text: str) -> None:
        cells = [way, str(columns + 1), text]
        print("  ".join(cells), flush=True)
        table.add(cells)

    few = 200
    plain, states = run(None, few), run(0.0, few)
    clock, processor = (1e3 * (b - a) / few for a, b in zip(plain, states, strict=True))
    told(ALONE, f"{clock:.1f} ms ({processor:.1f})")
    draws = int(seconds / run(None, 1000)[0] * 1000)
    found: dict[str, list[tuple[float, float]]] = {way: [] for way in WAYS}
    for way in [*WAYS, *reversed(WAYS)]:
        found[way].append(run(WAYS[way], draws))
    without = np.min(found["not kept"], axis=0)
    for way, seen in found.items():
        clock, processor = np.min(seen, axis=0)
        more = 100 * (np.array([clock, processor]) / without - 1)
        told(
            way,
            f"{clock:.1f} s ({processor:.1f}) for {draws:,} draws"
            + ("" if way == "not kept" else f", {more[0]:+.1f} % ({more[1]:+.1f} %)"),
        )


def resident() -> float:
    """Return the resident memory of this process in MiB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def soak(updates: int, backend: str) -> None:
    thin, every = 50, 1.0
    draws = updates // thin
    model = model_of(10, 10_000)
    start = model.initial_point()
    step = sg.MSGNHT(model=model, backend=backend, thin=thin, batch_size=50, batch_dim="obs")
    with tempfile.TemporaryDirectory() as folder:
        kept = sg.checkpoint(step, folder, every=every)
        kept.setup_chain(np.random.default_rng(1), 0, draws)
        point, seen, begin = start, [], time.perf_counter()
        for k in range(1, draws + 1):
            point, _ = kept.step(point)
            if k % (draws // 20) == 0:
                seen.append(resident())
                print(
                    f"{k * thin:.3g} updates  {time.perf_counter() - begin:.0f} s  "
                    f"{seen[-1]:.1f} MiB resident",
                    flush=True,
                )
        print(f"largest growth since the first tenth: {max(seen[2:]) - seen[1]:+.1f} MiB")
        before, begin = resident(), time.perf_counter()
        kept = sg.checkpoint(step, folder, every=every)
        kept.setup_chain(np.random.default_rng(1), 0, draws)
        again = start
        for _ in range(draws):
            again, _ = kept.step(again)
        assert all(np.array_equal(again[name], point[name]) for name in point)
        print(
            f"{draws:,} draws read again in {time.perf_counter() - begin:.1f} s, "
            f"{resident() - before:+.1f} MiB; the last one has the same bits"
        )


def on_full_disk(folder: Path, backend: str) -> None:
    draws, model = 20_000, model_of(10, 1_000)
    options = {"draws": draws, "tune": 0, "chains": 1, "cores": 1, "random_seed": 1}
    quiet = {"progressbar": False, "compute_convergence_checks": False}

    def sample() -> Any:
        step = sg.MSGNHT(backend=backend, thin=20, batch_size=50, batch_dim="obs")
        return pm.sample(step=sg.checkpoint(step, folder / "run", every=0.05), **options, **quiet)

    with model:
        # The log says how many of them are kept
        print(f"returned: {sample().posterior.sizes['draw']} draws")
        store = ChainStore(folder / "run" / "chain-0")
        store.read()
        options["draws"] = store.saved.draws
        print(f"read afterwards: {sample().posterior.sizes['draw']} draws")


def full(backend: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        command = f"mount -t tmpfs -o size=256k none {folder} && {sys.executable} {__file__}"
        command += f" --full {folder} --backend {backend}"
        subprocess.run(["unshare", "-rm", "sh", "-c", command], check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--columns", type=int, nargs="+", default=[10, 100])
    parser.add_argument("--seconds", type=float, default=40.0, help="of each run")
    parser.add_argument("--backend", default="jax")
    parser.add_argument("--soak", type=float, default=None, metavar="UPDATES")
    parser.add_argument("--full", type=Path, nargs="?", const=Path(), default=None)
    parser.add_argument("--write", type=Path, default=None)
    arguments = parser.parse_args()
    logging.getLogger("pymc").setLevel(logging.ERROR)
    if arguments.soak is not None:
        soak(int(arguments.soak), arguments.backend)
        return
    if arguments.full is not None:
        # A folder is given by the program itself, inside the file system that it has made
        if arguments.full == Path():
            full(arguments.backend)
        else:
            on_full_disk(arguments.full, arguments.backend)
        return
    table = Table(COLUMNS_OF_TABLE, [*WAYS, ALONE], arguments.write)
    for columns in arguments.columns:
        costs(columns, arguments.seconds, arguments.backend, table)


if __name__ == "__main__":
    main()
