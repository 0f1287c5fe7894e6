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

# First steps, in which the curvature at a start may say little, and how many sds one may move
_FIRST, _FIRST_WEIGHT = 50, 0.3
_MOST_MOVES = 30.0

# Standard errors above zero from which on a curvature is known to be positive
_KNOWN = 3.0

_RATE, _MOMENTUM = 0.18, 0.7
# Share of the rate where the start is nearly right
_NEAR = 0.3
_SHARE_AT_FULL_RATE, _SHARE_OF_SEVERAL, _FALL = 1 / 3, 1 / 2, 4.0
# Of the largest curvature in whitened coordinates: beyond 2 (1 + momentum) steps would diverge
_STABLE = 2.0
# By how much U falls for each coordinate, in half of the steps at the full rate, where as many more
# are taken, and how often
_FALLING, _MOST_LONGER = 1.0, 20
# Variance of x by the noise of batches, in units of the fitted ones, and for how many coordinates:
# effects that fluctuate more would lead a slope that multiplies them to nothing
_FLUCTUATION, _MOST_OF_MANY = 1.0, 0.95
# Steps at which it is measured first, while sds still grow
_EARLY = (8, 12, 16, 20, 24, 32, 40)

# Where pairs have several batches each: power iterations of the first look at the curvature and of
# those that follow, steps from look to look, and by what the limit of a coordinate's moves grows
_FIRST_ROUNDS, _ROUNDS, _EACH, _GROWTH = 8, 2, 25, 1.5


@named_step("the fit of independent normals")
def gaussian_of_many(
    surface: Surface,
    start: np.ndarray,
    rng: np.random.Generator,
    known: np.ndarray | None = None,
    *,
    patient: bool = False,
    trusted: np.ndarray | None = None,
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
    patient : bool
        Whether steps at the full rate go on while U falls.
    trusted : ndarray of bool, optional
        Whose known sds say more than the noise of a batch, shape (d,).

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
    passes = Passes(surface, rng)
    batches, in_pass = passes.batches, blocks // (PAIRS * passes.batches)
    memory = max(_LEAST_MEMORY, in_pass)
    steps = max(LEAST_STEPS, (PASSES if known is None else PASSES // 2) * in_pass)
    several = (stiffness := Stiffness(surface, rng)).several
    full_rate = int(steps * (_SHARE_OF_SEVERAL if several else _SHARE_AT_FULL_RATE))
    descent = _Descent(surface, full_rate, ends=not patient or known is not None)
    held, each = 0, _EACH if several else max(_FIRST, memory)
    if known is None and surface.unbounded.any():
        # First all but scales and slopes: where they multiply effects that are still random, the
        # data would lead them to nothing
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
            # Data seem to tell little of factors that are still nothing, and sds would follow their
            # growth too late
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
    """Says when steps at the full rate have to go on.

    Where they begin far from the data the noise of batches is large and the rate small, and the
    way down may be longer than so many steps.
    """

    def __init__(self, surface: Surface, length: int, *, ends: bool) -> None:
        self._surface, self._length = surface, length
        self._looks, self._before = [length // 2, length], np.inf
        self._left = 0 if ends else _MOST_LONGER

    def longer(self, k: int, x: np.ndarray) -> int:
        """Return how many steps are to be added at step k, at x."""
        if k not in self._looks or not self._left:
            return 0
        u = float(self._surface.full(x[None])[0][0])
        fell, self._before = self._before - u, u
        # A sd of each coordinate is worth d / 2
        if k != self._looks[-1] or not fell > _FALLING * len(x):
            return 0
        self._left -= 1
        self._looks = [k + self._length // 2]
        return self._length // 2


class _Widths:
    """Sds of the coordinates, by averages over what steps have seen.

    Attributes
    ----------
    sd : ndarray
        Shape (d,).
    curvature, noise : ndarray
        The mean curvature, and the variance of a batch's gradient times B / N, shape (d,).
    """

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
        """Average over a step's pairs too: ``seen`` of them in all, each of one of ``blocks``."""
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
        """Return sds: gradients that are noisier than curvature says would ask for many batches."""
        noise = np.where(self._trusted, 0.0, self.noise)
        return np.minimum(self.sd, np.maximum(noise, 1e-300) ** -0.5)


class _Velocity:
    """The moves of successive steps, with momentum and a limit in sds.

    A scale of which millions of rows tell begins thousands of its sds away: where ``grows``, the
    limit of a coordinate that goes on in one direction grows.
    """

    def __init__(self, dimension: int, *, grows: bool) -> None:
        self._v, self._before = np.zeros(dimension), np.zeros(dimension)
        self._farthest: float | np.ndarray = _MOST_MOVES
        self._grows = grows

    def stop(self) -> None:
        """Forget the momentum."""
        self._v = np.zeros(len(self._v))

    def after(self, mean: np.ndarray, sd: np.ndarray, rate: float, free: np.ndarray) -> np.ndarray:
        """Return the move after a mean gradient, of the coordinates that are free to move."""
        move, most = mean * sd**2, self._farthest * sd
        self._v = (_MOMENTUM * self._v - rate * np.clip(move, -most, most)) * free
        if self._grows:
            onwards = free & (np.abs(move) > most) & (move * self._before > 0)
            self._farthest = np.where(onwards, _GROWTH * self._farthest, _MOST_MOVES)
            self._before = move
        return self._v


class Stiffness:
    """The largest curvature in units of the sds, from as many batches as a step averages.

    Fewer say too much of coordinates that few rows touch. Where a step's pairs have several batches
    each, a look costs a few steps, and goes on from the direction that the last one found.

    Parameters
    ----------
    surface : Surface
        The potential.
    rng : numpy.random.Generator
        For batches and directions.
    batches : int
        How many serve where a pair has one.

    Attributes
    ----------
    several : bool
        Whether a pair has several batches, with thousands of parameters.
    """

    def __init__(self, surface: Surface, rng: np.random.Generator, batches: int = PAIRS) -> None:
        self._surface, self._rng, self._batches = surface, rng, batches
        self._passes = Passes(surface, rng)
        self.several = self._passes.batches > 1 and surface.dimension > LARGEST_DENSE
        self._direction: np.ndarray | None = None

    def at(self, x: np.ndarray, sd: np.ndarray) -> float:
        """Return the largest eigenvalue by magnitude of σ ∇²U σ at x."""
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
