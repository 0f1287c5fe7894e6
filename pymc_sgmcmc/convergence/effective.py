"""How many draws are effective, of all parameters at once."""

from __future__ import annotations

import numpy as np

from scipy.fft import irfft, next_fast_len, rfft

from pymc_sgmcmc.convergence.parts import in_parts
from pymc_sgmcmc.convergence.ranks import normal_scores, split_chains

__all__ = ["effective_draws"]


def effective_draws(draws: np.ndarray, *, scored: bool = True) -> np.ndarray:
    """Return each parameter's effective draws, (d,), from draws (d, chains, n), of bulk or mean.

    For half chains with autocorrelations ρ_t and K the first k at which P_k = ρ_2k + ρ_2k+1 ≤ 0,
    n_eff = n / (−1 + 2 Σ_{k<K} min_{j≤k} P_j + ρ_2K): Vehtari, Gelman, Simpson, Carpenter, Bürkner
    (2021). Bayesian Analysis 16(2). NaN where a draw is, or with fewer than 4 draws. ``scored`` is
    for the bulk, of normal scores. Unlike ArviZ's it computes many parameters at once.
    """
    if draws.shape[2] < 4:
        return np.full(len(draws), np.nan)
    return in_parts(_of_scores if scored else _of_values, draws)


def _of_scores(draws: np.ndarray) -> np.ndarray:
    return _effective(normal_scores(split_chains(draws)))


def _of_values(draws: np.ndarray) -> np.ndarray:
    return _effective(split_chains(draws))


def _effective(z: np.ndarray) -> np.ndarray:
    half = z.shape[2]
    count = z.shape[1] * half
    covariance = _autocovariance(z).mean(axis=1)
    within = covariance[:, :1] * half / (half - 1)
    total = covariance[:, :1] + np.var(z.mean(axis=2), axis=1, ddof=1)[:, None]
    moving = np.ptp(z, axis=(1, 2)) > 1e-15
    rho = 1 - (within - covariance) / np.where(moving[:, None], total, 1.0)
    rho[:, 0] = 1.0
    return np.where(moving, count / _correlation_time(rho, count), count)


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


def _autocovariance(z: np.ndarray) -> np.ndarray:
    n = z.shape[2]
    transform = rfft(z - z.mean(axis=2, keepdims=True), next_fast_len(2 * n, real=True))
    power = transform.real**2 + transform.imag**2
    return irfft(power, next_fast_len(2 * n, real=True))[:, :, :n] / n
