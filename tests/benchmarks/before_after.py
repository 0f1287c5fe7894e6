"""Rows of the tables by two commits, one beside the other.

``python tests/benchmarks/before_after.py c449f5e --write FILE`` samples every row of
``docs/accuracy_table.md`` by the package of that commit, in a worktree of its own, and by that of
the working tree: at the same time, each on one core, which they exchange with every seed. Models,
data and references are the working tree's for both. What XLA compiles is kept for the further seeds
of a row, and not beyond it. ``--table large`` (``nets``, ``topics``) runs our rows of that table.
The quickest rows come first; rows that the file has are left out, so that a run can be ended and
continued. With ``--kept FOLDER`` it can be ended between the seeds of a row, too. ``--models trend
AR`` runs some, ``--most 20`` those that take at most so many seconds in the table.

Columns: the number of seeds; before and after, the least share of parameters within 0.1 sd and 10 %
of the reference (of the other tables: the least and the most of each figure), and the median of
seconds; the ratio of these medians. A row ends with the seeds of which a run failed. The last lines
count the rows, those with a lower share, and those that take more than 1.1 times as long.

``before_after.md``, ``before_after_large.md``, ``before_after_nets.md`` and
``before_after_topics.md``, beside this file, are what it wrote for c449f5e.
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
from typing import TYPE_CHECKING, Any, NamedTuple

from table import Table, digits

if TYPE_CHECKING:
    from collections.abc import Generator

ROOT = Path(__file__).resolve().parents[2]
TABLES = "accuracy", "large", "nets", "topics"
PEERS = "Gibbs", "ADVI", "Adam", "HMC", "ensemble", "NUTS", "variational"
COLUMNS = (
    "model", "method", "seeds", "right before", "right after", "seconds before", "seconds after",
    "ratio", "failed",
)  # fmt: skip
SLOWER = 1.1


class Row(NamedTuple):
    """The first two cells of a row of a table, and what it took."""

    model: str
    method: str
    seconds: float


def rows_of(table: str) -> list[Row]:
    """Return the rows of a table that this package samples, the quickest first."""
    head, _, *lines = (
        [cell.strip() for cell in line.strip("|\n").split("|")]
        for line in (ROOT / f"docs/{table}_table.md").read_text().splitlines()
    )
    place = next(k for k, name in enumerate(head) if "seconds" in name)
    # A row of the nets whose chains never ended has no seconds
    ours = [x for x in lines if x[place] and x[1] not in PEERS]
    rows = [Row(line[0], line[1], float(line[place].replace(",", ""))) for line in ours]
    return sorted(rows, key=lambda row: row.seconds)


def command_of(table: str, row: Row, seed: int) -> list[str]:
    """Return what runs a row once, and prints its figures last."""
    name, method = row.model, row.method
    more = []
    if table == "accuracy":
        name, *of_rows = row.model.split(", ")
        method, *options = row.method.split(", ")
        given: dict[str, Any] = {}
        for option in options:
            key, value = option.split("=")
            given[key] = None if value == "None" else int(value) if value.isdigit() else value
        more = ["--options", json.dumps(given)] if given else []
        if of_rows:
            batch = re.search(r"\d+", of_rows[0])
            more += ["--batch", batch.group() if batch else "0"]
    # The first split of the nets is 0, and they have no peer here whose time is that of another
    at = [str(seed - 1), "0"] if table == "nets" else [str(seed)]
    script = str(ROOT / "tests" / "benchmarks" / f"{table}.py")
    return [sys.executable, script, "--one", name, method, *at, *more]


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


def started(tree: Path, core: int, command: list[str], kept: Path) -> subprocess.Popen[str]:
    """Start a benchmark with a tree's package on one core, which keeps compilations in a folder."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(tree),
        "OMP_NUM_THREADS": "1",
        "JAX_COMPILATION_CACHE_DIR": str(kept),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }
    return subprocess.Popen(
        ["taskset", "-c", str(core), *command],
        cwd=tree,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )


def finished(process: subprocess.Popen[str]) -> dict[str, Any] | None:
    """Return what a benchmark printed, or None where it failed."""
    printed, _ = process.communicate()
    row: dict[str, Any] | None
    row = None if process.returncode else json.loads(printed.splitlines()[-1])
    return row


def shown(runs: list[dict[str, Any]]) -> str:
    """Return the least share that is right, or the least and the most of each figure."""
    if "right" in runs[0]:
        return digits(min(run["right"] for run in runs))
    parts = []
    for name in runs[0]:
        if "seconds" not in name:
            least, most = min(run[name] for run in runs), max(run[name] for run in runs)
            parts.append(f"{name} {least:.4g} to {most:.4g}")
    return ", ".join(parts)


def compared(
    trees: list[Path], table: str, row: Row, seeds: list[int], kept: Path | None
) -> list[str]:
    """Return the cells of a row, of seeds that ran before or run now."""
    rows: list[list[Any]] = []
    failed = []
    cores = sorted(os.sched_getaffinity(0))[:2]
    with tempfile.TemporaryDirectory() as folder:
        for i, seed in enumerate(seeds):
            command = command_of(table, row, seed)
            place = kept and kept / f"{row.model} {row.method} {seed}.json"
            if place and place.exists():
                both = json.loads(place.read_text())
            else:
                processes = [
                    started(tree, cores[(k + i) % 2], command, Path(folder, str(k)))
                    for k, tree in enumerate(trees)
                ]
                both = [finished(process) for process in processes]
                if place:
                    place.write_text(json.dumps(both))
            failed += [
                f"{seed} {when}"
                for when, run in zip(("before", "after"), both, strict=True)
                if not run
            ]
            rows.append(both)
    # What one tree could not run is shown of the other, without a ratio
    complete = [both for both in rows if all(both)]
    kinds = [[run for run in kind if run] for kind in zip(*(complete or rows), strict=True)]
    figures = [shown(kind) if kind else "" for kind in kinds]
    if not complete:
        return [row.model, row.method, "0", *figures, "", "", "", ", ".join(failed)]
    clock = next(name for name in complete[0][0] if name in ("seconds", "CPU seconds"))
    seconds = [statistics.median(run[clock] for run in kind) for kind in kinds]
    cells = [*figures, *map(digits, seconds), digits(seconds[1] / seconds[0])]
    return [row.model, row.method, str(len(complete)), *cells, ", ".join(failed)]


def main() -> None:
    """Compare the rows, quickest first, and count."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("commit")
    parser.add_argument("--table", choices=TABLES, default="accuracy")
    parser.add_argument("--models", nargs="*")
    parser.add_argument("--seeds", nargs="*", type=int, default=[1, 2, 3])
    parser.add_argument("--most", type=float, default=float("inf"))
    parser.add_argument("--write", type=Path)
    parser.add_argument("--kept", type=Path)
    arguments = parser.parse_args()
    kind, known = arguments.table, rows_of(arguments.table)
    columns = COLUMNS
    if kind != "accuracy":
        columns = tuple(name.replace("right", "figures") for name in COLUMNS)
    table = Table(columns, [row.model.split(",")[0] for row in known], arguments.write)
    with worktree(arguments.commit) as before:
        for row in known:
            named = arguments.models is None or row.model.split(",")[0] in arguments.models
            if named and row.seconds <= arguments.most and row[:2] not in table.rows:
                cells = compared([before, ROOT], kind, row, arguments.seeds, arguments.kept)
                print(" | ".join(cells), flush=True)
                table.add(cells)
    rows = [row for row in table.rows.values() if row[2] != "0"]
    lower = [row for row in rows if kind == "accuracy" and float(row[4]) < float(row[3])]
    slower = [row for row in rows if float(row[7].replace(",", "")) > SLOWER]
    print(f"{len(rows)} rows, {len(lower)} with a lower share, {len(slower)} slower than {SLOWER}")
    for cells in {id(row): row for row in lower + slower}.values():
        print(" | ".join(cells))


if __name__ == "__main__":
    main()
