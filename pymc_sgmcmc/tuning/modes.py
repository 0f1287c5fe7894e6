"""The choice of a mode where there are several."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

import numpy as np

from pymc_sgmcmc.tuning.newton import log_volume, mean_of_rows, newton
from pymc_sgmcmc.tuning.surface import Surface, TuningError

__all__ = ["best_mode", "jumped", "more_starts"]

# How far more starts are moved, in units of the jitter of the first: from one that is moved far
# two components of a mixture often come to share a cluster
_MOVES = 0.5, 0.25

# Rough modes that are nearer, in sds of the first, are one: on a part of the data a way ends within
# about one sd
_APART = 4.0


def jumped(rng: np.random.Generator) -> np.random.Generator:
    """Return a generator beside another, whose numbers stay what they are."""
    return np.random.Generator(rng.bit_generator.jumped())  # type: ignore[attr-defined]


def more_starts(start: np.ndarray, width: float, rng: np.random.Generator) -> list[np.ndarray]:
    """Return starts nearer to one that has not been moved than jitter of this width.

    Parameters
    ----------
    start : ndarray
        φ, shape (d,).
    width : float
        The largest move of the first start.
    rng : numpy.random.Generator
        The chain's; its numbers stay what they are.
    """
    rng = jumped(rng)
    return [start + width * move * rng.uniform(-1, 1, start.shape) for move in _MOVES]


def best_mode(
    surface: Surface,
    starts: Sequence[np.ndarray],
    rows: np.ndarray | None,
    rng: np.random.Generator,
    begin: Callable[[np.ndarray], np.ndarray],
) -> tuple[np.ndarray, np.ndarray, bool]:
    r"""Descend from several starts, and draw a mode in proportion to its mass.

    Masses are those of Laplace's approximation, :math:`e^{-U} / \sqrt{\det H}`. Chains that are
    tuned alike then stand in the modes in their proportions, and of many rows in the one that
    has all the mass, wherever they started.

    Parameters
    ----------
    surface : Surface
        The potential.
    starts : sequence of ndarray
        φ, shape (d,) each. Only the first has to lead anywhere.
    rows : ndarray or None
        A fixed subsample of batches, or None for the full data.
    rng : numpy.random.Generator
        The chain's; its numbers stay what they are.
    begin : callable
        What is done to a start before.

    Returns
    -------
    centre : ndarray
        A rough mode, shape (d,).
    start : ndarray
        Where the way to it began.
    collapses : bool
        Whether that way ends in a neck.

    Raises
    ------
    TuningError
        If the way from the first start ends nowhere.
    """
    centre, hessian, begun, collapses = _way(surface, begin(starts[0]), rows)
    found = [(centre, begun, collapses)]
    if len(starts) == 1:
        return found[0]
    masses = [_log_mass(surface, centre, hessian, rows)]
    for start in starts[1:]:
        with suppress(TuningError, np.linalg.LinAlgError):
            other, its_hessian, begun, collapses = _way(surface, begin(start), rows)
            mass = _log_mass(surface, other, its_hessian, rows)
            if not (collapses or _is_same(centre, hessian, other)) and np.isfinite(mass):
                found.append((other, begun, collapses))
                masses.append(mass)
    if len(found) == 1 or not np.isfinite(masses[0]):
        return found[0]
    chances = np.exp(np.array(masses) - max(masses))
    return found[jumped(rng).choice(len(found), p=chances / chances.sum())]


def _way(
    surface: Surface, start: np.ndarray, rows: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray, bool]:
    centre, hessian, collapses = newton(surface, start, rows)
    return centre, hessian, start, collapses


def _is_same(centre: np.ndarray, hessian: np.ndarray, other: np.ndarray) -> bool:
    """Whether another rough mode is within some sds, on average over coordinates."""
    w, v = np.linalg.eigh(hessian)
    squares = np.abs(w) * (v.T @ (other - centre)) ** 2
    return float(squares.sum()) < _APART**2 * len(centre)


def _log_mass(
    surface: Surface, centre: np.ndarray, hessian: np.ndarray, rows: np.ndarray | None
) -> float:
    """Laplace's approximation, at the end of the Newton step that was not taken."""
    [u], [g] = mean_of_rows(surface, centre[None], rows)
    scale = 1 / np.sqrt(np.maximum(np.abs(np.diag(hessian)), 1e-300))
    w, v = np.linalg.eigh(hessian * np.outer(scale, scale))
    w = np.maximum(np.abs(w), 1e-8 * np.abs(w).max())
    gain = np.sum((v.T @ (scale * g)) ** 2 / w) / 2
    everywhere = np.ones(len(centre), bool)
    return log_volume(hessian, scale, everywhere) - float(u) + float(gain)
