"""Rows on disk: what an update costs beside one on rows in memory, and how much memory it takes.

Run ``python tests/benchmarks/disk.py``; 4 GB are made in ``--folder`` and deleted afterwards. The
model is a normal regression on nine columns, ``--rows`` rows of ten float32 numbers on disk, whose
exact posterior is summed up while they are written. Each line is a fresh process:

- ``an update``: one tuned chain on the first 10,000 rows, as arrays of ``floatX``, one on the first
  ten million in memory, which are in no cache, and one on all rows on disk, in turn; an update of
  each in the fastest of 9 runs of as many draws of 20 updates. Then the same on disk after the
  page cache was emptied of the files (cold), the time of one full gradient, most of it cold, and
  that of all of tuning on disk.
- ``two chains``: ``pm.sample`` with two chains in two processes, untuned by hand, with the largest
  memory of the program and its processes: the sum of their resident sets, and that with what they
  share counted once (PSS). Rows are read into buffers and never mapped: no page of the files is in
  either. Farthest mean: from the exact one, in posterior sds.

``--write FILE`` also writes a Markdown table.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import threading
import time

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from memory import memory_of
from table import Table, fresh

COLUMNS = 9
COLUMNS_OF_TABLE = "what", "data", "figures"
SLOPES = np.linspace(-1.0, 1.0, COLUMNS)
IN_MEMORY = {"in memory": 10_000, "many in memory": 10_000_000}
PART = 1_000_000
THIN, WINDOWS = 20, 10


def write(folder: Path, rows: int) -> dict[str, Any]:
    """Make the files; return means and sds of the posterior."""
    rng = np.random.default_rng(1)
    x = np.lib.format.open_memmap(folder / "x.npy", "w+", np.float32, (rows, COLUMNS))
    y = np.lib.format.open_memmap(folder / "y.npy", "w+", np.float32, (rows,))
    squares, products, total = np.zeros((COLUMNS, COLUMNS)), np.zeros(COLUMNS), 0.0
    for start in range(0, rows, PART):
        part = slice(start, min(start + PART, rows))
        x[part] = rng.standard_normal(x[part].shape, dtype=np.float32)
        y[part] = x[part] @ SLOPES + rng.standard_normal(len(x[part]), dtype=np.float32)
        X, Y = x[part].astype(float), y[part].astype(float)
        squares, products, total = squares + X.T @ X, products + X.T @ Y, total + Y @ Y
    x.flush()
    y.flush()
    mean = np.linalg.solve(squares, products)
    sigma = float(np.sqrt((total - products @ mean) / rows))
    sd = sigma * np.sqrt(np.diag(np.linalg.inv(squares)))
    return {"mean": [*mean.tolist(), sigma], "sd": [*sd.tolist(), sigma / np.sqrt(2 * rows)]}


def model_of(x: Any, y: Any, rows: int, batch_size: int) -> Any:
    import pymc as pm

    with pm.Model() as model:
        a, b = pm.Minibatch(x, y, batch_size=batch_size)
        slopes = pm.Normal("slopes", 0, 1, shape=COLUMNS)
        sigma = pm.HalfNormal("sigma", 1)
        pm.Normal("y", a @ slopes, sigma, observed=b, total_size=rows)
    return model


def forget(folder: Path) -> None:
    """Empty the page cache of the files."""
    for name in ("x.npy", "y.npy"):
        file = os.open(folder / name, os.O_RDONLY)
        os.fsync(file)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(file)


def made(where: str, folder: Path, rows: int, batch_size: int) -> tuple[Any, int]:
    import pymc_sgmcmc as sg

    if where in IN_MEMORY:
        few = min(IN_MEMORY[where], rows)
        x, y = (np.load(folder / name, mmap_mode="r")[:few] for name in ("x.npy", "y.npy"))
        x = x.astype(float) if where == "in memory" else np.array(x)
        return model_of(x, y.astype(float), few, batch_size), few
    return model_of(
        sg.on_disk(folder / "x.npy"), sg.on_disk(folder / "y.npy"), rows, batch_size
    ), rows


def timed(folder: Path, rows: int, batch_size: int, backend: str, draws: int) -> Any:
    """Time updates of one chain on each of the rows, in turn."""
    import pymc_sgmcmc as sg

    chains, tuned = {}, {}
    for where in (*IN_MEMORY, "on disk"):
        model, _ = made(where, folder, rows, batch_size)
        with model:
            step = sg.MSGNHT(backend=backend, thin=THIN, batches=1)
        step.setup_chain(np.random.default_rng(1), 0, draws)
        begin = time.perf_counter()
        chains[where] = step, step.step(model.initial_point())[0]
        tuned[where] = time.perf_counter() - begin

    def window(where: str) -> float:
        step, point = chains[where]
        begin = time.perf_counter()
        for _ in range(draws // WINDOWS):
            point, _ = step.step(point)
        chains[where] = step, point
        return 1e6 * (time.perf_counter() - begin) / (draws // WINDOWS) / THIN

    def turns(names: Sequence[str]) -> dict[str, float]:
        seen = [[window(where) for where in names] for _ in range(WINDOWS)]
        return dict(zip(names, np.min(seen[1:], axis=0).tolist(), strict=True))

    found = turns([*IN_MEMORY, "on disk"])
    step = chains["on disk"][0]
    settings = step.chain.settings
    forget(folder)
    found["cold"] = turns(["on disk"])["on disk"]
    potential = step._engine.potential_at(step.chain.row_order, step.chain.scales, [])
    begin = time.perf_counter()
    potential.full(np.concatenate([x.reshape(-1) for x in settings.centre])[None])
    found["pass"] = time.perf_counter() - begin
    return found | {"tuned": tuned["on disk"], "remembered": bool(settings.anchor_blocks)}


def sampled(folder: Path, rows: int, batch_size: int, backend: str, draws: int) -> Any:
    """Draw two chains in two processes, and watch the memory."""
    import pymc as pm

    import pymc_sgmcmc as sg

    model, _ = made("on disk", folder, rows, batch_size)
    largest = {"Rss": 0, "Pss": 0}
    done = threading.Event()

    def watch() -> None:
        while not done.wait(0.25):
            for key, value in memory_of(os.getpid()).items():
                largest[key] = max(largest[key], value)

    watcher = threading.Thread(target=watch)
    watcher.start()
    begin = time.perf_counter()
    with model:
        result = pm.sample(
            step=sg.MSGNHT(backend=backend), draws=draws, chains=2, cores=2, random_seed=1,
            progressbar=False, compute_convergence_checks=False,
        )  # fmt: skip
    seconds = time.perf_counter() - begin
    done.set()
    watcher.join()
    means = np.concatenate([
        result.posterior[name].values.reshape(2 * draws, -1) for name in ("slopes", "sigma")
    ], axis=1)  # fmt: skip
    return {
        "seconds": seconds,
        "mean": means.mean(axis=0).tolist(),
        "sd": means.std(axis=0).tolist(),
        **largest,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=float, default=1e8)
    parser.add_argument("--folder", type=Path, default=None)
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--backends", nargs="+", default=["jax", "numba"])
    parser.add_argument("--batch-size", type=int, default=500)
    parser.add_argument("--parts", nargs="+", default=["update", "sample"])
    parser.add_argument("--write", type=Path, default=None)
    parser.add_argument("--one", nargs=3, help="used by the program itself")
    arguments = parser.parse_args()
    rows = int(arguments.rows)
    if arguments.one:
        kind, folder, backend = arguments.one
        measure = {"timed": timed, "sampled": sampled}[kind]
        print(
            json.dumps(measure(Path(folder), rows, arguments.batch_size, backend, arguments.draws))
        )
        return
    with tempfile.TemporaryDirectory(dir=arguments.folder) as name:
        run(Path(name), rows, arguments)


def run(folder: Path, rows: int, arguments: Any) -> None:
    begin = time.perf_counter()
    exact = write(folder, rows)
    size = sum(file.stat().st_size for file in folder.iterdir())
    print(f"{rows:,} rows, {size / 1e9:.3g} GB, written in {time.perf_counter() - begin:.0f} s")
    draws = arguments.draws
    same = "--rows", rows, "--batch-size", arguments.batch_size, "--draws", draws
    table = Table(COLUMNS_OF_TABLE, ["an update", "two chains"], arguments.write)
    for backend in arguments.backends if "update" in arguments.parts else []:
        found = fresh(__file__, "--one", "timed", folder, backend, *same, check=True)
        ratio = found["on disk"] / found["in memory"]
        cells = [
            f"an update, {backend}",
            f"{rows:.0e} rows, batches of {arguments.batch_size}",
            f"{found['in memory']:.1f} us in memory (many rows {found['many in memory']:.1f}), "
            f"{found['on disk']:.1f} on disk ({ratio:.2f}), "
            f"{found['cold']:.1f} cold; a pass {found['pass']:.1f} s, tuning {found['tuned']:.0f} s"
            + (", an update computes two gradients" if not found["remembered"] else ""),
        ]
        print("  ".join(cells), flush=True)
        table.add(cells)
    for backend in arguments.backends if "sample" in arguments.parts else []:
        found = fresh(__file__, "--one", "sampled", folder, backend, *same, check=True)
        off = np.abs(np.subtract(found["mean"], exact["mean"]) / exact["sd"])
        widths = np.divide(found["sd"], exact["sd"])
        cells = [
            f"two chains, {backend}",
            f"{rows:.0e} rows, 2 x {draws} draws",
            f"{found['seconds']:.0f} s, resident {found['Rss'] / 2**30:.2f} GiB, what is shared "
            f"counted once {found['Pss'] / 2**30:.2f} GiB; farthest mean {off.max():.3f} sd, sds "
            f"{widths.min():.3f} to {widths.max():.3f} of the exact ones",
        ]
        print("  ".join(cells), flush=True)
        table.add(cells)


if __name__ == "__main__":
    main()
