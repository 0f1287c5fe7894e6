"""Step 2 of tuning: a rough mode by Newton steps, and the choice of one where there are several."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from pymc_sgmcmc.tuning.curvature import (
    LEAST_CURVATURE,
    LEAST_EIGENVALUE,
    difference_step,
    mean_hessian,
)
from pymc_sgmcmc.tuning.failure import failed_step, named_step
from pymc_sgmcmc.tuning.surface import (
    TINY,
    Flat,
    Map,
    Matrix,
    Rng,
    Rows,
    Surface,
    TuningError,
    mean_gradients,
)

_SEARCH = "the search for the posterior's centre"

# Most dimensions for Newton steps on batches (on all rows they are taken wherever a matrix
# whitens), for further starts, and for a matrix where units can be exchanged. With the fit of
# independent normals instead, growth_curves of the accuracy table is wrong, even where the fit
# moves scales last
LARGEST_NEWTON = 128

# Least batches of a search, and least rows of theirs for each coordinate
_LEAST_BATCHES, _ROWS_OF_EACH = 8, 30

# First width of differences
_FIRST_WIDTH = 0.1
# Divisor of widths at which differences are not finite
_NARROWER = 100.0
# Most widths that are tried at one place, without and with kinks
_LOOKS, _LOOKS_AT_KINKS = 3, 8
# Factor by which the first width may miss the sd that it finds
_FITTING = 30.0
# Factor by which a width grows at most in a look at kinks
_FARTHER = 10.0

# Damping of the first step, in units of the largest curvature, its factor between attempts, and
# bounds
_DAMPING, _MORE_DAMPING, _LEAST_DAMPING, _MOST_DAMPING = 1e-3, 6, 1e-8, 1e12

# Most steps, and where they end: the fall of U, and the decrement of each coordinate
_MOST_STEPS, _FALL, _DECREMENT = 60, 0.01, 0.1

# Where a scale goes to 0, the density of a hierarchical model can rise without end, in ever less
# volume: log mass that the descent may lose, and for how many steps
_LOST, _LOST_STEPS = 2.0, 8

# Moves of further starts, in units of the first one's jitter: from a far move two components of a
# mixture often end in one cluster
_MOVES = (0.5, 0.25, 1.0) * 3

# Starts after which the search ends if no two modes were reached
_LEAST_STARTS = 3

# Numbers that searches for other modes may compute, if each took one gradient of a few batches per
# parameter; a search takes about a hundred times as many
_SEARCHED = 2**28

# Sds of the first within which rough modes are one: on a part of the data a search ends within
# about one sd
_APART = 4.0

# Steps from there by all rows, and the share taken of Newton's with the Hessian of a part
_STEPS_ON_ALL, _SHARE_OF_STEP = 8, 0.7


def rows_of_a_search(surface: Surface, rng: Rng) -> Rows | None:
    """Draw the batches of a search for a rough centre, None if the full data are not more."""
    if not surface.batch_size:
        return None
    count = max(_LEAST_BATCHES, -(-_ROWS_OF_EACH * surface.dimension // surface.batch_size))
    return surface.draw_rows(rng, count) if count < surface.n_blocks else None


class Descent(NamedTuple):
    """The end of Newton's steps."""

    centre: Flat  # the rough mode, (d,)
    hessian: Matrix  # there, (d, d)
    collapses: bool  # whether the steps went on to less mass


@named_step(_SEARCH)
def newton(
    surface: Surface,
    start: Flat,
    rows: Rows | None,
    *,
    most_steps: int = _MOST_STEPS,  # 0 measures the curvature alone
    rough: bool = False,  # end within about one sd, as is always done on fixed rows
) -> Descent:
    """Return a rough mode, and what is known of the descent to it.

    Steps are damped (Levenberg, Marquardt), with eigenvalues by magnitude so that saddles repel
    (Dauphin et al., 2014, NeurIPS 27).
    """
    differences, damping = _Differences(surface, rows), _DAMPING
    x, (u, g) = start, _at(surface, start, rows)
    most, best, lost = -np.inf, (x, np.empty(0)), 0
    for k in range(most_steps + 1):
        hessian, scale = differences.hessian(x)
        if k == most_steps:
            break
        w, v = np.linalg.eigh(hessian * np.outer(scale, scale))
        slope, sizes = v.T @ (scale * g), np.abs(w)
        mass = log_volume(hessian, scale, surface.unbounded) - u
        if mass > most:
            most, best = mass, (x, hessian)
        lost = lost + 1 if mass < most - _LOST else 0
        if lost == _LOST_STEPS:
            break
        largest = sizes.max()
        decrement = float(np.sum(slope**2 / np.maximum(sizes, LEAST_EIGENVALUE * largest)))
        while damping < _MOST_DAMPING:
            there = x - scale * (v @ (slope / (sizes + damping * largest)))
            u_there, g_there = _at(surface, there, rows)
            if np.all(np.isfinite(g_there)) and u_there <= u:
                break
            damping *= _MORE_DAMPING
        else:
            break
        fall, x, u, g = u - u_there, there, u_there, g_there
        damping = max(damping / _MORE_DAMPING, _LEAST_DAMPING)
        if rough or rows is not None:
            if decrement < len(x):
                break
        elif fall < _FALL and decrement < _DECREMENT * len(x):
            break
    return Descent(*best, True) if lost else Descent(x, hessian, False)


class _Differences:
    """Hessians by differences, whose widths follow the curvature that they find."""

    def __init__(self, surface: Surface, rows: Rows | None) -> None:
        self._surface, self._rows, self._first = surface, rows, True
        self._scale = np.full(surface.dimension, _FIRST_WIDTH)

    def hessian(self, x: Flat) -> tuple[Matrix, Flat]:
        """Return the Hessian at x, (d, d), and the sds along single coordinates, (d,)."""
        kinked, wider = self._surface.kinked, self._scale
        for _ in range(_LOOKS_AT_KINKS if kinked else _LOOKS):
            hessian = mean_hessian(
                lambda y, _: mean_gradients(self._surface, y, self._rows),
                x[None], self._scale, difference_step(self._surface),
            )  # fmt: skip
            if not np.all(np.isfinite(hessian)):
                self._scale = self._scale / _NARROWER
                continue
            diagonal = np.abs(np.diag(hessian))
            scale = 1 / np.sqrt(np.maximum(diagonal, LEAST_CURVATURE * diagonal.max() + TINY))
            # Between kinks a density may be flat, as far as these differences reach
            flat = kinked and bool(np.any(scale > _FARTHER * self._scale))
            if flat:
                scale = np.minimum(scale, _FARTHER * self._scale)
            # Without kinks no curvature means that the width is too short: a look at a wider one,
            # where the density is far too steep, has asked for it
            lost = (diagonal == 0) & (self._scale < wider) & (not kinked)
            scale, wider = np.where(lost, np.sqrt(self._scale * wider), scale), self._scale
            change = np.max(np.abs(np.log(scale / self._scale)))
            self._scale = scale
            if not flat and (change < np.log(_FITTING) or not self._first):
                break
        self._first = False
        if not np.all(np.isfinite(hessian)):
            raise failed_step(_SEARCH, "second derivatives of the log density are not finite")
        if not hessian.any():
            raise failed_step(
                _SEARCH,
                "the density has no curvature in any direction. The variables have no effect on "
                "the data there, or no proper prior. Give every variable a proper prior",
            )
        return hessian, self._scale


def log_volume(hessian: Matrix, scale: Flat, free: Flat) -> float:
    """Return the log volume of the Gaussian along variables without bounds, given the others."""
    if not free.any():
        return 0.0
    scale = scale[free]
    w = np.abs(np.linalg.eigvalsh(hessian[np.ix_(free, free)] * np.outer(scale, scale)))
    least = np.maximum(w, LEAST_EIGENVALUE * w.max())
    return float(np.sum(np.log(scale)) - np.sum(np.log(least)) / 2)


def _at(surface: Surface, x: Flat, rows: Rows | None) -> tuple[float, Flat]:
    """Return U and ∇U at x, of the full data or averaged over fixed batches."""
    if rows is None:
        [u], [g] = surface.full(x[None])
        return float(u), g
    u, g = surface.batch(np.repeat(x[None], len(rows), axis=0), rows)
    return float(u.mean()), g.mean(axis=0)


# ---------------------------------------------------------------- several modes


def further_starts(surface: Surface, start: Flat, jitter: float, rng: Rng) -> list[Flat]:
    """Return starts for a search for other modes, (d,) each, none if the first must be kept.

    They are within ``jitter`` of the unjittered ``start``. The generator's own draws stay the same.
    """
    if not jitter or len(start) > LARGEST_NEWTON:
        return []
    [rng] = rng.spawn(1)
    cost = len(start) * min(surface.n_blocks, _LEAST_BATCHES) * surface.numbers
    moves = _MOVES[: max(_LEAST_STARTS - 1, _SEARCHED // cost)]
    return [start + jitter * move * rng.uniform(-1, 1, start.shape) for move in moves]


def best_mode(
    surface: Surface, starts: Sequence[Flat], rows: Rows | None, rng: Rng, begin: Map
) -> tuple[Flat, Flat, bool]:
    r"""Descend from starts; return a mode drawn by mass, its start, and whether the mass fell.

    Masses are Laplace's, :math:`e^{-U} / \sqrt{\det H}`, so chains occupy modes in proportion. A
    start that fails is left out, but the first raises. If no start ends at a mode, the end of the
    first is returned. Starts after the third are tried if several modes were found before.
    """
    first = _mode(surface, begin(starts[0]), rows)
    modes = [first] if np.isfinite(first.mass) else []
    for k, start in enumerate(starts[1:], start=1):
        if k >= _LEAST_STARTS and len(modes) < 2:
            break
        with suppress(TuningError, np.linalg.LinAlgError):
            mode = _mode(surface, begin(start), rows)
            known = any(other.is_at(mode.centre) for other in modes)
            if np.isfinite(mode.mass) and not (known or mode.collapses):
                modes.append(mode)
    drawn = modes[0] if modes else first
    if len(modes) > 1:
        if rows is not None:
            modes = _on_all_rows(surface, modes) or modes
        masses = np.array([mode.mass for mode in modes])
        chances = np.exp(masses - masses.max())
        [rng] = rng.spawn(1)
        drawn = modes[rng.choice(len(modes), p=chances / chances.sum())]
    return drawn.centre, drawn.start, drawn.collapses


@dataclass(frozen=True)
class _Mode:
    """A rough mode, and where the Newton steps to it began."""

    centre: Flat
    hessian: Matrix
    start: Flat
    collapses: bool
    mass: float
    circular: Flat

    def is_at(self, other: Flat) -> bool:
        """Return whether another rough mode is within some sds, on average over coordinates."""
        w, v = np.linalg.eigh(self.hessian)
        away = other - self.centre
        away = np.where(self.circular, np.arctan2(np.sin(away), np.cos(away)), away)
        with np.errstate(over="ignore"):
            squares = np.abs(w) * (v.T @ away) ** 2
        return float(squares.sum()) < _APART**2 * len(other)


def _mode(surface: Surface, start: Flat, rows: Rows | None) -> _Mode:
    """Descend from a start; return the end, with its log mass after one Newton step more.

    The mass is NaN if that step is far longer than the Gaussian is wide: the place is no mode then,
    but for instance a plateau, whose curvature says nothing about widths.
    """
    centre, hessian, collapses = newton(surface, start, rows)
    with np.errstate(over="ignore", invalid="ignore"):  # then the mass is not finite
        u, g = _at(surface, centre, rows)
        scale, w, v = _eigen(hessian)
        decrement, mass = float(np.sum((v.T @ (scale * g)) ** 2 / w)), np.nan
        if decrement < _APART**2 * len(centre):
            mass = log_volume(hessian, scale, np.ones(len(centre), bool)) - u + decrement / 2
    return _Mode(centre, hessian, start, collapses, mass, surface.circular)


def _on_all_rows(surface: Surface, modes: Sequence[_Mode]) -> list[_Mode]:
    """Move modes by steps on all rows, with the Hessians of some; return those that still differ.

    Between modes that differ by little in each row, the masses that some rows give are chance.
    """
    centres, eigen = np.stack([x.centre for x in modes]), [_eigen(x.hessian) for x in modes]
    # What collapses has no mode: it stays where its mass was largest
    shares = np.array([0.0 if x.collapses else _SHARE_OF_STEP for x in modes])
    with np.errstate(over="ignore", invalid="ignore"):
        u, g = surface.full(centres)
        for _ in range(_STEPS_ON_ALL):
            steps = [
                share * scale * (v @ (v.T @ (scale * x) / w))
                for share, x, (scale, w, v) in zip(shares, g, eigen, strict=True)
            ]
            u_there, g_there = surface.full(centres - steps)
            falls = (u_there <= u) & np.all(np.isfinite(g_there), axis=1)
            centres[falls] -= np.stack(steps)[falls]
            u, g = np.where(falls, u_there, u), np.where(falls[:, None], g_there, g)
            shares = np.where(falls, shares, shares / 4)
    kept: list[_Mode] = []
    for mode, centre, level, (scale, *_) in zip(modes, centres, u, eigen, strict=True):
        mass = log_volume(mode.hessian, scale, np.ones(len(centre), bool)) - level
        if np.isfinite(mass) and not any(other.is_at(centre) for other in kept):
            kept.append(replace(mode, centre=centre, mass=float(mass)))
    return kept


def _eigen(hessian: Matrix) -> tuple[Flat, Flat, Matrix]:
    """Return the scale of each coordinate, and in these the Hessian's eigenvalues and vectors.

    The eigenvalues are made positive, and are NaN where the Hessian is not finite.
    """
    scale = 1 / np.sqrt(np.maximum(np.abs(np.diag(hessian)), TINY))
    scaled = hessian * np.outer(scale, scale)
    if not np.all(np.isfinite(scaled)):
        return scale, np.full(len(scale), np.nan), scaled
    w, v = np.linalg.eigh(scaled)
    return scale, np.maximum(np.abs(w), LEAST_EIGENVALUE * np.abs(w).max()), v
