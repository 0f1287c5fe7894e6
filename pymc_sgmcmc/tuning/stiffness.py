"""The largest curvature at positions of a chain."""

from __future__ import annotations

import numpy as np

from pymc_sgmcmc.tuning.surface import WIDE, Surface, difference_step

__all__ = [
    "largest_curvature_of_batches",
    "largest_curvature_of_pairs",
    "largest_curvatures",
]

_ROUNDS = 8

# Numbers in the gradients of batches that are kept at once
_MOST_NUMBERS = 2**22


def largest_curvatures(
    surface: Surface, positions: np.ndarray, root: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    r"""Return the largest absolute eigenvalue of :math:`L^\top \nabla^2 U L` at each φ, (P,).

    L has shape (d, d) or (d,). The value is NaN where gradients are not finite or do not change.
    """
    whole = np.diag(root) if root.ndim == 1 else root
    step = difference_step(surface)
    direction = rng.standard_normal(positions.shape)
    size = np.ones(len(positions))
    # Where there is no curvature at all it stays unknown
    with np.errstate(all="ignore"):
        at = surface.full(positions)[1] @ whole
        for _ in range(_ROUNDS):
            direction /= np.linalg.norm(direction, axis=1, keepdims=True)
            there = surface.full(positions + step * direction @ whole.T)[1] @ whole
            direction = (there - at) / step
            size = np.linalg.norm(direction, axis=1)
    return size


def largest_curvature_of_batches(
    surface: Surface, x: np.ndarray, sd: np.ndarray, batches: int, rng: np.random.Generator
) -> float:
    """Return the largest absolute eigenvalue of σ ∇²U σ at x, from a few batches."""
    step = min(WIDE, 10 * difference_step(surface))
    rows = surface.draw_rows(rng, batches)
    each = max(1, _MOST_NUMBERS // len(x))

    def gradient(at: np.ndarray) -> np.ndarray:
        total = np.zeros(len(at))
        for first in range(0, batches, each):
            some = rows[first : first + each]
            total += surface.batch_gradient(np.repeat(at[None], len(some), axis=0), some).sum(
                axis=0
            )
        return total / batches

    direction, size, here = rng.standard_normal(len(x)), 1.0, gradient(x)
    for _ in range(_ROUNDS):
        direction /= np.linalg.norm(direction)
        direction = sd * (gradient(x + step * sd * direction) - here) / step
        size = float(np.linalg.norm(direction))
        if not np.isfinite(size) or size == 0:
            return 1.0
    return size


def largest_curvature_of_pairs(
    surface: Surface,
    x: np.ndarray,
    sd: np.ndarray,
    rows: np.ndarray,
    direction: np.ndarray,  # to begin with, shape (d,)
    rounds: int,  # power iterations
) -> tuple[float, np.ndarray]:
    """Return the largest eigenvalue of σ ∇²U σ at x and its vector, from pairs' batches."""
    step, size = min(WIDE, 10 * difference_step(surface)), 1.0
    together = np.ones((len(rows), len(x)), dtype=np.int8)
    for _ in range(rounds):
        unit = direction / np.linalg.norm(direction)
        found = surface.pair_sums(x, step * sd * unit, together, rows)
        changed = sd * found.change / (2 * step * max(found.count, 1))
        size = float(np.linalg.norm(changed))
        if not np.isfinite(size) or size == 0:
            return 1.0, direction
        direction = changed
    return size, direction
