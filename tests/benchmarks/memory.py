"""Memory that sampling takes beside the data: the peak over all processes.

Run ``python tests/benchmarks/memory.py``. Two chains on two forked processes, 20 columns of
float64, a linear regression written for batch_dim and with pm.Minibatch. The peak of the
proportional set sizes of all processes is taken beside that of the same run with a hundredth of
the rows: what is left is of the data. The data themselves, which the model holds once, count as 1.
Making the model has a column of its own, because ``pm.Data`` copies an array twice before it keeps
one of the copies: that is PyMC's, and has ended when sampling begins.
``--write FILE`` also writes a Markdown table.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time

from contextlib import suppress
from pathlib import Path

import numpy as np

from table import Table

COLUMNS = (
    "model",
    "data",
    "MB",
    "peak of sampling, MB",
    "of a hundredth, MB",
    "beyond the data, in data",
    "making the model, in data",
)
WRITINGS = {"batch_dim": "`batch_dim`", "minibatch": "`pm.Minibatch`"}
_COLUMNS, _SEED = 20, 1


def memory_of(root: int) -> dict[str, int]:
    """Return resident and proportional bytes of a process and all that it started, summed."""
    total, pids = {"Rss": 0, "Pss": 0}, [root]
    for pid in pids:
        # Threads and processes end meanwhile
        with suppress(OSError):
            for task in Path(f"/proc/{pid}/task").iterdir():
                pids += map(int, (task / "children").read_text().split())
        with suppress(OSError):
            for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                key, _, value = line.partition(":")
                if key in total:
                    total[key] += 1024 * int(value.split()[0])
    return total


def peaks_of(*arguments: str) -> np.ndarray:
    """Return the peaks of all processes of a run of this program, in bytes.

    The first is of making the model, the second of sampling.
    """
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "made"
        peaks, before = np.zeros(2), 0
        with subprocess.Popen([sys.executable, __file__, "run", *arguments, made]) as process:
            while process.poll() is None:
                phase = int(made.exists())
                now = memory_of(process.pid)["Pss"]
                # A page that a second process maps while both are read counts too often, once
                peaks[phase] = max(peaks[phase], min(before, now))
                before = now
                time.sleep(0.02)
        if process.returncode:
            raise SystemExit(process.returncode)
    return peaks


def run(writing: str, rows: int, backend: str, made: Path) -> None:
    """Make the model, which the file ``made`` tells, and sample once."""
    import pymc as pm

    import pymc_sgmcmc as sg

    with pm.Model() as model:
        _write(pm, writing, rows)
        made.touch()
        options = {"batch_size": 500, "batch_dim": "obs"} if writing == "batch_dim" else {}
        step = sg.MSGNHT(backend=backend, **options)
        pm.sample(
            100, tune=50, step=step, chains=2, cores=2, random_seed=_SEED, progressbar=False,
            compute_convergence_checks=False,
        )  # fmt: skip
    assert model is not None


def _write(pm: object, writing: str, rows: int) -> None:
    """Write the model; it alone holds the data afterwards."""
    rng = np.random.default_rng(_SEED)
    x = rng.normal(size=(rows, _COLUMNS))
    y = x @ np.linspace(-1, 1, _COLUMNS)
    y += rng.normal(size=rows)
    total = {}
    if writing == "batch_dim":
        x = pm.Data("x", x, dims=("obs", "feature"))
        total = {"dims": "obs"}
    else:
        x, y = pm.Minibatch(x, y, batch_size=500)
        total = {"total_size": rows}
    beta = pm.Normal("beta", 0, 10, shape=_COLUMNS)
    pm.Normal("y", x @ beta, pm.HalfNormal("sigma", 1), observed=y, **total)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=float, default=4e6)
    parser.add_argument("--backend", default="jax")
    parser.add_argument("--models", nargs="+", choices=WRITINGS, default=list(WRITINGS))
    parser.add_argument("--write", type=Path, default=None)
    arguments = parser.parse_args()
    rows, backend = int(arguments.rows), arguments.backend
    few = rows // 100
    size = (rows - few) * (_COLUMNS + 1) * 8
    table = Table(COLUMNS, WRITINGS.values(), arguments.write)
    for writing in arguments.models:
        name = WRITINGS[writing]
        few_peaks, peaks = (peaks_of(writing, str(n), backend) for n in (few, rows))
        making, sampling = (peaks - few_peaks) / size - 1
        cells = [
            f"{name}, {backend}",
            f"{rows:.0e} rows of {_COLUMNS} + 1 float64",
            f"{size / 1e6:.0f}",
            f"{peaks[1] / 1e6:.0f}",
            f"{few_peaks[1] / 1e6:.0f}",
            f"{sampling:.3g}",
            f"{making:.3g}",
        ]
        print("  ".join(cells), flush=True)
        table.add(cells)


if __name__ == "__main__":
    if sys.argv[1:2] == ["run"]:
        run(sys.argv[2], int(sys.argv[3]), sys.argv[4], Path(sys.argv[5]))
    else:
        main()
