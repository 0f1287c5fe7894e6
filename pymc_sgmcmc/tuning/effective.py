"""How many draws of a trial are effective, of all coordinates at once."""

from __future__ import annotations

import numpy as np

from scipy.fft import irfft, next_fast_len, rfft
from scipy.special import ndtri
from scipy.stats import rankdata

__all__ = ["effective_draws"]

# Coordinates looked at together, so that memory does not grow with their number
_TOGETHER = 1000


def effective_draws(psi: np.ndarray) -> np.ndarray:
    r"""Return the effective number of draws of each coordinate, for its bulk [1]_.

    With the autocorrelations :math:`\rho_t` of the ranks of two half chains

    .. math:: n_\text{eff} = n / \Bigl(-1 + 2 \sum_{k < K} \min_{j \le k} P_j + \rho_{2K}\Bigr),
       \qquad P_k = \rho_{2k} + \rho_{2k+1}

    where K is the first k at which P_k is not positive.

    Parameters
    ----------
    psi : ndarray
        Draws of one chain, shape (n, d).

    Returns
    -------
    ndarray
        Shape (d,); NaN where a draw is not finite, or where there are fewer than 4 draws.

    Notes
    -----
    ArviZ computes the same one coordinate at a time, which takes minutes for tens of thousands,
    and to import it takes as long as a fast chain.

    References
    ----------
    .. [1] Vehtari, Gelman, Simpson, Carpenter, Bürkner (2021). Rank-normalization, folding, and
       localization: an improved R-hat for assessing convergence of MCMC. Bayesian Analysis 16(2).

    Examples
    --------
    >>> effective_draws(np.random.default_rng(0).normal(size=(500, 2))).round()
    array([421., 570.])
    """
    blocks = [_effective(psi[:, k : k + _TOGETHER]) for k in range(0, psi.shape[1], _TOGETHER)]
    return np.concatenate([np.empty(0), *blocks])


def _effective(psi: np.ndarray) -> np.ndarray:
    n, d = psi.shape
    half = n // 2
    if n < 4:
        return np.full(d, np.nan)
    finite = np.isfinite(psi).all(axis=0)
    halves = np.stack([psi[:half], psi[-half:]])[:, :, finite]
    rank = rankdata(halves.reshape(2 * half, -1), axis=0)
    z = ndtri((rank - 3 / 8) / (2 * half + 1 / 4)).reshape(halves.shape)
    covariance = _autocovariance(z).mean(axis=0)
    within = covariance[0] * half / (half - 1)
    total = covariance[0] + np.var(z.mean(axis=1), axis=0, ddof=1)
    moving = np.ptp(z, axis=(0, 1)) > 1e-15
    rho = 1 - (within - covariance) / np.where(moving, total, 1.0)
    rho[0] = 1.0
    ess = np.full(d, np.nan)
    ess[finite] = np.where(moving, 2 * half / _correlation_time(rho, 2 * half), 2 * half)
    return ess


def _correlation_time(rho: np.ndarray, draws: int) -> np.ndarray:
    """Sum autocorrelations, shape (lags, d), of Geyer's initial monotone sequence."""
    lags = len(rho)
    # The last pair that is looked at does not reach the end
    pairs = max(1, (lags - 3) // 2 + 1)
    even, odd = rho[0 : 2 * pairs : 2], rho[1 : 2 * pairs : 2]
    both = even + odd
    ends = both <= 0
    ends[-1] = True
    last = np.argmax(ends, axis=0)
    falling = np.minimum.accumulate(both, axis=0)
    before = np.arange(len(both))[:, None] < last
    summed = np.where(before, falling, 0.0).sum(axis=0)
    at_last = np.take_along_axis(even, last[None], axis=0)[0]
    kept = (at_last > 0) | (np.take_along_axis(both, last[None], axis=0)[0] >= 0)
    time = -1 + 2 * summed + np.where(kept, at_last, 0.0)
    return np.maximum(time, 1 / np.log10(draws))


def _autocovariance(z: np.ndarray) -> np.ndarray:
    """Return autocovariances of each half chain, shape (2, lags, d)."""
    n = z.shape[1]
    transform = rfft(z - z.mean(axis=1, keepdims=True), next_fast_len(2 * n), axis=1)
    return irfft(np.abs(transform) ** 2, next_fast_len(2 * n), axis=1)[:, :n] / n
