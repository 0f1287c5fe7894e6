"""The same updates and runs by JAX on a processor and on a GPU.

``python tests/benchmarks/gpu.py`` measures on all platforms that JAX finds on the machine, in turn,
each in a fresh process; ``--platforms cuda`` or ``--models net`` only some of it. Rows:

- ``logistic 500``, ``logistic 50000``: SGLD, 50 effects, batches of 500 and of 50,000 rows.
- ``net``, ``large net``: MSGNHT, 784-100-10 and 784-1,000-10 tanh, float32, batches of 500 rows.
- ``factorisation``: MSGNHT, 71,567 x 10,681 of rank 20, float32, batches of 10,000 rows.
- ``README``: its example, untuned, four chains, from the call to the result.
- ``images 0.1``, ``ratings``: the runs of ``large.py``, with MSGNHT.

Columns: microseconds of an update, the best of several rounds of ten calls, and on a GPU its
kernels; both of BlackJAX's SGLD and SGNHT in ``lax.scan``, products in full precision; or seconds
of a run.
``--write FILE`` also writes a Markdown table.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import subprocess
import sys
import tempfile
import time

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from large import measure
from table import Table, digits, fresh

from kernel import (
    bare_transition,
    blackjax_updates,
    factorisation,
    logistic_model,
    readme_model,
)

UPDATES = ["logistic 500", "logistic 50000", "net", "large net", "factorisation"]
RUNS = ["README", "images 0.1", "ratings"]
PLATFORMS = "cpu", "cuda"
THIN, SECONDS, CALLS = 100, 2.0, 10


def net(hidden: int) -> Any:
    """Return a net with one layer, of made rows."""
    import pymc as pm

    rng, rows = np.random.default_rng(0), 60_000
    X, y = rng.normal(size=(rows, 784)).astype("float32"), rng.integers(0, 10, rows)
    with pm.Model() as model:
        xb, yb = pm.Minibatch(X, y.astype("int16"), batch_size=500)
        W = pm.Normal("W", 0, 0.1, shape=(784, hidden))
        V = pm.Normal("V", 0, 0.1, shape=(hidden, 10))
        pm.Categorical("y", logit_p=pm.math.tanh(xb @ W) @ V, observed=yb, total_size=rows)
    return model


def started(name: str) -> tuple[Any, int]:
    """Return a step method after its first draw, and how many draws a compiled call makes."""
    import pytensor

    import pymc_sgmcmc as sg

    from pymc_sgmcmc.testing import UNTUNED

    of: dict[str, tuple[str, Callable[[], Any]]] = {
        "logistic 500": ("float64", lambda: logistic_model(500, "float64")),
        "logistic 50000": ("float64", lambda: logistic_model(50_000, "float64")),
        "net": ("float32", lambda: net(100)),
        "large net": ("float32", lambda: net(1_000)),
        "factorisation": ("float32", factorisation),
    }
    pytensor.config.floatX, make = of[name]
    options = {**UNTUNED, "step_size": 1e-6, "backend": "jax", "thin": THIN}
    with make() as model:
        simple = name.startswith("logistic")
        step = sg.SGLD(**options) if simple else sg.MSGNHT(**options, diffusion=1.0)
    step.setup_chain(np.random.default_rng(0), 0, 10**9)
    step.step(model.initial_point())
    runner = step._runner
    runner.settle()
    return step, runner.engine.program.draws_per_call(runner.settings, THIN)


def update(name: str) -> tuple[float, float | None]:
    """Return microseconds of an update, and its kernels."""
    step, draws = started(name)
    # Of several calls: on a GPU the next one runs while one is read
    draws *= CALLS
    return of_updates(lambda: bare_transition(step, draws), draws * THIN)


def of_updates(run: Callable[[], None], count: int) -> tuple[float, float | None]:
    """Return microseconds of each of ``count`` updates in ``run``, and its kernels on a GPU."""
    times: list[float] = []
    # The second call may compile again
    run()
    run()
    while len(times) < 3 or sum(times) < SECONDS:
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times) / count * 1e6, kernels(run, count)


def kernels(run: Callable[[], None], count: int) -> float | None:
    """Return how many kernels run for each of ``count`` updates, by JAX's profiler."""
    import jax

    if jax.default_backend() == "cpu":
        return None
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            run()
        [trace] = Path(folder).rglob("*.trace.json.gz")
        events = json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]
    names = {e["pid"]: e["args"]["name"] for e in events if e.get("name") == "process_name"}
    threads = {
        (e["pid"], e["tid"]): e["args"]["name"] for e in events if e.get("name") == "thread_name"
    }
    on_device = [
        e
        for e in events
        if e.get("ph") == "X"
        and "GPU" in names.get(e["pid"], "")
        and "Stream" in threads.get((e["pid"], e["tid"]), "")
        and not e["name"].lower().startswith("memcpy")
    ]
    return len(on_device) / count


def peer(name: str) -> tuple[float, float | None] | None:
    """Return the same of BlackJAX, None where it is not measured."""
    if name == "factorisation":
        return None
    run, count = blackjax(name)
    return of_updates(lambda: repeat(run), CALLS * count)


def blackjax(name: str) -> tuple[Callable[[], None], int]:
    """Return a compiled call of BlackJAX's sampler, and its updates."""
    import jax

    if name.startswith("logistic"):
        jax.config.update("jax_enable_x64", True)
        return blackjax_updates(int(name.split()[1]), "float64")
    jax.config.update("jax_default_matmul_precision", "highest")
    return blackjax_net({"net": 100, "large net": 1_000}[name]), THIN


def repeat(run: Callable[[], None]) -> None:
    """Run as often as for the package."""
    for _ in range(CALLS):
        run()


def blackjax_net(hidden: int) -> Callable[[], None]:
    """Return 100 updates of BlackJAX's SGNHT of the net."""
    import blackjax
    import jax
    import jax.numpy as jnp

    rng, rows = np.random.default_rng(0), 60_000
    x = jnp.asarray(rng.normal(size=(rows, 784)).astype("float32"))
    y = jnp.asarray(rng.integers(0, 10, rows).astype("int32"))

    def log_prior(weights: Any) -> Any:
        return -50 * sum(jnp.sum(w**2) for w in weights)

    def log_likelihood(weights: Any, row: Any) -> Any:
        return jax.nn.log_softmax(jnp.tanh(row[0] @ weights[0]) @ weights[1])[row[1]]

    gradient = blackjax.sgmcmc.gradients.grad_estimator(log_prior, log_likelihood, rows)
    sgnht = blackjax.sgnht(gradient)
    weights = tuple(
        jnp.asarray(rng.normal(0, 0.01, shape).astype("float32"))
        for shape in ((784, hidden), (hidden, 10))
    )

    @jax.jit
    def chain(key: Any, state: Any) -> Any:
        def update(carry: Any, _: Any) -> Any:
            key, state = carry
            key, key_rows, key_noise = jax.random.split(key, 3)
            chosen = jax.random.randint(key_rows, (500,), 0, rows)
            return (key, sgnht.step(key_noise, state, (x[chosen], y[chosen]), 1e-6)), None

        return jax.lax.scan(update, (key, state), None, length=THIN)[0]

    state = jax.random.key(0), sgnht.init(weights, jax.random.key(1))

    def run() -> None:
        nonlocal state
        state = jax.block_until_ready(chain(*state))

    return run


def run(name: str) -> float:
    """Return seconds of an untuned run."""
    if name != "README":
        return measure(name, "MSGNHT")["seconds"]
    import pymc as pm

    import pymc_sgmcmc as sg

    model, start = readme_model(), time.perf_counter()
    with model:
        pm.sample(step=sg.CoRVSGLD(), random_seed=1, progressbar=False)
    return time.perf_counter() - start


def device(platform: str) -> str | None:
    """Return the name of what JAX computes on there, or None where it finds nothing."""
    program = "import jax; [d, *_] = jax.devices(); print(d.device_kind)"
    env = {**os.environ, "JAX_PLATFORMS": platform}
    done = subprocess.run(
        [sys.executable, "-c", program], env=env, check=False, capture_output=True, text=True
    )
    if done.returncode:
        return None
    kind = done.stdout.splitlines()[-1]
    return f"{len(os.sched_getaffinity(0))} cores" if platform == "cpu" else kind


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="*", default=UPDATES + RUNS, choices=UPDATES + RUNS)
    parser.add_argument("--platforms", nargs="*", default=list(PLATFORMS), choices=PLATFORMS)
    parser.add_argument("--write", type=Path)
    parser.add_argument("--one")
    parser.add_argument("--peer")
    arguments = parser.parse_args()
    if arguments.peer:
        print(json.dumps(peer(arguments.peer)))
        return
    if arguments.one:
        found = update(arguments.one) if arguments.one in UPDATES else run(arguments.one)
        print(json.dumps(found))
        return
    columns = (
        "model", "on", "µs of an update", "of BlackJAX", "kernels", "of BlackJAX",
        "seconds of a run",
    )  # fmt: skip
    table = Table(columns, UPDATES + RUNS, arguments.write)
    devices = {platform: device(platform) for platform in arguments.platforms}
    for model in arguments.models:
        for platform, kind in devices.items():
            if kind is None:
                continue
            env = {"JAX_PLATFORMS": platform}
            if (found := fresh(__file__, "--one", model, env=env)) is None:
                continue
            if model in UPDATES:
                beside = fresh(__file__, "--peer", model, env=env) or (None, None)
                pairs = zip(found, beside, strict=True)
                row = [*("" if x is None else digits(x) for pair in pairs for x in pair), ""]
            else:
                row = [*[""] * 4, digits(found)]
            print(" | ".join([model, kind, *row]), flush=True)
            table.add([model, kind, *row])


if __name__ == "__main__":
    main()
