"""Draws of many parameters, split and replaced by what normal draws of the same ranks are."""

from __future__ import annotations

import numpy as np

from scipy.special import ndtri

__all__ = ["folded_scores", "normal_scores", "split_chains"]


def split_chains(draws: np.ndarray) -> np.ndarray:
    """Return the halves of chains, shape (d, chains, n), as chains, (d, 2 · chains, n // 2)."""
    half = draws.shape[2] // 2
    return np.concatenate([draws[:, :, :half], draws[:, :, -half:]], axis=1)


def normal_scores(draws: np.ndarray) -> np.ndarray:
    r"""Return :math:`\Phi^{-1}((r - 3/8) / (n + 1/4))`, r the rank among all n of a parameter.

    Draws have the shape (d, chains, n) and no NaN. Equal ones share the mean of their ranks.
    """
    rows = draws.reshape(len(draws), -1)
    order = np.argsort(rows, axis=1)
    return _scores(order, np.take_along_axis(rows, order, axis=1)).reshape(draws.shape)


def folded_scores(draws: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return normal scores of draws, (d, chains, n), and of their distances from the median."""
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
