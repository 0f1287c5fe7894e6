"""Rows of the accuracy table by two commits, one beside the other.

``python tests/benchmarks/before_after.py c449f5e --write FILE`` samples every row of
``docs/accuracy_table.md`` by that commit, in a worktree of its own, and by the working tree: at the
same time, each on one core, which they exchange with every seed. The quickest rows come first; rows
that the file has are left out, so that a run can be ended and continued. ``--models trend AR`` runs
some, ``--most 20`` those that take at most so many seconds in the table.

Columns: the number of seeds; the least share of parameters within 0.1 sd and 10 % of the reference,
before and after, and the median of seconds; the ratio of these medians. A row ends with the seeds
of which a run failed. The last lines count the rows, those with a lower share, and those that take
more than 1.1 times as long.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from table import Table, digits

if TYPE_CHECKING:
    from collections.abc import Generator

ROOT = Path(__file__).resolve().parents[2]
COLUMNS = (
    "model", "method", "seeds", "right before", "right after", "seconds before", "seconds after",
    "ratio", "failed",
)  # fmt: skip
SLOWER = 1.1


def arguments_of(model: str, call: str) -> tuple[str, str, list[str]]:
    """Return model, method and further arguments of accuracy.py for the cells of a row."""
    name, *of_rows = model.split(", ")
    method, *options = call.split(", ")
    given: dict[str, Any] = {}
    for option in options:
        key, value = option.split("=")
        given[key] = int(value) if value.isdigit() else value
    more = ["--options", json.dumps(given)] if given else []
    if of_rows:
        batch = re.search(r"\d+", of_rows[0])
        more += ["--batch", batch.group() if batch else "0"]
    return name, method, more


@contextmanager
def worktree(commit: str) -> Generator[Path]:
    """Check a commit out into a folder that is removed at the end."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "before"
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run(
            [*git, "add", "--detach", str(path), commit], check=True, capture_output=True
        )
        try:
            yield path
        finally:
            subprocess.run([*git, "remove", "--force", str(path)], check=True)


def started(tree: Path, core: int, command: list[str]) -> subprocess.Popen[str]:
    """Start a benchmark with a tree's package on one core."""
    environment = {**os.environ, "PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1"}
    program = ["taskset", "-c", str(core), sys.executable, "tests/benchmarks/accuracy.py", "--one"]
    return subprocess.Popen(
        [*program, *command],
        cwd=tree,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )


def finished(process: subprocess.Popen[str]) -> dict[str, Any] | None:
    """Return what a benchmark printed, or None where it failed."""
    printed, _ = process.communicate()
    row: dict[str, Any] | None = json.loads(printed.splitlines()[-1]) if printed else None
    return row


def compared(trees: list[Path], model: str, call: str, seeds: list[int]) -> list[str]:
    """Return the cells of a row."""
    name, method, more = arguments_of(model, call)
    rows: list[list[Any]] = []
    failed = []
    cores = sorted(os.sched_getaffinity(0))[:2]
    for i, seed in enumerate(seeds):
        command = [name, method, str(seed), *more]
        processes = [started(tree, cores[(k + i) % 2], command) for k, tree in enumerate(trees)]
        both = [finished(process) for process in processes]
        failed += [
            f"{seed} {when}" for when, row in zip(("before", "after"), both, strict=True) if not row
        ]
        if all(both):
            rows.append(both)
    if not rows:
        return [model, call, "0", *[""] * 5, ", ".join(failed)]
    kinds = list(zip(*rows, strict=True))
    right = [min(row["right"] for row in kind) for kind in kinds]
    seconds = [statistics.median(row["seconds"] for row in kind) for kind in kinds]
    figures = [len(rows), *right, *seconds, seconds[1] / seconds[0]]
    return [model, call, *map(digits, figures), ", ".join(failed)]


def main() -> None:
    """Compare the rows, quickest first, and count."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("commit")
    parser.add_argument("--models", nargs="*")
    parser.add_argument("--seeds", nargs="*", type=int, default=[1, 2, 3])
    parser.add_argument("--most", type=float, default=float("inf"))
    parser.add_argument("--write", type=Path)
    arguments = parser.parse_args()
    known = [
        [cell.strip() for cell in line.strip("|\n").split("|")]
        for line in (ROOT / "docs/accuracy_table.md").read_text().splitlines()[2:]
    ]
    seconds = {(row[0], row[1]): float(row[10].replace(",", "")) for row in known}
    table = Table(COLUMNS, [row[0].split(",")[0] for row in known], arguments.write)
    with worktree(arguments.commit) as before:
        for model, call in sorted(seconds, key=lambda row: seconds[row]):
            named = arguments.models is None or model.split(",")[0] in arguments.models
            if named and seconds[model, call] <= arguments.most and (model, call) not in table.rows:
                cells = compared([before, ROOT], model, call, arguments.seeds)
                print(" | ".join(cells), flush=True)
                table.add(cells)
    rows = [[cell.replace(",", "") for cell in row] for row in table.rows.values() if row[2] != "0"]
    lower = [row for row in rows if float(row[4]) < float(row[3])]
    slower = [row for row in rows if float(row[7]) > SLOWER]
    print(f"{len(rows)} rows, {len(lower)} with a lower share, {len(slower)} slower than {SLOWER}")
    for row in {id(row): row for row in lower + slower}.values():
        print(" | ".join(row))


if __name__ == "__main__":
    main()
