"""Bounds on what draws and trials cost, in gradients, passes over the data and numbers computed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pymc_sgmcmc.kernel.estimators import Plain
from pymc_sgmcmc.model.recognise import LARGEST_DENSE
from pymc_sgmcmc.tuning.plan import Plan
from pymc_sgmcmc.tuning.surface import Surface

# Draws of a trial, updates of a burn-in, and most updates of a draw, where they cost little
_DRAWS_OF_TRIAL, _LONGEST_BURN_IN, _LARGEST_THIN = 500, 1000, 2560
# What a draw of many parameters may cost, in gradients or in passes over the data
_GRADIENTS_OF_A_DRAW, _PASSES_OF_A_DRAW = 160, 2
# What a draw of few parameters may cost: at a saddle both thin and the batches of an update reach
# their bounds, and the product would take hours. The passes equal those of eight draws of 20
# updates on all rows
_GRADIENTS_OF_FEW, _PASSES_OF_FEW = 10_240, 160
# Numbers computed for a draw of up to 512 parameters, which takes a fifth of a second, and for a
# trial; a burn-in may cost half of a trial, and all trials twice as much
_DRAW, _TRIAL = 2**27, 2**34
# Twice as many numbers may gradients have: with millions of parameters a draw takes a second
_IN_GRADIENTS = 2
# Least draws of a trial, least updates of a burn-in, and of a draw that costs too much
_LEAST_OF_TRIAL, _LEAST_BURN_IN, _LEAST_THIN = 100, 250, 5
# More updates than all trials ever have
_NO_BOUND = 2**62


@dataclass(frozen=True)
class CostBounds:
    """Bounds on the cost of a plan's chain, as counts that are the same in every run."""

    plan: Plan
    surface: Surface
    remembered: bool

    def first_thin(self, thin: int) -> int:
        """Return what trials begin with: ``thin``, or less if so many updates cost too much."""
        regime = self.plan.regime
        if regime.diagonal and not regime.thinned_by_cost:
            return thin
        return min(thin, max(_LEAST_THIN, self._updates_of_many or self._computing(_DRAW)))

    def largest_thin(self, each: int) -> int:
        """Return the largest multiple of ``each`` that a draw may cost, ``each`` at least."""
        most = self._updates_of_many
        if not most:
            most = min(_LARGEST_THIN, _GRADIENTS_OF_FEW // self._gradients, self._computing(_DRAW))
            if self._blocks > 1:
                most = min(most, int(_PASSES_OF_FEW / self.passes))
        return max(1, most // each) * each

    def draws_of_a_trial(self, thin: int) -> int:
        """Return the number of draws of a trial."""
        most = _IN_GRADIENTS * _TRIAL // (self._gradients * len(self.plan.centre))
        most = min(most, self._computing(_TRIAL))
        return int(np.clip(most // thin, _LEAST_OF_TRIAL, _DRAWS_OF_TRIAL))

    def updates_of_trials(self) -> int:
        """Return the most updates of all trials together."""
        return self._computing(2 * _TRIAL)

    def updates_of_a_burn_in(self) -> int:
        """Return the number of updates of a burn-in."""
        return int(np.clip(self._computing(_TRIAL // 2), _LEAST_BURN_IN, _LONGEST_BURN_IN))

    @property
    def passes(self) -> float:
        """Passes over the data of an update, without those at an anchor that are kept."""
        kept = self.remembered and not isinstance(self.plan.gradient, Plain)
        return self._gradients / self._blocks / (1 + kept)

    @property
    def _blocks(self) -> int:
        """Batches in the data, 1 where an update takes them all: that is one gradient.

        A draw that has all the updates it may cost pays for each batch.
        """
        blocks, spent = self.surface.n_blocks, self.plan.regime.thinned_by_cost
        return 1 if self.plan.takes_all_rows(blocks) and not spent else blocks

    @property
    def _gradients(self) -> int:
        """Gradients of an update."""
        batches = self.plan.batches * self._blocks // self.surface.n_blocks
        return batches * (1 if isinstance(self.plan.gradient, Plain) else 2)

    @property
    def _updates_of_many(self) -> int:
        """Most updates of a draw where quantiles are judged, else 0."""
        gradients = max(_GRADIENTS_OF_A_DRAW, _PASSES_OF_A_DRAW * self._blocks)
        most = min(gradients, _IN_GRADIENTS * _DRAW // len(self.plan.centre))
        return max(1, most // self._gradients) if self.plan.regime.diagonal else 0

    def _computing(self, numbers: int) -> int:
        """Return the updates that compute so many numbers, unbounded for many parameters."""
        each = self.passes * self.surface.n_blocks * self.surface.numbers
        dense = len(self.plan.centre) <= LARGEST_DENSE
        return max(1, int(numbers / each)) if dense else _NO_BOUND
