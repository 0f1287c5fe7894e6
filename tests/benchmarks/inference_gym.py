"""Targets of Inference Gym, untuned.

Run all with ``python tests/benchmarks/inference_gym.py --write docs/inference_gym_table.md``, some
with ``--models banana eight_schools --seeds 1``. Every target is sampled as in ``accuracy.py``:
``pm.sample(step=Method())``, two chains, nothing else but a seed. ``--write FILE`` also writes a
Markdown table, whose rows of other targets and methods stay.

Columns: the number of seeds whose runs ended; then the worst of them: the largest error of a mean
in sds of Inference Gym's ground truth; the smallest and the largest ratio of an sd to it; the share
of parameters within 0.1 sd and 10 %; the least effective number of draws; seconds in all; runs that
ended with a warning.
"""

from __future__ import annotations

import argparse
import sys

from pathlib import Path
from typing import Any

import gallery

from accuracy import run, worst
from table import Table

METHODS = "CoRVSGLD", "MSGNHT"
COLUMNS = (
    "target", "method", "seeds", "mean err", "sd min", "sd max", "right", "ESS", "seconds",
    "warned",
)  # fmt: skip


def shown(name: str, method: str, rows: list[dict[str, Any]]) -> list[str]:
    """Cells of the table: the worst of the seeds."""
    if not rows:
        return [name, method, "0", *[""] * (len(COLUMNS) - 4), "failed"]
    return [name, method, *worst(rows, COLUMNS[2:])]


def main() -> None:
    """Run the targets and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="*", default=list(gallery.GYM))
    parser.add_argument("--methods", nargs="*", choices=METHODS, default=METHODS)
    parser.add_argument("--seeds", nargs="*", type=int, default=[1, 2, 3])
    parser.add_argument("--write", type=Path)
    arguments = parser.parse_args()
    if unknown := [name for name in arguments.models if name not in gallery.GYM]:
        sys.exit(f"No target {', '.join(unknown)}.")
    run(Table(COLUMNS, gallery.GYM, arguments.write), arguments, shown)


if __name__ == "__main__":
    main()
