"""Step 2 of tuning in many dimensions: a diagonal Gaussian fitted to batch gradients."""

from __future__ import annotations

import numpy as np

from pymc_sgmcmc.tuning.failure import NEARER, named_step
from pymc_sgmcmc.tuning.surface import Surface, TuningError, antithetic

__all__ = ["diagonal_gaussian"]

_PAIRS = 8
_EPOCHS = 60
_LEAST_STEPS = 200

# Factor of the known curvature above which a step has reached an abyss
_ABYSS = 1e12

# First steps, and their largest move in sds, as the curvature at a start may be unreliable
_FIRST = 50
_FIRST_MOVES = 30

# Share of the steps at the full rate where gradients are noisy; the rate then falls as 1/k
_FULL_RATE = 1 / 15
_RATE, _MOMENTUM = 0.18, 0.7
_WEIGHT, _LEAST_WEIGHT = 0.3, 0.03


@named_step("the fit of independent normals")
def diagonal_gaussian(
    surface: Surface, start: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Fit mean and sds of independent normals, shape (d,), by natural gradients.

    Each step takes antithetic pairs x ± σe, each with a batch of its own: their mean gradient moves
    x, their difference is curvature along e.
    """
    d = len(start)
    x, v = start.copy(), np.zeros(d)
    sd, precision = np.full(d, 1e-3), np.zeros(d)
    pairs = _PAIRS if surface.n_blocks > 1 or d < 5000 else 1
    steps = max(_LEAST_STEPS, _EPOCHS * surface.n_blocks // pairs)
    settled, total, count, finite = 0, np.zeros(d), 0, 0
    # The noise of batches keeps x moving, and σ would grow as if the posterior were wider
    full_rate = max(_FIRST, int(_FULL_RATE * steps)) if surface.n_blocks > 1 else steps
    for k in range(steps):
        rate = 1 / (1 + 2.5 * max(0, k - full_rate) / full_rate)
        e = antithetic(rng, pairs, d)
        rows = np.repeat(surface.draw_rows(rng, pairs), 2, axis=0)
        g = surface.batch_gradient(x + sd * e, rows)
        mean = g.mean(axis=0)
        curvature = ((g[::2] - g[1::2]) * e[::2]).mean(axis=0) / (2 * sd)
        # Widths that follow a gradient of absurd size would not come back
        known = precision.max()
        if not np.all(np.isfinite(g)) or curvature.max() > _ABYSS * known > 0:
            sd, v = sd / 2, np.zeros(d)
            continue
        finite += 1
        weight = max(_WEIGHT * rate, _LEAST_WEIGHT) if k else 1.0
        precision = (1 - weight) * precision + weight * np.maximum(curvature, 0)
        bounded = np.maximum(precision, 1e-12 * precision.max() + 1e-300)
        sd = np.minimum(1 / np.sqrt(bounded), 3 * sd)
        sd = np.minimum(sd, surface.widest)
        # While sd is still far below the posterior's, steps are short, not wrong
        move, most = mean * sd**2, _FIRST_MOVES * sd if k < _FIRST else np.inf
        v = _MOMENTUM * v - _RATE * rate * np.clip(move, -most, most)
        x = x + v
        if k >= steps // 2:
            total, count = total + x, count + 1
        # In units of the posterior's sds, not of sd: at first any step would look short
        settled = settled + 1 if np.mean(mean**2 / bounded) < 0.01 else 0
        if settled >= 3:
            return x, sd
    if finite <= steps // 2:
        # Where the density is not defined the fit can only halve its sds
        raise TuningError(
            "the fit of independent normals met gradients that are not finite, or of absurd size, "
            f"in {steps - finite} of its {steps} steps. {NEARER}"
        )
    return (total / count if count else x), sd
