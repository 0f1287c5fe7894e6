"""Posteriors of posteriordb that have reference draws, untuned, beside NUTS.

Run all with ``python tests/benchmarks/posteriordb.py --write docs/posteriordb_table.md``, some with
``--models arma11 garch-garch11 --seeds 1``, by the model's name or posteriordb's. Every model is
sampled as in ``accuracy.py``: ``pm.sample(step=Method())``, two chains, nothing else but a seed.
``--write FILE`` also writes a Markdown table, whose rows of other posteriors and methods stay.

Columns: of the worst seed the largest error of a mean in reference sds, and the smallest and the
largest ratio of an sd to the reference's; in how many seeds all means are within 0.1 sd and all
sds within 10 %; the least effective number of draws; seconds in all; those of nutpie's NUTS with
its defaults, of two chains and 1,000 draws too; runs that ended with a warning.
"""

from __future__ import annotations

import argparse
import sys
import time

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import gallery
import numpy as np

from accuracy import KNOWN, ONE, WORST
from gallery.posteriordb import ORIGIN, SUITE_ORIGIN
from table import Table, digits, fresh

METHODS = "CoRVSGLD", "MSGNHT"
NAMES = {**ORIGIN, **SUITE_ORIGIN}
COLUMNS = (
    "posterior", "method", "mean err", "sd min", "sd max", "right", "ESS", "seconds",
    "nutpie's seconds", "warned",
)  # fmt: skip
RIGHT = COLUMNS.index("right")


def nutpie_seconds(name: str) -> float:
    """Return what NUTS takes, compilation included."""
    import nutpie

    names = list(gallery.reference(name))
    start = time.perf_counter()
    compiled = nutpie.compile_pymc_model(KNOWN[name](), var_names=names)
    nutpie.sample(compiled, chains=2, draws=1000, seed=1, progress_bar=False)
    return time.perf_counter() - start


def fresh_nutpie(name: str) -> float:
    """Return the same of a process of its own, NaN where that fails."""
    seconds = fresh(__file__, "--nutpie", name)
    return np.nan if seconds is None else float(seconds)


def shown(name: str, method: str, rows: list[dict[str, Any] | None], nutpie: float) -> list[str]:
    """Cells of the table; None is a run that failed."""
    done = [row for row in rows if row is not None]
    right = sum(row["right"] == 1 for row in done)
    found = {
        "posterior": NAMES[name],
        "method": method,
        "right": f"{right} of {len(rows)}",
        "nutpie's seconds": nutpie,
        "warned": sum(row["warned"] for row in done) if done else "failed",
    }
    worst = {c: WORST.get(c, max)(row[c] for row in done) for c in COLUMNS if done and c in done[0]}
    return [digits({**worst, **found}.get(c, np.nan)) for c in COLUMNS]


def headline(rows: Iterable[list[str]]) -> str:
    """Count the posteriors that are right in every seed."""
    right: dict[str, set[str]] = {method: set() for method in METHODS}
    posteriors = set()
    for row in rows:
        posteriors.add(row[0])
        times, _, seeds = row[RIGHT].partition(" of ")
        if times == seeds:
            right[row[1]].add(row[0])
    each = ", ".join(f"{len(found)} by {method}" for method, found in right.items())
    either = len(set.union(*right.values()))
    return f"Of {len(posteriors)} posteriors right in every seed: {each}, {either} by either."


def main() -> None:
    """Run the models and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="*", default=list(NAMES))
    parser.add_argument("--methods", nargs="*", choices=METHODS, default=METHODS)
    parser.add_argument("--seeds", nargs="*", type=int, default=[1, 2, 3])
    parser.add_argument("--write", type=Path)
    parser.add_argument("--nutpie")
    arguments = parser.parse_args()
    if arguments.nutpie:
        print(nutpie_seconds(arguments.nutpie))
        return
    models = {origin: name for name, origin in NAMES.items()}
    names = [models.get(name, name) for name in arguments.models]
    if unknown := [name for name in names if name not in NAMES]:
        sys.exit(f"No model of {', '.join(unknown)}.")
    table = Table(COLUMNS, models, arguments.write)
    print(" ".join(f"{c:>9}" for c in COLUMNS))
    for name in names:
        try:
            gallery.reference(name)
        except FileNotFoundError as error:
            print(error, flush=True)
            continue
        nutpie = fresh_nutpie(name)
        for method in arguments.methods:
            rows = []
            for seed in arguments.seeds:
                rows.append(row := fresh(*ONE, name, method, seed))
                cells = " ".join(f"{c:>9}" for c in shown(name, method, [row], nutpie))
                print(cells, "" if row is None else row["farthest"], flush=True)
            table.add(shown(name, method, rows, nutpie))
    print(headline(table.rows.values()))


if __name__ == "__main__":
    main()
