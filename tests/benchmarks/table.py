"""A Markdown table of a benchmark that is run in parts, each run replacing its own rows."""

from __future__ import annotations

import math

from collections.abc import Iterable
from pathlib import Path


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


def digits(value: object) -> str:
    """Three digits, or as many as a whole number has; nothing for NaN."""
    if not isinstance(value, float | int):
        return str(value)
    if math.isnan(value):
        return ""
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"
