"""Runs of :func:`pymc.sample` that say nothing."""

import pymc as pm

QUIET = {"progressbar": False, "compute_convergence_checks": False}


def run(step, draws=1000, chains=2, seed=1, model=None, **options):
    # Several steps have no model as one has
    with model or step.model:
        return pm.sample(
            step=step, draws=draws, chains=chains, random_seed=seed,
            **{"cores": 1, **QUIET, **options},
        )  # fmt: skip
