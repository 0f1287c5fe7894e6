"""Step 2 of tuning with thousands of parameters, of which a batch may touch only a few."""

from __future__ import annotations

import numpy as np

from pymc_sgmcmc.kernel.options import LARGEST_DENSE
from pymc_sgmcmc.kernel.pair_sums import PairSums
from pymc_sgmcmc.tuning.failure import NEARER, named_step
from pymc_sgmcmc.tuning.passes import LEAST_STEPS, PAIRS, PASSES, Passes
from pymc_sgmcmc.tuning.stiffness import largest_curvature_of_batches, largest_curvature_of_pairs
from pymc_sgmcmc.tuning.surface import Surface, TuningError

__all__ = ["Stiffness", "gaussian_of_many"]

_LEAST_MEMORY = 8

# First steps, whose curvature may be unreliable, its weight there, and the largest move in sds
_FIRST, _FIRST_WEIGHT = 50, 0.3
_MOST_MOVES = 30.0

# Standard errors above zero at which a curvature counts as positive
_KNOWN = 3.0

_RATE, _MOMENTUM = 0.18, 0.7
# Share of the rate where the start is nearly right
_NEAR = 0.3
_SHARE_AT_FULL_RATE, _SHARE_OF_SEVERAL, _FALL = 1 / 3, 1 / 2, 4.0
# Rate times the largest whitened curvature: steps diverge beyond 2 (1 + momentum)
_STABLE = 2.0
# Fall of U per coordinate, over half of the steps at the full rate, above which as many are added,
# and the most additions
_FALLING, _MOST_LONGER = 1.0, 20
# Largest variance of x from batch noise, in units of the fitted one, and the share of coordinates
# it holds for: effects that fluctuate more would drive a slope that multiplies them to 0
_FLUCTUATION, _MOST_OF_MANY = 1.0, 0.95
# Steps at which it is measured first, while sds still grow
_EARLY = (8, 12, 16, 20, 24, 32, 40)

# With several batches a pair: power iterations of the first and of later curvature estimates, steps
# between these, and the factor by which the limit of a coordinate's moves grows
_FIRST_ROUNDS, _ROUNDS, _EACH, _GROWTH = 8, 2, 25, 1.5


@named_step("the fit of independent normals")
def gaussian_of_many(
    surface: Surface,
    start: np.ndarray,
    rng: np.random.Generator,
    known: np.ndarray | None = None,  # sds that are nearly right, (d,), and need fewer passes
    *,
    patient: bool = False,  # steps at the full rate go on while U falls
    trusted: np.ndarray | None = None,  # known sds that say more than a batch's noise, (d,)
) -> tuple[np.ndarray, np.ndarray]:
    r"""Fit mean and sds of independent normals, shape (d,), by natural gradients.

    A precision is the mean of :math:`(g_+ - g_-) s / 2\sigma` at pairs x ± σs where that is
    positive, else the variance of a batch's gradient times B / N (Martens, 2020, JMLR 21).
    """
    d, blocks = len(start), surface.n_blocks
    passes = Passes(surface, rng)
    batches, in_pass = passes.batches, blocks // (PAIRS * passes.batches)
    memory = max(_LEAST_MEMORY, in_pass)
    steps = max(LEAST_STEPS, (PASSES if known is None else PASSES // 2) * in_pass)
    several = (stiffness := Stiffness(surface, rng)).several
    full_rate = int(steps * (_SHARE_OF_SEVERAL if several else _SHARE_AT_FULL_RATE))
    descent = _Descent(surface, full_rate, ends=not patient or known is not None)
    held, each = 0, _EACH if several else max(_FIRST, memory)
    if known is None and surface.unbounded.any():
        # Scales and slopes move last: the data would drive them to 0 while they multiply effects
        # that are still random
        held = 2 * memory if several else max(2 * _FIRST, 2 * memory)
    x, total = start.copy(), np.zeros(d)
    widths, velocity = _Widths(surface, known, trusted), _Velocity(d, grows=several)
    sd = widths.sd
    highest, count, failed = _RATE, 0, 0
    k = -1
    while (k := k + 1) < steps:
        longer = descent.longer(k, x)
        steps, full_rate = steps + longer, full_rate + longer
        settled = max(steps // 2, full_rate)
        if k in _EARLY or k % each == 0:
            # Factors still near 0 seem uninformed, and sds would follow their growth too late
            noise = np.ones(1) if several else widths.noise * sd**2
            stiff = stiffness.at(x, sd)
            highest = _highest_rate(stiff, noise * blocks / (PAIRS * batches))
        falling = 1 + _FALL * max(0, k - full_rate) / full_rate
        rate = (1.0 if known is None else _NEAR) * highest / falling
        signs = (2 * rng.integers(0, 2, (PAIRS, d), dtype=np.int8) - 1).astype(np.int8)
        found = surface.pair_sums(x, sd, signs, passes.draw())
        n = found.count
        if n < PAIRS:
            # The density is not defined so far away
            failed += 1
            sd = widths.sd = sd / 2
            velocity.stop()
            continue
        # Once x has settled the curvature is averaged as x is
        kept = memory + max(0, k - settled)
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
        x = x + velocity.after(mean, sd, rate, surface.unbounded | (k >= held))
        if k >= settled:
            # The noise of batches keeps x moving: the later half is averaged
            total, count = total + x, count + 1
    _refuse(failed, steps, (widths.curvature == 0) & (widths.noise == 0))
    x = total / count if count else x
    return x, widths.quiet()


class _Descent:
    """Decides when steps at the full rate have to go on.

    Far from the data the batch noise is large and the rate small, so the descent may take longer.
    """

    def __init__(self, surface: Surface, length: int, *, ends: bool) -> None:
        self._surface, self._length = surface, length
        self._looks, self._before = [length // 2, length], np.inf
        self._left = 0 if ends else _MOST_LONGER

    def longer(self, k: int, x: np.ndarray) -> int:
        """Return how many steps to add at step k, at x."""
        if k not in self._looks or not self._left:
            return 0
        u = float(self._surface.full(x[None])[0][0])
        fell, self._before = self._before - u, u
        # One sd in every coordinate changes U by d / 2
        if k != self._looks[-1] or not fell > _FALLING * len(x):
            return 0
        self._left -= 1
        self._looks = [k + self._length // 2]
        return self._length // 2


class _Widths:
    """Running ``sd``, ``curvature`` and ``noise``, a batch's variance times B / N, shape (d,)."""

    def __init__(
        self, surface: Surface, known: np.ndarray | None, trusted: np.ndarray | None
    ) -> None:
        d = surface.dimension
        self._trusted = np.zeros(d, dtype=bool) if trusted is None else trusted
        self._widest = surface.widest
        self.sd = np.full(d, 1e-3) if known is None else known.copy()
        self.curvature, self.noise = np.zeros(d) if known is None else known**-2.0, np.zeros(d)
        self._known, self._squared = self.curvature.copy(), self.curvature**2

    def learn(self, found: PairSums, weight: float, seen: float, blocks: float) -> None:
        """Add a step's pairs, on 1 / ``blocks`` of the data each, to averages over ``seen``."""
        n, sd = found.count, self.sd
        self.curvature += weight * (found.change / (2 * n * sd) - self.curvature)
        self._squared += weight * (found.change_squared / (4 * n * sd**2) - self._squared)
        variance = np.maximum(found.middle_squared / n - (found.middle / n) ** 2, 0) * n / (n - 1)
        self.noise += weight * (variance / blocks * (blocks > 1) - self.noise)
        error = np.sqrt(np.maximum(self._squared - self.curvature**2, 0) / seen)
        positive = self.curvature > _KNOWN * error
        elsewhere = np.maximum(np.maximum(self.curvature, self.noise), error / 1e3)
        elsewhere = np.where(self._trusted, self._known, elsewhere)
        precision = np.where(positive, self.curvature, elsewhere)
        precision = np.maximum(precision, 1e-12 * precision.max() + 1e-300)
        sd = np.minimum(1 / np.sqrt(precision), 3 * sd)
        self.sd = np.minimum(sd, self._widest)

    def quiet(self) -> np.ndarray:
        """Return sds, lower where noise beyond the curvature would ask for many batches."""
        noise = np.where(self._trusted, 0.0, self.noise)
        return np.minimum(self.sd, np.maximum(noise, 1e-300) ** -0.5)


class _Velocity:
    """The moves of successive steps, with momentum and a limit in sds.

    A scale informed by millions of rows starts thousands of its sds away: where ``grows``, the
    limit of a coordinate that keeps its direction grows.
    """

    def __init__(self, dimension: int, *, grows: bool) -> None:
        self._v, self._before = np.zeros(dimension), np.zeros(dimension)
        self._farthest: float | np.ndarray = _MOST_MOVES
        self._grows = grows

    def stop(self) -> None:
        """Forget the momentum."""
        self._v = np.zeros(len(self._v))

    def after(self, mean: np.ndarray, sd: np.ndarray, rate: float, free: np.ndarray) -> np.ndarray:
        """Return the move after a mean gradient, of the free coordinates, shape (d,)."""
        move, most = mean * sd**2, self._farthest * sd
        self._v = (_MOMENTUM * self._v - rate * np.clip(move, -most, most)) * free
        if self._grows:
            onwards = free & (np.abs(move) > most) & (move * self._before > 0)
            self._farthest = np.where(onwards, _GROWTH * self._farthest, _MOST_MOVES)
            self._before = move
        return self._v


class Stiffness:
    """The largest curvature in units of the sds, from as many batches as a step averages.

    Fewer would overstate coordinates that few rows touch. With ``several`` batches a pair, an
    estimate costs a few steps and continues from the direction of the last one.
    """

    def __init__(self, surface: Surface, rng: np.random.Generator, batches: int = PAIRS) -> None:
        self._surface, self._rng, self._batches = surface, rng, batches
        self._passes = Passes(surface, rng)
        self.several = self._passes.batches > 1 and surface.dimension > LARGEST_DENSE
        self._direction: np.ndarray | None = None

    def at(self, x: np.ndarray, sd: np.ndarray) -> float:
        """Return the largest absolute eigenvalue of σ ∇²U σ at x."""
        if not self.several:
            return largest_curvature_of_batches(self._surface, x, sd, self._batches, self._rng)
        direction, rounds = self._direction, _ROUNDS
        if direction is None:
            direction, rounds = self._rng.standard_normal(len(x)), _FIRST_ROUNDS
        size, self._direction = largest_curvature_of_pairs(
            self._surface, x, sd, self._passes.draw(), direction, rounds
        )
        return size


def _highest_rate(stiff: float, noise: np.ndarray) -> float:
    """Return the rate that a step's curvature and noise allow, both in units of the sds."""
    fluctuating = max(float(np.quantile(noise, _MOST_OF_MANY)), 1e-300)
    return min(_RATE, _STABLE / stiff, 2 * (1 - _MOMENTUM) * _FLUCTUATION / fluctuating)


def _refuse(failed: int, steps: int, flat: np.ndarray) -> None:
    """Raise TuningError if too many steps failed, or if coordinates have no curvature."""
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
