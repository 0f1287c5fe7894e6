"""The choice of a mode where there are several."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from pymc_sgmcmc.tuning.newton import log_volume, mean_of_rows, newton
from pymc_sgmcmc.tuning.surface import Surface, TuningError

__all__ = ["best_mode", "more_starts"]

# How far more starts are moved, in units of the jitter of the first: from one that is moved far
# two components of a mixture often come to share a cluster
_MOVES = (0.5, 0.25, 1.0) * 3

# Starts after which the search ends where all of them led to one mode
_LEAST = 3

# Rough modes that are nearer, in sds of the first, are one: on a part of the data a way ends within
# about one sd
_APART = 4.0


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
    [rng] = rng.spawn(1)
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
    has all the mass, wherever they started. Of more than three starts the others are used only
    where the first three lead to more than one mode.

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
    modes = [_mode(surface, begin(starts[0]), rows)]
    for k, start in enumerate(starts[1:], start=1):
        if not np.isfinite(modes[0].mass) or (k >= _LEAST and len(modes) == 1):
            break
        with suppress(TuningError, np.linalg.LinAlgError):
            mode = _mode(surface, begin(start), rows)
            known = any(other.is_at(mode.centre) for other in modes)
            if np.isfinite(mode.mass) and not (known or mode.collapses):
                modes.append(mode)
    drawn = modes[0]
    if len(modes) > 1:
        masses = np.array([mode.mass for mode in modes])
        chances = np.exp(masses - masses.max())
        [rng] = rng.spawn(1)
        drawn = modes[rng.choice(len(modes), p=chances / chances.sum())]
    return drawn.centre, drawn.start, drawn.collapses


@dataclass(frozen=True)
class _Mode:
    """Where Newton steps ended, and where they began."""

    centre: np.ndarray
    hessian: np.ndarray
    start: np.ndarray
    collapses: bool
    mass: float

    def is_at(self, other: np.ndarray) -> bool:
        """Whether another rough mode is within some sds, on average over coordinates."""
        w, v = np.linalg.eigh(self.hessian)
        with np.errstate(over="ignore"):
            squares = np.abs(w) * (v.T @ (other - self.centre)) ** 2
        return float(squares.sum()) < _APART**2 * len(other)


def _mode(surface: Surface, start: np.ndarray, rows: np.ndarray | None) -> _Mode:
    centre, hessian, collapses = newton(surface, start, rows)
    with np.errstate(over="ignore", invalid="ignore"):  # then the mass is not finite
        mass = _log_mass(surface, centre, hessian, rows)
    return _Mode(centre, hessian, start, collapses, mass)


def _log_mass(
    surface: Surface, centre: np.ndarray, hessian: np.ndarray, rows: np.ndarray | None
) -> float:
    """Laplace's approximation, at the end of the Newton step that was not taken."""
    [u], [g] = mean_of_rows(surface, centre[None], rows)
    scale = 1 / np.sqrt(np.maximum(np.abs(np.diag(hessian)), 1e-300))
    scaled = hessian * np.outer(scale, scale)
    if not np.all(np.isfinite(scaled)):
        return np.nan
    w, v = np.linalg.eigh(scaled)
    w = np.maximum(np.abs(w), 1e-8 * np.abs(w).max())
    gain = np.sum((v.T @ (scale * g)) ** 2 / w) / 2
    everywhere = np.ones(len(centre), bool)
    return log_volume(hessian, scale, everywhere) - float(u) + float(gain)
