"""NUTS on all rows: nutpie's, one chain with its defaults."""

from __future__ import annotations

import time

from typing import Any

import numpy as np
import nutpie

from .clock import Clock
from .course import Course
from .problems import Problem

DRAWS = 1_000


def run(problem: Problem, budget: float, seed: int, clock: Clock) -> Course:
    """Sample until the budget is spent, and give each draw its share of the seconds.

    The shares are those of its gradients in all of them, warm-up included.
    """
    model = problem.pymc(None)
    names = problem.moments[0]
    clock.start()
    called = time.time()
    compiled = nutpie.compile_pymc_model(model, var_names=names)
    clock.compiled(called, time.time())
    begin = clock.seconds()
    sampler = nutpie.sample(
        compiled, draws=DRAWS, chains=1, cores=1, seed=seed, progress_bar=False, blocking=False
    )
    while not (finished := _finished(sampler)) and clock.seconds() < budget:
        time.sleep(0.1)
    spent = clock.seconds() - begin
    found = sampler.wait() if finished else sampler.abort()
    steps = [
        found[group]["n_steps"].values.ravel()
        for group in ("warmup_sample_stats", "sample_stats")
        if group in found and "n_steps" in found[group]
    ]
    ends = begin + spent * np.cumsum(np.concatenate(steps)) / np.concatenate(steps).sum()
    draws = {name: found["posterior"][name].values[0] for name in names}
    course = Course()
    if count := len(draws[names[0]]):
        course.add_all(ends[-count:], problem.stacked(draws))
    return course


def _finished(sampler: Any) -> bool:
    """Ask whether all draws are made; a sampler too busy to answer is not done."""
    try:
        return bool(sampler.is_finished)
    except TimeoutError:
        return False
