"""What an update would take with the rows of a batch on several GPUs: arithmetic, not a run.

``python tests/benchmarks/sharded.py`` reads ``docs/gpu_table.md`` and prints a Markdown table;
``--write FILE`` also writes it. An update takes F + R / P + A on P GPUs: F does not depend on rows,
R is the work of the rows, A the sum of the gradient over the GPUs, in a ring. Of the logistic
regression F and R are those of a line through its two rows of the table. Of the net, of which the
table has one batch size, ``NET_SHARE`` of the update is taken as work of rows.
"""

from __future__ import annotations

import argparse

from pathlib import Path

from table import digits

DOCS = Path(__file__).parents[2] / "docs"
DEVICE = "NVIDIA H200"
# µs before a sum over GPUs begins to move, assumed; bytes in a µs between two GPUs, by NVLink 4
LATENCY, LINK = 15.0, 450e3
NET_SHARE = 0.73
EFFECTS, WEIGHTS = 50, 784 * 1000 + 1000 * 10


def measured(model: str) -> float:
    """Return the µs of an update."""
    for line in (DOCS / "gpu_table.md").read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if cells[:2] == [model, DEVICE]:
            return float(cells[2])
    raise SystemExit(f"gpu_table.md has no row of {model} on {DEVICE}.")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument("--write", type=Path)
    arguments = parser.parse_args()
    few, many, net = (measured(x) for x in ("logistic 500", "logistic 50000", "large net"))
    row = (many - few) / (50_000 - 500)
    fixed = few - 500 * row
    updates = [
        (f"logistic, {EFFECTS} effects, {count:,} rows", fixed, row * count, EFFECTS)
        for count in (50_000, 1_000_000, 10_000_000)
    ]
    updates += [
        (f"net 784-1,000-10, {count:,} rows", net * (1 - NET_SHARE), net * NET_SHARE * count / 500,
         WEIGHTS)
        for count in (500, 5_000)
    ]  # fmt: skip
    gpus = arguments.gpus
    columns = "an update", "F, µs", "R, µs", "A, µs", "one GPU", f"{gpus} GPUs", "times"
    lines = [columns, ["---"] * len(columns)]
    for name, rest, rows, dimension in updates:
        together = LATENCY + 2 * (gpus - 1) / gpus * 4 * dimension / LINK
        one, several = rest + rows, rest + rows / gpus + together
        figures = rest, rows, together, one, several, one / several
        lines.append([name, *map(digits, figures)])
    text = "".join("| " + " | ".join(cells) + " |\n" for cells in lines)
    print(text)
    # Rows from which several are as fast, and twice as fast
    share = 1 - 1 / gpus
    print(f"As fast at {LATENCY / share / row:,.0f} rows, twice as fast at", end=" ")
    print(f"{(fixed + 2 * LATENCY) / (1 - 2 / gpus) / row:,.0f}.")
    if arguments.write:
        arguments.write.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
