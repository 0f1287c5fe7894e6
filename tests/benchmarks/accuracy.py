"""The untuned result of the step methods against reference draws, for a gallery of models.

Run all with ``python tests/benchmarks/accuracy.py``, some with
``python tests/benchmarks/accuracy.py --models a9a arK --methods MSGNHT --seeds 1 2``. Every
model is sampled in a fresh process by ``pm.sample(step=Method())`` with nothing else but a seed
and two chains; a mixed model by its own list of steps, in which ``--methods NUTS`` puts PyMC's in
the place of ours, on all rows. ``--batch 50`` changes a large model's batch, ``--batch 0`` leaves
batches to the step method, to which ``--options '{"backend": "numba"}'`` gives arguments.
``--write FILE`` also writes a Markdown table, whose rows of other models and methods stay.

Columns: the number of seeds; then the worst of them: the largest error of a mean in reference
sds; the smallest and the largest ratio of an sd to the reference's; the share of parameters
within 0.1 sd and 10 %; the least effective number of draws; updates for each draw; averaged
batches; seconds in all, and of them in the slower chain's tuning; runs that ended with a warning.
The line of each run ends with its farthest mean or sd in Monte-Carlo standard errors: among many
parameters 3 is chance, 6 is not. Where deciles are known it ends with the largest total variation
distance of an element by them, and that of as many independent draws, on average.
"""

from __future__ import annotations

import argparse
import json
import logging
import re
import time

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import gallery
import numpy as np

from table import Table, digits, fresh

MODELS = {
    **gallery.POSTERIORDB,
    **gallery.LARGE,
    **gallery.SMALL,
    **gallery.SPARSE,
    **gallery.HIERARCHIES,
    **gallery.WRITINGS,
    **gallery.MANY,
    **gallery.MIXED,
}
# Those of the tables of posteriordb.py and inference_gym.py are run by name alone
KNOWN = {**MODELS, **gallery.SUITE, **gallery.GYM}
COLUMNS = (
    "model", "method", "seeds", "mean err", "sd min", "sd max", "right", "ESS", "thin", "K",
    "seconds", "tuning", "warned",
)  # fmt: skip
# With a model, a method and a seed, what measures in a process of its own
ONE = __file__, "--one"
# Which of the seeds is shown
WORST: dict[str, Any] = {"sd min": min, "right": min, "ESS": min, "seeds": sum, "warned": sum}


def measure(
    name: str,
    method: str,
    seed: int,
    batch: int | None = None,
    cores: int | None = None,
    options: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Sample a model with no argument but a seed, and compare."""
    import arviz as az
    import pymc as pm

    import pymc_sgmcmc as sg

    options = options or {}
    messages: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: messages.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("pymc").addHandler(handler)
    # Gradients and seconds of tuning
    logging.getLogger("pymc.sgmcmc").setLevel(logging.DEBUG)
    mixed = gallery.MIXED.get(name)
    cls = getattr(pm if method == "NUTS" else sg, method)
    if mixed is not None and method == "NUTS":
        model = mixed.all_rows()
    else:
        model = KNOWN[name]() if batch is None else KNOWN[name](batch or None)
    with model:
        start, worked = time.perf_counter(), time.process_time()
        step = cls(**options) if mixed is None else mixed.steps(model, cls, **options)
        result = pm.sample(step=step, chains=2, cores=cores, random_seed=seed, progressbar=False)
        seconds, worked = time.perf_counter() - start, time.process_time() - worked
    errors, ratios = [], []
    ess, farthest = np.inf, (0.0, "")
    for variable, known in gallery.reference(name).items():
        draws = result.posterior[variable]
        sd = np.where(known.sd > 0, known.sd, np.nan)
        errors.append(np.ravel(np.abs(draws.mean(("chain", "draw")).values - known.mean) / sd))
        ratios.append(np.ravel(draws.std(("chain", "draw")).values / sd))
        data = draws.to_dataset()
        ess = min(ess, float(np.nanmin(az.ess(data, method="mean")[variable])))
        for kind, value in (("mean", known.mean), ("sd", known.sd)):
            found = getattr(draws, "std" if kind == "sd" else kind)(("chain", "draw")).values
            with np.errstate(divide="ignore", invalid="ignore"):
                off = (found - value) / az.mcse(data, method=kind)[variable].values
            off = np.ravel(np.where(np.isfinite(off) & (known.sd > 0), off, 0.0))
            most = int(np.argmax(np.abs(off)))
            label = f"{kind} of {variable}" + f"[{most}]" * (off.size > 1)
            farthest = max(farthest, (float(off[most]), label), key=lambda pair: abs(pair[0]))
    distances = [
        distance
        for variable, tenths in gallery.DECILES.get(name, dict)().items()
        for distance in total_variations(result.posterior[variable].values, tenths)
    ]
    error, ratio = np.concatenate(errors), np.concatenate(ratios)
    error, ratio = error[np.isfinite(error)], ratio[np.isfinite(ratio)]
    stats = result.sample_stats
    said = " ".join(messages)
    # Of several steps each array has a dimension of its own name for them; NUTS has neither
    thin, batches = (
        stats[key].values if key in stats else np.zeros(1) for key in ("thin", "batches")
    )
    return {
        "seeds": 1,
        "mean err": float(error.max()),
        "sd min": float(ratio.min()),
        "sd max": float(ratio.max()),
        "right": float(np.mean((error < 0.1) & (np.abs(ratio - 1) < 0.1))),
        "ESS": ess,
        "thin": int(thin.max()),
        "K": int(batches.max()),
        # Of the draws and of tuning; those of the last burn-in are left out
        "gradients": float((thin * batches).sum())
        + sum(float(n) for n in re.findall(r"by (\d+) gradients", said)),
        "seconds": seconds,
        "processor": worked,  # seconds of it, where one core samples all chains
        "tuning": max([float(t) for t in re.findall(r"Tuned in ([\d.]+)", said)], default=np.nan),
        "warned": any(re.search("While tuning|R-hat does not|not finite", m) for m in messages),
        "farthest": f"{farthest[1]}: {farthest[0]:+.1f} SE" + of_deciles(distances, data.sizes),
        "said": messages,
    }


def total_variations(draws: np.ndarray, tenths: np.ndarray) -> list[float]:
    """Return each element's distance from its law, by its nine deciles in the last axis."""
    tenths = tenths.reshape(-1, tenths.shape[-1])
    columns = draws.reshape(-1, len(tenths)).T
    shares = (
        np.bincount(np.searchsorted(edges, x), minlength=len(edges) + 1) / len(x)
        for edges, x in zip(tenths, columns, strict=True)
    )
    return [float(np.abs(share - share.size**-1).sum() / 2) for share in shares]


def of_deciles(distances: list[float], sizes: Mapping[str, int]) -> str:
    """Return in words what deciles say."""
    if not distances:
        return ""
    expected = 5 * np.sqrt(2 / np.pi * 0.09 / (sizes["chain"] * sizes["draw"]))
    mean, most = np.mean(distances), max(distances)
    return f", TV {mean:.3f} on average and {most:.3f} at most ({expected:.3f} independent)"


def run(
    table: Table,
    arguments: argparse.Namespace,
    shown: Callable[[str, str, list[dict[str, Any]]], list[str]],
    said: Callable[[dict[str, Any]], list[str]] = lambda row: [],
    same: Sequence[str] = (),
) -> None:
    """Measure each model, method and seed; print every run and keep the cells of all seeds.

    ``shown`` returns the cells of a model's and a method's runs, none for no row; ``said`` returns
    what ends the line of a run. All runs have the arguments ``same``.
    """
    print(" ".join(f"{c:>9}" for c in table.columns))
    for name in arguments.models:
        for method in arguments.methods:
            rows = []
            for seed in arguments.seeds:
                if (row := fresh(*ONE, name, method, seed, *same)) is None:
                    continue
                rows.append(row)
                cells = " ".join(f"{c:>9}" for c in shown(name, method, [row]))
                print(cells, row["farthest"], *said(row), flush=True)
            if cells := shown(name, method, rows):
                table.add(cells)


def worst(rows: list[dict[str, Any]], columns: Sequence[str]) -> list[str]:
    """Cells of the worst of the seeds."""
    return [digits(WORST.get(c, max)(row[c] for row in rows)) for c in columns]


def main() -> None:
    """Run the models, each in a process of its own, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="*", default=list(MODELS))
    parser.add_argument("--methods", nargs="*", default=["CoRVSGLD", "MSGNHT"])
    parser.add_argument("--seeds", nargs="*", type=int, default=[1, 2, 3])
    parser.add_argument("--batch", type=int)
    parser.add_argument("--cores", type=int)
    parser.add_argument("--options", type=json.loads, default={})
    parser.add_argument("--write", type=Path)
    parser.add_argument("--one", nargs=3)
    arguments = parser.parse_args()
    if arguments.one:
        name, method, seed = arguments.one
        settings = arguments.batch, arguments.cores, arguments.options
        print(json.dumps(measure(name, method, int(seed), *settings)))
        return
    same = ["--options", json.dumps(arguments.options)]
    same += [] if arguments.batch is None else ["--batch", str(arguments.batch)]
    same += [] if arguments.cores is None else ["--cores", str(arguments.cores)]
    batch = ""
    if arguments.batch is not None:
        batch = f", batch {arguments.batch}" if arguments.batch else ", all rows given"
    options = "".join(f", {k}={v}" for k, v in arguments.options.items())

    def shown(name: str, method: str, rows: list[dict[str, Any]]) -> list[str]:
        return [name + batch, method + options, *worst(rows, COLUMNS[2:])] if rows else []

    def said(row: dict[str, Any]) -> list[str]:
        return [m for m in row["said"] if "While tuning" in m] * row["warned"]

    run(Table(COLUMNS, KNOWN, arguments.write), arguments, shown, said, same)


if __name__ == "__main__":
    main()
