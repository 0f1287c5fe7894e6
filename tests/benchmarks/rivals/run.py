"""Our step methods beside their rivals: ``python tests/benchmarks/rivals/run.py``.

Each problem and method is a cell, run in a process of its own that is bound to one core, one
chain and one thread each, and stopped after ``--seconds``. Cells are appended to ``RESULTS``,
where the last of a problem, method and seed counts, and the table and the plots are made of all
of them:

    python tests/benchmarks/rivals/run.py --problems "logistic 10000 10" a9a --methods MSGNHT nutpie
    python tests/benchmarks/rivals/run.py --problems --write docs        # the table alone

Seconds are the processor's, from the call to the draw, the search for a mode included. The
columns are explained in ``docs/rivals.md``.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys

from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[0] = str(HERE.parent)

RESULTS = HERE / "results.jsonl"
METHODS = (
    "CoRVSGLD", "MSGNHT", "nutpie", "ADVI", "full-rank ADVI", "BlackJAX SGLD-CV",
    "BlackJAX SGHMC-CV", "NumPyro HMCECS", "Gibbs",
)  # fmt: skip
THREADS = "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"
PACKAGES = "pymc", "nutpie", "blackjax", "numpyro", "jax"


def cell(problem: str, method: str, seconds: float, seed: int) -> dict[str, Any]:
    """Run one cell in this process."""
    from importlib.metadata import version

    import jax

    from rivals import ecs, factorisation, langevin, nuts, ours, variational
    from rivals.clock import Clock
    from rivals.course import judged
    from rivals.problems import PROBLEMS

    if method not in ("CoRVSGLD", "MSGNHT"):
        jax.config.update("jax_enable_x64", True)
    chosen, clock = PROBLEMS[problem](), Clock()
    # What the data cost to be made is nobody's
    mean, sd, rows = *chosen.moments[1:], chosen.rows
    about = {"problem": problem, "method": method, "seed": seed, "rows": len(rows[0])}
    about |= {"budget": seconds, "versions": {p: version(p) for p in PACKAGES}}
    arguments: Any = chosen, seconds, seed, clock
    try:
        if method == "nutpie":
            course = nuts.run(*arguments)
        elif method.endswith("ADVI"):
            course = variational.run(*arguments, "advi" if method == "ADVI" else "fullrank_advi")
        elif method.startswith("BlackJAX"):
            course = langevin.run(*arguments, method.split()[1].removesuffix("-CV"))
        elif method == "Gibbs":
            course = factorisation.again(seed, clock)
        elif method == "NumPyro HMCECS":
            course = ecs.run(*arguments)
        else:
            course = ours.run(*arguments, method)
    except Exception as error:
        # That it failed is a result
        return {**about, "seconds": clock.seconds(), "failed": type(error).__name__}
    found = judged(course, mean, sd, clock) if course.seconds else {"seconds": clock.seconds()}
    return {**about, **found}


def main() -> None:
    """Run cells, and write the table and the plots."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--problems", nargs="*")
    parser.add_argument("--methods", nargs="*", default=list(METHODS), choices=METHODS)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--core", type=int, default=0)
    parser.add_argument("--write", type=Path, help="the folder of the table and the plots")
    parser.add_argument("--one", nargs=2)
    arguments = parser.parse_args()
    if arguments.one:
        os.sched_setaffinity(0, {arguments.core})
        print(json.dumps(cell(*arguments.one, arguments.seconds, arguments.seed)))
        return
    from rivals import report
    from rivals.problems import PROBLEMS

    problems = list(PROBLEMS) if arguments.problems is None else arguments.problems
    # What JAX compiled for a run before is not taken from disk: that is counted
    environment = {
        **os.environ,
        **dict.fromkeys(THREADS, "1"),
        "JAX_ENABLE_COMPILATION_CACHE": "false",
    }
    same = ["--seconds", str(arguments.seconds), "--seed", str(arguments.seed)]
    same += ["--core", str(arguments.core)]
    for problem in problems:
        for method in arguments.methods:
            if method == "Gibbs" and problem != "factorisation":
                continue
            command = [sys.executable, __file__, "--one", problem, method, *same]
            run = subprocess.run(
                command, check=False, capture_output=True, text=True, env=environment
            )
            if run.returncode:
                print(problem, method, "failed:", run.stderr.strip().splitlines()[-1:], flush=True)
                continue
            *said, last = run.stdout.strip().splitlines()
            found = json.loads(last)
            with RESULTS.open("a") as file:
                file.write(last + "\n")
            shown = {k: v for k, v in found.items() if k not in ("course", "versions")}
            print(*(line for line in said if "step sizes" in line), shown, flush=True)
    if arguments.write is not None:
        report.write(report.read(RESULTS), arguments.write)


if __name__ == "__main__":
    main()
