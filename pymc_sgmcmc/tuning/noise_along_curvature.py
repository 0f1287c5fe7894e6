r"""Whether noise is strongest along directions in which the posterior is narrow, or wide.

A thermostat of each coordinate keeps its mean kinetic energy right. With a share r of heat from
noise n, whose variance is r in each coordinate, the temperatures along all directions are
T = 1 + E nnᵀ − diag. Where the posterior's precision is H = 1 + E, the covariance of positions
changes by

.. math:: \Delta = (T - 1) - \tfrac12 (E(T - 1) + (T - 1)E),

and the mean of a coordinate s by −½ tr(GΔ), where G is the second derivative of its gradient. Both
are estimated as the difference to noise with a random sign in each coordinate. A batch of a
regression's rows has T − 1 like E: with few rows of many correlated columns, all coefficients' sds
are too small. Each error is small, but their scale depends on the sum.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pymc_sgmcmc.tuning.chain_gradients import LARGEST, ChainGradients

__all__ = ["errors_and_shifts", "misfits"]

# Least and most batches whose noise is measured
_LEAST, _MOST = 16, 256

# Move along noise that measures curvature
_MOVE = 0.1

# Largest relative error of variances, and largest shift of what depends on them, in its sds; either
# must exceed so many standard errors
_WRONG, _SHIFT, _SURE = 0.1, 0.1, 3.0


def misfits(
    seen: ChainGradients,
    rng: np.random.Generator,
    variance: np.ndarray,
    share: np.ndarray,
    large: Sequence[tuple[int, int]],
    few: np.ndarray,
) -> bool:
    """Return whether variances of some large variable, or what depends on them, would be wrong.

    ``variance`` is one batch's and ``share`` is r, shape (d,); ``large`` are ranges of large
    variables' coordinates, ``few`` the indices of small variables'.
    """
    # Far along noise a model may not be finite, which counts as no error
    with np.errstate(all="ignore"):
        errors, shifts = errors_and_shifts(seen, rng, variance, share, large, few)
        return bool(np.any(_sure(errors) > _WRONG) or np.any(_sure(shifts) > _SHIFT))


def errors_and_shifts(
    seen: ChainGradients,
    rng: np.random.Generator,
    variance: np.ndarray,
    share: np.ndarray,
    large: Sequence[tuple[int, int]],
    few: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Estimate relative errors of large variables' variances, and shifts of small ones' means.

    Shapes are (n, large variables) and (n, coordinates of small variables), a row for each batch.
    """
    d, draw = len(variance), seen.surface.draw_rows
    count = int(np.clip(LARGEST // d, _LEAST, _MOST))
    # Responses are other batches', as a batch's curvature is large along its own noise
    rows, others, third = (draw(rng, count) for _ in range(3))
    gradients = seen.gradients(np.zeros(d), rows)
    weight = np.sqrt(np.divide(share, variance, out=np.zeros_like(share), where=variance > 0))
    noise = (gradients - gradients.mean(axis=0)) * weight
    before = seen.gradients(np.zeros(d), others)

    def found(noise: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        change = (seen.gradients(_MOVE * noise, others) - before) / _MOVE
        curved = noise * change
        half = (change - noise) / 2
        felt = sum(
            seen.gradients(side * (noise - half), third) - seen.gradients(side * half, third)
            for side in (1.0, -1.0)
        )
        each = np.array([curved[:, a:b].mean(axis=1) for a, b in large])
        return -each.reshape(len(large), count).T, -np.asarray(felt)[:, few] / 2

    together, apart = found(noise), found(noise * rng.choice([-1.0, 1.0], size=noise.shape))
    return together[0] - apart[0], together[1] - apart[1]


def _sure(estimates: np.ndarray) -> np.ndarray:
    """Return the sizes of means that differ from 0 by more than their standard errors."""
    mean, error = estimates.mean(axis=0), estimates.std(axis=0, ddof=1) / len(estimates) ** 0.5
    return np.where(np.abs(mean) > _SURE * error, np.abs(mean), 0.0)
