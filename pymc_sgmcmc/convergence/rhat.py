"""How far chains are apart, of all parameters at once."""

from __future__ import annotations

import numpy as np

from pymc_sgmcmc.convergence.parts import in_parts
from pymc_sgmcmc.convergence.ranks import folded_scores, split_chains

__all__ = ["rank_rhat"]


def rank_rhat(draws: np.ndarray) -> np.ndarray:
    r"""Return the larger of the R-hats of each parameter's bulk and tails [1]_.

    Both are :math:`\sqrt{(B / W + n - 1) / n}`, B and W the variances between and within half
    chains of length n: of normal scores of the draws, and of their distances from the median.

    Parameters
    ----------
    draws : ndarray
        Shape (d, chains, n).

    Returns
    -------
    ndarray
        Shape (d,); NaN where a draw is, where no draw moves, and with fewer than 2 chains or 4
        draws.

    References
    ----------
    .. [1] Vehtari, Gelman, Simpson, Carpenter, Bürkner (2021). Rank-normalization, folding, and
       localization: an improved R-hat for assessing convergence of MCMC. Bayesian Analysis 16(2).

    Examples
    --------
    >>> rank_rhat(np.random.default_rng(0).normal(size=(2, 4, 500))).round(3)
    array([1.001, 1.001])
    """
    _, chains, n = draws.shape
    if n < 4 or chains < 2:
        return np.full(len(draws), np.nan)
    return in_parts(_of_bulk_and_tails, draws)


def _of_bulk_and_tails(draws: np.ndarray) -> np.ndarray:
    scores, folded = folded_scores(split_chains(draws))
    bulk, tails = _rhat(scores), _rhat(folded)
    # Draws that are all as far from the median have no tails
    return np.where(tails > bulk, tails, bulk)


def _rhat(z: np.ndarray) -> np.ndarray:
    n = z.shape[2]
    within = np.var(z, axis=2, ddof=1).mean(axis=1)
    between = n * np.var(z.mean(axis=2), axis=1, ddof=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.sqrt((between / within + n - 1) / n)
