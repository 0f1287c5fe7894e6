"""Normal approximations by stochastic gradients: ``pm.fit``."""

from __future__ import annotations

import time

from typing import Any

import numpy as np
import pymc as pm

from .clock import Clock
from .course import Course
from .problems import Problem

# The rate that fits coefficients of the size of the problems' within the budget
RATE, EVERY = 0.01, 200


def run(problem: Problem, budget: float, seed: int, clock: Clock, method: str) -> Course:
    """Fit until the budget is spent; of positive variables the moments are log-normal."""
    model, names = problem.model, problem.moments[0]
    positive = problem.positive
    course = Course()
    compiled: list[bool] = []

    def callback(approx: Any, losses: Any, i: int) -> None:
        if not compiled:
            # The first update itself is short
            clock.compiled(called, time.time())
            compiled.append(True)
        if i % EVERY == 0:
            now = clock.seconds()
            mean, sd = (
                {k: v.values for k, v in x.items()} for x in (approx.mean_data, approx.std_data)
            )
            course.add(now, *_moments(names, mean, sd, positive))
            if now > budget:
                raise StopIteration

    clock.start()
    called = time.time()
    with model:
        pm.fit(
            10**8,
            method=method,
            random_seed=seed,
            obj_optimizer=pm.adam(learning_rate=RATE),
            callbacks=[callback],
            progressbar=False,
        )
    return course


def _moments(
    names: list[str], mean: dict[str, Any], sd: dict[str, Any], positive: set[str]
) -> tuple[np.ndarray, np.ndarray]:
    """Return all moments on the variables' own scales."""
    means, sds = [], []
    for name in names:
        key = next(k for k in mean if k == name or (k.startswith(f"{name}_") and name in positive))
        m, s = np.ravel(mean[key]), np.ravel(sd[key])
        if name in positive:
            level = np.exp(m + s**2 / 2)
            m, s = level, level * np.sqrt(np.expm1(s**2))
        means.append(m)
        sds.append(s)
    return np.concatenate(means), np.concatenate(sds)
