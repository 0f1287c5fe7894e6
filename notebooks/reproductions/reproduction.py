"""What the experiments share: claims and verdicts, quiet runs, step sizes that change, a search.

A notebook of this folder makes a :class:`Reproduction`, calls ``verdict`` once for each claim,
``untuned`` for what today's package gives with nothing set, and ``end`` at its end. With the
environment variable SMALL=1 it runs a small version, whose verdicts are printed and not kept; else
they are written to ``verdicts/`` with the picture and what was printed, where the documentation
finds them. A notebook run with ``--device cuda`` (or ``cpu``) has JAX compute there.
``python reproduction.py`` prints the table of all, and which experiments' samplers or maps have
changed since their full run; with ``--changed`` only these.

``claims.toml`` lists what the papers have, figure by figure and theorem by theorem, and where each
is here.
"""

from __future__ import annotations

import ast
import datetime
import hashlib
import json
import os
import platform
import re
import subprocess
import sys
import time
import tomllib

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from matplotlib.figure import Figure
from scipy.special import stdtrit

SMALL = os.environ.get("SMALL") == "1"
HERE = Path(__file__).parent
VERDICTS = HERE / "verdicts"
PACKAGE = HERE.parents[1] / "pymc_sgmcmc"
OUTCOMES = {True: "right", False: "not right", None: "no reference"}
WORDS = {True: "holds", False: "does not hold", None: "cannot be told here"}
HEADER = (
    "paper", "experiment", "the paper says", "we see", "holds", "seeds", "seconds", "updates",
    "run",
)  # fmt: skip
# Arguments of pm.sample for many short runs in this process
QUIET: dict[str, Any] = {"cores": 1, "progressbar": False, "compute_convergence_checks": False}


if "--device" in sys.argv:
    # Before JAX starts
    os.environ["JAX_PLATFORMS"] = sys.argv[sys.argv.index("--device") + 1]


class StepSize:
    """A step size that can be set between runs and changes within one.

    A step method that has one is compiled once for all its step sizes.

    Parameters
    ----------
    h : float
        Step size.
    factor : callable, optional
        Of the numbers of updates, shape (n,), what h is multiplied by.
    """

    def __init__(
        self, h: float = 1.0, factor: Callable[[np.ndarray], np.ndarray] = np.ones_like
    ) -> None:
        self.h = h
        self.factor = factor

    def __call__(self, t: np.ndarray) -> np.ndarray:
        """Return the step sizes of the updates number t, shape (n,)."""
        return self.h * self.factor(np.asarray(t, float))


def search(
    objective: Callable[[float], float],
    low: float,
    high: float,
    trials: int,
    *,
    first: float | None = None,
    seed: int = 0,
) -> dict[float, float]:
    """Return the step sizes tried between two bounds and their values, the least value first.

    TPE (Bergstra et al., 2011) on a logarithmic scale by Optuna, beginning with a step size if one
    is given; a grid where Optuna is not installed.
    """
    try:
        import optuna
    except ModuleNotFoundError:
        begun = [] if first is None else [first]
        grid = np.geomspace(low, high, trials - len(begun)).tolist()
        tried = {h: objective(h) for h in [*begun, *grid]}
    else:
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        sampler = optuna.samplers.TPESampler(
            seed=seed, n_startup_trials=max(1, min(5, trials // 4))
        )
        study = optuna.create_study(sampler=sampler)
        if first is not None:
            study.enqueue_trial({"h": first})
        study.optimize(lambda t: objective(t.suggest_float("h", low, high, log=True)), trials)
        tried = {t.params["h"]: t.value for t in study.trials if t.value is not None}
    return dict(sorted(tried.items(), key=lambda pair: pair[1]))


def every(found: Iterable[bool | None]) -> bool | None:
    """Return whether all hold: False if one does not, else None if one cannot be told."""
    found = list(found)
    return False if False in found else None if None in found else True


def beyond(value: float, error: float, threshold: float = 0.0) -> bool | None:
    """Return whether a value is above a threshold by two of its standard errors.

    None if it is less than two from it: then the run cannot tell.
    """
    return None if abs(value - threshold) < 2 * error else value > threshold


def of_few(error: float, seeds: int) -> float:
    """Return a standard error of few seeds, widened as Student's t is: two of them hold 95 %."""
    return float(error * stdtrit(seeds - 1, 0.975) / stdtrit(np.inf, 0.975))


def gap_holds(gap: float, error: float, printed: float) -> bool | None:
    """Return whether a gap is above 0 by two standard errors.

    False where it is below 0 by as much, or less than the paper's; else None.
    """
    holds = beyond(gap, error)
    return False if holds is None and beyond(printed - gap, error) else holds


def over_seeds(values: Iterable[float]) -> tuple[float, float]:
    """Return the mean of the seeds' values and its standard error, NaN for a single seed."""
    values = np.asarray(list(values), float)
    error = values.std(ddof=1) / np.sqrt(values.size) if values.size > 1 else np.nan
    return float(values.mean()), float(error)


def unmoved(step: Any) -> Any:
    """Let a step method's chains, in this process, begin at the model's own start.

    The package moves that start by up to 1 in each coordinate, but not one given as ``initvals``.
    """
    setup = step.setup_chain

    def exactly(*args: Any, **options: Any) -> None:
        setup(*args, **options)
        step.chain.jitter = 0.0

    step.setup_chain = exactly
    return step


def sample_to_end(step: Any, draws: int, **options: Any) -> tuple[Any, int]:
    """Sample quietly, without tuning, by one step method or a list of them.

    Return the result and the updates that the first method made. The result is None where a chain
    ended before its last draw, since its numbers were no longer finite.
    """
    import pymc as pm

    taken = []
    first = step[0] if isinstance(step, list) else step

    def note(trace: Any, draw: Any) -> None:
        taken.append(draw.stats[0]["thin"] - draw.stats[0]["rejected_updates"])

    try:
        dt = pm.sample(
            step=step, draws=draws, tune=0, model=first.model, callback=note, **{**QUIET, **options}
        )
    except pm.exceptions.SamplingError:
        dt = None
    return dt, int(sum(taken))


def power(points: dict[float, tuple[float, float]]) -> tuple[float, float]:
    """Return the power of the step size to which errors fall, and its standard error.

    A least-squares fit to pairs of an error and its standard error, by step size, of those that
    are more than two standard errors from 0; NaN where less than two are.
    """
    clear = [(h, abs(e), se) for h, (e, se) in points.items() if abs(e) > 2 * se]
    if len(clear) < 2:
        return np.nan, np.nan
    h, e, se = np.array(clear).T
    weight = (e / se) ** 2
    x = np.log(h) - np.average(np.log(h), weights=weight)
    spread = float(np.sum(weight * x**2))
    return float(np.sum(weight * x * np.log(e)) / spread), spread**-0.5


def digest(code: str) -> str:
    """Return a digest of a module's code, without its comments and docstrings."""
    tree = ast.parse(code)
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            node.value = ast.Constant(None)
        for name, value in list(ast.iter_fields(node)):
            if value == []:
                # Python 3.12 prints it, later ones do not
                delattr(node, name)
    return hashlib.sha256(ast.dump(tree).encode()).hexdigest()[:12]


def sources(name: str) -> dict[str, str]:
    """Return digests of the modules of the samplers that a notebook names, and of the maps."""
    import pymc_sgmcmc as sg

    named = set(re.findall(r"\bsg\.([A-Z]\w+)", (HERE / f"{name}.py").read_text()))
    modules = {
        cls.__module__
        for method in named
        for cls in getattr(getattr(sg, method, None), "__mro__", ())
        if cls.__module__.startswith("pymc_sgmcmc.samplers.")
    }
    files = [PACKAGE / f"{m.partition('.')[2].replace('.', '/')}.py" for m in modules]
    files += (PACKAGE / "transforms").glob("*.py")
    return {str(f.relative_to(PACKAGE)): digest(f.read_text()) for f in sorted(files)}


def changed(name: str) -> list[str]:
    """Return which samplers and maps have changed since a notebook's full run."""
    before = json.loads((VERDICTS / f"{name}.json").read_text()).get("sources", {})
    return [file for file, digest in sources(name).items() if before.get(file) != digest]


def machine() -> str:
    """Return in words what a run computed on: a GPU where JAX was used and has one."""
    said = f"{platform.machine()}, {os.cpu_count()} cores"
    if "jax" in sys.modules:
        import jax

        if jax.default_backend() != "cpu":
            said += f", {jax.devices()[0].device_kind} by JAX"
    return said


class _Kept:
    """Standard output, of which a copy is kept."""

    def __init__(self, shown: TextIO) -> None:
        self.shown = shown
        self.text = ""

    def write(self, text: str) -> int:
        self.text += text
        return self.shown.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.shown, name)


class Reproduction:
    """An experiment of a paper.

    Parameters
    ----------
    name : str
        Of the notebook.
    paper : str
        Short name of the paper.
    experiment : str
        Its figure or table.
    """

    def __init__(self, name: str, paper: str, experiment: str) -> None:
        self.name = name
        self.paper = paper
        self.experiment = experiment
        self.verdicts: list[dict[str, object]] = []
        self.nothing_set: list[dict[str, object]] = []
        self.updates = 0
        self._began = time.perf_counter()
        # What verdicts say is kept apart
        self._shown = sys.stdout
        self._printed = sys.stdout = _Kept(sys.stdout)

    def verdict(self, says: str, seen: str, holds: bool | None, *, seeds: int = 1) -> None:
        """Print and keep what the paper says, what we see, and whether they agree.

        ``seen`` has the number that decides and its standard error over so many seeds. ``holds`` is
        None where the run cannot tell, as :func:`beyond` returns it.
        """
        holds = None if holds is None else bool(holds)
        said = f"The paper says {says}; we see {seen} (seeds: {seeds}): {WORDS[holds]}."
        print(said, file=self._shown)
        self.verdicts.append({"says": says, "seen": seen, "holds": holds, "seeds": seeds})

    @contextmanager
    def untuned(self, call: str) -> Iterator[Callable[[str, bool | None], None]]:
        """Print and keep what a call with nothing set gives on the paper's model.

        ``call`` is that of the step method, as ``sg.MSGNHT()``. The block samples, and says by the
        function that it gets what was seen and whether the draws are right, None where nothing is
        known of them. An error of the package that ends the block is what is seen. Seconds are
        those until then.
        """
        import pymc as pm

        began = time.perf_counter()

        def gives(seen: str, right: bool | None) -> None:
            seconds = time.perf_counter() - began
            right = None if right is None else bool(right)
            said = f"With nothing set {call} gives {seen} in {seconds:.0f} s: {OUTCOMES[right]}."
            print(said, file=self._shown)
            self.nothing_set.append(
                {"call": call, "seen": seen, "right": right, "seconds": round(seconds, 1)}
            )

        try:
            yield gives
        except (pm.exceptions.SamplingError, ValueError) as error:
            gives(f"an error, «{str(error).partition('. ')[0].rstrip('.')}»,", False)

    def picture(self, figure: Figure) -> None:
        """Keep a small picture of a whole run."""
        if not SMALL:
            VERDICTS.mkdir(exist_ok=True)
            figure.savefig(VERDICTS / f"{self.name}.png", dpi=70)

    def count(self, updates: int) -> None:
        """Add to the number of updates, over all chains."""
        self.updates += int(updates)

    def end(self) -> None:
        """Print the cost and keep the verdicts of a whole run."""
        seconds = round(time.perf_counter() - self._began, 1)
        sys.stdout = self._shown
        size = "small version" if SMALL else "whole version"
        print(f"Cost ({size}): {seconds} s, {self.updates:,} updates, {machine()}.")
        if SMALL:
            return
        git = subprocess.run(
            ["git", "rev-parse", "--short", "HEAD"], cwd=HERE, capture_output=True, text=True,
            check=False,
        )  # fmt: skip
        VERDICTS.mkdir(exist_ok=True)
        kept = {
            "paper": self.paper, "experiment": self.experiment, "verdicts": self.verdicts,
            "nothing_set": self.nothing_set,
            "seconds": seconds, "updates": self.updates, "machine": machine(),
            "date": datetime.date.today().isoformat(), "commit": git.stdout.strip(),
            "sources": sources(self.name),
        }  # fmt: skip
        (VERDICTS / f"{self.name}.json").write_text(json.dumps(kept, indent=1) + "\n")
        (VERDICTS / f"{self.name}.txt").write_text(self._printed.text.strip() + "\n")


def claims() -> list[dict[str, Any]]:
    """Return the rows of ``claims.toml``.

    A row has its ``paper``, ``item`` (a figure, a theorem) and ``about`` (in words), and where it
    is: a ``notebook`` with the ``settings`` that differ, ``tests``, or ``why`` it is not here.
    ``verdicts`` is a regular expression that finds which of the notebook's verdicts are the row's,
    by what the paper says.
    """
    return tomllib.loads((HERE / "claims.toml").read_text(encoding="utf-8"))["claims"]


def table() -> list[tuple[str, ...]]:
    """Return a row for each verdict that is kept."""
    rows = []
    for file in sorted(VERDICTS.glob("*.json")):
        kept = json.loads(file.read_text())
        run = f"{kept.get('date', 'not noted')} {kept.get('commit', '')}".strip()
        for verdict in kept["verdicts"]:
            rows.append((
                kept["paper"], kept["experiment"], verdict["says"], verdict["seen"],
                WORDS[verdict["holds"]], str(verdict.get("seeds", 1)),
                f"{kept['seconds']:,.0f}", f"{kept['updates']:,}", run,
            ))  # fmt: skip
    return rows


if __name__ == "__main__":
    if "--changed" not in sys.argv:
        for row in (HEADER, ("---",) * len(HEADER), *table()):
            print("| " + " | ".join(row) + " |")
    for file in sorted(VERDICTS.glob("*.json")):
        if files := changed(file.stem):
            print(f"{file.stem}: changed since its full run: {', '.join(files)}.")
