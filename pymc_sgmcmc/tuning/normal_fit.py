"""Step 2 of tuning: independent normals, fitted to gradients by natural-gradient steps.

Each step takes pairs x ± σe of opposite positions, each pair on batches of its own. Their mean
gradient moves x, and their difference is curvature along e.
"""

from __future__ import annotations

import numpy as np

from pymc_sgmcmc.kernel.pair_sums import PairSums
from pymc_sgmcmc.tuning.curvature import LEAST_CURVATURE, Stiffness
from pymc_sgmcmc.tuning.failure import failed_step, named_step
from pymc_sgmcmc.tuning.passes import LEAST_STEPS, PAIRS, PASSES, Passes, random_signs
from pymc_sgmcmc.tuning.surface import (
    CLEAR,
    MOST_OF_MANY,
    TINY,
    Flat,
    Rng,
    Surface,
    antithetic,
)

_FIT = "the fit of independent normals"

_RATE, _MOMENTUM = 0.18, 0.7
# Sds before anything is known
NARROW = 1e-3
# First steps, whose curvature may be unreliable, its weight there, and the largest move in sds
_FIRST, _FIRST_WEIGHT, _MOST_MOVES = 50, 0.3, 30.0

# Of fits with few parameters: passes, least and most steps; share of these at the full rate where
# gradients are noisy, fall of the rate afterwards, and least weight of a step's curvature
_PASSES, _LEAST_STEPS, _MOST_STEPS = 60, 200, 10_000
_FULL_RATE, _FALL_OF_FEW, _LEAST_WEIGHT = 1 / 15, 2.5, 0.03
# Factor of the known curvature above which a step's is absurd
_ABSURD = 1e12
# Squared slope, in sds, below which x has settled, and for how many steps
_SLOPE, _STEPS_SETTLED = 0.01, 3

# Where a curvature may be 0, the precision is at least its standard error divided by this
_OF_ERROR = 1e3
# Least steps that an average remembers, and share of the rate where the start is nearly right
_LEAST_MEMORY, _NEAR = 8, 0.3
# Share of the steps at the full rate, the same with several batches a pair, and the fall afterwards
_SHARE, _SHARE_OF_SEVERAL, _FALL = 1 / 3, 1 / 2, 4.0
# Rate times the largest whitened curvature: steps diverge beyond 2 (1 + momentum)
_STABLE = 2.0
# Most times that steps at the full rate are added
_MOST_LONGER = 20
# Steps at which noise and curvature are measured first, while sds still grow
_EARLY = (8, 12, 16, 20, 24, 32, 40)
# With several batches a pair: steps between measurements, and the factor by which the limit of a
# coordinate's moves grows
_EACH, _GROWTH = 25, 1.5


@named_step(_FIT)
def diagonal_gaussian(surface: Surface, start: Flat, rng: Rng) -> tuple[Flat, Flat]:
    """Fit mean and sds of independent normals, shape (d,), to at most some hundred parameters."""
    d = len(start)
    x, velocity, total, count = start.copy(), _Velocity(d), np.zeros(d), 0
    sd, precision = np.full(d, NARROW), np.zeros(d)
    steps = int(np.clip(_PASSES * surface.n_blocks // PAIRS, _LEAST_STEPS, _MOST_STEPS))
    settled, failed = 0, 0
    # The noise of batches keeps x moving, and σ would grow as if the posterior were wider
    full_rate = max(_FIRST, int(_FULL_RATE * steps)) if surface.n_blocks > 1 else steps
    for k in range(steps):
        falling = 1 / (1 + _FALL_OF_FEW * max(0, k - full_rate) / full_rate)
        e = antithetic(rng, PAIRS, d)
        rows = np.repeat(surface.draw_rows(rng, PAIRS), 2, axis=0)
        g = surface.batch_gradient(x + sd * e, rows)
        mean = g.mean(axis=0)
        curvature = ((g[::2] - g[1::2]) * e[::2]).mean(axis=0) / (2 * sd)
        # Widths that follow a gradient of absurd size would not come back
        if not np.all(np.isfinite(g)) or curvature.max() > _ABSURD * precision.max() > 0:
            sd = sd / 2
            velocity.stop()
            failed += 1
            continue
        weight = max(_FIRST_WEIGHT * falling, _LEAST_WEIGHT) if k else 1.0
        precision = (1 - weight) * precision + weight * np.maximum(curvature, 0)
        # Along a coordinate without curvature U falls over the inverse of its slope
        flat = precision < LEAST_CURVATURE * precision.max()
        precise = np.where(flat, mean**2, precision)
        precise = np.maximum(precise, LEAST_CURVATURE * precise.max() + TINY)
        sd = np.minimum(np.minimum(1 / np.sqrt(precise), 3 * sd), surface.widest)
        # While sd is still far below the posterior's, steps are short, not wrong
        velocity.farthest = _MOST_MOVES if k < _FIRST else np.inf
        x = x + velocity.after(mean, sd, _RATE * falling)
        if k >= steps // 2:
            total, count = total + x, count + 1
        # A fit that starts at a mode has no slope before its sds have grown
        grown = bool(np.all(sd >= np.minimum(1 / np.sqrt(precise), surface.widest)))
        # In units of the posterior's sds, not of sd: at first any step would look short
        settled = settled + 1 if grown and np.mean(mean**2 / precise) < _SLOPE else 0
        if settled >= _STEPS_SETTLED:
            return x, sd
    # Where the density is not defined the fit can only halve its sds
    _refuse_failures(failed, steps, steps - steps // 2, ", or of absurd size,")
    return total / count if count else x, sd


@named_step(_FIT)
def gaussian_of_many(
    surface: Surface,
    start: Flat,
    rng: Rng,
    known: Flat | None = None,  # sds that are nearly right, (d,), and need fewer passes
    *,
    patient: bool = False,  # steps at the full rate go on while U falls
    trusted: Flat | None = None,  # known sds that say more than a batch's noise, (d,)
) -> tuple[Flat, Flat]:
    r"""Fit mean and sds of independent normals, shape (d,), in passes over the data.

    A precision is the mean of :math:`(g_+ - g_-) s / 2\sigma` at pairs x ± σs where that is
    positive, else the variance of a batch's gradient times B / N (Martens, 2020, JMLR 21).
    """
    d, passes, stiffness = len(start), Passes(surface, rng), Stiffness(surface, rng)
    parts = surface.n_blocks / passes.batches
    fresh, several = known is None, stiffness.several
    schedule = _Schedule(surface, passes, several=several, fresh=fresh, patient=patient and fresh)
    widths, velocity = _Widths(surface, known, trusted), _Velocity(d, grows=several)
    x, total, count = start.copy(), np.zeros(d), 0
    k, highest, failed = -1, _RATE, 0
    while (k := k + 1) < schedule.steps:
        schedule.lengthen(k, x)
        if schedule.measures(k):
            # Factors still near 0 seem uninformed, and sds would follow their growth too late
            noise = np.ones(1) if several else widths.noise * widths.sd**2
            noise = noise * surface.n_blocks / (PAIRS * passes.batches)
            # With noise x varies at most as the fitted normals do: effects that fluctuate more
            # would drive a slope that multiplies them to 0
            fluctuating = max(float(np.quantile(noise, MOST_OF_MANY)), TINY)
            by_noise = 2 * (1 - _MOMENTUM) / fluctuating
            highest = min(_RATE, _STABLE / stiffness.at(x, widths.sd), by_noise)
        signs = random_signs(rng, d)
        sums = surface.pair_sums(x, widths.sd, signs, passes.draw())
        if sums.count < PAIRS:
            # The density is not defined so far away
            failed += 1
            widths.sd = widths.sd / 2
            velocity.stop()
            continue
        widths.learn(sums, *schedule.weights(k), parts)
        if fresh and k < _EARLY[0]:
            # Sds first: how far a move may go is not known yet
            continue
        free = surface.unbounded | (k >= schedule.held)
        x = x + velocity.after(sums.middle / PAIRS, widths.sd, schedule.rate(k, highest), free)
        if k >= schedule.settled:
            # The noise of batches keeps x moving: the later half is averaged
            total, count = total + x, count + 1
    _refuse_failures(failed, schedule.steps, schedule.steps // 2 + 1)
    if np.any((widths.curvature == 0) & (widths.noise == 0)):
        raise failed_step(
            _FIT,
            "the density is flat along some coordinate. A variable has no proper prior. Give every "
            "variable a proper prior",
        )
    return total / count if count else x, widths.quiet()


class _Schedule:
    """The steps of a fit: how fast, what moves, and how much of the past counts."""

    def __init__(
        self, surface: Surface, passes: Passes, *, several: bool, fresh: bool, patient: bool
    ) -> None:
        in_pass = surface.n_blocks // (PAIRS * passes.batches)
        self._surface, self._fresh = surface, fresh
        self._memory = max(_LEAST_MEMORY, in_pass)
        self.steps = max(LEAST_STEPS, (PASSES if fresh else PASSES // 2) * in_pass)
        self.full_rate = int(self.steps * (_SHARE_OF_SEVERAL if several else _SHARE))
        self._half, self._before = self.full_rate // 2, np.inf
        self._looks = [self._half, self.full_rate]
        self._additions = _MOST_LONGER if patient else 0
        self._each = _EACH if several else max(_FIRST, self._memory)
        self.held = 0
        if fresh and surface.unbounded.any():
            # Scales and slopes move last: the data would drive them to 0 while they multiply
            # effects that are still random
            self.held = 2 * (self._memory if several else max(_FIRST, self._memory))

    @property
    def settled(self) -> int:
        """The first step of those that are averaged."""
        return max(self.steps // 2, self.full_rate)

    def lengthen(self, k: int, x: Flat) -> None:
        """Add steps at the full rate at step k if U still falls, as it does far from the data."""
        if k not in self._looks or not self._additions:
            return
        u = float(self._surface.full(x[None])[0][0])
        fell, self._before = self._before - u, u
        # One sd in every coordinate changes U by d / 2
        if k == self._looks[-1] and fell > len(x):
            self._additions -= 1
            self._looks = [k + self._half]
            self.steps, self.full_rate = self.steps + self._half, self.full_rate + self._half

    def measures(self, k: int) -> bool:
        """Return whether curvature and noise are measured at step k."""
        return k in _EARLY or k % self._each == 0

    def rate(self, k: int, highest: float) -> float:
        """Return the rate of step k."""
        falling = 1 + _FALL * max(0, k - self.full_rate) / self.full_rate
        return (1.0 if self._fresh else _NEAR) * highest / falling

    def weights(self, k: int) -> tuple[float, float]:
        """Return the weight of step k's pairs in averages, and the pairs in these."""
        # Once x has settled the curvature is averaged as x is
        kept = self._memory + max(0, k - self.settled)
        if not self._fresh:
            return 1 / kept, PAIRS * kept
        if k >= _FIRST:
            return max(1 / kept, 1 / (k + 1)), PAIRS * min(k + 1, kept)
        weight = max(1 / kept, 1 / (k + 1), _FIRST_WEIGHT if k else 0.0)
        return weight, PAIRS * min(k + 1, 1 / _FIRST_WEIGHT)


class _Widths:
    """Running ``sd``, ``curvature`` and ``noise``, a batch's variance times B / N, shape (d,)."""

    def __init__(self, surface: Surface, known: Flat | None, trusted: Flat | None) -> None:
        d = surface.dimension
        self._trusted = np.zeros(d, dtype=bool) if trusted is None else trusted
        self._widest = surface.widest
        self.sd = np.full(d, NARROW) if known is None else known.copy()
        self.curvature, self.noise = np.zeros(d) if known is None else known**-2.0, np.zeros(d)
        self._known, self._squared = self.curvature.copy(), self.curvature**2

    def learn(self, sums: PairSums, weight: float, seen: float, parts: float) -> None:
        """Add a step's pairs, on 1 / ``parts`` of the data each, to averages over ``seen``."""
        n, sd = PAIRS, self.sd
        self.curvature += weight * (sums.change / (2 * n * sd) - self.curvature)
        self._squared += weight * (sums.change_squared / (4 * n * sd**2) - self._squared)
        variance = np.maximum(sums.middle_squared / n - (sums.middle / n) ** 2, 0) * n / (n - 1)
        self.noise += weight * (variance / parts * (parts > 1) - self.noise)
        error = np.sqrt(np.maximum(self._squared - self.curvature**2, 0) / seen)
        elsewhere = np.maximum(np.maximum(self.curvature, self.noise), error / _OF_ERROR)
        elsewhere = np.where(self._trusted, self._known, elsewhere)
        precision = np.where(self.curvature > CLEAR * error, self.curvature, elsewhere)
        # Whatever the widths of others are: units differ
        wide = 1 / np.sqrt(np.maximum(precision, TINY))
        self.sd = np.minimum(np.minimum(wide, 3 * sd), self._widest)

    def quiet(self) -> Flat:
        """Return sds, lower where noise beyond the curvature would ask for many batches."""
        noise = np.where(self._trusted, 0.0, self.noise)
        return np.minimum(self.sd, np.maximum(noise, TINY) ** -0.5)


class _Velocity:
    """The moves of successive steps, with momentum and a limit in sds.

    A scale informed by millions of rows starts thousands of its sds away: where ``grows``, the
    limit of a coordinate that keeps its direction grows.
    """

    def __init__(self, dimension: int, *, grows: bool = False) -> None:
        self._v, self._before = np.zeros(dimension), np.zeros(dimension)
        self.farthest: float | Flat = _MOST_MOVES
        self._grows = grows

    def stop(self) -> None:
        """Forget the momentum."""
        self._v = np.zeros(len(self._v))

    def after(self, mean: Flat, sd: Flat, rate: float, free: Flat | bool = True) -> Flat:
        """Return the move after a mean gradient, of the free coordinates, shape (d,)."""
        move, most = mean * sd**2, self.farthest * sd
        self._v = (_MOMENTUM * self._v - rate * np.clip(move, -most, most)) * free
        if self._grows:
            onwards = free & (np.abs(move) > most) & (move * self._before > 0)
            self.farthest = np.where(onwards, _GROWTH * self.farthest, _MOST_MOVES)
            self._before = move
        return self._v


def _refuse_failures(count: int, steps: int, least: int, more: str = "") -> None:
    """Raise TuningError if too many steps failed."""
    if count >= least:
        raise failed_step(_FIT, f"gradients are not finite{more} in {count} of its {steps} steps")
