"""The table and the plots, of all cells that were ever run."""

from __future__ import annotations

import json

from pathlib import Path
from typing import Any

import numpy as np

from table import Table, digits

from .problems import PROBLEMS

OURS = "CoRVSGLD", "MSGNHT"
COLUMNS = (
    "problem", "method", "until right", "without compilation", "sd error at 10 s",
    "10 s after the first draw", "at the end", "mean error", "sd least", "sd most", "draws",
    "seconds",
)  # fmt: skip
# Relative sd errors that Coullon et al. (2023) publish, of another machine
PUBLISHED = {
    "logistic 1000000 10": {"SGLD": 0.284, "SGLD-CV": 0.051, "SGHMC-CV": 0.084, "SGNHT-CV": 0.0082},
    "factorisation": {"SGLD": 0.69, "SGLD-CV": 0.80, "SGHMC-CV": 0.41, "SGNHT-CV": 0.38},
}
Cells = dict[tuple[str, str], dict[str, Any]]


def read(path: Path) -> Cells:
    """Return the last result of each cell; of several seeds the slowest."""
    latest: dict[tuple[str, str, int], dict[str, Any]] = {}
    for line in path.read_text().splitlines():
        row = json.loads(line)
        latest[row["problem"], row["method"], row["seed"]] = row
    cells: Cells = {}
    for row in latest.values():
        key = row["problem"], row["method"]
        if key not in cells or _until(row) > _until(cells[key]):
            cells[key] = row
    return cells


def write(cells: Cells, folder: Path) -> None:
    """Write ``rivals_table.md``, two lists and the plots into a folder."""
    table = Table(COLUMNS, PROBLEMS, None)
    table.path = folder / "rivals_table.md"
    for problem in PROBLEMS:
        for (name, method), row in cells.items():
            if name == problem:
                table.add([problem, method, *_shown(row)])
        for method, error in PUBLISHED.get(problem, {}).items():
            # That of the factorisation is of a longer run
            shown = [digits(error), "", ""] if "logistic" in problem else ["", "", digits(error)]
            table.add([problem, f"{method}, published", "", "", *shown, *[""] * 5])
    (folder / "rivals_crossings_table.md").write_text("\n".join(crossings(cells)) + "\n")
    (folder / "rivals_losses_table.md").write_text("\n".join(losses(cells)) + "\n")
    plot_sizes(cells, folder / "rivals_sizes.svg")
    plot_errors(cells, folder / "rivals_errors.svg")
    plot_start(cells, folder / "start_light.svg", "#14304f", "#459db9", "#8a5300")
    plot_start(cells, folder / "start_dark.svg", "#dfe3e8", "#5fc1de", "#f0b35c")


def _shown(row: dict[str, Any]) -> list[str]:
    """Cells of the table from the third on."""
    seconds = digits(row["seconds"])
    if "failed" in row:
        return [f"{row['failed']} after {seconds}", *[""] * 8, seconds]
    if "mean_error" not in row:
        return [f"no draw in {seconds}", *[""] * 8, seconds]
    found = [f"not in {seconds}" if row["until"] is None else digits(row["until"])]
    keys = (
        "until_compiled", "sd_error_10", "sd_error_10_more", "sd_error", "mean_error", "sd_least",
        "sd_most",
    )  # fmt: skip
    found += ["" if row[key] is None else digits(row[key]) for key in keys]
    return [*found, digits(row["draws"]) if row["draws"] else "", seconds]


def _until(row: dict[str, Any]) -> float:
    """Seconds until right, infinite where never."""
    until = row.get("until")
    return float("inf") if until is None else float(until)


def sizes(cells: Cells, method: str, dimension: int) -> dict[int, float]:
    """Return seconds until right by the number of rows, of logistic regressions."""
    found = {}
    for (problem, name), row in cells.items():
        words = problem.split()
        if name == method and words[0] == "logistic" and int(words[2]) == dimension:
            found[int(words[1])] = _until(row)
    return dict(sorted(found.items()))


def crossings(cells: Cells) -> list[str]:
    """Say between which sizes ours become the sooner, and by how much where both are right."""
    lines = []
    methods = sorted({method for _, method in cells} - set(OURS))
    for dimension in (10, 50):
        best = [sizes(cells, method, dimension) for method in OURS]
        ours = {n: min(x.get(n, np.inf) for x in best) for n in best[0]}
        for method in methods:
            theirs = sizes(cells, method, dimension)
            ratios = {n: theirs[n] / ours[n] for n in theirs if n in ours and ours[n] < np.inf}
            if ratios:
                lines.append(f"- D = {dimension}, {method}: {_said(ratios)}.")
    return lines


def losses(cells: Cells) -> list[str]:
    """Say where another method is right sooner than the better of ours, with what seconds."""
    lines = []
    for problem in PROBLEMS:
        of_problem = {method: row for (name, method), row in cells.items() if name == problem}
        for key, counted in (("until", "with"), ("until_compiled", "without")):
            seconds = {m: row[key] for m, row in of_problem.items() if row.get(key) is not None}
            ours = min((seconds[m] for m in OURS if m in seconds), default=np.inf)
            lines += [
                f"- {problem}, {counted} compilation: {method} {digits(found)} s, ours "
                f"{digits(float(ours))} s."
                for method, found in seconds.items()
                if method not in OURS and found < ours
            ]
    return lines


def _said(ratios: dict[int, float]) -> str:
    """Say where the ratio of their seconds to ours passes one."""
    parts = []
    sizes, values = list(ratios), list(ratios.values())
    if all(v > 1 for v in values):
        parts.append("later at every size")
    elif all(v <= 1 for v in values):
        parts.append("sooner at every size")
    for k in range(len(sizes) - 1):
        if (values[k] > 1) != (values[k + 1] > 1):
            between = f"{sizes[k]:,} and {sizes[k + 1]:,} rows"
            if np.isfinite(values[k : k + 2]).all():
                at = _crossing(sizes[k : k + 2], values[k : k + 2])
                between += f", by interpolation at {digits(at)}"
            parts.append(f"they cross between {between}")
    each = ", ".join(
        f"{n:,}: {'never right in its run' if v == np.inf else digits(v) + ' times ours'}"
        for n, v in ratios.items()
    )
    return f"{'; '.join(parts)} ({each})"


def _crossing(rows: list[int], ratios: list[float]) -> float:
    """Return where a power law between two sizes has the ratio one."""
    share = np.log(ratios[0]) / (np.log(ratios[0]) - np.log(ratios[1]))
    return float(np.exp(np.log(rows[0]) + share * (np.log(rows[1]) - np.log(rows[0]))))


def plot_sizes(cells: Cells, path: Path) -> None:
    """Draw seconds until right over the number of rows."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(9, 4), sharey=True, layout="constrained")
    for ax, dimension in zip(axes, (10, 50), strict=True):
        for method in dict.fromkeys(method for _, method in cells):
            found = {n: t for n, t in sizes(cells, method, dimension).items() if t < np.inf}
            style, width = ("o-", 2.5) if method in OURS else ("o--", 1)
            ax.loglog(list(found), list(found.values()), style, label=method, linewidth=width)
        ax.set(title=f"logistic regression, D = {dimension}", xlabel="rows")
    axes[0].set_ylabel("seconds until means and sds are right")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right upper", frameon=False)
    _save(figure, path)


def plot_errors(cells: Cells, path: Path) -> None:
    """Draw the relative error of the sds over seconds."""
    import matplotlib.pyplot as plt

    problem = "logistic 1000000 10"
    figure, ax = plt.subplots(figsize=(7, 4), layout="constrained")
    for (name, method), row in cells.items():
        if name == problem and "course" in row:
            seconds, _, error = np.array(row["course"]).T
            ax.loglog(seconds, error, label=method, linewidth=2.5 if method in OURS else 1)
    for method, error in PUBLISHED[problem].items():
        ax.plot(10, error, "k_", markersize=12)
        ax.annotate(
            f"{method}, published", (10, error), (4, 2), textcoords="offset points", fontsize=7
        )
    ax.set(
        xlabel="seconds",
        ylabel="relative error of the sds",
        title="logistic regression, N = 10⁶, D = 10",
    )
    ax.set_ylim(1e-3, 2)
    figure.legend(loc="outside right upper", frameon=False)
    _save(figure, path)


def plot_start(cells: Cells, path: Path, text: str, ours: str, nuts: str) -> None:
    """Draw the start page's picture: NUTS and one of ours alone, on no background."""
    import matplotlib.pyplot as plt

    figure, ax = plt.subplots(figsize=(5.2, 3.9), layout="constrained")
    for method, label, color in (("CoRVSGLD", "this package", ours), ("nutpie", "NUTS", nuts)):
        until = sizes(cells, method, 10)
        found = {n: t for n, t in until.items() if t < np.inf}
        ax.loglog(list(found), list(found.values()), "o-", color=color, linewidth=2.5)
        last = list(found)[-1]
        ax.annotate(
            label, (last, found[last]), (0, 10), textcoords="offset points", color=color,
            fontsize=12, ha="center", weight="bold",
        )  # fmt: skip
        for n in until.keys() - found.keys():
            spent = cells[f"logistic {n} 10", method]["seconds"]
            ax.plot(n, spent, "^", color=color, fillstyle="none", markersize=9)
            ax.annotate(
                f"stopped at {spent:.0f} s", (n, spent), (0, 9), textcoords="offset points",
                color=color, ha="center",
            )  # fmt: skip
    ax.set_xlabel("rows", color=text)
    ax.set_title("seconds until right", color=text, loc="left", fontsize=11)
    ax.set_ylim(1, 1200)
    ax.set_xlim(6e3, 4e7)
    ax.xaxis.set_major_formatter("{x:,.0f}")
    ax.yaxis.set_major_formatter("{x:,.0f}")
    ax.tick_params(which="both", colors=text)
    ax.spines[["top", "right"]].set_visible(False)
    ax.spines[["left", "bottom"]].set_color(text)
    _save(figure, path)


def _save(figure: Any, path: Path) -> None:
    """Write an SVG whose bytes depend on nothing but what is drawn."""
    import matplotlib as mpl

    mpl.rcParams["svg.hashsalt"] = path.stem
    figure.savefig(path, metadata={"Date": None}, transparent=path.stem.startswith("start"))
