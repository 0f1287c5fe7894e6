"""Two models that other packages build, beside nutpie: needs the extra ``integrations``.

Run all with ``python tests/benchmarks/integrations.py``, some with ``--models bambi --methods
CoRVSGLD``. A step has no argument, but that the method ``CoRVSGLD, batch_size`` has batches of 500.

- ``bambi``: ``y ~ x + c + (1|g)`` of 100,000 answers of yes or no in 200 groups.
- ``marketing``: PyMC-Marketing's BG/NBD of 50,000 customers.

Each run is a fresh process with one core, two chains of 1,000 draws after 1,000 that are discarded,
compilation included; nutpie's draws are as many as ``--draws`` says. Columns: seconds by the clock
and of the processor, of which the second do not depend on what else runs; the least bulk ESS of all
entries, and this in a second of the processor; the farthest that a mean is from nutpie's, in its
sds, and beside it nutpie's greatest standard error, in the same; the largest ratio of two sds.
``--write FILE`` also writes a Markdown table, in which rows of other runs stay.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time

from pathlib import Path
from typing import Any

import arviz as az
import numpy as np

from table import Table, digits, fresh

MODELS = "bambi", "marketing"
REFERENCE = "nutpie"
METHODS = REFERENCE, "CoRVSGLD", "CoRVSGLD, batch_size", "MSGNHT"
COLUMNS = (
    "model", "method", "seconds", "processor", "ESS", "ESS/s", "mean off", "SE", "sd ratio",
)  # fmt: skip
OPTIONS: dict[str, Any] = {
    "draws": 1_000, "tune": 1_000, "chains": 2, "cores": 1, "random_seed": 1, "progressbar": False,
}  # fmt: skip


def bambi() -> tuple[Any, Any]:
    """Return a model of Bambi and the PyMC model in it."""
    import bambi as bmb
    import pandas as pd

    rng = np.random.default_rng(0)
    count, groups = 100_000, 200
    x, c = rng.normal(size=count), rng.integers(0, 3, count)
    g, effects = rng.integers(0, groups, count), rng.normal(0, 0.5, groups)
    eta = -0.5 + 0.8 * x + np.array([0, 0.3, -0.4])[c] + effects[g]
    y = rng.random(count) < 1 / (1 + np.exp(-eta))
    data = pd.DataFrame({"y": y.astype(int), "x": x, "c": np.array(list("abc"))[c], "g": g})
    model = bmb.Model("y ~ x + c + (1|g)", data, family="bernoulli", categorical="g")
    model.build()
    return model, model.backend.model


def marketing() -> tuple[Any, Any]:
    """Return a model of PyMC-Marketing and the PyMC model in it."""
    import pandas as pd

    from pymc_marketing import clv

    rng = np.random.default_rng(0)
    count = 50_000
    T = rng.uniform(20, 40, count)
    rate, drop = rng.gamma(0.25, 1 / 4.5, count), rng.beta(0.8, 2.5, count)
    frequency, recency = np.zeros(count), np.zeros(count)
    at, alive = np.zeros(count), np.ones(count, bool)
    while alive.any():
        at += rng.exponential(1 / rate)
        alive &= at <= T
        frequency[alive] += 1
        recency[alive] = at[alive]
        alive &= rng.random(count) > drop
    data = {"customer_id": np.arange(count), "frequency": frequency, "recency": recency, "T": T}
    model = clv.BetaGeoModel()
    model.build_model(pd.DataFrame(data))
    return model, model.model


def run(name: str, method: str, file: Path, draws: int) -> None:
    """Sample, keep the draws of all entries in a file and print seconds as JSON."""
    import pymc_sgmcmc as sg

    built, model = globals()[name]()
    start = time.perf_counter(), time.process_time()
    if method == REFERENCE:
        which = "inference_method" if name == "bambi" else "nuts_sampler"
        result = built.fit(**{**OPTIONS, "draws": draws, which: REFERENCE})
    else:
        sampler, _, batches = method.partition(", ")
        with model:
            step = getattr(sg, sampler)(**({"batch_size": 500} if batches else {}))
        result = built.fit(step=step, **OPTIONS)
    seconds = time.perf_counter() - start[0], time.process_time() - start[1]
    found = result.posterior
    shape = found.sizes["chain"], found.sizes["draw"], -1
    flat = [found[x].values.reshape(shape) for x in sorted(found)]
    np.save(file, np.concatenate(flat, axis=2))
    print(json.dumps(seconds))


def over_entries(function: Any, draws: np.ndarray, **options: Any) -> np.ndarray:
    """Return a statistic of ArviZ for each entry."""
    return np.array([function(x, **options) for x in np.moveaxis(draws, 2, 0)])


def main() -> None:
    """Run what the command line asks for and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--models", nargs="*", default=MODELS, choices=MODELS)
    parser.add_argument("--methods", nargs="*", default=METHODS, choices=METHODS)
    parser.add_argument("--write", type=Path)
    parser.add_argument("--draws", type=int, default=OPTIONS["draws"], help="of nutpie's chains")
    parser.add_argument("--run", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        name, method, file, draws = options.run
        run(name, method, Path(file), int(draws))
        return
    table = Table(COLUMNS, MODELS, options.write)
    with tempfile.TemporaryDirectory() as temporary:
        for name in options.models:
            reference: Any = None
            for method in [REFERENCE, *(m for m in options.methods if m != REFERENCE)]:
                file = Path(temporary, "draws.npy")
                # By the clock and of the processor
                seconds = fresh(__file__, "--run", name, method, file, options.draws, check=True)
                draws = np.load(file)
                if method == REFERENCE:
                    reference = draws
                ess = over_entries(az.ess, draws, method="bulk").min()
                sd = reference.std(axis=(0, 1))
                off = abs(draws.mean(axis=(0, 1)) - reference.mean(axis=(0, 1))) / sd
                error = over_entries(az.mcse, reference, method="mean") / sd
                ratio = np.exp(abs(np.log(draws.std(axis=(0, 1)) / sd)))
                figures = [*seconds, ess, ess / seconds[1], off.max(), error.max(), ratio.max()]
                cells = [name, method, *(digits(float(x)) for x in figures)]
                print(" | ".join(cells), flush=True)
                table.add(cells)


if __name__ == "__main__":
    main()
