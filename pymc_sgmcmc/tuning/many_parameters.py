"""Step 2 of tuning with thousands of parameters, of which a batch may touch only a few."""

from __future__ import annotations

import numpy as np

from pymc_sgmcmc.kernel.pair_sums import PairSums
from pymc_sgmcmc.tuning.failure import NEARER, named_step
from pymc_sgmcmc.tuning.stiffness import largest_curvature_of_batches
from pymc_sgmcmc.tuning.surface import Surface, TuningError

__all__ = ["draw_pairs", "gaussian_of_many"]

# Pairs of a step: fewer where a gradient is as large as the memory of many
_PAIRS, _FEW_PAIRS, _LARGE = 8, 2, 300_000
_LEAST_STEPS, _PASSES = 400, 20
_LEAST_MEMORY = 8

# First steps, in which the curvature at a start may say little, and how many sds one may move
_FIRST, _FIRST_WEIGHT = 50, 0.3
_MOST_MOVES = 30.0

# Standard errors above zero from which on a curvature is known to be positive
_KNOWN = 3.0

_RATE, _MOMENTUM = 0.18, 0.7
# Share of the rate where the start is nearly right
_NEAR = 0.3
_SHARE_AT_FULL_RATE, _FALL = 1 / 3, 4.0
# Of the largest curvature in whitened coordinates: beyond 2 (1 + momentum) steps would diverge
_STABLE = 2.0
# Variance of x by the noise of batches, in units of the fitted ones, and for how many coordinates:
# effects that fluctuate more would lead a slope that multiplies them to nothing
_FLUCTUATION, _MOST_OF_MANY = 1.0, 0.95
# Steps at which it is measured first, while sds still grow
_EARLY = (8, 12, 16, 20, 24, 32, 40)


@named_step("the fit of independent normals")
def gaussian_of_many(
    surface: Surface,
    start: np.ndarray,
    rng: np.random.Generator,
    known: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    r"""Fit mean and precision of an independent Gaussian by natural gradients.

    Each step takes pairs x ± σs of random signs s, each pair with batches of its own. Where it
    is clearly positive, the precision of a coordinate is the curvature
    :math:`(g_+ - g_-) s / 2\sigma`, averaged over about a pass: a coordinate that few rows touch
    is seen in few batches. Elsewhere, as along the indefinite directions of a net, it is what a
    well-specified likelihood has in common with its curvature, the variance of a batch's
    gradient times B / N [1]_.

    Parameters
    ----------
    surface : Surface
        The potential.
    start : ndarray
        φ, shape (d,).
    rng : numpy.random.Generator
        For batches and signs.
    known : ndarray, optional
        Sds that are nearly right, shape (d,): fewer passes are then enough.

    Returns
    -------
    mean, sd : ndarray
        Both of shape (d,).

    References
    ----------
    .. [1] Martens (2020). New insights and perspectives on the natural gradient method.
       JMLR 21, 1-76.
    """
    d, blocks = len(start), surface.n_blocks
    pairs, batches = _of_step(surface)
    in_pass = blocks // (pairs * batches)
    memory = max(_LEAST_MEMORY, in_pass)
    steps = max(_LEAST_STEPS, (_PASSES if known is None else _PASSES // 2) * in_pass)
    full_rate, held = int(steps * _SHARE_AT_FULL_RATE), 0
    if known is None and surface.unbounded.any():
        # First all but scales and slopes: where they multiply effects that are still random, the
        # data would lead them to nothing
        held = max(2 * _FIRST, 2 * memory)
    x, v, total = start.copy(), np.zeros(d), np.zeros(d)
    widths = _Widths(surface, known)
    sd = widths.sd
    highest, count, failed = _RATE, 0, 0
    for k in range(steps):
        if k in _EARLY or k % max(_FIRST, memory) == 0:
            stiff = largest_curvature_of_batches(surface, x, sd, pairs, rng)
            highest = _highest_rate(stiff, widths.noise * sd**2 * blocks / (pairs * batches))
        falling = 1 + _FALL * max(0, k - full_rate) / full_rate
        rate = (1.0 if known is None else _NEAR) * highest / falling
        signs = (2 * rng.integers(0, 2, (pairs, d), dtype=np.int8) - 1).astype(np.int8)
        found = surface.pair_sums(x, sd, signs, draw_pairs(surface, rng))
        n = found.count
        if n < pairs:
            # The density is not defined so far away
            failed += 1
            sd = widths.sd = sd / 2
            v = np.zeros(d)
            continue
        # Once x has settled the curvature is averaged as x is
        kept = memory + max(0, k - steps // 2)
        weight = 1 / kept
        first = k < _FIRST and known is None
        if known is None:
            weight = max(weight, 1 / (k + 1), _FIRST_WEIGHT if first and k else 0.0)
        seen = n * min(k + 1 if known is None else kept, 1 / _FIRST_WEIGHT if first else kept)
        widths.learn(found, weight, seen, blocks / batches)
        mean, sd = found.middle / n, widths.sd
        if known is None and k < _EARLY[0]:
            # Sds first: how far a move may go is not known yet
            continue
        most = _MOST_MOVES * sd
        v = _MOMENTUM * v - rate * np.clip(mean * sd**2, -most, most)
        v = v * (surface.unbounded | (k >= held))
        x = x + v
        if k >= steps // 2:
            # The noise of batches keeps x moving: the later half is averaged
            total, count = total + x, count + 1
    _refuse(failed, steps, (widths.curvature == 0) & (widths.noise == 0))
    x = total / count if count else x
    # Gradients that are noisier than their curvature says would ask for many batches
    return x, np.minimum(sd, np.maximum(widths.noise, 1e-300) ** -0.5)


class _Widths:
    """Sds of the coordinates, by averages over what steps have seen.

    Attributes
    ----------
    sd : ndarray
        Shape (d,).
    curvature, noise : ndarray
        The mean curvature, and the variance of a batch's gradient times B / N, shape (d,).
    """

    def __init__(self, surface: Surface, known: np.ndarray | None) -> None:
        d = surface.dimension
        self._widest = surface.widest
        self.sd = np.full(d, 1e-3) if known is None else known.copy()
        self.curvature, self.noise = np.zeros(d) if known is None else known**-2.0, np.zeros(d)
        self._squared = self.curvature**2

    def learn(self, found: PairSums, weight: float, seen: float, blocks: float) -> None:
        """Average over a step's pairs too: ``seen`` of them in all, each of one of ``blocks``."""
        n, sd = found.count, self.sd
        self.curvature += weight * (found.change / (2 * n * sd) - self.curvature)
        self._squared += weight * (found.change_squared / (4 * n * sd**2) - self._squared)
        variance = np.maximum(found.middle_squared / n - (found.middle / n) ** 2, 0) * n / (n - 1)
        self.noise += weight * (variance / blocks * (blocks > 1) - self.noise)
        error = np.sqrt(np.maximum(self._squared - self.curvature**2, 0) / seen)
        positive = self.curvature > _KNOWN * error
        elsewhere = np.maximum(np.maximum(self.curvature, self.noise), error / 1e3)
        precision = np.where(positive, self.curvature, elsewhere)
        precision = np.maximum(precision, 1e-12 * precision.max() + 1e-300)
        sd = np.minimum(1 / np.sqrt(precision), 3 * sd)
        self.sd = np.minimum(sd, self._widest)


def draw_pairs(surface: Surface, rng: np.random.Generator) -> np.ndarray:
    """Draw the batches of a step: one for each pair, or neighbours that share no rows.

    A batch that touches few of many parameters costs as much as several: what is computed of all
    parameters outweighs it. There are as many as leave enough steps.

    Returns
    -------
    ndarray
        Shape (pairs, minibatches), or (pairs, m, minibatches).
    """
    pairs, batches = _of_step(surface)
    rows = surface.draw_rows(rng, pairs)
    if batches == 1:
        return rows
    total, size = np.array(surface.sizes).T
    return (rows[:, None] + np.arange(batches)[:, None] * size) % total


def _of_step(surface: Surface) -> tuple[int, int]:
    """Return the pairs of a step and the batches of each."""
    pairs = _PAIRS if surface.dimension < _LARGE else _FEW_PAIRS
    return pairs, max(1, _PASSES * surface.n_blocks // (pairs * _LEAST_STEPS))


def _highest_rate(stiff: float, noise: np.ndarray) -> float:
    """Return the rate that curvature and noise of a step allow, both in units of the sds."""
    fluctuating = max(float(np.quantile(noise, _MOST_OF_MANY)), 1e-300)
    return min(_RATE, _STABLE / stiff, 2 * (1 - _MOMENTUM) * _FLUCTUATION / fluctuating)


def _refuse(failed: int, steps: int, flat: np.ndarray) -> None:
    """Raise where too many steps failed, or where coordinates are without curvature."""
    if failed > steps // 2:
        raise TuningError(
            "the fit of independent normals met gradients that are not finite in "
            f"{failed} of its {steps} steps. {NEARER}"
        )
    if np.any(flat):
        raise TuningError(
            "the fit of independent normals met a density without curvature along some "
            f"coordinate: no proper prior. Give every variable a proper prior. {NEARER}"
        )
