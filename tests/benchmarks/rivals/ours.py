"""The step methods of this package, with nothing but a seed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pymc as pm

import pymc_sgmcmc as sg

from .clock import Clock
from .course import Course
from .problems import Problem

# Values of all draws together: what PyMC allocates before the first
VALUES = 10**8


def run(problem: Problem, budget: float, seed: int, clock: Clock, method: str) -> Course:
    """Sample by ``pm.sample(step=method())``, one chain, until the budget is spent."""
    model = problem.model
    seconds: list[float] = []
    draws: list[np.ndarray] = []

    def callback(trace: Any, draw: Any) -> None:
        if not draw.tuning:
            seconds.append(clock.seconds())
            draws.append(problem.flat(draw.point))
            if seconds[-1] > budget:
                raise KeyboardInterrupt

    clock.start()
    with model:
        pm.sample(
            draws=min(200_000, VALUES // len(problem.moments[1])),
            step=getattr(sg, method)(),
            chains=1,
            cores=1,
            random_seed=seed,
            progressbar=False,
            callback=callback,
            compute_convergence_checks=False,
        )
    course = Course()
    course.add_all(np.array(seconds), np.array(draws))
    return course
