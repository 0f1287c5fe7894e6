"""Bayesian nets on the UCI regressions of the microcanonical-ensemble papers, untuned.

Run all with ``python tests/benchmarks/nets.py``, some with ``--data airfoil --splits 0 1 2``. A net
of two ReLU layers of 16 units gives a mean and the logarithm of an sd, with standard normal
weights; 70 % of the rows are for training, 20 % for the test. Four chains of a thousand draws by
``pm.sample(step=MSGNHT())`` with nothing else but a seed, each in a fresh process.

Columns: LPPD, the mean over test rows of the logarithm of the mean density, of all chains together
and of the worst and the best alone; seconds from the call to the result. ``--write FILE`` also
writes a Markdown table, the mean over the splits.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time

from itertools import pairwise
from pathlib import Path

import numpy as np

from table import Table, digits

DATA = Path(__file__).parents[1] / "data" / "uci"
NAMES = "airfoil", "concrete", "energy", "yacht"
COLUMNS = "model", "method", "splits", "LPPD", "worst chain", "best chain", "seconds"
UNITS = 16


def rows_of(name: str, split: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return standardised X and y of the training rows, then of the test rows."""
    found = np.load(DATA / f"{name}.npz")
    X, y = (found[key].astype(float) for key in ("X", "y"))
    X, y = (X - X.mean(axis=0)) / X.std(axis=0), (y - y.mean()) / y.std()
    order = np.random.default_rng(split).permutation(len(y))
    train, test = order[: int(0.7 * len(y))], order[-int(0.2 * len(y)) :]
    return X[train], y[train], X[test], y[test]


def measure(name: str, method: str, split: int) -> dict[str, float]:
    """Sample a net, and judge its predictions."""
    import pymc as pm

    from scipy.special import logsumexp

    import pymc_sgmcmc as sg

    X, y, X_test, y_test = rows_of(name, split)
    sizes = X.shape[1], UNITS, UNITS, 2
    with pm.Model():
        h = X
        for k, shape in enumerate(pairwise(sizes)):
            h = h @ pm.Normal(f"W{k}", shape=shape) + pm.Normal(f"b{k}", shape=shape[1])
            h = pm.math.maximum(h, 0) if k < len(sizes) - 2 else h
        pm.Normal("y", h[:, 0], pm.math.exp(h[:, 1]), observed=y)
        start = time.perf_counter()
        result = pm.sample(
            step=getattr(sg, method)(), chains=4, random_seed=1 + split, progressbar=False
        )
        seconds = time.perf_counter() - start
    weights = {name: x.values for name, x in result.posterior.data_vars.items()}

    def log_densities(chain: int, draw: int) -> np.ndarray:
        h = X_test
        for k in range(len(sizes) - 1):
            h = h @ weights[f"W{k}"][chain, draw] + weights[f"b{k}"][chain, draw]
            h = np.maximum(h, 0) if k < len(sizes) - 2 else h
        z = (y_test - h[:, 0]) * np.exp(-h[:, 1])
        return -(z**2) / 2 - h[:, 1] - np.log(2 * np.pi) / 2

    chains, draws = (result.posterior.sizes[dim] for dim in ("chain", "draw"))
    found = np.array([[log_densities(c, d) for d in range(draws)] for c in range(chains)])
    lppd = [
        float(np.mean(logsumexp(part, axis=0) - np.log(len(part))))
        for part in (found.reshape(-1, found.shape[-1]), *found)
    ]
    return {
        "LPPD": lppd[0],
        "worst chain": min(lppd[1:]),
        "best chain": max(lppd[1:]),
        "seconds": seconds,
    }


def main() -> None:
    """Run the data sets, each in a process of its own, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", nargs="*", default=list(NAMES), choices=NAMES)
    parser.add_argument("--methods", nargs="*", default=["MSGNHT"])
    parser.add_argument("--splits", nargs="*", type=int, default=[0, 1, 2])
    parser.add_argument("--write", type=Path)
    parser.add_argument("--one", nargs=3)
    arguments = parser.parse_args()
    if arguments.one:
        name, method, split = arguments.one
        print(json.dumps(measure(name, method, int(split))))
        return
    table = Table(COLUMNS, NAMES, arguments.write)
    print(" ".join(f"{c:>11}" for c in COLUMNS))
    for name in arguments.data:
        for method in arguments.methods:
            rows = []
            for split in arguments.splits:
                command = [sys.executable, __file__, "--one", name, method, str(split)]
                run = subprocess.run(command, check=False, capture_output=True, text=True)
                if run.returncode:
                    print(name, method, split, "failed:", run.stderr.splitlines()[-1], flush=True)
                    continue
                rows.append(json.loads(run.stdout.splitlines()[-1]))
                cells = [name, method, "1", *(digits(rows[-1][c]) for c in COLUMNS[3:])]
                print(" ".join(f"{c:>11}" for c in cells), flush=True)
            if rows:
                means = [digits(float(np.mean([row[c] for row in rows]))) for c in COLUMNS[3:]]
                table.add([name, method, str(len(rows)), *means])


if __name__ == "__main__":
    main()
