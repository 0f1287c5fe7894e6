"""A Markdown table of a benchmark that is run in parts, each run replacing its own rows.

And what runs such a part: a process of its own.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys

from collections.abc import Iterable, Mapping
from itertools import takewhile
from pathlib import Path
from typing import Any


class Table:
    """Rows by their first two cells.

    Parameters
    ----------
    columns : tuple of str
    models : iterable of str
        What the first cells begin with, in the order of the rows.
    path : Path or None
        Where the table is written after each row; its other rows are kept. Not written if None.
    """

    def __init__(self, columns: tuple[str, ...], models: Iterable[str], path: Path | None) -> None:
        self.columns, self.models, self.path = columns, list(models), path
        self.rows: dict[tuple[str, str], list[str]] = {}
        if path is not None and path.exists():
            for line in path.read_text().splitlines()[2:]:
                self._keep([cell.strip() for cell in line.strip("|").split("|")])

    def add(self, cells: list[str]) -> None:
        """Keep a row and write the table."""
        self._keep(cells)
        if self.path is not None:
            lines = [self._line(list(self.columns)), self._line(["---"] * len(self.columns))]
            lines += [self._line(row) for row in sorted(self.rows.values(), key=self._place)]
            self.path.write_text("\n".join(lines) + "\n")

    def _place(self, cells: list[str]) -> int:
        return self.models.index(cells[0].split(",")[0])

    def _keep(self, cells: list[str]) -> None:
        self.rows[cells[0], cells[1]] = cells

    @staticmethod
    def _line(cells: list[str]) -> str:
        return "| " + " | ".join(cells) + " |"


def fresh(
    script: str | Path,
    *arguments: object,
    check: bool = False,
    env: Mapping[str, str] | None = None,
) -> Any:
    """Return the JSON of the last line that a program prints in a process of its own.

    Where the process fails, say so by the first argument's values and return None, or end with
    what it said if ``check``. The process has the variables ``env`` beside those of this one.
    """
    words = list(map(str, arguments))
    command, env = [sys.executable, script, *words], {**os.environ, **(env or {})}
    run = subprocess.run(command, check=False, capture_output=True, text=True, env=env)
    if run.returncode and check:
        sys.exit(run.stderr)
    if run.returncode:
        what = takewhile(lambda word: not word.startswith("--"), words[1:])
        print(*what, "failed:", *run.stderr.splitlines()[-1:], flush=True)
        return None
    return json.loads(run.stdout.splitlines()[-1])


def digits(value: object) -> str:
    """Three digits, or as many as a whole number has; nothing for NaN."""
    if not isinstance(value, float | int):
        return str(value)
    if math.isnan(value):
        return ""
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"
