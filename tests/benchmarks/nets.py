"""Bayesian nets on the UCI regressions of the microcanonical-ensemble papers, untuned.

Run all with ``python tests/benchmarks/nets.py``, some with ``--data airfoil --splits 0 1 2``. A net
of two ReLU layers of 16 units gives a mean and the logarithm of an sd, with standard normal
weights; 70 % of the rows are for training, 20 % for the test. Each run has a fresh process:

- ``MSGNHT``: four chains of a thousand draws by ``pm.sample(step=MSGNHT())`` with nothing else but
  a seed; above 5,000 rows on a ``pm.Minibatch`` of 500.
- ``300 draws``: the same, ``pm.sample(300, ...)``.
- ``by hand``: a thousand draws with a step size that was tuned for airfoil by hand.
- ``NUTS``: four chains of nutpie on all rows, stopped after the CPU time of MSGNHT's run. Where no
  chain has ended its warm-up, the second half of that counts.
- ``ensemble``: nets trained by Adam from random starts, stopped where 10 % of the rows, kept for
  that, are predicted best; as many as that CPU time allows.

Columns: LPPD, the mean over test rows of the logarithm of the mean density, of all chains or nets
together and of the worst and the best alone; CPU seconds from the call to the result, compilation
included, which other programs do not change. ``--write FILE`` also writes a Markdown table, the
mean over the splits that ended.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time

from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from table import Table, digits, fresh

DATA = Path(__file__).parents[1] / "data" / "uci"
NAMES = "airfoil", "concrete", "energy", "yacht", "bikesharing"
METHODS = "MSGNHT", "300 draws", "by hand", "NUTS", "ensemble"
COLUMNS = "model", "method", "splits", "LPPD", "worst", "best", "CPU seconds"
UNITS, CHAINS, MANY, BATCH, SMALL_BATCH = 16, 4, 5_000, 500, 32
BY_HAND = {
    "step_size": 0.005,
    "scale": None,
    "gradient": "plain",
    "batches": 1,
    "thin": 100,
    "diffusion": 5.0,
}

Draws = dict[str, np.ndarray]


def rows_of(name: str, split: int) -> tuple[np.ndarray, ...]:
    """Return standardised X and y of the rows for training, for stopping, and for the test."""
    found = np.load(DATA / f"{name}.npz")
    X, y = (found[key].astype(float) for key in ("X", "y"))
    X, y = (X - X.mean(axis=0)) / X.std(axis=0), (y - y.mean()) / y.std()
    order = np.random.default_rng(split).permutation(len(y))
    train, test = int(0.7 * len(y)), len(y) - int(0.2 * len(y))
    parts = np.split(order, [train, test])
    return tuple(x[part] for part in parts for x in (X, y))


def model_of(X: np.ndarray, y: np.ndarray, *, batched: bool) -> Any:
    """Return the net as a PyMC model of all rows or of batches."""
    import pymc as pm

    with pm.Model() as model:
        x, seen = pm.Minibatch(X, y, batch_size=BATCH) if batched else (X, y)
        sizes = X.shape[1], UNITS, UNITS, 2
        for k, shape in enumerate(pairwise(sizes)):
            x = x @ pm.Normal(f"W{k}", shape=shape) + pm.Normal(f"b{k}", shape=shape[1])
            x = pm.math.maximum(x, 0) if k < len(sizes) - 2 else x
        pm.Normal("y", x[:, 0], pm.math.exp(x[:, 1]), observed=seen, total_size=len(y))
    return model


def log_density(weights: Any, X: Any, y: Any, np: Any = np) -> Any:
    """Return the logarithm of the density of each row, by NumPy or by what stands for it."""
    h = X
    for k in range(3):
        h = h @ weights[f"W{k}"] + weights[f"b{k}"]
        h = np.maximum(h, 0) if k < 2 else h
    z = (y - h[:, 0]) * np.exp(-h[:, 1])
    return -(z**2) / 2 - h[:, 1] - np.log(2 * np.pi) / 2


def by_msgnht(
    X: np.ndarray, y: np.ndarray, seed: int, draws: int = 1000, **options: Any
) -> list[list[Draws]]:
    """Return the draws of each chain."""
    import pymc as pm

    import pymc_sgmcmc as sg

    with model_of(X, y, batched=len(y) > MANY):
        result = pm.sample(
            draws, step=sg.MSGNHT(**options), chains=CHAINS, random_seed=seed, progressbar=False
        )
    return each(result.posterior)


def by_nuts(X: np.ndarray, y: np.ndarray, seed: int, seconds: float) -> list[list[Draws]]:
    """Return the draws of each chain after some CPU seconds."""
    import nutpie

    compiled = nutpie.compile_pymc_model(model_of(X, y, batched=False))
    sampler = nutpie.sample(
        compiled, chains=CHAINS, cores=CHAINS, seed=seed, blocking=False, progress_bar=False
    )
    finished = False
    while not finished and time.process_time() < seconds:
        time.sleep(0.2)
        # Beside other programs nutpie does not wait for the answer of its threads
        with suppress(TimeoutError):
            finished = sampler.is_finished
    result = sampler.inspect()
    with suppress(TimeoutError):
        sampler.cancel()
    draws = each(result.posterior)
    return draws if any(draws) else [c[len(c) // 2 :] for c in each(result.warmup_posterior)]


def by_adam(rows: Sequence[np.ndarray], seed: int, seconds: float) -> list[list[Draws]]:
    """Return nets trained in some CPU seconds, each alone."""
    import jax.numpy as jnp

    from trained import trained

    y = rows[1]
    sizes, rng = (rows[0].shape[1], UNITS, UNITS, 2), np.random.default_rng(seed)

    def loss(weights: Any, X: Any, y: Any) -> Any:
        return -log_density(weights, X, y, jnp).mean()

    def starts() -> Iterator[Draws]:
        while True:
            start: Draws = {}
            for k, (of_unit, units) in enumerate(pairwise(sizes)):
                scale = (2 / of_unit) ** 0.5 if k < 2 else 0.1
                start[f"W{k}"] = (scale * rng.standard_normal((of_unit, units))).astype("float32")
                start[f"b{k}"] = np.zeros(units, "float32")
            yield start

    epochs = max(20, 20_000 * SMALL_BATCH // len(y))
    rows = [x.astype("float32") for x in rows]
    nets: list[list[Draws]] = []
    for net in trained(
        loss, starts(), rows[:2], batch_size=SMALL_BATCH, epochs=epochs, rate=5e-3,
        held_out=rows[2:],
    ):  # fmt: skip
        nets.append([net])
        if time.process_time() > seconds:
            break
    return nets


def each(posterior: Any) -> list[list[Draws]]:
    """Return the draws of each chain."""
    values = {name: x.values for name, x in posterior.data_vars.items() if name[0] in "Wb"}
    return [
        [
            {name: x[c, d] for name, x in values.items()}
            for d in range(posterior.sizes["draw"])
            if all(np.all(np.isfinite(x[c, d])) for x in values.values())
        ]
        for c in range(posterior.sizes["chain"])
    ]


def measure(name: str, method: str, split: int, seconds: float) -> dict[str, float]:
    """Run one method, and judge its predictions."""
    from scipy.special import logsumexp

    rows, seed = rows_of(name, split), 1 + split
    X, y, *_, X_test, y_test = rows
    if method == "NUTS":
        chains = by_nuts(X, y, seed, seconds)
    elif method == "ensemble":
        chains = by_adam(rows[:4], seed, seconds)
    else:
        options = {"300 draws": {"draws": 300}, "by hand": BY_HAND}
        chains = by_msgnht(X, y, seed, **options.get(method, {}))
    spent = time.process_time()
    found = [np.array([log_density(d, X_test, y_test) for d in chain]) for chain in chains if chain]
    lppd = [
        float(np.mean(logsumexp(part, axis=0) - np.log(len(part))))
        for part in (np.concatenate(found), *found)
    ]
    return {"LPPD": lppd[0], "worst": min(lppd[1:]), "best": max(lppd[1:]), "CPU seconds": spent}


def main() -> None:
    """Run the data sets, each in a process of its own, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", nargs="*", default=list(NAMES), choices=NAMES)
    parser.add_argument("--methods", nargs="*", default=list(METHODS), choices=METHODS)
    parser.add_argument("--splits", nargs="*", type=int, default=[0, 1, 2])
    parser.add_argument("--write", type=Path)
    parser.add_argument("--one", nargs=4)
    arguments = parser.parse_args()
    if arguments.one:
        name, method, split, seconds = arguments.one
        print(json.dumps(measure(name, method, int(split), float(seconds))), flush=True)
        # Threads of nutpie that are still on their way do not survive Python's end
        os._exit(0)
    table = Table(COLUMNS, NAMES, arguments.write)
    print(" ".join(f"{c:>11}" for c in COLUMNS))
    for name in arguments.data:
        seconds: dict[int, float] = {}
        for method in arguments.methods:
            rows = []
            for split in arguments.splits:
                budget = seconds.get(split, 0.0)
                if method in ("NUTS", "ensemble") and not budget:
                    sys.exit("The CPU time of NUTS and of the ensemble is MSGNHT's: run that, too.")
                if (row := fresh(__file__, "--one", name, method, split, budget)) is None:
                    continue
                rows.append(row)
                if method == "MSGNHT":
                    seconds[split] = row["CPU seconds"]
                cells = [name, method, str(split), *(digits(row[c]) for c in COLUMNS[3:])]
                print(" ".join(f"{c:>11}" for c in cells), flush=True)
            means = [
                digits(float(np.mean([row[c] for row in rows])) if rows else np.nan)
                for c in COLUMNS[3:]
            ]
            table.add([name, method, f"{len(rows)} of {len(arguments.splits)}", *means])


if __name__ == "__main__":
    main()
