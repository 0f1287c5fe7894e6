"""Effective draws for each gradient and for each second, against Euler's method and NUTS.

``python tests/benchmarks/efficiency.py`` runs the nine posteriors and the four large models, or
those of ``--models``. NUTS is nutpie on the full data, as the stored references were made
(``make_references.py``, one core): where they were made on another machine, its seconds are that
machine's. ``--write FILE`` also writes a Markdown table, whose rows of other models stay.

Columns: the largest error of a mean in reference sds and the range of the sds' ratios, which say
whether the methods have an equal bias; the least effective number of draws; gradients of one
batch, or of the full data where there are no batches, in tuning and drawing, all chains together;
seconds of compilation, tuning and drawing; effective draws for a thousand gradients and for a
second. A gradient of NUTS on the full data counts as its N / B batches.
"""

from __future__ import annotations

import argparse
import json

from pathlib import Path
from typing import Any

import gallery
import numpy as np

from accuracy import ONE
from table import Table, digits, fresh

from pymc_sgmcmc.model.minibatch import evaluate, find_minibatches

MODELS = {**gallery.POSTERIORDB, **gallery.LARGE}
METHODS: dict[str, dict[str, Any]] = {"LM": {}, "Euler": {"integrator": "euler"}}
COLUMNS = (
    "model", "method", "mean err", "sd min", "sd max", "ESS", "1000 gradients", "seconds",
    "ESS / 1000 gradients", "ESS / s",
)  # fmt: skip


def of_package(name: str, method: str, seed: int) -> dict[str, Any]:
    """Run a method in a fresh process."""
    options = "--options", json.dumps(METHODS[method])
    row = fresh(*ONE, name, "CoRVSGLD", seed, *options, check=True)
    return {**row, "model": name, "method": method}


def of_nuts(name: str) -> dict[str, Any]:
    """Return what was stored of the run that made the reference."""
    stored = gallery.sampling(name)
    batches = 1
    if name in gallery.LARGE:
        [minibatch] = find_minibatches(gallery.LARGE[name]().observed_RVs)
        batches = len(evaluate(minibatch.sources[0])) / minibatch.batch_size
    return {
        "model": name,
        "method": "NUTS",
        "mean err": np.nan,
        "sd min": np.nan,
        "sd max": np.nan,
        "ESS": float(stored["ess_min"]),
        "gradients": stored["gradients"] * batches,
        "seconds": stored["compile_seconds"] + stored["seconds"],
    }


def shown(row: dict[str, Any]) -> list[str]:
    """Cells of the table."""
    found = {
        **row,
        "1000 gradients": row["gradients"] / 1000,
        "ESS / 1000 gradients": 1000 * row["ESS"] / row["gradients"],
        "ESS / s": row["ESS"] / row["seconds"],
    }
    return [digits(found[c]) for c in COLUMNS]


def main() -> None:
    """Run the models and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="*", default=list(MODELS))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--write", type=Path)
    arguments = parser.parse_args()
    table = Table(COLUMNS, MODELS, arguments.write)
    print(COLUMNS)
    for name in arguments.models:
        rows = [of_package(name, method, arguments.seed) for method in METHODS]
        for row in [*rows, of_nuts(name)]:
            table.add(shown(row))
            print(shown(row), flush=True)


if __name__ == "__main__":
    main()
