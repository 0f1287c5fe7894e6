"""Seconds from the call of ``pm.sample`` to the first draw, for the README's example.

Run ``python tests/benchmarks/first_draw.py``. Each time a fresh process imports the packages and
samples twice, the second time with a model made anew. The least of ``--repeats`` is printed.
"""

from __future__ import annotations

import argparse
import json
import logging
import subprocess
import sys
import time

from typing import Any

import numpy as np


class _FirstDraw:
    """A callback that keeps the seconds until its first call."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._began = time.perf_counter()

    def __call__(self, *_: Any, **__: Any) -> None:
        self.seconds = self.seconds or time.perf_counter() - self._began


def run(backend: str) -> list[float]:
    """Return the seconds of two calls in this process."""
    import pymc as pm

    import pymc_sgmcmc as sg

    logging.getLogger("pymc").setLevel(logging.ERROR)
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(100_000, 3))
    seen = rows @ [1.0, 2.0, 3.0] + rng.normal(size=100_000)
    found = []
    for _ in range(2):
        with pm.Model():
            x, y = pm.Minibatch(rows, seen, batch_size=500)
            beta = pm.Normal("beta", 0, 10, shape=3)
            pm.Normal("y", x @ beta, pm.HalfNormal("sigma", 1), observed=y, total_size=len(rows))
            first = _FirstDraw()
            pm.sample(
                1, tune=0, chains=1, cores=1, step=sg.CoRVSGLD(backend=backend), callback=first,
                random_seed=1, progressbar=False, compute_convergence_checks=False,
            )  # fmt: skip
        found.append(first.seconds)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend", default="jax")
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    command = [sys.executable, __file__, "run", arguments.backend]
    found = [json.loads(subprocess.check_output(command)) for _ in range(arguments.repeats)]
    first, again = np.min(found, axis=0)
    print(f"{arguments.backend}: {first:.2f} s in a new process, {again:.2f} s again")


if __name__ == "__main__":
    if sys.argv[1:2] == ["run"]:
        print(json.dumps(run(sys.argv[2])))
    else:
        main()
