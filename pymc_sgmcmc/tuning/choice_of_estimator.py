"""The estimator, and how many batches it averages, for which an effective draw costs least."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from pymc_sgmcmc.kernel.estimators import SVRG, ControlVariates, GradientChoice, Plain
from pymc_sgmcmc.kernel.options import Options
from pymc_sgmcmc.model.minibatch import BatchScheme
from pymc_sgmcmc.tuning.noise import GradientNoise
from pymc_sgmcmc.tuning.noise_of_few import ALLOWED
from pymc_sgmcmc.tuning.surface import Surface

__all__ = ["chosen_estimator", "variance_ratios"]

# Times the least cost of an effective draw: less than to compile for another K
_LITTLE = 1.6


def chosen_estimator(
    options: Options,
    noise: GradientNoise,
    bound: float,
    anchored_bound: float,
    most_of: Callable[[np.ndarray], float],
    most_of_all: Callable[[np.ndarray], float],
    doubt: float,
    rate: float,
    unit: float,
    ratios: Callable[[np.ndarray, bool], np.ndarray],
    n_blocks: int,
    remembered: bool,
    compiled: int | None,
    most_batches: int,
) -> tuple[GradientChoice, int, np.ndarray, float]:
    """Return the estimator and the K for which an effective draw costs least, with its noise.

    At the same cost, the quieter one. ``bound`` is the variance that costs nothing, and
    ``anchored_bound`` that of an anchored estimator, whose noise grows with the distance from the
    anchor and so acts as heat that differs from place to place. ``most_of`` the variances is what
    has to be below it, for which no more than 16 batches are averaged, or as many as
    ``most_of_all`` asks for. ``doubt`` is how many times more an anchor is taken to cost than it
    seems to, ``rate`` the step size with exact gradients. ``ratios`` of numbers K: the variance of
    the mean of K batches over that of one, where batches are any rows or (True) blocks of the data.
    """
    wish = options.gradient
    anchored_cost = 1 if remembered else 2
    choices: list[tuple[GradientChoice, np.ndarray, float]] = []
    if wish == "auto" or isinstance(wish, Plain):
        choices.append((Plain(), noise.plain, 1))
    if wish == "auto" or isinstance(wish, ControlVariates):
        choices.append((ControlVariates(), noise.controlled, anchored_cost))
    if isinstance(wish, SVRG):
        away = _distance_to_anchor(wish.refresh, rate)
        choices.append((wish, away * noise.controlled, anchored_cost))
    # Coarse, so that another centre and other chains mostly take the same compiled function
    counts = np.unique([*(c << k for k in range(30) for c in (2, 3) if c << k < n_blocks), 1])
    counts = np.union1d(counts, [max(1, n_blocks)])
    counts = counts[counts <= most_batches]
    if isinstance(options.batches, int):
        counts = np.array([options.batches])
    of_blocks = ratios(counts, remembered)
    of_rows = ratios(counts, False) if remembered else of_blocks
    best: tuple[tuple[float, float], GradientChoice, int, np.ndarray, float] | None = None
    for estimator, variance, gradients in choices:
        factor = of_rows if isinstance(estimator, Plain) else of_blocks
        most = bound if isinstance(estimator, Plain) else anchored_bound
        largest = most_of(variance) * unit**2 * factor
        price = gradients * (1.0 if isinstance(estimator, Plain) else doubt)
        cost = price * _cost(counts, largest / most)
        k = int(np.argmin(cost))
        by_all = price * _cost(counts, most_of_all(variance) * unit**2 * factor / most)
        allowed = max(ALLOWED, counts[np.argmin(by_all)])
        if counts[k] > allowed and counts.min() <= allowed:
            k, cost = int(np.flatnonzero(counts <= allowed)[-1]), by_all
        kept = np.flatnonzero((counts == compiled) & (cost < _LITTLE * cost[k]))
        k = int(kept[0]) if kept.size else k
        rank = float(cost[k]), float(largest[k])
        if best is None or rank < best[0]:
            best = rank, estimator, int(counts[k]), variance * factor[k], float(factor[k])
    assert best is not None
    return best[1:]


def variance_ratios(
    surface: Surface, scheme: BatchScheme, counts: np.ndarray, of_blocks: bool
) -> np.ndarray:
    """Return the variances of means of K batches over that of one, for each K of ``counts``.

    Of several minibatches, those of the one for which they are largest.
    """
    sizes = [(surface.n_blocks, 1)] if of_blocks else surface.sizes
    return np.array(
        [max(scheme.variance_ratio(n, size, int(k)) for n, size in sizes) for k in counts]
    )


def _distance_to_anchor(refresh: int, rate: float) -> float:
    """Return the mean squared distance to a past draw, that of a draw to the centre being 1.

    Of a chain whose autocorrelation falls by ``rate`` with each update, over the updates until
    the anchor is taken anew: 0 next to it, 2 once the chain has forgotten it.
    """
    kept = 1 - rate
    return 2 * (1 - (1 - kept**refresh) / (refresh * rate))


def _cost(counts: np.ndarray, above: np.ndarray) -> np.ndarray:
    """Return the cost of an effective draw with noise that is so many times its bound.

    Noise above the bound costs time, where it lowers the step size, and accuracy.
    """
    cost: np.ndarray = counts * np.maximum(above, 1.0) ** 2
    return cost
