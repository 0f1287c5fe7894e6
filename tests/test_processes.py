"""Cores and start methods: every combination samples, or is refused at once with its cure."""

import json
import os
import re

import pytest

from pymc.sampling.parallel import _initialize_multiprocessing_context

from helpers.subprocesses import run_python

# Each program runs its cases in order, in one parent process, and prints a line after each: an
# earlier case decides whether JAX is running in the parent.
PROGRAM = """
import hashlib, json, logging, multiprocessing, sys, time, warnings

import numpy as np
import pymc as pm

import pymc_sgmcmc as sg

from pymc_sgmcmc.kernel import tables
from pymc_sgmcmc.testing import UNTUNED

# As of many rows: all chains have one order, and forked ones find the rows in one place
tables._LARGE = 0

logging.disable(logging.CRITICAL)
warnings.simplefilter("ignore")


def model():
    y = np.random.default_rng(0).normal(1, 0.5, size=200)
    with pm.Model() as model:
        batch = pm.Minibatch(y, batch_size=20)
        pm.Normal("y", pm.Normal("mu", 0, 10), 0.5, observed=batch, total_size=200)
    return model


def run(backend, options):
    began, has_jax = time.perf_counter(), "jax" in sys.modules
    with model():
        step = sg.CoRVSGLD(step_size=options.pop("step_size", 1e-4), backend=backend, **UNTUNED)
        try:
            result = pm.sample(
                step=step, draws=20, tune=5, chains=2, random_seed=1, progressbar=False,
                compute_convergence_checks=False, **options,
            )
        except Exception as error:
            outcome = {"error": f"{type(error).__name__}: {error}"}
        else:
            outcome = {"bits": hashlib.sha256(result.posterior["mu"].values.tobytes()).hexdigest()}
    return outcome | {"seconds": time.perf_counter() - began, "has JAX": has_jax}


if __name__ == "__main__":
    # Else each chain's process would import it for itself
    multiprocessing.set_forkserver_preload(["__main__", "pymc_sgmcmc"])
    backend, cases = json.loads(sys.argv[1])
    for name, options in cases.items():
        if options == "start JAX":
            import jax

            jax.numpy.zeros(3).block_until_ready()
        elif options == "import JAX":
            import jax
        else:
            print(json.dumps([name, run(backend, options)]), flush=True)
"""


def run(program, backend, cases, timeout):
    done = run_python(program, json.dumps([backend, cases]), timeout=timeout)
    outcomes = dict(json.loads(line) for line in done.stdout.splitlines() if line.startswith("["))
    assert outcomes.keys() == {n for n, o in cases.items() if isinstance(o, dict)}, done.stderr
    return outcomes


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    path = tmp_path_factory.mktemp("processes") / "program.py"
    path.write_text(PROGRAM, encoding="utf-8")
    return path


def agree(outcomes):
    assert [o["error"] for o in outcomes.values() if "error" in o] == []
    assert len({o["bits"] for o in outcomes.values()}) == 1


def test_pymc_does_not_fork_where_its_backend_is_jax():
    # So that pm.sample(backend="jax") is a cure
    assert _initialize_multiprocessing_context(None, mode="JAX").get_start_method() != "fork"


# ----------------------------------------------------------------------------- JAX

FORK = {"cores": 2, "mp_ctx": "fork"}
CURES = {
    "cores=1": {"cores": 1},
    "mp_ctx='forkserver'": {"cores": 2, "mp_ctx": "forkserver"},
    "backend='jax'": {"cores": 2, "backend": "jax"},
}


@pytest.fixture(scope="module")
def jax_outcomes(program):
    cases = {"fork": FORK, "start": "start JAX", "fork, JAX running": FORK, **CURES}
    del cases["backend='jax'"]  # as slow as "forkserver", which it comes to
    return run(program, "jax", cases, timeout=240)


@pytest.mark.slow
def test_import_does_not_start_jax(jax_outcomes):
    # A process in which JAX has started must not fork, and pm.sample forks
    assert not jax_outcomes["fork"]["has JAX"]


@pytest.mark.slow
def test_jax_gives_the_same_bits_in_every_kind_of_process(jax_outcomes):
    agree({name: o for name, o in jax_outcomes.items() if name != "fork, JAX running"})


@pytest.mark.slow
def test_a_fork_of_a_running_jax_is_refused_at_once(jax_outcomes):
    refused = jax_outcomes["fork, JAX running"]
    assert refused["error"].startswith("ParallelSamplingError: Chain")
    assert "JAX was already running in the process that was forked" in refused["error"]
    assert refused["seconds"] < 20
    # The cures that it names are those that the tests here try
    named = re.findall(r"\w+='\w+'|cores=\d", refused["error"].split("would hang")[1])
    assert {*named} == {*CURES}


MADE_IN_A_FORK = """
import multiprocessing, warnings

import jax, numpy as np, pymc as pm, xarray as xr

import pymc_sgmcmc as sg

warnings.simplefilter("ignore")
jax.numpy.zeros(3).block_until_ready()


def child():
    with pm.Model() as model:
        pm.Normal("x")
        step = sg.SGLD(step_size=0.1, backend="jax")
    draws = xr.Dataset({"x": (("chain", "draw"), np.random.default_rng(0).normal(size=(1, 50)))})
    for call in (
        lambda: step.setup_chain(np.random.default_rng(0), 0, 1),
        lambda: sg.diagnostics.ksd(draws, model, backend="jax"),
    ):
        try:
            call()
        except RuntimeError as error:
            print(error)


process = multiprocessing.get_context("fork").Process(target=child)
process.start()
process.join()
"""


@pytest.mark.skipif(os.name != "posix", reason="there are no forks")
def test_what_is_made_in_a_fork_of_a_running_jax_is_refused():
    done = run_python(MADE_IN_A_FORK, timeout=60)
    said = done.stdout.splitlines()
    assert len(said) == 2
    assert all(line.startswith("JAX was already running in the process") for line in said)


@pytest.mark.slow
def test_jax_in_every_other_kind_of_process(program):
    cases = {
        "import": "import JAX",
        "fork of a process that has imported JAX": FORK,
        "spawn": {"cores": 2, "mp_ctx": "spawn"},
        "start": "start JAX",
        "spawn, JAX running": {"cores": 2, "mp_ctx": "spawn"},
        # The others are in jax_outcomes
        "backend='jax'": CURES["backend='jax'"],
        "one core, spawn": {"cores": 1, "mp_ctx": "spawn"},
    }
    agree(run(program, "jax", cases, timeout=600))


# ----------------------------------------------------------------------------- numba


@pytest.mark.slow
def test_numba_gives_the_same_bits_in_every_kind_of_process(program):
    cases = {
        "fork": FORK,
        "one core": {"cores": 1},
        "forkserver": {"cores": 2, "mp_ctx": "forkserver"},
        "spawn": {"cores": 2, "mp_ctx": "spawn"},
        "start": "start JAX",
        "fork, JAX running": FORK,
        "stuck": {**FORK, "step_size": 1e9},
    }
    outcomes = run(program, "numba", cases, timeout=1200)
    stuck = outcomes.pop("stuck")
    assert "The chain is stuck at draw" in stuck["error"]
    assert stuck["seconds"] < 60
    agree(outcomes)


@pytest.mark.slow
def test_spawned_processes_need_the_guard_of_the_main_module(program, tmp_path):
    # The refusal says so: without it PyMC's new processes run the script again
    unguarded = tmp_path / "unguarded.py"
    text = PROGRAM.replace('if __name__ == "__main__":', "if True:").replace(
        "except Exception as error", "except ZeroDivisionError as error"
    )
    unguarded.write_text(text, encoding="utf-8")
    cases = json.dumps(["jax", {"forkserver": CURES["mp_ctx='forkserver'"]}])
    done = run_python(unguarded, cases)
    assert done.returncode != 0
    assert "__name__ == '__main__'" in done.stderr
