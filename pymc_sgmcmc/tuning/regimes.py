"""The regimes of tuning: what a posterior is whitened by, and what its chain is judged by.

``Dense`` whitens by a matrix, and every coordinate must be right. ``Diagonal`` whitens by fitted
sds: of thousands of coordinates some always look wrong, so a quantile of each variable is judged.
Where their units can be ``exchangeable``, as factors are, no thinning suffices, and what a draw may
cost decides; so it does for neural networks (``no_gaussian.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

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
    """What tuning asks of a regime; here for few parameters."""

    exchangeable: bool = False  # units can be exchanged: the chain may leave the Gaussian
    # Whether a quantile of each variable is judged, not each coordinate
    by_quantile: ClassVar[bool] = False

    @property
    def thinned_by_cost(self) -> bool:
        """Whether a draw has the updates that it may cost, and trials judge the step size alone."""
        return self.by_quantile and self.exchangeable

    def noise_terms(
        self,
        policy: Policy,
        sizes: Sequence[int] = (),
        *,
        shared: bool = False,
        grows: bool = False,
    ) -> NoiseTerms:
        """Return the terms of noise that coordinates may share, and that may grow along them."""
        return NoiseTerms(policy.noise)


class Dense(Regime):
    """Up to 512 parameters, whitened by a matrix or, as the user wishes, by its row norms."""


class Diagonal(Regime):
    """More than 512 parameters, or a posterior for which no matrix was found."""

    by_quantile = True

    def noise_terms(
        self,
        policy: Policy,
        sizes: Sequence[int] = (),
        *,
        shared: bool = False,
        grows: bool = False,
    ) -> NoiseTerms:
        """Return lower bounds for shared noise, which a thermostat of each coordinate keeps."""
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
    return (Dense if root.ndim == 2 else Diagonal)(exchangeable)
