"""Part of step 7 of tuning: the step size that the curvature along the chain allows."""

from __future__ import annotations

import numpy as np

from pymc_sgmcmc.kernel.policy import Policy
from pymc_sgmcmc.tuning.surface import WIDE, Surface, difference_step

__all__ = [
    "largest_curvature_of_batches",
    "largest_curvature_of_pairs",
    "largest_curvatures",
    "not_too_stiff",
]

_ROUNDS = 8

# Numbers in the gradients of batches that are kept at once
_MOST_NUMBERS = 2**22

# Largest accepted h λ (h²λ where a step size is a length), the value that a smaller step aims at,
# and the share of the positions at which it must hold
_LARGEST, _AIM, _SHARE = 1.0, 0.75, 0.9


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


def not_too_stiff(h: float, curvatures: np.ndarray, policy: Policy) -> float:
    """Return the step size, lowered where the curvature is far above its mean of 1.

    Splittings are exact on Gaussians and stable up to hλ = 2. Where λ varies, as towards the neck
    of a hierarchy, draws are wrong long before they diverge.
    """
    known = curvatures[np.isfinite(curvatures)]
    if not known.size:
        return h
    stiff, root = float(np.quantile(known, _SHARE)), policy.power / 2
    return float((_AIM / stiff) ** root) if h ** (1 / root) * stiff > _LARGEST else h
