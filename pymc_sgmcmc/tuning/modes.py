"""The choice of a mode where there are several."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from pymc_sgmcmc.tuning.newton import log_volume, mean_of_rows, newton
from pymc_sgmcmc.tuning.surface import Surface, TuningError

__all__ = ["best_mode", "more_starts"]

# Moves of further starts, in units of the first one's jitter: from a far move two components of a
# mixture often end in one cluster
_MOVES = (0.5, 0.25, 1.0) * 3

# Starts after which the search ends if all reached one mode
_LEAST = 3

# Sds of the first within which rough modes are one: on a part of the data a search ends within
# about one sd
_APART = 4.0


def more_starts(start: np.ndarray, width: float, rng: np.random.Generator) -> list[np.ndarray]:
    """Return starts within ``width`` of an unjittered one, shape (d,) each.

    The generator's own draws stay the same.
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
    r"""Descend from starts; return a mode drawn by mass, its start, and whether it ends in a neck.

    Masses are Laplace's, :math:`e^{-U} / \sqrt{\det H}`, so chains occupy modes in proportion.
    Starts after the third serve if there are several modes; only the first must succeed.
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
    """A rough mode, and where the Newton steps to it began."""

    centre: np.ndarray
    hessian: np.ndarray
    start: np.ndarray
    collapses: bool
    mass: float

    def is_at(self, other: np.ndarray) -> bool:
        """Return whether another rough mode is within some sds, on average over coordinates."""
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
    """Return Laplace's log mass at the end of the Newton step that was not taken."""
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
