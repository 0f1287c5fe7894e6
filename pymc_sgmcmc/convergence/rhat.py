"""How far chains are apart, of all parameters at once."""

from __future__ import annotations

import numpy as np

from pymc_sgmcmc.convergence.parts import in_parts
from pymc_sgmcmc.convergence.ranks import folded_scores, split_chains

__all__ = ["rank_rhat"]


def rank_rhat(draws: np.ndarray) -> np.ndarray:
    """Return the larger R-hat of bulk and tails of each parameter, (d,), from draws (d, chains, n).

    √((B / W + n − 1) / n), B and W the variances between and within half chains, of normal scores
    of draws and of distances from the median: Vehtari, Gelman, Simpson, Carpenter, Bürkner (2021).
    Bayesian Analysis 16(2). NaN where a draw is, for constant draws, 1 chain, or under 4 draws.
    """
    _, chains, n = draws.shape
    if n < 4 or chains < 2:
        return np.full(len(draws), np.nan)
    return in_parts(_of_bulk_and_tails, draws)


def _of_bulk_and_tails(draws: np.ndarray) -> np.ndarray:
    scores, folded = folded_scores(split_chains(draws))
    bulk, tails = _rhat(scores), _rhat(folded)
    # Draws at one distance from the median have no tails
    return np.where(tails > bulk, tails, bulk)


def _rhat(z: np.ndarray) -> np.ndarray:
    n = z.shape[2]
    within = np.var(z, axis=2, ddof=1).mean(axis=1)
    between = n * np.var(z.mean(axis=2), axis=1, ddof=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.sqrt((between / within + n - 1) / n)
