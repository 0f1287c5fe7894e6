"""Monte-Carlo standard errors, of many parameters at once."""

from __future__ import annotations

import numpy as np

from pymc_sgmcmc.convergence.effective import effective_draws

__all__ = ["error_of_mean", "error_of_sd"]


def error_of_mean(draws: np.ndarray) -> np.ndarray:
    """Return the standard error of the mean, shape (d,), of draws of shape (d, chains, n).

    It is NaN where a draw is, and with fewer than 4 draws.
    """
    sd = np.std(draws, axis=(1, 2), ddof=1)
    return sd / np.sqrt(effective_draws(draws, scored=False))


def error_of_sd(draws: np.ndarray) -> np.ndarray:
    """Return the standard error of the sd, from that of the mean of squares; NaN as the mean's."""
    squares = (draws - draws.mean(axis=(1, 2), keepdims=True)) ** 2
    variance = squares.mean(axis=(1, 2))
    spread = (squares**2).mean(axis=(1, 2)) - variance**2
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.sqrt(spread / effective_draws(squares, scored=False) / variance / 4)
