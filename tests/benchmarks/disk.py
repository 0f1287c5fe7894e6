"""Rows on disk: what an update costs beside one on rows in memory, and how much memory it takes.

Run ``python tests/benchmarks/disk.py``; 4 GB are made in ``--folder`` and deleted afterwards. The
model is a normal regression on nine columns, ``--rows`` rows of ten float32 numbers on disk, whose
exact posterior is summed up while they are written. Each line of the table is a fresh process:

- ``in memory``: the first 10,000 rows as arrays.
- ``on disk, warm``: all rows; the files are in the system's page cache.
- ``on disk, cold``: the same after the cache was emptied of them (``posix_fadvise``).

Of these the time of an update is the median over draws of 20 updates of one chain, after tuning.
``first pass`` is the time of one full gradient, and ``tuned`` that of all of tuning. Then
``pm.sample`` draws two chains in two processes, and the memory of the program and its processes is
watched: the sum of their resident sets, and that sum with what they share counted once (PSS). Rows
are read into buffers, never mapped, so that no page of the files is in either. ``farthest`` is the
largest distance of a mean from the exact one, in posterior sds. ``--write FILE`` also writes a
Markdown table.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time

from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[2]
COLUMNS = 9
SLOPES = np.linspace(-1.0, 1.0, COLUMNS)
IN_MEMORY = 10_000
PART = 1_000_000
THIN = 20


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
    return {
        "mean": [*mean.tolist(), sigma],
        "sd": [*sd.tolist(), sigma / np.sqrt(2 * rows)],
    }


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

    if where == "in memory":
        arrays = [np.load(folder / name, mmap_mode="r")[:IN_MEMORY] for name in ("x.npy", "y.npy")]
        return model_of(
            *(array.astype(float) for array in arrays), IN_MEMORY, batch_size
        ), IN_MEMORY
    return model_of(
        sg.on_disk(folder / "x.npy"), sg.on_disk(folder / "y.npy"), rows, batch_size
    ), rows


def timed(where: str, folder: Path, rows: int, batch_size: int, backend: str, draws: int) -> Any:
    """Time updates of one chain."""
    import pymc_sgmcmc as sg

    model, _ = made(where, folder, rows, batch_size)
    with model:
        step = sg.MSGNHT(backend=backend, thin=THIN, batches=1)
    point = model.initial_point()
    step.setup_chain(np.random.default_rng(1), 0, draws)
    begin = time.perf_counter()
    point, _ = step.step(point)
    tuned = time.perf_counter() - begin
    if where == "on disk, cold":
        forget(folder)
    seconds = []
    for _ in range(draws):
        begin = time.perf_counter()
        point, _ = step.step(point)
        seconds.append(time.perf_counter() - begin)
    settings = step.chain.settings
    potential = step._engine.potential_at(step.chain.row_order, step.chain.scales, [])
    begin = time.perf_counter()
    potential.full(np.concatenate([x.reshape(-1) for x in settings.centre])[None])
    return {
        "median": 1e6 * float(np.mean(seconds[draws // 2 :])) / THIN,
        "first": 1e6 * float(np.mean(seconds[: draws // 2])) / THIN,
        "tuned": tuned,
        "pass": time.perf_counter() - begin,
        "remembered": bool(settings.anchor_blocks),
        "gradient": "anchored" if settings.anchor else "plain",
    }


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


def memory_of(pid: int) -> dict[str, int]:
    """Return resident bytes of a process and its children, summed."""
    total = {"Rss": 0, "Pss": 0}
    pids = [pid]
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            pids += map(int, task.read_text().split())
        except OSError:
            continue
    for one in pids:
        try:
            lines = Path(f"/proc/{one}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        for line in lines:
            key, _, value = line.partition(":")
            if key in total:
                total[key] += 1024 * int(value.split()[0])
    return total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=float, default=1e8)
    parser.add_argument("--folder", type=Path, default=None)
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--backends", nargs="+", default=["jax", "numba"])
    parser.add_argument("--batch-sizes", nargs="+", type=int, default=[500, 1000])
    parser.add_argument("--parts", nargs="+", default=["update", "sample"])
    parser.add_argument("--write", type=Path, default=None)
    parser.add_argument("--one", default=None, help="used by the program itself")
    arguments = parser.parse_args()
    rows = int(arguments.rows)
    if arguments.one is not None:
        kind, *rest = json.loads(arguments.one)
        found = {"timed": timed, "sampled": sampled}[kind](
            *[Path(x) if k == (1 if kind == "timed" else 0) else x for k, x in enumerate(rest)]
        )
        print(json.dumps(found))
        return
    with tempfile.TemporaryDirectory(dir=arguments.folder) as name:
        run(Path(name), rows, arguments)


def fresh(*what: Any) -> Any:
    """Run one measurement in a process of its own."""
    done = subprocess.run(
        [sys.executable, __file__, "--one", json.dumps(what, default=str)],
        cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True,
    )  # fmt: skip
    return json.loads(done.stdout.splitlines()[-1])


def run(folder: Path, rows: int, arguments: Any) -> None:
    begin = time.perf_counter()
    exact = write(folder, rows)
    size = sum(file.stat().st_size for file in folder.iterdir())
    print(f"{rows:,} rows, {size / 1e9:.3g} GB, written in {time.perf_counter() - begin:.0f} s")
    draws = arguments.draws
    if "update" in arguments.parts:
        for backend in arguments.backends:
            for batch_size in arguments.batch_sizes:
                usual = None
                for where in ("in memory", "on disk, warm", "on disk, cold"):
                    found = fresh("timed", where, folder, rows, batch_size, backend, draws)
                    usual = usual or found["median"]
                    ratio, known = found["median"] / usual, found["remembered"]
                    print(
                        f"{backend:6} B={batch_size:5} {where:14} {found['median']:7.2f} us an "
                        f"update ({ratio:.2f}), first half {found['first']:.2f}, tuned "
                        f"{found['tuned']:.1f} s, pass {found['pass']:.2f} s, "
                        f"{found['gradient']}{', remembered' if known else ''}",
                        flush=True,
                    )
    if "sample" in arguments.parts:
        for backend in arguments.backends:
            found = fresh("sampled", folder, rows, arguments.batch_sizes[0], backend, draws)
            off = np.abs(np.subtract(found["mean"], exact["mean"]) / exact["sd"])
            ratio = np.divide(found["sd"], exact["sd"])
            print(
                f"{backend:6} pm.sample, 2 x {draws} draws: {found['seconds']:.0f} s, resident "
                f"{found['Rss'] / 2**30:.2f} GiB, shared counted once {found['Pss'] / 2**30:.2f} "
                f"GiB, farthest mean {off.max():.3f} sd, sds {ratio.min():.3f} to "
                f"{ratio.max():.3f} of the exact ones",
                flush=True,
            )


if __name__ == "__main__":
    main()
