"""Kill and resume: what it costs to keep a run, ten million updates, and a disk that is full.

Run ``python tests/benchmarks/checkpoint.py``; ``cost``, ``soak`` or ``disk`` as arguments run a
part alone. Nothing is tuned, and what is compiled is compiled before the clock starts.

- ``cost``: seconds of ``pm.sample`` with one chain, kept and not, in turn; the fastest of five.
  With a state each ten seconds, as by default, and with one after each draw, the worst that can
  be asked for.
- ``soak``: ``--updates`` updates of a normal mean in one chain that is kept; the resident set
  after each tenth of them, in MiB, and the chain's mean and sd beside the posterior's.
- ``disk``: a run that is kept on a file system of 256 KiB (``unshare`` and ``mount`` make it
  without rights where the kernel lets them, and it is gone with the process): what the error
  says, and how many draws are read afterwards.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import time

from pathlib import Path
from typing import Any

import numpy as np
import pymc as pm

import pymc_sgmcmc as sg

from pymc_sgmcmc.testing import UNTUNED

QUIET: dict[str, Any] = {
    "tune": 0, "chains": 1, "cores": 1, "progressbar": False, "compute_convergence_checks": False,
    "random_seed": 1,
}  # fmt: skip
COLUMNS, ROWS = 10, 100_000
SD = 0.5


def regression() -> Any:
    rng = np.random.default_rng(1)
    X = rng.normal(size=(ROWS, COLUMNS))
    with pm.Model() as model:
        x, y = pm.Minibatch(X, X.sum(axis=1) + rng.normal(size=ROWS), batch_size=500)
        pm.Normal("y", x @ pm.Normal("b", shape=COLUMNS), 1, observed=y, total_size=ROWS)
    return sg.CoRVSGLD(model=model, **{**UNTUNED, "step_size": 1e-7, "thin": 20})


def mean(thin: int) -> Any:
    rows = np.random.default_rng(1).normal(size=100)
    with pm.Model() as model:
        y = pm.Minibatch(rows, batch_size=10)
        pm.Normal("y", pm.Normal("mu", 0, 10), SD, observed=y, total_size=len(rows))
    return sg.CoRVSGLD(model=model, **{**UNTUNED, "step_size": 1e-4, "thin": thin})


def sample(step: Any, draws: int, path: Path | None = None, every: float = 10.0, **options: Any):
    kept = step if path is None else sg.checkpoint(step, path, every=every)
    with step.model:
        return pm.sample(draws, step=kept, **QUIET, **options)


def cost() -> None:
    step, draws = regression(), 2000
    sample(step, 100)
    fastest: dict[Any, float] = {}
    for _ in range(5):
        for every in (None, 10.0, 0.0):
            with tempfile.TemporaryDirectory() as folder:
                path = None if every is None else Path(folder)
                start = time.perf_counter()
                sample(step, draws, path, every or 0.0)
                spent = time.perf_counter() - start
            fastest[every] = min(spent, fastest.get(every, np.inf))
    plain = fastest[None]
    print(f"{draws} draws of 20 updates, batches of 500 rows of {COLUMNS} columns")
    for every, spent in fastest.items():
        said = "not kept" if every is None else f"kept, every={every:g}"
        print(
            f"{said:<16} {spent:6.2f} s, {(spent - plain) / draws * 1e6:+5.0f} µs a draw, "
            f"{spent / plain - 1:+.1%}"
        )


def resident_set() -> float:
    """Return that of this process in MiB."""
    status = Path("/proc/self/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+) kB", status).group(1)) / 1024


def soak(updates: int) -> None:
    draws = 10_000
    step = mean(max(1, updates // draws))
    resident: list[float] = []

    def note(trace: Any, draw: Any) -> None:
        if (draw.draw_idx + 1) % (draws // 10) == 0:
            resident.append(resident_set())

    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        dt = sample(step, draws, Path(folder), callback=note)
        size = sum(f.stat().st_size for f in Path(folder).rglob("*") if f.is_file())
    spent = time.perf_counter() - start
    print(f"{draws * step.options.thin:,} updates in {spent:.0f} s, {size / 2**20:.1f} MiB on disk")
    print("resident after each tenth, MiB:", *(f"{mib:.1f}" for mib in resident))
    print(f"growth from the first tenth to the last: {resident[-1] - resident[0]:+.1f} MiB")
    rows = np.random.default_rng(1).normal(size=100)
    precision = 1 / 10**2 + 100 / SD**2
    exact = rows.sum() / SD**2 / precision, precision**-0.5
    mu = dt.posterior["mu"].values
    print(
        f"mean {(mu.mean() - exact[0]) / exact[1]:+.3f} posterior sds from the exact one, "
        f"sd {mu.std() / exact[1]:.3f} of it"
    )


def full_disk(folder: Path) -> None:
    step, draws = mean(5), 5000
    try:
        sample(step, draws, folder / "run", every=0.0)
    except pm.exceptions.SamplingError as error:
        print(f"{type(error).__name__}: {error}")
        kept = int(re.search(r"keeps the first (\d+) draws", str(error)).group(1))
        dt = sample(step, kept, folder / "run", every=0.0)
        print(f"read afterwards: {dt.posterior.sizes['draw']} draws")


def disk() -> None:
    with tempfile.TemporaryDirectory() as folder:
        make = f"mount -t tmpfs -o size=256k none {folder}"
        make += f" && {sys.executable} {__file__} --full {folder}"
        for alone in (["unshare", "-m"], ["unshare", "-rm"]):
            done = subprocess.run(
                [*alone, "sh", "-c", make], check=False, capture_output=True, text=True
            )
            if done.returncode == 0:
                print(done.stdout.strip())
                return
    print(f"not seen, for no file system could be made: {done.stderr.strip()[-500:]}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", default=["cost", "soak", "disk"])
    parser.add_argument("--updates", type=int, default=10_000_000)
    parser.add_argument("--full", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.full is not None:
        full_disk(args.full)
        return
    for part in args.parts:
        {"cost": cost, "soak": lambda: soak(args.updates), "disk": disk}[part]()


if __name__ == "__main__":
    main()
