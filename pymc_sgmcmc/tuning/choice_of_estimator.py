"""The estimator and the number of batches for which an effective draw costs least."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from pymc_sgmcmc.kernel.estimators import SVRG, ControlVariates, GradientChoice, Plain
from pymc_sgmcmc.kernel.options import Options
from pymc_sgmcmc.model.batch_schemes import BatchScheme
from pymc_sgmcmc.tuning.noise import GradientNoise
from pymc_sgmcmc.tuning.noise_of_few import ALLOWED
from pymc_sgmcmc.tuning.surface import Surface

__all__ = ["Terms", "chosen_estimator", "variance_ratios"]

# Share of the data in an update's batches above which all rows are used: they cost little more, and
# without noise a wrong estimate of it costs nothing
_ALL_FROM = 1 / 3

# Factor of the least cost of an effective draw below which another K is not compiled
_LITTLE = 1.6


@dataclass(frozen=True)
class Terms:
    """Terms on which estimators are compared."""

    bound: float  # variance that costs nothing
    # The same for an anchored estimator, whose noise grows with the distance from the anchor and so
    # acts as heat that differs from place to place
    anchored_bound: float
    # Statistics of the variances to keep below the bound: for the first at most 16 batches are
    # averaged, or as many as the second needs
    most_of: Callable[[np.ndarray], float]
    most_of_all: Callable[[np.ndarray], float]
    doubt: float  # factor on an anchored estimator's apparent cost
    rate: float  # step size with exact gradients
    unit: float  # scale of the narrowest direction in the chain's coordinates
    # Maps numbers K to the variance of the mean of K batches over that of one; True: of blocks
    ratios: Callable[[np.ndarray, bool], np.ndarray]
    n_blocks: int  # batches in the data
    most_batches: int  # largest K
    remembered: bool  # gradients at an anchor are kept, and cost nothing
    compiled: int | None  # K of an earlier plan, kept where another would be little better

    def counts(self, wished: int | str) -> np.ndarray:
        """Return the numbers K to compare."""
        if isinstance(wished, int):
            return np.array([wished])
        # Coarse, so that another centre and other chains mostly use the same compiled function
        few = [c << k for k in range(30) for c in (2, 3) if c << k < self.n_blocks]
        counts = np.unique([*few, 1, max(1, self.n_blocks)])
        found: np.ndarray = counts[counts <= self.most_batches]
        return found


def chosen_estimator(
    options: Options, noise: GradientNoise, terms: Terms
) -> tuple[GradientChoice, int, np.ndarray, float]:
    """Return the estimator and K of the cheapest effective draw, its variance and ratio.

    The quieter one wins at equal cost. All rows are used where K batches are much of the data.
    """
    counts = terms.counts(options.batches)
    of_blocks = terms.ratios(counts, terms.remembered)
    of_rows = terms.ratios(counts, False) if terms.remembered else of_blocks
    best: tuple[tuple[float, float], GradientChoice, int, np.ndarray, float] | None = None
    for estimator, variance, gradients in _candidates(options.gradient, noise, terms):
        is_plain = isinstance(estimator, Plain)
        factor = of_rows if is_plain else of_blocks
        most = terms.bound if is_plain else terms.anchored_bound
        largest, of_all = (
            f(variance) * terms.unit**2 * factor for f in (terms.most_of, terms.most_of_all)
        )
        price = gradients * (1.0 if is_plain else terms.doubt)
        cost, by_all = (price * _cost(counts, v / most) for v in (largest, of_all))
        k = int(np.argmin(cost))
        allowed = max(ALLOWED, counts[np.argmin(by_all)])
        if counts[k] > allowed and counts.min() <= allowed:
            k, cost = int(np.flatnonzero(counts <= allowed)[-1]), by_all
        kept = np.flatnonzero((counts == terms.compiled) & (cost < _LITTLE * cost[k]))
        k = int(kept[0]) if kept.size else k
        rank = float(cost[k]), float(largest[k])
        if best is None or rank < best[0]:
            best = rank, estimator, int(counts[k]), variance * factor[k], float(factor[k])
    assert best is not None
    k, every = best[2], counts[-1]
    free = options.batches == "auto" and not isinstance(best[1], SVRG)
    if free and every == terms.n_blocks and 1 < k and k >= _ALL_FROM * every:
        ratio = float(terms.ratios(counts, False)[-1])
        # Not for rows drawn with replacement, which would leave some out
        if ratio * every < 1 and options.gradient != ControlVariates():
            return Plain(), int(every), noise.plain * ratio, ratio
    return best[1:]


def _candidates(
    wish: GradientChoice | str, noise: GradientNoise, terms: Terms
) -> list[tuple[GradientChoice, np.ndarray, float]]:
    """Return estimators, their variances of one batch, and the gradients that a batch takes."""
    anchored_cost = 1 if terms.remembered else 2
    found: list[tuple[GradientChoice, np.ndarray, float]] = []
    if wish == "auto" or isinstance(wish, Plain):
        found.append((Plain(), noise.plain, 1))
    if wish == "auto" or isinstance(wish, ControlVariates):
        found.append((ControlVariates(), noise.controlled, anchored_cost))
    if isinstance(wish, SVRG):
        away = _distance_to_anchor(wish.refresh, terms.rate)
        found.append((wish, away * noise.controlled, anchored_cost))
    return found


def variance_ratios(
    surface: Surface, scheme: BatchScheme, counts: np.ndarray, of_blocks: bool
) -> np.ndarray:
    """Return variances of means of K batches over that of one, the largest of any minibatch."""
    sizes = [(surface.n_blocks, 1)] if of_blocks else surface.sizes
    return np.array(
        [max(scheme.variance_ratio(n, size, int(k)) for n, size in sizes) for k in counts]
    )


def _distance_to_anchor(refresh: int, rate: float) -> float:
    """Return the mean squared distance to a past draw, that of a draw to the centre being 1.

    The chain's autocorrelation falls by ``rate`` per update; the mean is over the updates until the
    anchor is refreshed: 0 next to it, 2 once the chain has forgotten it.
    """
    kept = 1 - rate
    return 2 * (1 - (1 - kept**refresh) / (refresh * rate))


def _cost(counts: np.ndarray, above: np.ndarray) -> np.ndarray:
    """Return the cost of an effective draw with noise ``above`` times its bound.

    Noise above the bound costs time, where it lowers the step size, and accuracy.
    """
    cost: np.ndarray = counts * np.maximum(above, 1.0) ** 2
    return cost
