"""Cost of an update against BlackJAX's SGLD, of ``pm.sample``, and of the first draw.

All ratios are taken inside one process run, peer and package in turn, the best of several
rounds each: machines are noisy. Run ``make benchmarks``, or one part of it with
``python tests/benchmarks/kernel.py [updates] [sample] [large] [first]``; ``first`` starts fresh
processes, with an empty and with a filled compilation cache.
"""

from __future__ import annotations

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

from table import fresh

N, D, THIN = 100_000, 50, 20
BATCHES = 50, 500, 5000
ROUNDS = 5
FRESH = 3
# Draws of pm.sample, 20 updates each
SAMPLED = 4000


def logistic_data(dtype: str) -> tuple[np.ndarray, np.ndarray]:
    """Rows of a logistic regression."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(N, D))
    y = rng.random(N) < 1 / (1 + np.exp(-x @ rng.normal(size=D) * 0.2))
    return x.astype(dtype), y.astype(dtype)


def best(run: Callable[[], Any], count: int) -> float:
    """Microseconds of one of the ``count`` updates in ``run``, the best round."""
    run()
    times = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times) / count * 1e6


def logistic_model(batch_size: int, dtype: str) -> Any:
    """The model of the benchmark in PyMC."""
    import pymc as pm

    x, y = logistic_data(dtype)
    with pm.Model() as model:
        xb, yb = pm.Minibatch(x, y.astype(bool), batch_size=batch_size)
        beta = pm.Normal("beta", 0, 10, shape=D)
        pm.Bernoulli("y", logit_p=xb @ beta, observed=yb, total_size=N)
    return model


def started(model: Any, draws: int = 10**9, **options: Any) -> Any:
    """Return SGLD of which nothing is tuned, after the first of its draws."""
    import pymc_sgmcmc as sg

    from pymc_sgmcmc.testing import UNTUNED

    step = sg.SGLD(model=model, **{**UNTUNED, "step_size": 1e-6, **options})
    step.setup_chain(np.random.default_rng(0), 0, draws)
    step.step(model.initial_point())
    return step


def package_updates(
    batch_size: int, dtype: str, backend: str, thin: int = THIN
) -> tuple[Callable[[], Any], int]:
    """Return a run of the compiled transition, noise and batches included, and its updates."""
    step = started(logistic_model(batch_size, dtype), backend=backend, thin=thin)
    runner = step._runner
    # Whole calls, or the best round would only hand out what another one has made
    runner.settle()
    call = runner.engine.program.draws_per_call(runner.settings, thin)
    draws = -(-max(5, 4000 // max(batch_size, 50) * THIN // thin) // call) * call
    return lambda: bare_transition(step, draws), draws * thin


def blackjax_updates(batch_size: int, dtype: str) -> tuple[Callable[[], None], int]:
    """Return a run of BlackJAX's SGLD in ``lax.scan``, and its updates."""
    import blackjax
    import jax
    import jax.numpy as jnp

    x, y = (jnp.asarray(a) for a in logistic_data(dtype))

    def log_prior(beta: Any) -> Any:
        return -0.5 * jnp.sum(beta**2) / 100

    def log_likelihood(beta: Any, row: Any) -> Any:
        linear = jnp.dot(row[0], beta)
        return row[1] * linear - jnp.logaddexp(0.0, linear)

    gradient = blackjax.sgmcmc.gradients.grad_estimator(log_prior, log_likelihood, N)
    sgld = blackjax.sgld(gradient)
    updates = max(5, 4000 // max(batch_size, 50)) * THIN

    @jax.jit
    def chain(key: Any, beta: Any) -> Any:
        def update(carry: Any, _: Any) -> Any:
            key, beta = carry
            key, key_rows, key_noise = jax.random.split(key, 3)
            rows = jax.random.randint(key_rows, (batch_size,), 0, N)
            return (key, sgld.step(key_noise, beta, (x[rows], y[rows]), 1e-6)), None

        return jax.lax.scan(update, (key, beta), None, length=updates)[0]

    state = jax.random.key(0), jnp.zeros(D, dtype)

    def run() -> None:
        nonlocal state
        state = chain(*state)
        state[1].block_until_ready()

    return run, updates


def updates(dtype: str) -> None:
    """Print microseconds an update, and the ratios to BlackJAX."""
    import jax
    import pytensor

    pytensor.config.floatX = dtype
    jax.config.update("jax_enable_x64", dtype == "float64")
    print(f"\nµs an update of SGLD, logistic regression N = {N:,}, D = {D}, {dtype}")
    print("one call of the transition makes 20 updates, the default thin, or 100")
    columns = "BlackJAX", "JAX 20", "JAX 100", "numba 20"
    ratios = "JAX/BJ", "JAX100/BJ", "numba/BJ"
    print(f"{'batch':>6}" + "".join(f"{name:>10}" for name in (*columns, *ratios)))
    for batch_size in BATCHES:
        # Ours first: the package then starts JAX as it does for a user
        ours = [
            package_updates(batch_size, dtype, backend, thin)
            for backend, thin in (("jax", THIN), ("jax", 100), ("numba", THIN))
        ]
        peer = blackjax_updates(batch_size, dtype)
        # In turn, so that a busy machine hurts all alike
        timings = np.min([[best(*pair) for pair in (peer, *ours)] for _ in range(3)], axis=0)
        row = [*(f"{t:10.1f}" for t in timings), *(f"{t / timings[0]:10.2f}" for t in timings[1:])]
        print(f"{batch_size:6d}" + "".join(row), flush=True)


def sample() -> None:
    """Print what ``pm.sample`` costs over the bare transition, on one process and on two."""
    for backend in ("numba", "jax"):
        subprocess.run([sys.executable, __file__, "sample-one", backend], check=True)
        command = [sys.executable, __file__, "draws-of-kernel", backend]
        # Two kernels at once, as two chains run
        both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
        bare = max(float(process.communicate()[0].splitlines()[-1]) for process in both)
        for name, part, argument in (
            (f"{backend:>6}", "draws-of-sample", backend),
            ("  busy for as long,", "draws-of-nothing", str(bare)),
        ):
            whole, of_parent = fresh(__file__, part, argument, check=True)
            print(
                f"{name} two processes, from the first draw to the last: "
                f"{whole:.0f} µs a draw / {bare:.0f} µs = {whole / bare:.2f}, while PyMC's own "
                f"process takes {of_parent:.0f} µs of a processor for each draw",
                flush=True,
            )


def draws_of_kernel(backend: str) -> None:
    """Print microseconds of the bare transition for a draw, the median of several runs."""
    step = started(logistic_model(500, "float64"), backend=backend)
    times = []
    for _ in range(7):
        start = time.perf_counter()
        bare_transition(step, SAMPLED // 2)
        times.append((time.perf_counter() - start) / (SAMPLED // 2) * 1e6)
    print(np.median(times))


def draws_of_sample(backend: str) -> None:
    """Print what two chains of the step method take in two processes."""
    import pymc_sgmcmc as sg

    from pymc_sgmcmc.testing import UNTUNED

    with logistic_model(500, "float64"):
        two_chains(sg.SGLD(step_size=1e-6, backend=backend, **UNTUNED), "forkserver")


def draws_of_nothing(microseconds: str) -> None:
    """Print the same of a step method that keeps a processor busy for so long, and no more."""
    from pymc.step_methods.arraystep import BlockedStep

    class Busy(BlockedStep):
        name, stats_dtypes_shapes = "busy", {}

        def __init__(self, vars: Any) -> None:
            self.vars = vars

        def step(self, point: Any) -> tuple[Any, list[dict[str, Any]]]:
            end = time.thread_time() + float(microseconds) * 1e-6
            while time.thread_time() < end:
                pass
            return point, [{}]

    with logistic_model(500, "float64") as model:
        two_chains(Busy(model.value_vars), "fork")


def two_chains(step: Any, context: str) -> None:
    """Print microseconds of a draw of two chains in two processes, from the first to the last.

    The second number is the processor time that the process which collects the draws takes for
    each of them: on two cores the chains wait for it.
    """
    import pymc as pm

    times: dict[int, list[float]] = {0: [], 1: []}
    processor = []

    def callback(trace: Any, draw: Any) -> None:
        times[draw.chain].append(time.perf_counter())
        processor.append(time.process_time())

    pm.sample(
        draws=2 * SAMPLED, tune=0, step=step, cores=2, chains=2, progressbar=False, quiet=True,
        callback=callback, compute_convergence_checks=False, mp_ctx=context,
    )  # fmt: skip
    # While both chains sample
    begin = max(t[0] for t in times.values())
    end = min(t[-1] for t in times.values())
    of_draw = max((end - begin) / sum(begin < t <= end for t in of) for of in times.values())
    of_parent = (processor[-1] - processor[0]) / (len(processor) - 1)
    print(json.dumps([of_draw * 1e6, of_parent * 1e6]))


def sample_one(backend: str) -> None:
    """Print the time of a draw of ``pm.sample`` over that of the bare transition, in one process.

    Medians of rounds in turn. What PyMC does before the first draw of each call, such as compiling
    the function that records draws, is printed beside it.
    """
    import pymc as pm

    import pymc_sgmcmc as sg

    from pymc_sgmcmc.testing import UNTUNED

    model = logistic_model(500, "float64")
    times: list[float] = []

    def callback(trace: Any, draw: Any) -> None:
        times.append(time.perf_counter())

    with model:
        step = sg.SGLD(step_size=1e-6, backend=backend, **UNTUNED)
        settings = {"cores": 1, "chains": 1, "progressbar": False, "quiet": True}
        settings |= {"compute_convergence_checks": False, "step": step, "tune": 0}
        settings |= {"callback": callback}
        pm.sample(draws=10, **settings)
        before, whole, bare = [], [], []
        for _ in range(9):
            times.clear()
            start = time.perf_counter()
            pm.sample(draws=SAMPLED // 2, **settings)
            before.append(times[0] - start)
            whole.append((times[-1] - times[0]) / (len(times) - 1) * 1e6)
            start = time.perf_counter()
            bare_transition(step, SAMPLED // 2)
            bare.append((time.perf_counter() - start) / (SAMPLED // 2) * 1e6)
    print(
        f"{backend:>6} one process, batch 500, thin {THIN}: {np.median(whole):.0f} µs a draw / "
        f"{np.median(bare):.0f} µs = {np.median(np.divide(whole, bare)):.2f}, after "
        f"{np.median(before):.2f} s before the first draw",
        flush=True,
    )


def bare_transition(step: Any, draws: int) -> None:
    """Call the compiled transition for ``draws`` draws, with the noise and batches it needs."""
    runner = step._runner
    for _ in range(draws):
        runner.advance(1e-6, runner.settings.thin, [])


def factorisation() -> Any:
    """Return a factorisation of made ratings."""
    import pymc as pm

    rng, rows, users, items = np.random.default_rng(0), 1_000_000, 71_567, 10_681
    i, j = (rng.integers(0, n, rows).astype("int32") for n in (users, items))
    with pm.Model() as model:
        ib, jb, yb = pm.Minibatch(i, j, rng.normal(size=rows).astype("float32"), batch_size=10_000)
        u, v = pm.Normal("u", 0, 1, shape=(users, 20)), pm.Normal("v", 0, 1, shape=(items, 20))
        pm.Normal("y", (u[ib] * v[jb]).sum(axis=-1), 1, observed=yb, total_size=rows)
    return model


def large() -> None:
    """Print milliseconds an update of a matrix factorisation with 1.6 million parameters."""
    import pytensor

    pytensor.config.floatX = "float32"
    model = factorisation()
    step = started(model, draws=100, step_size=1e-5, backend="numba")
    point, _ = step.step(model.initial_point())

    def run() -> None:
        nonlocal point
        point, _ = step.step(point)

    size = sum(x.size for x in point.values())
    cost = best(run, THIN) / 1e3
    print(f"\nmatrix factorisation, {size:,} parameters, batch 10000, float32, numba:")
    print(f"{cost:.1f} ms an update", flush=True)


def readme_model() -> Any:
    """Return the model of the README's example."""
    import pymc as pm

    rng = np.random.default_rng(1)
    x = rng.normal(size=(100_000, 3))
    y = x @ [1.0, 2.0, 3.0] + rng.normal(size=100_000)
    with pm.Model() as model:
        xb, yb = pm.Minibatch(x, y, batch_size=500)
        beta = pm.Normal("beta", 0, 10, shape=x.shape[1])
        sigma = pm.HalfNormal("sigma", 1)
        pm.Normal("y", xb @ beta, sigma, observed=yb, total_size=len(x))
    return model


def first_draw(what: str, backend: str) -> None:
    """Print seconds from the call of ``pm.sample`` to the first draw, as JSON."""
    import pymc as pm

    import pymc_sgmcmc as sg

    from pymc_sgmcmc.testing import UNTUNED

    model = readme_model() if what == "README" else logistic_model(500, "float64")
    times: list[float] = []

    def callback(trace: Any, draw: Any) -> None:
        times.append(time.perf_counter())

    with model:
        start = time.perf_counter()
        if what == "README":
            step = sg.CoRVSGLD(backend=backend)
        else:
            step = sg.SGLD(step_size=1e-6, backend=backend, **UNTUNED)
        pm.sample(
            draws=2, tune=0, step=step, cores=1, chains=1, progressbar=False, quiet=True,
            callback=callback, compute_convergence_checks=False,
        )  # fmt: skip
    print(json.dumps(times[0] - start))


def first() -> None:
    """Print first-draw times of fresh processes, cold and warm."""
    print("\nseconds from the call of pm.sample to the first draw, in a fresh process,")
    print("best of three (numba cold: of one). README: its example, tuned; by hand: a logistic")
    print("regression of which nothing is tuned")
    flags = os.environ.get("PYTENSOR_FLAGS", "")
    for what, backend, rounds in (
        ("README", "jax", FRESH),
        ("by hand", "jax", FRESH),
        ("by hand", "numba", 1),
    ):
        cold, warm = [], []
        for _ in range(rounds):
            with tempfile.TemporaryDirectory() as cache:
                env = {
                    "PYTENSOR_FLAGS": f"{flags},base_compiledir={cache}".strip(","),
                    "NUMBA_CACHE_DIR": str(Path(cache) / "numba"),
                }
                seconds = [
                    fresh(__file__, "first-draw", what, backend, check=True, env=env)
                    for _ in range(1 + FRESH // rounds)
                ]
                cold.append(seconds[0])
                warm += seconds[1:]
        line = f"cold {min(cold):6.1f}, warm {min(warm):6.1f}"
        print(f"{what:>8} {backend:>6} {line}", flush=True)


def main(parts: list[str]) -> None:
    """Run the parts, each dtype in a process of its own."""
    if parts[:1] == ["first-draw"]:
        first_draw(*parts[1:])
        return
    of_one_process = {
        "updates-of": updates,
        "sample-one": sample_one,
        "draws-of-kernel": draws_of_kernel,
        "draws-of-sample": draws_of_sample,
        "draws-of-nothing": draws_of_nothing,
    }
    if parts[:1] and parts[0] in of_one_process:
        of_one_process[parts[0]](parts[1])
        return
    parts = parts or ["updates", "sample", "large", "first"]
    for part in parts:
        if part == "updates":
            for dtype in ("float64", "float32"):
                subprocess.run([sys.executable, __file__, "updates-of", dtype], check=True)
        elif part == "large":
            # Sets the precision of the whole process
            subprocess.run([sys.executable, __file__, "large-only"], check=True)
        else:
            {"sample": sample, "first": first, "large-only": large}[part]()


if __name__ == "__main__":
    main(sys.argv[1:])
