"""Step 2 of tuning in many dimensions: a diagonal Gaussian fitted to batch gradients."""

from __future__ import annotations

import numpy as np

from pymc_sgmcmc.tuning.surface import Surface, antithetic

__all__ = ["diagonal_gaussian"]

_PAIRS = 8
_EPOCHS = 30
_LEAST_STEPS = 200


def diagonal_gaussian(
    surface: Surface, start: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, float]:
    """Fit mean and precision of an independent Gaussian by natural gradients.

    Each step takes antithetic pairs x ± σe, each pair with a batch of its own: the mean of
    its gradients moves x, their difference is curvature along e.

    Parameters
    ----------
    surface : Surface
        The potential.
    start : ndarray
        φ, shape (d,).
    rng : numpy.random.Generator
        For batches and e.

    Returns
    -------
    mean, sd : ndarray
        Shape (d,).
    last : float
        Mean squared last step in units of the sds: well below 1 where it has settled.
    """
    d = len(start)
    x, v = start.copy(), np.zeros(d)
    sd, precision, last = np.full(d, 1e-3), np.zeros(d), np.inf
    pairs = _PAIRS if surface.n_blocks > 1 or d < 5000 else 1
    steps = max(_LEAST_STEPS, _EPOCHS * surface.n_blocks // pairs)
    settled = 0
    for k in range(steps):
        e = antithetic(rng, pairs, d)
        rows = np.repeat(surface.draw_rows(rng, pairs), 2, axis=0)
        _, g = surface.batch(x + sd * e, rows)
        if not np.all(np.isfinite(g)):
            sd, v = sd / 2, np.zeros(d)
            x = x if k else start
            continue
        mean = g.mean(axis=0)
        curvature = ((g[::2] - g[1::2]) * e[::2]).mean(axis=0) / (2 * sd)
        weight = 0.3 if k else 1.0
        precision = (1 - weight) * precision + weight * np.maximum(curvature, 0)
        floor = 1e-12 * precision.max() + 1e-300
        sd = np.minimum(1 / np.sqrt(np.maximum(precision, floor)), 3 * sd)
        move = mean * sd**2
        # At first sd is far below the posterior's: such steps are short, not wrong
        v = 0.7 * v - 0.18 * np.clip(move, -3 * sd, 3 * sd) if k < 50 else 0.7 * v - 0.18 * move
        x = x + v
        last = float(np.mean((mean * sd) ** 2))
        settled = settled + 1 if last < 0.01 else 0
        if settled >= 3:
            break
    return x, sd, last
