"""What a paper says and what we see: verdict lines, the cost of a run, one table of all.

A notebook of this folder makes a :class:`Reproduction`, calls ``verdict`` once for each claim and
``end`` at its end. With the environment variable SMALL=1 it runs a small version, whose verdicts
are printed and not kept; else they are written to ``verdicts/``, where the documentation finds
them. ``python reproduction.py`` prints the table of all.
"""

from __future__ import annotations

import json
import os
import platform
import time

from pathlib import Path

from matplotlib.figure import Figure

SMALL = os.environ.get("SMALL") == "1"
VERDICTS = Path(__file__).parent / "verdicts"
WORDS = {True: "holds", False: "does not hold", None: "cannot be told here"}
HEADER = ("paper", "experiment", "the paper says", "we see", "holds", "seconds", "updates")


class Reproduction:
    """An experiment of a paper.

    Parameters
    ----------
    name : str
        Of the notebook.
    paper : str
        Short name of the paper.
    experiment : str
        Its figure or table.
    """

    def __init__(self, name: str, paper: str, experiment: str) -> None:
        self.name = name
        self.paper = paper
        self.experiment = experiment
        self.verdicts: list[dict[str, object]] = []
        self.updates = 0
        self._began = time.perf_counter()

    def verdict(self, says: str, seen: str, holds: bool | None) -> None:
        """Print and keep what the paper says, what we see, and whether they agree.

        ``holds`` is None where the run cannot tell.
        """
        holds = None if holds is None else bool(holds)
        print(f"The paper says {says}; we see {seen}: {WORDS[holds]}.")
        self.verdicts.append({"says": says, "seen": seen, "holds": holds})

    def picture(self, figure: Figure) -> None:
        """Keep a small picture of a whole run."""
        if not SMALL:
            VERDICTS.mkdir(exist_ok=True)
            figure.savefig(VERDICTS / f"{self.name}.png", dpi=70)

    def count(self, updates: int) -> None:
        """Add to the number of updates, over all chains."""
        self.updates += int(updates)

    def end(self) -> None:
        """Print the cost and keep the verdicts of a whole run."""
        seconds = round(time.perf_counter() - self._began, 1)
        machine = f"{platform.machine()}, {os.cpu_count()} cores"
        size = "small version" if SMALL else "whole version"
        print(f"Cost ({size}): {seconds} s, {self.updates:,} updates, {machine}.")
        if SMALL:
            return
        VERDICTS.mkdir(exist_ok=True)
        found = {
            "paper": self.paper, "experiment": self.experiment, "verdicts": self.verdicts,
            "seconds": seconds, "updates": self.updates, "machine": machine,
        }  # fmt: skip
        (VERDICTS / f"{self.name}.json").write_text(json.dumps(found, indent=1) + "\n")


def table() -> list[tuple[str, ...]]:
    """Return a row for each verdict that is kept."""
    rows = []
    for file in sorted(VERDICTS.glob("*.json")):
        found = json.loads(file.read_text())
        for verdict in found["verdicts"]:
            rows.append((
                found["paper"], found["experiment"], verdict["says"], verdict["seen"],
                WORDS[verdict["holds"]], f"{found['seconds']:,.0f}",
                f"{found['updates']:,}",
            ))  # fmt: skip
    return rows


if __name__ == "__main__":
    for row in (HEADER, ("---",) * len(HEADER), *table()):
        print("| " + " | ".join(row) + " |")
