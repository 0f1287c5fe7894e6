"""Cost of a gradient in tuning against one in the chain, for a gallery of models.

Run all with ``python tests/benchmarks/tuning_cost.py``, some with ``--models a9a arK``, with
another backend by ``--backend numba``. A gradient in tuning may cost twice the chain's: rows
that cost more end with a mark, and the program with an error.

Columns, in microseconds, each the best of several rounds that are taken in turn: an update of
the chain with one gradient of a batch, its noise included; in tuning a gradient of a batch, and
of a block of the full data, which is the same without minibatches; the same with the log
density; the larger gradient of the two over the update. Then seconds to compile the two functions.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time

from collections.abc import Callable
from typing import Any

import gallery
import numpy as np

MODELS = {**gallery.POSTERIORDB, **gallery.LARGE, **gallery.SMALL}
COLUMNS = "chain", "batch", "block", "with U", "ratio", "compile", "compile tuning"
MOST, ROUNDS, SECONDS, EVALUATIONS = 2.0, 40, 1.0, 64


def seconds(run: Callable[[], Any]) -> float:
    """Return what a call takes."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def measure(name: str, backend: str) -> dict[str, float]:
    """Return the columns of one model."""
    import pymc_sgmcmc as sg

    from pymc_sgmcmc.testing import UNTUNED

    model = MODELS[name]()
    point = model.initial_point()
    with model:
        step = sg.SGLD(step_size=1e-12, backend=backend, **UNTUNED)
    step.setup_chain(np.random.default_rng(0), 0, 10**9)
    compile_chain = seconds(lambda: step.step(point))
    runner = step._runner
    engine, thin = runner.engine, runner.settings.thin
    runner.settle()
    # Whole calls, or a round would only hand out what another one has made
    draws = engine.program.draws_per_call(runner.settings, thin)

    phi, scales = engine.express(point)
    surface = engine.potential()
    surface.set_fixed(engine.fixed(0, scales, []))
    x = np.repeat(surface.join(phi)[None], EVALUATIONS, axis=0)
    rows = surface.draw_rows(np.random.default_rng(0), EVALUATIONS)
    blocks = np.arange(EVALUATIONS) % surface.n_blocks
    compile_tuning = seconds(lambda: surface.batch_gradient(x, rows))

    def chain() -> None:
        for _ in range(draws):
            runner.advance(1e-12, thin, [])

    runs: list[tuple[Callable[[], Any], int]] = [
        (chain, draws * thin),
        (lambda: surface.batch_gradient(x, rows), EVALUATIONS),
        (lambda: surface.block(x, blocks), EVALUATIONS),
        (lambda: surface.batch(x, rows), EVALUATIONS),
    ]
    # As long for each, so that none of them finds the machine less busy than the others
    repeats = [max(1, round(SECONDS / ROUNDS / max(seconds(run), 1e-6))) for run, _ in runs]
    times = np.full(len(runs), np.inf)
    for _ in range(ROUNDS):
        for i, (run, count) in enumerate(runs):
            for _ in range(repeats[i]):
                times[i] = min(times[i], seconds(run) / count * 1e6)
    # The same calls without minibatches: what differs is the machine's
    largest = times[1:3].max() if surface.batch_size else times[1:3].min()
    ratio = largest / times[0]
    return dict(zip(COLUMNS, [*times, ratio, compile_chain, compile_tuning], strict=True))


def main() -> int:
    """Measure the models, each in a process of its own; return how many cost too much."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="*", default=list(MODELS))
    parser.add_argument("--backend", default="jax")
    parser.add_argument("--one")
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(measure(arguments.one, arguments.backend)))
        return 0
    failed = 0
    print(" ".join([f"{'model':28}", *(f"{c:>14}" for c in COLUMNS)]), flush=True)
    for name in arguments.models:
        command = [sys.executable, __file__, "--one", name, "--backend", arguments.backend]
        run = subprocess.run(command, check=False, capture_output=True, text=True)
        if run.returncode:
            failed += 1
            print(f"{name:28} failed:", run.stderr.splitlines()[-1], flush=True)
            continue
        found = json.loads(run.stdout.splitlines()[-1])
        over = found["ratio"] > MOST
        failed += over
        cells = [f"{name:28}", *(f"{found[c]:14.2f}" for c in COLUMNS), "too much" * over]
        print(" ".join(cells).rstrip(), flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main() > 0)
