"""The final warning: how often it is false, and how often it sees a temperature that is wrong.

Run with ``python tests/benchmarks/alarms.py``, some models with ``--models laboratories
--seeds 1``. Every model is sampled as in ``accuracy.py``; what the chains' monitors see is then
judged with several numbers of parts. A line counts the chains whose monitor warned among those of
runs that are right: all means within 0.1 reference sds, all sds within 10 %. The last lines are
the power: of independent draws in 13 dimensions, how many chains of 1,000 are warned of one
temperature of 1.74, measured with a standard error of 0.14.
"""

from __future__ import annotations

import argparse
import json
import logging

from typing import Any

import gallery
import numpy as np

from table import fresh

MODELS = {**gallery.POSTERIORDB, **gallery.LARGE, **gallery.SMALL}
QUICK = (
    "eight_schools_noncentered", "kidscore_interaction_z", "sblri", "varying_intercepts",
    "weibull_survival", "student_t_regression", "dirichlet_multinomial",
    "negative_binomial_regression",
)  # fmt: skip
PARTS = (20, 40, 80, 200)

# The wrong temperature, its standard error, dimensions, draws
WRONG, ERROR, DIMENSION, DRAWS = 1.74, 0.14, 13, 1000


def measure(name: str, method: str, seed: int) -> dict[str, Any]:
    """Sample a model and judge each chain with each number of parts."""
    import pymc as pm

    import pymc_sgmcmc as sg

    from pymc_sgmcmc.chain.monitor import Monitor

    logging.getLogger("pymc").setLevel(logging.ERROR)
    seen: dict[int, tuple[Monitor, list[Any]]] = {}
    add = Monitor.add

    def watch(self: Monitor, *draw: Any) -> None:
        seen.setdefault(id(self), (self, []))[1].append(draw)
        add(self, *draw)

    Monitor.add = watch  # type: ignore[method-assign]
    with MODELS[name]():
        step = getattr(sg, method)()
        result = pm.sample(step=step, chains=2, cores=1, random_seed=seed, progressbar=False)
    Monitor.add = add  # type: ignore[method-assign]
    right = True
    for variable, known in gallery.reference(name).items():
        draws = result.posterior[variable]
        sd = np.where(known.sd > 0, known.sd, np.nan)
        error = np.abs(draws.mean(("chain", "draw")).values - known.mean) / sd
        ratio = draws.std(("chain", "draw")).values / sd
        right &= not (np.any(error > 0.1) or np.any(np.abs(ratio - 1) > 0.1))
    absorbed = step.policy().widening is None
    warned = []
    for parts in PARTS:
        count = 0
        for _, draws in seen.values():
            monitor = Monitor(most_parts=parts)
            for draw in draws:
                monitor.add(*draw)
            count += bool(monitor.warnings(widening=lambda n: n * (not absorbed)))
        warned.append(count)
    return {"right": bool(right), "chains": len(seen), "warned": warned}


def power(parts: int, chains: int = 300) -> float:
    """Share of chains that are warned of the wrong temperature."""
    from pymc_sgmcmc.chain.monitor import Monitor

    rng = np.random.default_rng(0)
    # Each draw holds for so many that the mean of squares has the error
    repeats = round(DRAWS * ERROR**2 / (2 * WRONG**2))
    sd = np.ones(DIMENSION)
    sd[0] = WRONG**0.5
    count = 0
    for _ in range(chains):
        monitor = Monitor(most_parts=parts)
        x = np.repeat(rng.normal(size=(-(-DRAWS // repeats), DIMENSION)) * sd, repeats, axis=0)
        for draw in x[:DRAWS]:
            monitor.add(draw, draw, 0.0)
        count += bool(monitor.warnings())
    return count / chains


def main() -> None:
    """Run the models, each in a process of its own, and print the rates."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="*", default=QUICK)
    parser.add_argument("--methods", nargs="*", default=["CoRVSGLD"])
    parser.add_argument("--seeds", nargs="*", type=int, default=[1, 2, 3])
    parser.add_argument("--one", nargs=3)
    arguments = parser.parse_args()
    if arguments.one:
        name, method, seed = arguments.one
        print(json.dumps(measure(name, method, int(seed))))
        return
    chains, warned = 0, np.zeros(len(PARTS), dtype=int)
    for name in arguments.models:
        for method in arguments.methods:
            for seed in arguments.seeds:
                if (found := fresh(__file__, "--one", name, method, seed)) is None:
                    continue
                print(name, method, seed, found, flush=True)
                if found["right"]:
                    chains += found["chains"]
                    warned += found["warned"]
    for parts, count in zip(PARTS, warned, strict=True):
        print(f"{parts} parts: {count} of {chains} right chains warned, power {power(parts):.2f}")


if __name__ == "__main__":
    main()
