"""The regimes of tuning: what a posterior is whitened by, and what its chain is judged by.

A dense one whitens by a matrix, and every coordinate must be right. A diagonal one whitens by
fitted sds: of thousands of coordinates some always look wrong, so a quantile of each variable is
judged. Where their units can be exchanged, as factors can, no thinning suffices, and what a draw
may cost decides; so it does for neural networks (``no_gaussian.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from pymc_sgmcmc.kernel.policy import Policy
from pymc_sgmcmc.tuning.bounds import shared_bound
from pymc_sgmcmc.tuning.noise import most_of_each

# Control variates are priced four times higher where the fit may be too narrow, as along rotations
# of factors: the anchor is then farther away than the fit says. A method that injects less noise by
# what is measured along its chain needs no such factor
_DOUBT = 4.0

# Share of the data in an update's batches from which all rows are used: they cost little more, and
# without noise a wrong estimate of it costs nothing
_ALL_FROM = 1 / 3


@dataclass(frozen=True)
class NoiseTerms:
    """On what terms gradient noise is accepted."""

    bound: float  # largest variance that costs nothing
    factor: float = 1.0  # of the step size
    doubt: float = 1.0  # factor on the apparent cost of anchored gradients
    all_from: float = _ALL_FROM  # share of the data in an update from which all rows are used
    # Statistics of variances to keep below the bound: for the first at most 16 batches are
    # averaged, or as many as the second needs
    most_of: Callable[[np.ndarray], float] = np.max
    most_of_all: Callable[[np.ndarray], float] = np.max


@dataclass(frozen=True)
class Regime:
    """What follows from the fit, and what tuning asks of it."""

    diagonal: bool = False  # more than 512 parameters, or no matrix was found
    exchangeable: bool = False  # units can be exchanged: the chain may leave the Gaussian

    @property
    def thinned_by_cost(self) -> bool:
        """Whether a draw has the updates that it may cost, and trials judge the step size alone."""
        return self.diagonal and self.exchangeable

    def noise_terms(
        self, policy: Policy, sizes: Sequence[int] = (), *, shared: bool = False,
        grows: bool = False,
    ) -> NoiseTerms:  # fmt: skip
        """Return the terms of noise, which coordinates may share, and which may grow along them.

        Where the regime is diagonal, bounds are lower for shared noise, and a thermostat of each
        coordinate keeps them.
        """
        if not self.diagonal:
            return NoiseTerms(policy.noise)
        bound, factor = policy.noise_of_many or policy.noise, 1.0
        if shared:
            bound, factor = shared_bound(policy, half=not self.exchangeable, grows=grows)
        doubt = 1.0 if not self.exchangeable and (shared or policy.compensates) else _DOUBT
        of_each, of_all = (partial(most_of_each, sizes=s) for s in (sizes, ()))
        # Where the cost decides, more rows would leave a draw fewer updates
        all_from, most_of = (1.0, of_all) if self.exchangeable else (_ALL_FROM, of_each)
        return NoiseTerms(bound, factor, doubt, all_from, most_of, of_all)


def regime_of(root: np.ndarray, *, exchangeable: bool) -> Regime:
    """Return the regime of a fit with L of shape (d, d) or (d,)."""
    return Regime(root.ndim == 1, exchangeable)
