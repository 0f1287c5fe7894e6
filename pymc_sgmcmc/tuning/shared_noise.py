r"""Whether gradient noise is of a kind that a thermostat of each coordinate cannot undo.

Each thermostat measures its own coordinate's noise, on average, and keeps its mean kinetic energy
right. With friction ξ a share r = hσ²/2ξ of what balances it is noise n, of variance r in each
coordinate, and the temperatures along all directions are T = 1 + E nnᵀ − diag. Where the
posterior's precision is H = 1 + E, the covariance of positions changes by

.. math:: \Delta = (T - 1) - \tfrac12 (E(T - 1) + (T - 1)E),

and the mean of a coordinate s by −½ tr(GΔ), where G is the second derivative of its gradient.
Variances of single coordinates stay right if the posterior has no correlations. The error shows

1. in a variable of few elements that is a sum of coordinates, such as a mean;
2. in a scale of all coordinates, which batches move in few directions, their own;
3. where noise grows along a coordinate, as towards small scales;
4. where it is strongest along directions in which the posterior is narrow: a batch of a
   regression's rows has T − 1 like E, and with few rows of many correlated columns all
   coefficients' sds are too small. Each error is small, but their scale depends on the sum.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pymc_sgmcmc.chain.monitor import LARGEST_ERROR
from pymc_sgmcmc.kernel.policy import Policy
from pymc_sgmcmc.tuning.bounds import within_noise
from pymc_sgmcmc.tuning.directions import Turn, is_small
from pymc_sgmcmc.tuning.noise import GradientNoise, most_of_each
from pymc_sgmcmc.tuning.surface import (
    CLEAR,
    MOST_OF_MANY,
    TINY,
    Flat,
    Points,
    Rng,
    Root,
    Rows,
    Surface,
    ranges_of,
)

# Numbers in gradients that are evaluated in one call
_LARGEST = 2**21

# Least elements of variables that are checked together
_LARGE = 100

# Least and most batches of a measurement
_LEAST, _MOST = 16, 256

# Most batches that measure the slopes of temperatures, and the patterns of signs at which they do
_EACH, _PATTERNS = 64, 2

# Move along a batch's gradient, in sds of the coordinates
_MOVE = 0.1

# Positions of the bulk at which noise along sums of coordinates is measured, and the factor of
# single coordinates' noise above which that is no chance
_POSITIONS, _TOGETHER = 4, 2.0

# Most by which a small variable's variance may be wrong, most heat in units of a scale's own noise,
# and the largest slope of a temperature over an sd, whose hyperbolic tangent is bounded
_WRONG, _HEATED, _STEEPEST, _MOST_TANGENT = 0.2, 1.0, 0.2, 0.99


class WhitenedGradients:
    """Gradients of a surface for ψ, where φ = m + L turn(ψ), L diagonal of shape (d,)."""

    def __init__(self, surface: Surface, centre: Flat, root: Root, turn: Turn | None) -> None:
        self.surface, self.turn, self._centre, self._root = surface, turn, centre, root

    def pulled(self, gradient: Points) -> Points:
        """Return gradients with respect to ψ, shape (n, d)."""
        whitened = gradient * self._root
        return whitened if self.turn is None else self.turn.pull_back(whitened)

    def __call__(self, psi: np.ndarray, rows: Rows) -> Points:
        """Return gradients of batches at one position, or one position each, shape (n, d)."""
        turned = psi if self.turn is None else self.turn(psi)
        phi = np.broadcast_to(self._centre + self._root * turned, (len(rows), len(self._centre)))
        each = max(2, _LARGEST // phi.shape[1])
        parts = [
            self.surface.batch_gradient(phi[k : k + each], rows[k : k + each])
            for k in range(0, len(rows), each)
        ]
        return self.pulled(np.concatenate(parts))

    def noise_around(self, spread: Root, rng: Rng) -> tuple[Points, Points]:
        """Return noise of plain and of anchored gradients at points of the bulk, each (n, d)."""
        d = len(self._centre)
        each = int(np.clip(_LARGEST // d, _LEAST, _MOST)) // _POSITIONS
        both: list[tuple[Points, Points]] = []
        for e in rng.standard_normal((_POSITIONS, d)):
            rows = self.surface.draw_rows(rng, each)
            there = self((spread @ e if spread.ndim == 2 else spread * e) / self._root, rows)
            away = there - self(np.zeros(d), rows)
            both.append((there - there.mean(axis=0), away - away.mean(axis=0)))
        plain, controlled = map(np.concatenate, zip(*both, strict=True))
        return np.nan_to_num(plain), np.nan_to_num(controlled)


def noise_in_common(
    gradients: WhitenedGradients, variance: Flat, policy: Policy, sizes: Sequence[int], rng: Rng
) -> bool:
    """Return whether some variable would be wrong with as much noise as thermostats absorb.

    ``variance`` is one batch's in each coordinate, and ``sizes`` are the variables'. The
    generator's own draws stay the same.
    """
    bound = policy.noise_of_many
    if bound is None:
        return False
    batches = max(1.0, most_of_each(variance, sizes) / bound)
    averaged = np.minimum(variance / batches, bound)
    h = min(policy.step_size, within_noise(policy, averaged).min())
    share = h * averaged / (2 + h * averaged)
    noise = SharedNoise(gradients, variance, share, sizes, rng.spawn(1)[0])
    return (
        (gradients.turn is not None and bool(np.any(noise.errors_of_small() > _WRONG)))
        or bool(np.any(noise.heat(batches) > _HEATED))
        or bool(np.any(noise.slopes() > _STEEPEST))
        or noise.is_along_curvature()
    )


def noise_together(
    gradients: WhitenedGradients, spread: Root, noise: GradientNoise, rng: Rng
) -> tuple[float, float]:
    """Return a batch's largest plain and anchored variances along sums of coordinates, or 0.

    Batches of rows with correlated columns are noisiest along directions in which the posterior is
    narrow, which a diagonal L leaves as they are. The anchored gradients of half of the batches
    show a direction, the others the variances along it. 0 stands for one that chance explains.
    ``spread`` is L of the bulk.
    """
    halves = [gradients.noise_around(spread, rng) for _ in range(2)]
    # Few coordinates that are noisier take shorter steps
    most = [float(np.quantile(v, MOST_OF_MANY)) for v in (noise.plain, noise.controlled)]
    plain, controlled = (
        np.sqrt(np.minimum(1, m / np.maximum(v, TINY)))
        for m, v in zip(most, (noise.plain, noise.controlled), strict=True)
    )
    shown = halves[0][1] * controlled
    values, vectors = np.linalg.eigh(shown @ shown.T)
    along = vectors[:, -1] @ shown / max(values[-1], TINY) ** 0.5
    largest = []
    for of_batches, alike, m in zip(halves[1], (plain, controlled), most, strict=True):
        variance = float(np.sum((of_batches @ (alike * along)) ** 2))
        variance /= len(of_batches) - _POSITIONS
        largest.append(variance if variance > _TOGETHER * m else 0.0)
    return largest[0], largest[1]


class SharedNoise:
    """What one batch's ``variance`` and its ``share`` of the heat, shape (d,), do to variables."""

    def __init__(
        self,
        gradients: WhitenedGradients,
        variance: Flat,
        share: Flat,
        sizes: Sequence[int],
        rng: Rng,
    ) -> None:
        self._gradients, self._rng = gradients, rng
        self._draw = gradients.surface.draw_rows
        self._variance, self._share, self._zero = variance, share, np.zeros(len(share))
        # From a batch's gradient to its heat
        self._scale = np.sqrt(
            np.divide(share, variance, out=np.zeros_like(share), where=variance > 0)
        )
        self._small = np.flatnonzero(is_small(sizes))
        self._large = [slice(r.start, r.stop) for r in ranges_of(sizes) if len(r) >= _LARGE]

    def errors_of_small(self) -> Flat:
        """Return the errors of small variables' variances, relative to these."""
        noise = self._gradients(self._zero, self._draw(self._rng, _MOST))
        errors = []
        for k in self._small:
            one = np.zeros((1, noise.shape[1]))
            one[0, k] = 1
            parts = self._gradients.pulled(one)[0]
            together = np.var(noise @ (parts * self._scale), ddof=1)
            errors.append(abs(together - parts**2 @ self._share) / (parts @ parts))
        return np.array(errors)

    def heat(self, batches: float) -> Flat:
        """Return small variables' heat from noise where batches have moved all others.

        A share r of the chain's variance is along the noise of the data's batches, and a batch's
        gradient change along its own noise recurs as often as the batch.
        """
        gradients, few = self._gradients, self._small
        rows = self._draw(self._rng, _LEAST)
        at_centre = gradients(self._zero, rows)
        away = at_centre - at_centre.mean(axis=0)
        moved = _MOVE * away * self._scale
        own = (gradients(moved, rows) - at_centre)[:, few]
        others = np.roll(rows, 1, axis=0)
        control = (gradients(moved, others) - np.roll(at_centre, 1, axis=0))[:, few]
        # Changes of other batches' gradients are the change of the mean, and noise
        change = np.mean(own * (own - control), axis=0) / _MOVE**2
        own_noise = np.maximum(self._variance[few], TINY)
        heat = change * batches / gradients.surface.n_blocks / own_noise
        return np.where(np.isfinite(heat), heat, 0.0) * self._share[few]

    def slopes(self) -> Flat:
        """Return changes of temperatures over an sd of large variables' coordinates."""
        d = len(self._share)
        each = int(np.clip(_LARGEST // d, _LEAST, _EACH))
        rise, total = np.zeros(d), np.zeros(d)
        for _ in range(_PATTERNS):
            signs, rows = self._rng.choice([-1.0, 1.0], size=d), self._draw(self._rng, each)
            for side in (1.0, -1.0):
                variance = self._gradients(side * signs, rows).var(axis=0)
                rise += side * signs * variance
                total += variance
        tangents = [
            (self._share[of].mean(), rise[of].sum() / total[of].sum())
            for of in self._large
            if total[of].sum() > 0
        ]
        slopes = [r * np.arctanh(np.clip(t, -_MOST_TANGENT, _MOST_TANGENT)) for r, t in tangents]
        return np.abs(np.nan_to_num(np.array(slopes)))

    def is_along_curvature(self) -> bool:
        """Return whether large variables' variances, or what depends on them, would be wrong."""
        # Far along noise a model may not be finite, which counts as no error
        with np.errstate(all="ignore"):
            errors, shifts = map(_sure, self.errors_and_shifts())
            # A shift is in sds
            return bool(np.any(errors > LARGEST_ERROR) or np.any(shifts > LARGEST_ERROR))

    def errors_and_shifts(self) -> tuple[np.ndarray, np.ndarray]:
        """Estimate relative errors of large variables' variances, and shifts of small ones' means.

        Shapes are (n, large variables) and (n, coordinates of small variables), a row for each
        batch: the difference to noise with a random sign in each coordinate.
        """
        gradients, d = self._gradients, len(self._share)
        count = int(np.clip(_LARGEST // d, _LEAST, _MOST))
        # Responses are other batches', as a batch's curvature is large along its own noise
        rows, others, third = (self._draw(self._rng, count) for _ in range(3))
        at_centre = gradients(self._zero, rows)
        noise = (at_centre - at_centre.mean(axis=0)) * self._scale
        before = gradients(self._zero, others)

        def effects(noise: Flat) -> tuple[np.ndarray, np.ndarray]:
            change = (gradients(_MOVE * noise, others) - before) / _MOVE
            curved, half = noise * change, (change - noise) / 2
            felt = sum(
                gradients(side * (noise - half), third) - gradients(side * half, third)
                for side in (1.0, -1.0)
            )
            each = np.array([curved[:, of].mean(axis=1) for of in self._large])
            return -each.reshape(len(self._large), count).T, -np.asarray(felt)[:, self._small] / 2

        together = effects(noise)
        apart = effects(noise * self._rng.choice([-1.0, 1.0], size=noise.shape))
        return together[0] - apart[0], together[1] - apart[1]


def _sure(estimates: np.ndarray) -> np.ndarray:
    """Return the sizes of means that differ from 0 by more than their standard errors."""
    mean, error = estimates.mean(axis=0), estimates.std(axis=0, ddof=1) / len(estimates) ** 0.5
    return np.where(np.abs(mean) > CLEAR * error, np.abs(mean), 0.0)
