"""Batches that a step method chooses by itself against sizes by hand, on models of all their rows.

Run ``python tests/benchmarks/batch_sizes.py``, or some with ``--models a9a --methods MSGNHT``. Each
model is sampled with nothing but ``batch_size=``, two chains one after the other in a fresh
process. A cell has the seconds of the processor, compilation included, from the call of
``pm.sample`` until each chain has a thousand draws, and the share of parameters that are right
where it is below 1. ``ratio`` is "auto" over the best of the sizes by hand that are as right. What
takes more than ``--limit`` of these seconds is cut off.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys

from pathlib import Path

import numpy as np

from table import Table

MODELS = (
    "a9a", "poisson_unit", "hierarchical_logistic", "mixture_of_many_rows", "three_levels",
    "slopes_of_many_rows_noncentred", "groups_of_mixed_size_centred", "crossed_thousands",
    "prophet", "ridge_logistic",
)  # fmt: skip
SIZES = 100, 500, 2000, None, "auto"
COLUMNS = ("model", "method", *("all rows" if b is None else str(b) for b in SIZES), "ratio")


def run(model: str, method: str, size: int | str | None, limit: float) -> tuple[float, float]:
    """Seconds of the processor and the share right; infinity and 0 where it was cut off."""
    command = [
        sys.executable, str(Path(__file__).parent / "accuracy.py"), "--one", model, method, "1",
        "--batch", "0", "--cores", "1", "--options", json.dumps({"batch_size": size}),
    ]  # fmt: skip
    most = int(limit)
    done = subprocess.run(
        command, check=False, capture_output=True, text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (most, most)),
    )  # fmt: skip
    if done.returncode:
        if done.returncode > 0:
            print(model, method, size, "failed:", done.stderr.splitlines()[-1], flush=True)
        return np.inf, 0.0
    found = json.loads(done.stdout.splitlines()[-1])
    return found["processor"], found["right"]


def main() -> None:
    """Run all and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="*", default=MODELS)
    parser.add_argument("--methods", nargs="*", default=["CoRVSGLD"])
    parser.add_argument("--limit", type=float, default=60.0)
    parser.add_argument("--write", type=Path)
    arguments = parser.parse_args()
    table = Table(COLUMNS, MODELS, arguments.write)
    for model in arguments.models:
        for method in arguments.methods:
            found = [run(model, method, size, arguments.limit) for size in SIZES]
            *by_hand, (auto, right) = found
            best = min(seconds for seconds, share in by_hand if share >= min(right, 0.98))
            cells = [
                f"> {arguments.limit:.0f}"
                if np.isinf(seconds)
                else f"{seconds:.1f}" + f" ({share:.2f} right)" * (share < 1)
                for seconds, share in found
            ]
            row = [model, method, *cells, f"{auto / best:.2f}"]
            print(" | ".join(row), flush=True)
            table.add(row)


if __name__ == "__main__":
    main()
