"""Models of PyMC's example gallery with nothing set, beside NUTS.

``python tests/benchmarks/examples_of_pymc.py --write docs/examples_table.md`` runs all, some with
``--models straight_line lasso``. Each model is sampled in a process of its own: by NUTS (nutpie's
where all variables are continuous, else PyMC's with its other steps), and by
``pm.sample(step=Method(), random_seed=seed)`` for each method and seed. ``--check`` only builds the
models and evaluates their log densities at the starting point. The last lines count the outcomes
of the table; ``--models`` without names prints nothing else.

A run is *right* if every mean of a free variable is within 0.1 of NUTS's sd, and every sd within
10 %, both plus four Monte-Carlo errors of the two runs; *told* if it is not, and a warning says
so; *refused* if an error with a reason ends it; else *wrong*. Where NUTS has not converged (R-hat
above 1.02) there is *no reference*, but runs may be told or refused.
"""

from __future__ import annotations

import argparse
import json
import logging
import time
import warnings

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from examples import EXAMPLES
from table import Table, digits, fresh

COLUMNS = (
    "model", "method", "notebook", "parameters", "outcome", "right of seeds", "seconds", "of NUTS",
    "reason",
)  # fmt: skip
METHODS = "CoRVSGLD", "MSGNHT"
MOST_RHAT = 1.02
NOT_CONVERGED = "R-hat of NUTS"
# Of outcomes the worst is shown
ORDER = "right", "no reference", "refused", "told", "wrong"


class Reference:
    """Means and sds of the free variables by NUTS, with Monte-Carlo errors."""

    def __init__(self, model: Any) -> None:
        import pymc as pm

        names = [rv.name for rv in model.free_RVs]
        continuous = not any(rv.dtype.startswith(("int", "bool")) for rv in model.free_RVs)
        sampler = "nutpie" if continuous else "pymc"
        # Funnels want smaller steps
        for draws, accept in ((2000, 0.9), (4000, 0.99)):
            began = time.perf_counter()
            with model:
                result = pm.sample(
                    draws, tune=1000, chains=4, cores=2, random_seed=1, progressbar=False,
                    nuts_sampler=sampler, var_names=names, nuts={"target_accept": accept},
                    compute_convergence_checks=False,
                )  # fmt: skip
            self.seconds = time.perf_counter() - began
            posterior = result.posterior.to_dataset()[names]
            self.rhat = max(float(np.nanmax(v.values)) for v in _each("rhat", posterior).values())
            if self.rhat < MOST_RHAT:
                break
        self.moments = moments(posterior)


def _each(what: str, posterior: Any, **options: Any) -> dict[str, Any]:
    import arviz as az

    values = getattr(az, what)(posterior, **options)
    return {name: values[name] for name in values.data_vars}


def moments(posterior: Any) -> dict[str, tuple[np.ndarray, ...]]:
    """Return mean and sd of each variable with their Monte-Carlo errors, raveled."""
    errors = [_each("mcse", posterior, method=kind) for kind in ("mean", "sd")]
    return {
        name: tuple(
            np.ravel(v)
            for v in (
                draws.mean(("chain", "draw")),
                draws.std(("chain", "draw")),
                *(e[name] for e in errors),
            )
        )
        for name, draws in posterior.data_vars.items()
    }


def farthest(ours: dict[str, tuple[np.ndarray, ...]], theirs: dict[str, Any]) -> tuple[float, str]:
    """Return the largest excess over the tolerance, negative if all is right, and where it is."""
    worst = (-np.inf, "")
    for name, (mean, sd, of_mean, of_sd) in theirs.items():
        our_mean, our_sd, our_of_mean, our_of_sd = ours[name]
        with np.errstate(divide="ignore", invalid="ignore"):
            for kind, off, error in (
                ("mean", np.abs(our_mean - mean) / sd, np.hypot(of_mean, our_of_mean) / sd),
                ("sd", np.abs(our_sd / sd - 1), np.hypot(of_sd, our_of_sd) / sd),
            ):
                excess = np.where(sd > 0, off - 0.1 - 4 * error, -np.inf)
                k = int(np.nanargmax(excess)) if np.isfinite(excess).any() else 0
                where = name + f"[{k}]" * (excess.size > 1)
                unit = " sd" if kind == "mean" else ""
                worst = max(
                    worst, (float(excess[k]), f"{kind} of {where} off by {off[k]:.2g}{unit}")
                )
    return worst


def sample(name: str, method: str, seed: int, reference: Reference) -> dict[str, Any]:
    """Sample a model with no argument but a seed, and say how it ended."""
    import pymc as pm

    import pymc_sgmcmc as sg

    said: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("pymc").addHandler(handler)
    began = time.perf_counter()
    try:
        with EXAMPLES[name](), warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            result = pm.sample(
                step=getattr(sg, method)(), chains=2, random_seed=seed, progressbar=False
            )
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        return {"outcome": "refused", "seconds": time.perf_counter() - began, "reason": text}
    finally:
        logging.getLogger("pymc").removeHandler(handler)
    seconds = time.perf_counter() - began
    said += [str(w.message) for w in caught if "sgmcmc" in str(w.filename)]
    excess, where = farthest(
        moments(result.posterior.to_dataset()[list(reference.moments)]), reference.moments
    )
    converged = reference.rhat < MOST_RHAT
    if converged and excess <= 0:
        outcome, reason = "right", ""
    elif said:
        outcome, reason = "told", f"{where}. {said[0]}"
    else:
        outcome, reason = ("wrong", where) if converged else ("no reference", "")
    return {"outcome": outcome, "seconds": seconds, "reason": reason}


def measure(name: str, methods: list[str], seeds: list[int]) -> list[list[str]]:
    """Return the model's rows."""
    model = EXAMPLES.all_rows(name)
    size = sum(int(np.prod(model.initial_point()[v.name].shape)) for v in model.value_vars)
    reference = Reference(model)
    rows = []
    for method in methods:
        runs = [sample(name, method, seed, reference) for seed in seeds]
        worst = max(runs, key=lambda run: ORDER.index(run["outcome"]))
        right = sum(run["outcome"] == "right" for run in runs)
        reason = " ".join(worst["reason"].split())[:240].replace("|", "/")
        if reference.rhat >= MOST_RHAT:
            reason = f"{NOT_CONVERGED} {reference.rhat:.2f}. {reason}"
        seconds = digits(float(np.median([run["seconds"] for run in runs])))
        rows.append([
            name, method, EXAMPLES.notebook[name], str(size), worst["outcome"],
            f"{right} of {len(runs)}", seconds, digits(reference.seconds), reason,
        ])  # fmt: skip
    return rows


def check(name: str) -> str:
    """Return what is wrong with a model at its starting point."""
    model = EXAMPLES[name]()
    point = model.initial_point()
    value = float(model.compile_logp(mode="FAST_COMPILE")(point))
    return "" if np.isfinite(value) else f"log density {value}: {model.point_logps()}"


def main() -> None:
    """Run the models and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="*", default=list(EXAMPLES), choices=EXAMPLES)
    parser.add_argument("--methods", nargs="*", default=list(METHODS))
    parser.add_argument("--seeds", nargs="*", type=int, default=[1])
    parser.add_argument("--write", type=Path)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(measure(arguments.one, arguments.methods, arguments.seeds)))
        return
    if arguments.check:
        for name in arguments.models:
            try:
                wrong = check(name)
            except Exception as error:
                wrong = f"{type(error).__name__}: {error}"
            print(name, wrong or "is finite", flush=True)
        return
    table = Table(COLUMNS, EXAMPLES, arguments.write)
    same = "--methods", *arguments.methods, "--seeds", *arguments.seeds
    for name in arguments.models:
        for row in fresh(__file__, "--one", name, *same) or []:
            print(" | ".join(row), flush=True)
            table.add(row)
    for method in METHODS:
        own = [row for row in table.rows.values() if row[1] == method]
        outcomes = Counter(row[4] for row in own)
        compared = sum(NOT_CONVERGED not in row[8] for row in own)
        print(
            f"{method}: {len(own)} models,", *(f"{outcomes[word]} {word}," for word in ORDER),
            f"{outcomes['right'] / max(compared, 1):.1%} of the {compared} with a reference right",
        )  # fmt: skip


if __name__ == "__main__":
    main()
