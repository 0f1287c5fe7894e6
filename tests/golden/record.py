"""What tuning chooses and a chain draws, for changes of the code that should not move a bit.

Before a change ``python tests/golden/record.py before.json``; after it ``python
tests/golden/record.py after.json --against before.json``, on the same machine, names the
models whose settings or draws differ, and fails where one does. Other processors give other bits,
so that no such file belongs in the repository.

``--lines`` prints the lines of ``pymc_sgmcmc/tuning`` that no model ran, and for how few models
those of a file run at all: what no model of the tables needs can go.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile

from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[2]
TUNING = ROOT / "pymc_sgmcmc" / "tuning"
# Each with what it stands for
MODELS = {
    "kidscore_interaction_z": "a dense posterior of few parameters",
    "arK": "rows that depend on each other",
    "low_dim_gauss_mix": "modes that can be exchanged",
    "a9a": "batches, control variates, an average of several",
    "poisson_unit": "noise that grows with the mean",
    "mixture_of_many_rows": "modes in batches",
    "hierarchical_logistic": "a hierarchy in batches",
    "varying_slopes": "correlated effects",
    "ordinal_regression": "an ordered vector",
    "latent_gp": "a field",
    "dirichlet_multinomial": "masses",
    "sparse_counts": "masses near 0",
    "laplace_regression": "a kink in the likelihood",
    "prophet": "a kink in the prior",
    "local_level": "a walk",
    "eight_schools_centred": "a funnel",
    "funnel_of_100": "a funnel of many",
    "three_levels": "a hierarchy of hierarchies",
    "curve_of_a_process": "a field whose scales are learned",
    "finnish_horseshoe_centred": "local scales",
    "walk_volatility_centred": "volatilities of a walk",
    "crossed_thousands": "more parameters than a matrix holds",
    "walk_of_thousands": "a walk of as many",
    "lines_of_groups": "pairs that share an index",
    "linear_correlated_blocks": "several steps",
}


def record(name: str) -> dict[str, Any]:
    """Sample 20 draws of one chain of a model and return what was chosen and drawn."""
    import pymc as pm

    import pymc_sgmcmc as sg

    sys.path.insert(0, str(ROOT / "tests" / "benchmarks"))
    import accuracy

    mixed = accuracy.gallery.MIXED.get(name)
    with accuracy.MODELS[name]() as model:
        options = {"backend": "jax"}
        step = (
            sg.CoRVSGLD(**options) if mixed is None else mixed.steps(model, sg.CoRVSGLD, **options)
        )
        dt = pm.sample(
            20, tune=0, step=step, chains=1, random_seed=1,
            progressbar=False, compute_convergence_checks=False,
        )  # fmt: skip
    digests, stats = {}, dt.sample_stats
    for part in ("posterior", "sample_stats"):
        total = hashlib.sha256()
        for variable in sorted(map(str, dt[part].data_vars)):
            values = np.ascontiguousarray(dt[part][variable].values)
            total.update(variable.encode() + str(values.dtype).encode() + values.tobytes())
        digests[part] = total.hexdigest()[:16]
    last = {key: np.ravel(stats[key].values)[-1] for key in ("step_size", "thin", "batches")}
    return {"chosen": {key: float(value) for key, value in last.items()}, **digests}


def measured(name: str, lines: Path | None) -> dict[str, Any]:
    """Return the record of a model from a fresh process, which may note the lines it runs."""
    watch = ["-m", "coverage", "run", f"--data-file={lines}", f"--include={TUNING}/*"]
    done = subprocess.run(
        [sys.executable, *(watch if lines else []), __file__, "--one", name],
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        check=False, capture_output=True, text=True,
    )  # fmt: skip
    if done.returncode:
        return {"error": (done.stderr.splitlines() or [""])[-1]}
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def not_run(folder: Path) -> list[str]:
    """Return, for each file of tuning, its lines that no model ran."""
    import coverage

    runs = [coverage.Coverage(data_file=str(path)) for path in sorted(folder.iterdir())]
    for run in runs:
        run.load()
    found = []
    for path in sorted(TUNING.glob("*.py")):
        of_each = [set(run.analysis2(str(path))[3]) for run in runs]
        lines = runs[0].analysis2(str(path))[1]
        missing = set.intersection(*of_each) if of_each else set(lines)
        # Its definitions run when it is imported
        used = sum(len(missed) < 0.7 * len(lines) for missed in of_each)
        found.append(f"{path.name}: {used} models; no model ran {sorted(missing) or 'no line'}")
    return found


def main() -> None:
    """Record, compare, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", nargs="?", type=Path)
    parser.add_argument("--models", nargs="*", default=list(MODELS), choices=MODELS)
    parser.add_argument("--against", type=Path)
    parser.add_argument("--lines", action="store_true")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(record(arguments.one)))
        return
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in arguments.models:
            found[name] = measured(name, Path(folder, name) if arguments.lines else None)
            print(f"{name} ({MODELS[name]}): {json.dumps(found[name])}", flush=True)
        if arguments.lines:
            print("\n".join(not_run(Path(folder))))
    if arguments.file:
        arguments.file.write_text(json.dumps(found, indent=1) + "\n")
    if arguments.against:
        before = json.loads(arguments.against.read_text())
        differ = [name for name in found if name in before and found[name] != before[name]]
        sys.exit("Other bits: " + ", ".join(differ) if differ else 0)


if __name__ == "__main__":
    main()
