"""The untuned result of the step methods against reference draws, for a gallery of models.

Run all with ``python tests/benchmarks/accuracy.py``, some with
``python tests/benchmarks/accuracy.py --models a9a arK --methods MSGNHT --seeds 1 2``. Every
model is sampled in a fresh process by ``pm.sample(step=Method())`` with nothing else but a seed
and two chains. ``--write FILE`` also writes the table as Markdown.

Columns: the largest error of a mean in reference sds; the smallest and the largest ratio of an
sd to the reference's; the share of parameters within 0.1 sd and 10 %; the least effective number
of draws; updates for each draw; seconds in all, and of them in tuning; whether a warning was
given.
"""

from __future__ import annotations

import argparse
import json
import logging
import re
import subprocess
import sys
import time

from pathlib import Path
from typing import Any

import gallery
import numpy as np

MODELS = {**gallery.POSTERIORDB, **gallery.LARGE, **gallery.SMALL}
COLUMNS = (
    "model", "method", "seed", "mean err", "sd min", "sd max", "right", "ESS", "thin", "K",
    "seconds", "tuning", "warned",
)  # fmt: skip


def measure(name: str, method: str, seed: int, options: dict[str, Any]) -> dict[str, Any]:
    """Sample a model with no argument but a seed, and compare."""
    import arviz as az
    import pymc as pm

    import pymc_sgmcmc as sg

    messages: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: messages.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("pymc").addHandler(handler)
    with MODELS[name]():
        start = time.perf_counter()
        result = pm.sample(
            step=getattr(sg, method)(**options), chains=2, random_seed=seed, progressbar=False
        )
        seconds = time.perf_counter() - start
    errors, ratios = [], []
    ess = np.inf
    for variable, known in gallery.reference(name).items():
        draws = result.posterior[variable]
        sd = np.where(known.sd > 0, known.sd, np.nan)
        errors.append(np.ravel(np.abs(draws.mean(("chain", "draw")).values - known.mean) / sd))
        ratios.append(np.ravel(draws.std(("chain", "draw")).values / sd))
        ess = min(ess, float(np.nanmin(az.ess(draws.to_dataset(), method="mean")[variable])))
    error, ratio = np.concatenate(errors), np.concatenate(ratios)
    error, ratio = error[np.isfinite(error)], ratio[np.isfinite(ratio)]
    stats = result.sample_stats
    said = " ".join(messages)
    updates = float((stats["thin"] * stats["batches"]).sum())
    return {
        "model": name,
        "method": method,
        "seed": seed,
        "mean err": float(error.max()),
        "sd min": float(ratio.min()),
        "sd max": float(ratio.max()),
        "right": float(np.mean((error < 0.1) & (np.abs(ratio - 1) < 0.1))),
        "ESS": ess,
        "thin": int(stats["thin"].max()),
        "K": int(stats["batches"].max()),
        # Of the draws and of tuning; those of the last burn-in are left out
        "gradients": updates
        + sum(float(n) for n in re.findall(r"by (\d+) gradients", said)),
        "seconds": seconds,
        "tuning": max(
            [float(t) for t in re.findall(r"Tuned in ([\d.]+)", said)],
            default=np.nan,
        ),
        "warned": "; ".join(
            record for record in messages if "While tuning" in record or "R-hat does not" in record
            or "not finite" in record
        ),
    }  # fmt: skip


def shown(row: dict[str, Any]) -> list[str]:
    """Cells of the table."""

    def cell(value: Any) -> str:
        if isinstance(value, float):
            return f"{value:.2f}" if abs(value) < 10 else f"{value:.0f}"
        return str(value)

    return [cell(row[c]) if c != "warned" else ("yes" if row[c] else "") for c in COLUMNS]


def main() -> None:
    """Run the models, each in a process of its own, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="*", default=list(MODELS))
    parser.add_argument("--methods", nargs="*", default=["CoRVSGLD", "MSGNHT"])
    parser.add_argument("--seeds", nargs="*", type=int, default=[1])
    parser.add_argument("--options", type=json.loads, default={})
    parser.add_argument("--write", type=Path)
    parser.add_argument("--one", nargs=3)
    arguments = parser.parse_args()
    if arguments.one:
        name, method, seed = arguments.one
        print(json.dumps(measure(name, method, int(seed), arguments.options)))
        return
    print(" ".join(f"{c:>9}" for c in COLUMNS))
    lines = ["| " + " | ".join(COLUMNS) + " |", "|" + " --- |" * len(COLUMNS)]
    for name in arguments.models:
        for method in arguments.methods:
            for seed in arguments.seeds:
                command = [sys.executable, __file__, "--one", name, method, str(seed)]
                command += ["--options", json.dumps(arguments.options)]
                run = subprocess.run(command, check=False, capture_output=True, text=True)
                if run.returncode:
                    print(name, method, seed, "failed:", run.stderr.splitlines()[-1], flush=True)
                    continue
                row = json.loads(run.stdout.splitlines()[-1])
                print(" ".join(f"{c:>9}" for c in shown(row)), row["warned"][:300], flush=True)
                lines.append("| " + " | ".join(shown(row)) + " |")
    if arguments.write:
        arguments.write.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
