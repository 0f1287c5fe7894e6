"""Effective draws, R-hat and Monte-Carlo errors of many parameters at once, from arrays of draws.

Draws have the shape (d, chains, n), of d parameters; results have the shape (d,) and are those of
ArviZ to rounding, which computes them one parameter after the other. They are NaN where a draw is
NaN, and with fewer than 4 draws.

Vehtari, Gelman, Simpson, Carpenter, Bürkner (2021). Rank-normalization, folding, and localization:
an improved R-hat for assessing convergence of MCMC. Bayesian Analysis 16(2), 667-718.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from scipy.fft import irfft, next_fast_len, rfft
from scipy.special import ndtri

__all__ = ["effective_draws", "error_of_mean", "error_of_sd", "rank_rhat"]

# Bytes of draws processed together; a statistic needs about ten times as much
_TOGETHER = 2**24


def effective_draws(draws: np.ndarray, *, scored: bool = True) -> np.ndarray:
    """Return the effective draws of the bulk, or of the mean without ``scored``.

    For half chains with autocorrelations ρ_t and K the first k at which P_k = ρ_2k + ρ_2k+1 ≤ 0,
    n_eff = n / (−1 + 2 Σ_{k<K} min_{j≤k} P_j + ρ_2K). Those of the bulk are of normal scores.

    Parameters
    ----------
    draws : array, shape (d, chains, n)
        Draws of d parameters.
    scored : bool, default True
        Whether draws are replaced by normal scores of their ranks.

    Returns
    -------
    array, shape (d,)
        Effective numbers of draws; NaN with fewer than 4 draws.
    """
    draws = _checked(draws)
    if draws.shape[2] < 4:
        return np.full(len(draws), np.nan)

    def effective(part: np.ndarray) -> np.ndarray:
        halves = _split_chains(part)
        return _effective(_normal_scores(halves) if scored else halves)

    return _in_parts(effective, draws)


def rank_rhat(draws: np.ndarray) -> np.ndarray:
    """Return the larger R-hat of bulk and tails; NaN also for constant draws and for one chain.

    It is √((B / W + n − 1) / n), B and W the variances between and within half chains, of normal
    scores of draws and of distances from the median.

    Parameters
    ----------
    draws : array, shape (d, chains, n)
        Draws of d parameters.

    Returns
    -------
    array, shape (d,)
        R-hat.
    """
    draws = _checked(draws)
    if draws.shape[2] < 4 or draws.shape[1] < 2:
        return np.full(len(draws), np.nan)

    def larger(part: np.ndarray) -> np.ndarray:
        bulk, tails = (_rhat(scores) for scores in _folded_scores(_split_chains(part)))
        # Draws at one distance from the median have no tails
        return np.where(tails > bulk, tails, bulk)

    return _in_parts(larger, draws)


def error_of_mean(draws: np.ndarray) -> np.ndarray:
    """Return the Monte-Carlo standard error of the mean.

    Parameters
    ----------
    draws : array, shape (d, chains, n)
        Draws of d parameters.

    Returns
    -------
    array, shape (d,)
        Standard errors, in the unit of the draws.
    """
    draws = _checked(draws)
    sd = np.std(draws, axis=(1, 2), ddof=1)
    return sd / np.sqrt(effective_draws(draws, scored=False))


def error_of_sd(draws: np.ndarray) -> np.ndarray:
    """Return the Monte-Carlo standard error of the sd, from that of the mean of squares.

    Parameters
    ----------
    draws : array, shape (d, chains, n)
        Draws of d parameters.

    Returns
    -------
    array, shape (d,)
        Standard errors, in the unit of the draws.
    """
    draws = _checked(draws)
    squares = (draws - draws.mean(axis=(1, 2), keepdims=True)) ** 2
    variance = squares.mean(axis=(1, 2))
    spread = (squares**2).mean(axis=(1, 2)) - variance**2
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.sqrt(spread / effective_draws(squares, scored=False) / variance / 4)


def _checked(draws: Any) -> np.ndarray:
    """Return draws as an array, (d, chains, n); raise ValueError for another number of axes."""
    array = np.asarray(draws)
    if array.ndim != 3 or array.dtype.kind not in "fiub":
        raise ValueError(
            "draws must be numbers of shape (parameters, chains, draws), got "
            f"{array.dtype} of shape {array.shape}. Of one parameter pass draws[None]."
        )
    return array


def _in_parts(statistic: Callable[[np.ndarray], np.ndarray], draws: np.ndarray) -> np.ndarray:
    """Return a statistic in bounded memory, NaN where a draw is; it is called without NaN."""
    values = np.full(len(draws), np.nan)
    step = max(1, _TOGETHER // max(1, draws[:1].size * draws.dtype.itemsize))
    for k in range(0, len(draws), step):
        part = draws[k : k + step]
        known = ~np.isnan(part).any(axis=(1, 2))
        if known.any():
            # Differences of whole numbers and truth values may not be numbers of their kind
            values[k : k + step][known] = statistic(1.0 * part[known])
    return values


def _split_chains(draws: np.ndarray) -> np.ndarray:
    """Return the halves of chains as chains, (d, 2 · chains, n // 2)."""
    half = draws.shape[2] // 2
    return np.concatenate([draws[:, :, :half], draws[:, :, -half:]], axis=1)


def _effective(z: np.ndarray) -> np.ndarray:
    half = z.shape[2]
    count = z.shape[1] * half
    covariance = _autocovariance(z).mean(axis=1)
    within = covariance[:, :1] * half / (half - 1)
    total = covariance[:, :1] + np.var(z.mean(axis=2), axis=1, ddof=1)[:, None]
    moving = np.ptp(z, axis=(1, 2)) > 1e-15 * np.abs(z).max(axis=(1, 2))
    rho = 1 - (within - covariance) / np.where(moving[:, None], total, 1.0)
    rho[:, 0] = 1.0
    return np.where(moving, count / _correlation_time(rho, count), count)


def _autocovariance(z: np.ndarray) -> np.ndarray:
    n = z.shape[2]
    transform = rfft(z - z.mean(axis=2, keepdims=True), next_fast_len(2 * n, real=True))
    power = transform.real**2 + transform.imag**2
    return irfft(power, next_fast_len(2 * n, real=True))[:, :, :n] / n


def _correlation_time(rho: np.ndarray, draws: int) -> np.ndarray:
    """Sum autocorrelations, shape (d, lags), of Geyer's initial monotone sequence."""
    lags = rho.shape[1]
    # The last pair that is looked at does not reach the end
    pairs = max(1, (lags - 3) // 2 + 1)
    even, odd = rho[:, 0 : 2 * pairs : 2], rho[:, 1 : 2 * pairs : 2]
    both = even + odd
    ends = both <= 0
    ends[:, -1] = True
    last = np.argmax(ends, axis=1)[:, None]
    falling = np.minimum.accumulate(both, axis=1)
    before = np.arange(pairs) < last
    summed = np.where(before, falling, 0.0).sum(axis=1)
    at_last = np.take_along_axis(even, last, axis=1)[:, 0]
    kept = (at_last > 0) | (np.take_along_axis(both, last, axis=1)[:, 0] >= 0)
    time = -1 + 2 * summed + np.where(kept, at_last, 0.0)
    return np.maximum(time, 1 / np.log10(draws))


def _rhat(z: np.ndarray) -> np.ndarray:
    n = z.shape[2]
    within = np.var(z, axis=2, ddof=1).mean(axis=1)
    between = n * np.var(z.mean(axis=2), axis=1, ddof=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.sqrt((between / within + n - 1) / n)


def _normal_scores(draws: np.ndarray) -> np.ndarray:
    r"""Return :math:`\Phi^{-1}((r - 3/8) / (n + 1/4))`, r the rank among all n of a parameter.

    Equal draws share the mean of their ranks.
    """
    rows = draws.reshape(len(draws), -1)
    order = np.argsort(rows, axis=1)
    return _scores(order, np.take_along_axis(rows, order, axis=1)).reshape(draws.shape)


def _folded_scores(draws: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return normal scores of draws, and of their distances from the median."""
    rows = draws.reshape(len(draws), -1)
    n = rows.shape[1]
    order = np.argsort(rows, axis=1)
    ordered = np.take_along_axis(rows, order, axis=1)
    median = ordered[:, [(n - 1) // 2, n // 2]].mean(axis=1, keepdims=True)
    distance = abs(ordered - median)
    # A falling and a rising run, which this sort merges
    again = np.argsort(distance, axis=1, kind="stable")
    folded = _scores(
        np.take_along_axis(order, again, axis=1), np.take_along_axis(distance, again, axis=1)
    )
    return _scores(order, ordered).reshape(draws.shape), folded.reshape(draws.shape)


def _scores(order: np.ndarray, ordered: np.ndarray) -> np.ndarray:
    """Return scores by the order of each row's draws and the draws in that order."""
    n = order.shape[1]
    scores = np.empty(order.shape)
    # Draws that differ have the ranks 1, 2, ..., whose scores are the same for all parameters
    np.put_along_axis(scores, order, _score(np.arange(1, n + 1), n)[None], axis=1)
    tied = (ordered[:, 1:] == ordered[:, :-1]).any(axis=1)
    if tied.any():
        # Loaded late: few chains have ties, and importing it takes long
        from scipy.stats import rankdata

        of_ties = np.empty((tied.sum(), n))
        np.put_along_axis(of_ties, order[tied], _score(rankdata(ordered[tied], axis=1), n), axis=1)
        scores[tied] = of_ties
    return scores


def _score(rank: np.ndarray, n: int) -> np.ndarray:
    return ndtri((rank - 3 / 8) / (n + 1 / 4))
