"""The curvature of a potential, measured by differences of its gradients."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from pymc_sgmcmc.model.recognise import LARGEST_DENSE
from pymc_sgmcmc.tuning.passes import PAIRS, Passes, batches_to_measure
from pymc_sgmcmc.tuning.surface import (
    TINY,
    Flat,
    Map,
    Points,
    Rng,
    Root,
    Surface,
    antithetic,
    mean_gradients,
)

# Positions that a compiled potential evaluates in one call
_IN_ONE_CALL = 64

# Widest and least step of differences, in sds, the factor of the cube root of rounding, and that of
# steps for gradients of batches
_WIDEST, _LEAST_STEP, _OF_ROUNDING, _OF_BATCHES = 0.5, 1e-3, 3, 10

# Least eigenvalue beside the largest, and least curvature along a coordinate: less is rounding
LEAST_EIGENVALUE, LEAST_CURVATURE = 1e-8, 1e-12

# Error of an eigenvalue beside the largest, in roots of rounding
_ERROR = 10.0

# Pairs whose gradient changes by more than so many medians get less weight in a regression: a scale
# multiplies it there, and L would become far too short
_STEEP = 1.2

# Rounds for a diagonal, whose errors would stay with noise that is not normal, and the factor of a
# precision beyond which a measurement is not used
_ROUNDS_OF_DIAGONAL, _IMPLAUSIBLE = 8, 16.0

# Power iterations, and those that continue from an earlier direction
_ROUNDS, _FURTHER_ROUNDS = 8, 2


def difference_step(surface: Surface) -> float:
    """Return the step of central differences, in posterior sds: the cube root of rounding.

    A density with kinks may have all its curvature there, which small steps miss; wide ones average
    the curvature over a window.
    """
    if surface.kinked:
        return _WIDEST
    return max(_LEAST_STEP, _OF_ROUNDING * surface.precision ** (1 / 3))


def rounding(surface: Surface) -> float:
    """Return the error of a Hessian's eigenvalues by differences, in units of the largest."""
    return _ERROR * float(surface.precision**0.5)


def mean_hessian(
    gradients: Callable[[Points, Flat], Points],
    points: Points,
    scale: Flat,
    step: float,
    *,
    central: bool = True,
) -> Root:
    """Return the mean Hessian of U over positions, (d, d), by differences of ``gradients(x, p)``.

    x, (n, d), are near ``points[p]``. One-sided differences cost half; their error cancels between
    opposite positions. Positions without finite differences are left out; NaN if none is finite.
    """
    d = len(scale)
    moves = np.diag(step * scale)
    moves = np.concatenate([moves, -moves if central else np.zeros((1, d))])
    together = max(1, _IN_ONE_CALL // len(moves))
    total, count = np.zeros((d, d)), 0
    for first in range(0, len(points), together):
        some = points[first : first + together]
        which = np.repeat(np.arange(first, first + len(some)), len(moves))
        g = gradients((some[:, None] + moves).reshape(-1, d), which)
        for at in g.reshape(len(some), len(moves), d):
            hessian = (at[:d] - at[d:]) / ((1 + central) * step * scale)[:, None]
            if np.all(np.isfinite(hessian)):
                total += hessian
                count += 1
    if not count:
        return np.full((d, d), np.nan)
    return (total + total.T) / (2 * count)


def mean_curvature(
    gradients: Map,  # at (2 pairs, d) positions, pairs adjacent
    centre: Flat,
    root: Root,
    rng: Rng,
    pairs: int,
    *,
    batches: bool = False,  # each pair has a batch of its own
) -> Root:
    r"""Return L'HL, H the mean Hessian of U over N(m, LL'), NaN if few gradients are finite.

    By Stein's identity it is :math:`E[L^\top \nabla U(m + L e)\, e^\top]`, also with all curvature
    at kinks. Pairs of single ``batches`` count alike, as few of them may inform a coordinate.
    """
    d = len(centre)
    e = rng.standard_normal((pairs, d))
    moves = e @ root.T
    g = gradients(np.stack([centre + moves, centre - moves], axis=1).reshape(-1, d))
    with np.errstate(invalid="ignore", over="ignore"):
        change = (g[::2] - g[1::2]) / 2 @ root
    finite = np.all(np.isfinite(change), axis=1)
    if np.sum(finite) < 2 * d:
        return np.full((d, d), np.nan)
    e, change = e[finite], change[finite]
    if not batches:
        slope = np.linalg.norm(change, axis=1) / np.linalg.norm(e, axis=1)
        # Between kinks gradients may not change at all
        most = _STEEP * np.median(slope) / np.maximum(slope, TINY)
        weight = np.minimum(1, most)[:, None]
        e, change = weight * e, weight * change
    # Unlike the mean of products, a regression is exact for a normal density
    curvature, *_ = np.linalg.lstsq(e, change)
    return (curvature + curvature.T) / 2


def mean_gradient_change(surface: Surface, points: Points) -> Map:
    """Return a function of moves v, (d,), for the mean of ∇U(x + v) − ∇U(x) over the points x.

    The error of these one-sided differences is odd, and cancels between opposite points.
    """
    here = surface.full(points)[1]
    return lambda move: (surface.full(points + move)[1] - here).mean(axis=0)


def measured_diagonal(surface: Surface, centre: Flat, sd: Flat, rng: Rng) -> Flat:
    r"""Return a diagonal L from curvatures at pairs x ± σe, each on a batch of its own.

    The mean of :math:`(g_+ - g_-) e / 2\sigma` over that of :math:`e^2` is exact for independent
    normals; the numerator alone is off by :math:`\sqrt{2 / n}` after n pairs.
    """
    d = len(centre)
    products, squares = np.zeros(d), np.zeros(d)
    batches, draw = batches_to_measure(surface, rng, PAIRS * _ROUNDS_OF_DIAGONAL)
    for _ in range(-(-batches // PAIRS)):
        e = antithetic(rng, PAIRS, d)
        rows = np.repeat(draw(PAIRS), 2, axis=0)
        g = surface.batch_gradient(centre + sd * e, rows)
        e, change = e[::2], g[::2] - g[1::2]
        finite = np.all(np.isfinite(change), axis=1)
        products += np.sum(change[finite] * e[finite], axis=0)
        squares += np.sum(e[finite] ** 2, axis=0)
    ratio = products * sd / (2 * np.maximum(squares, TINY))
    # The fit is kept where the curvature is not positive, or far from the fit's
    usable = ~surface.circular & (ratio > 1 / _IMPLAUSIBLE) & (ratio < _IMPLAUSIBLE)
    return np.where(usable, sd / np.sqrt(np.where(usable, ratio, 1.0)), sd)


# ---------------------------------------------------------------- the largest curvature


def _power_iteration(image: Map, direction: Flat, rounds: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the largest absolute eigenvalue of a symmetric map of unit vectors, and its vector.

    Rows of ``direction``, (P, d), are iterated each on its own. Sizes are NaN where images are not
    finite or vanish.
    """
    axis = 1 if direction.ndim > 1 else None
    size = np.full(len(direction) if axis else (), np.nan)
    for _ in range(rounds):
        moved = image(direction / np.linalg.norm(direction, axis=axis, keepdims=True))
        size = np.asarray(np.linalg.norm(moved, axis=axis))
        if not np.any(np.isfinite(size) & (size > 0)):
            return np.full(size.shape, np.nan), direction
        direction = moved
    return size, direction


def largest_curvatures(surface: Surface, positions: Points, root: Root, rng: Rng) -> Flat:
    r"""Return the largest absolute eigenvalue of :math:`L^\top \nabla^2 U L` at each φ, (P,).

    L has shape (d, d) or (d,). The value is NaN where gradients are not finite or do not change.
    """
    whole = np.diag(root) if root.ndim == 1 else root
    step = difference_step(surface)

    def image(unit: Points) -> Points:
        there = surface.full(positions + step * unit @ whole.T)[1] @ whole
        return (there - here) / step

    with np.errstate(all="ignore"):
        here = surface.full(positions)[1] @ whole
        return _power_iteration(image, rng.standard_normal(positions.shape), _ROUNDS)[0]


def largest_curvature_of_batches(
    surface: Surface, x: Flat, sd: Flat, batches: int, rng: Rng
) -> float:
    """Return the largest absolute eigenvalue of σ ∇²U σ at x, from a few batches; 1 if unknown."""
    step, rows = _wide_step(surface), surface.draw_rows(rng, batches)

    def gradient(at: Flat) -> Flat:
        return mean_gradients(surface, at[None], rows)[0]

    def image(unit: Flat) -> Flat:
        return sd * (gradient(x + step * sd * unit) - here) / step

    here = gradient(x)
    size, _ = _power_iteration(image, rng.standard_normal(len(x)), _ROUNDS)
    return float(np.nan_to_num(size, nan=1.0))


def _wide_step(surface: Surface) -> float:
    return min(_WIDEST, _OF_BATCHES * difference_step(surface))


class Stiffness:
    """The largest curvature in units of the sds, from as many batches as a step averages.

    Fewer would overstate coordinates that few rows touch. With ``several`` batches a pair, an
    estimate costs a few steps and continues from the direction of the last one.
    """

    def __init__(self, surface: Surface, rng: Rng, batches: int = PAIRS) -> None:
        self._surface, self._rng, self._batches = surface, rng, batches
        self._passes = Passes(surface, rng)
        self.several = self._passes.batches > 1 and surface.dimension > LARGEST_DENSE
        self._direction: Flat | None = None

    def at(self, x: Flat, sd: Flat) -> float:
        """Return the largest absolute eigenvalue of σ ∇²U σ at x; 1 if unknown."""
        surface, rng = self._surface, self._rng
        if not self.several:
            return largest_curvature_of_batches(surface, x, sd, self._batches, rng)
        direction, rounds = self._direction, _FURTHER_ROUNDS
        if direction is None:
            direction, rounds = rng.standard_normal(len(x)), _ROUNDS
        step, rows = _wide_step(surface), self._passes.draw()
        alike = np.ones((len(rows), len(x)), dtype=np.int8)

        def image(unit: Flat) -> Flat:
            sums = surface.pair_sums(x, step * sd * unit, alike, rows)
            return sd * sums.change / (2 * step * max(sums.count, 1))

        size, self._direction = _power_iteration(image, direction, rounds)
        return float(np.nan_to_num(size, nan=1.0))
