"""What a draw and a trial may cost."""

from __future__ import annotations

import numpy as np

from pymc_sgmcmc.kernel.estimators import Plain
from pymc_sgmcmc.tuning.check import LARGEST_THIN, TRIAL_DRAWS
from pymc_sgmcmc.tuning.plan import Plan

__all__ = ["draws_of_a_trial", "largest_thin", "updates_of_a_draw"]

# What a draw of many parameters may cost, in gradients or in passes over the data
_GRADIENTS_OF_A_DRAW, _PASSES_OF_A_DRAW = 160, 2
# What a draw of few parameters may cost. Of a chain at a saddle both thin and the batches of an
# update go to their bounds, and the product would take hours
_GRADIENTS_OF_FEW = 10_240
# Numbers in these, and in the gradients of a trial: of millions of parameters a draw takes a second
_LARGEST_DRAW, _LARGEST_TRIAL, _LEAST_OF_TRIAL = 2**28, 2**35, 100


def largest_thin(plan: Plan, each: int, n_blocks: int) -> int:
    """Return the largest multiple of ``each`` that a draw may cost, ``each`` itself at least."""
    if plan.many:
        most = updates_of_a_draw(plan, n_blocks)
    else:
        most = min(LARGEST_THIN, _GRADIENTS_OF_FEW // _of_update(plan))
    return max(1, most // each) * each


def updates_of_a_draw(plan: Plan, n_blocks: int) -> int:
    """Return how many updates a draw of many parameters may take.

    Parameters
    ----------
    plan : Plan
        Its number of batches says what an update costs.
    n_blocks : int
        Batches that make up the data.
    """
    gradients = max(_GRADIENTS_OF_A_DRAW, _PASSES_OF_A_DRAW * n_blocks)
    return max(1, min(gradients, _LARGEST_DRAW // len(plan.centre)) // _of_update(plan))


def draws_of_a_trial(plan: Plan, thin: int) -> int:
    """Return how many draws a trial has."""
    numbers = thin * _of_update(plan) * len(plan.centre)
    return int(np.clip(_LARGEST_TRIAL // numbers, _LEAST_OF_TRIAL, TRIAL_DRAWS))


def _of_update(plan: Plan) -> int:
    """Return how many gradients an update takes."""
    return plan.batches * (1 if isinstance(plan.gradient, Plain) else 2)
