"""Runs of :func:`pymc.sample` that say nothing."""

from contextlib import nullcontext

import pymc as pm

import pymc_sgmcmc as sg

from pymc_sgmcmc.backends.workarounds import interpreted

QUIET = {"progressbar": False, "compute_convergence_checks": False}


def run(step, draws=1000, chains=2, seed=1, model=None, **options):
    # What PyMC records it compiles for each chain, by numba: that takes longer than it saves, but
    # where its own steps compute much. Several steps have no model as one has
    alone = isinstance(step, sg.SGMCMCStep)
    with interpreted() if alone else nullcontext(), model or step.model:
        return pm.sample(
            step=step, draws=draws, chains=chains, random_seed=seed,
            **{"cores": 1, **QUIET, **options},
        )  # fmt: skip
