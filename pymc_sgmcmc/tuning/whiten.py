"""Step 3 of tuning: centre and whitening from Hessians averaged over the bulk."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from pymc_sgmcmc.tuning.curvature import (
    LEAST_EIGENVALUE,
    difference_step,
    mean_curvature,
    mean_hessian,
)
from pymc_sgmcmc.tuning.failure import failed_step, named_step
from pymc_sgmcmc.tuning.surface import (
    MOST_NUMBERS,
    TINY,
    Flat,
    Matrix,
    Points,
    Rng,
    Root,
    Surface,
    antithetic,
    gradients_of_batches,
)

_MEASUREMENT = "the measurement of widths and correlations"

# Least L'HL: lengths at most double
_LEAST_REFINED = 0.25

# Share of a Newton step, its least value, and the share of the last squared slope above which the
# centre oscillates; the longest step of batches along a direction, in sds
_STEP, _LEAST_STEP, _FALLEN, _LONGEST = 0.7, 0.02, 0.7, 10
# Mean square of a slope in sds at which the full data have settled, and a descent ends
_SETTLED_SLOPE, _FLAT = 0.1, 0.02
# Largest error of the centre, in sds: beyond it control variates become noisier
_NEAR = 0.3

_MOST_ROUNDS, _MOST_PASSES = 10, 30
# With more blocks of data than this a descent takes whole steps, and few passes; most such steps,
# and the batches of the last
_MANY_BLOCKS, _MOST_NEWTON, _FAR_BATCHES = 2000, 8, 256

# Largest factor by which a length changes in a settled round, the factor that shows rounds leaving
# the bulk, and settled rounds that are enough
_SETTLED, _UNSETTLED, _SETTLED_ROUNDS = 1.5, 4.0, 3

# Rows times gradients for a mean Hessian, and for the last; the fixed cost of a gradient, in rows
_WORK, _LAST_WORK, _ROWS_OF_OVERHEAD = 4e6, 5e7, 200
# Numbers computed for the last mean Hessian, and for all rounds on the full data: some ten seconds;
# least Hessians of the full data and of batches, whatever they cost, and usual ones of a round
_NUMBERS, _LEAST, _LEAST_OF_BATCHES, _POINTS = int(2.5e10), 2, 8, 32
# If all blocks cost at most 1.5 times as much as the batches, Hessians of all blocks are measured.
# Each block is then measured at up to 4 pairs of opposite places, or at more if there are few
# blocks: 640 pairs in all, and a quarter of the work at most
_LITTLE_MORE, _USUAL_PAIRS, _PAIRS, _SHARE_OF_WORK = 1.5, 4, 640, 0.25
# Pairs per dimension of a regression, least and most on the full data: errors from what is not
# linear in a gradient fall as their root
_PAIRS_OF_REGRESSION = 8, 64


def inverse_root(hessian: Matrix, circular: Flat | None = None) -> Root:
    """Return L with LL' = |H|⁻¹, the eigenvalues taken by magnitude, shape (d, d).

    Circular coordinates are not mixed with others, and have lengths of at most one.
    """
    if circular is not None and circular.any():
        lengths = 1 / np.sqrt(np.maximum(np.abs(np.diag(hessian)[circular]), 1.0))
        line = inverse_root(hessian[np.ix_(~circular, ~circular)])
        return _with_circles(line, circular, lengths)
    if not hessian.size:
        return hessian
    d = np.sqrt(np.maximum(np.abs(np.diag(hessian)), TINY))
    w, v = np.linalg.eigh(hessian / np.outer(d, d))
    w = np.maximum(np.abs(w), LEAST_EIGENVALUE * np.abs(w).max())
    return (v / np.sqrt(w)) / d[:, None]


def sds_of(root: Root) -> Flat:
    """Return the sds of N(0, LL'), shape (d,), for L of shape (d, d) or its diagonal."""
    return root if root.ndim == 1 else np.sqrt(np.sum(root**2, axis=1))


def apart(root: Root, circular: Flat) -> Root:
    """Return an L of LL' that keeps circular coordinates apart from each other and from others."""
    if not circular.any():
        return root
    line = root[~circular]
    return _with_circles(np.linalg.cholesky(line @ line.T), circular, sds_of(root[circular]))


def upright(root: Root) -> Root:
    """Return the L of the same LL' that mixes coordinates least: symmetric but for their scales."""
    scale = sds_of(root)
    unit = root / scale[:, None]
    w, v = np.linalg.eigh(unit @ unit.T)
    return scale[:, None] * ((v * np.sqrt(np.maximum(w, 0))) @ v.T)


def refined(root: Root, curvature: Matrix, circular: Flat | None = None) -> tuple[Root, float]:
    """Return L with LL' = H⁻¹ from L'HL, and the largest factor by which a length changed.

    Lengths at most double, as an old L with H near zero or negative reached too far. Those on
    circles are not mixed, and at most one, as a nearly flat density shows no width.
    """
    if circular is not None and circular.any():
        old = np.diag(root)[circular]
        h = np.diag(curvature)[circular] / old**2
        lengths = 1 / np.sqrt(np.maximum(h, np.maximum(_LEAST_REFINED / old**2, 1.0)))
        straight = np.ix_(~circular, ~circular)
        line, change = refined(root[straight], curvature[straight])
        change = max(change, float(np.max(np.maximum(lengths / old, old / lengths))))
        return _with_circles(line, circular, lengths), change
    if not root.size:
        return root, 1.0
    w, v = np.linalg.eigh(curvature)
    lengths = 1 / np.sqrt(np.maximum(w, _LEAST_REFINED))
    change = float(np.max(np.maximum(lengths, 1 / lengths)))
    return (root @ v) * lengths, change


@dataclass
class _Whitening:
    """Centre m, (d,), and root L, (d, d), which move to the bulk."""

    surface: Surface
    centre: Flat
    root: Root
    rng: Rng

    def refine(self, curvature: Matrix) -> float:
        """Take L of L'HL, and return the largest factor by which a length changed."""
        self.root, change = refined(self.root, curvature, self.surface.circular)
        return change

    def _whitened_hessian(
        self, gradients: Callable[[Points, Flat], Points], points: Points, *, central: bool
    ) -> Matrix:
        """Return L'HL, with H the mean Hessian at points by differences of ``gradients(x, p)``."""
        sds, step = conditional_sds(self.root), difference_step(self.surface)
        hessian = mean_hessian(gradients, points, sds, step, central=central)
        return self.root.T @ hessian @ self.root

    # ------------------------------------------------------------ on the full data

    def curvature_of_full_data(self, x: Points, count: int) -> Matrix:
        """Return L'HL averaged over x or, where Hessians are costly, over few of them.

        With kinks it is that of ``count`` times d pairs in N(m, LL').
        """
        surface, d = self.surface, len(self.centre)
        most = max(_LEAST, _NUMBERS // (_MOST_ROUNDS * d * surface.numbers) // 2 * 2)

        def gradients(y: Points, p: Flat | None = None) -> Points:
            return surface.full(y)[1]

        if surface.kinked:
            pairs = min(count, most) * d
            return mean_curvature(gradients, self.centre, self.root, self.rng, pairs)
        return self._whitened_hessian(gradients, x[:most], central=most >= 2 * _POINTS)

    # ------------------------------------------------------------ on batches

    def whiten(self, work: float) -> float:
        """Take L of the curvature around m, and return the largest change of a length."""
        curvature = (self._regressed if self.surface.kinked else self._of_hessians)(work)
        if not np.all(np.isfinite(curvature)):
            raise failed_step(
                _MEASUREMENT,
                "gradients are not finite all around the posterior's centre",
            )
        return self.refine(curvature)

    def _of_hessians(self, work: float) -> Matrix:
        """Return L'HL of batches or, if it costs little more, of all blocks of the data.

        A feature of few rows is in few batches, and in these counts too much. Each block is
        evaluated at several places, as at one alone the curvature of such a feature is chance.
        """
        surface, rng, d = self.surface, self.rng, len(self.centre)
        blocks, count = surface.n_blocks, min(_hessians(surface, work))
        if blocks <= _LITTLE_MORE * count:
            affordable = count / (2 * blocks)
            of_few = min(_PAIRS / blocks, _SHARE_OF_WORK * affordable)
            pairs = int(min(affordable, max(_USUAL_PAIRS, of_few)))
            e = [rng.standard_normal((blocks, d)) for _ in range(pairs)]
            x = np.concatenate(
                [sign * part for part in e for sign in (1, -1)]
                or [antithetic(rng, (blocks + 1) // 2, d)[:blocks]]
            )

            def gradients(x: Points, p: Flat) -> Points:
                # Shares of the blocks add up; mean_hessian averages
                return blocks * surface.block(x, p % blocks)
        else:
            rows = surface.draw_rows(rng, count)
            x = antithetic(rng, (count + 1) // 2, d)[:count]

            def gradients(x: Points, p: Flat) -> Points:
                return surface.batch_gradient(x, rows[p])

        return self._whitened_hessian(gradients, self.centre + x @ self.root.T, central=False)

    def _regressed(self, work: float) -> Matrix:
        """Return L'HL of a density with kinks, on the full data if the work is enough for it."""
        surface, bulk = self.surface, (self.centre, self.root, self.rng)
        pairs = work / (2 * (surface.batch_size + _ROWS_OF_OVERHEAD))
        pairs = min(pairs, _hessians(surface, work)[1] * len(self.centre) / 2)
        least, most = (n * len(self.centre) for n in _PAIRS_OF_REGRESSION)
        of_all = pairs / surface.n_blocks
        if of_all >= least:
            return mean_curvature(lambda x: surface.full(x)[1], *bulk, int(min(of_all, most)))
        rows = np.repeat(surface.draw_rows(self.rng, int(max(pairs, least))), 2, axis=0)
        return mean_curvature(
            lambda x: surface.batch_gradient(x, rows), *bulk, len(rows) // 2, batches=True
        )

    def descend(self) -> float:
        """Move m once per pass over the data, and return the mean curvature along L."""
        if self.surface.n_blocks > _MANY_BLOCKS and (far := self._descend_far()) is not None:
            return far
        d, blocks, root = len(self.centre), self.surface.n_blocks, self.root
        curvature, rate, last, move = 1.0, _STEP, np.inf, np.zeros(d)
        for _ in range(_MOST_PASSES):
            slope, along = np.zeros(d), 0.0
            for some in np.array_split(np.arange(blocks), -(-2 * blocks * d // MOST_NUMBERS)):
                e = antithetic(self.rng, len(some), d)
                g = self.surface.block(self.centre + e @ root.T, np.repeat(some, 2)) @ root
                g = np.where(np.isfinite(g), g, 0.0)
                slope += g.reshape(-1, 2, d).mean(axis=1).sum(axis=0)
                along += float(np.sum((g[::2] - g[1::2]) * e[::2]))
            curvature = along / (2 * d)
            size = float(slope @ slope)
            if size > 2 * last:
                # Along some direction the curvature is far larger than L says
                rate /= 4
                self.centre = self.centre - move + move / 4
                move = move / 4
                continue
            if size > _FALLEN * last:
                # The centre oscillates
                rate /= 2
            last = size
            if rate < _LEAST_STEP or _is_flat(slope):
                break
            move = -rate * root @ np.clip(slope, -_LONGEST, _LONGEST)
            self.centre = self.centre + move
        return curvature

    def _descend_far(self) -> float | None:
        """Descend by whole Newton steps, a pass over the data each; None if a step does not help.

        With very many rows a centre from some batches is a hundred sds away, and the curvature
        constant on the way. Differences of batches add what the density's shape contributes to the
        slope.
        """
        surface, root, at, d = self.surface, self.root, self.centre, len(self.centre)
        [gradient] = surface.full(at[None])[1]
        for _ in range(_MOST_NEWTON):
            slope = root.T @ gradient
            if _is_flat(slope):
                break
            there = at - root @ slope
            [gradient] = surface.full(there[None])[1]
            left = root.T @ gradient
            if not np.all(np.isfinite(left)) or left @ left > slope @ slope / 4:
                return None
            at = there
        rows, e = surface.draw_rows(self.rng, _FAR_BATCHES), antithetic(self.rng, _FAR_BATCHES, d)
        either = surface.batch_gradient(at + e @ root.T, np.repeat(rows, 2, axis=0)) @ root
        middle = gradients_of_batches(surface, at[None], rows)[0] @ root
        if not np.all(np.isfinite(either)):
            return None
        above, below = either[::2], either[1::2]
        slope = root.T @ gradient + ((above + below) / 2 - middle).mean(axis=0)
        slope = np.clip(slope, -_LONGEST, _LONGEST)
        self.centre = at - _STEP * root @ slope
        return float(np.sum((above - below) * e[::2]) / (2 * d * len(rows)))


@named_step(_MEASUREMENT)
def bulk_of_full_data(
    surface: Surface, centre: Flat, root: Root, rng: Rng, *, rounds: int = _MOST_ROUNDS
) -> tuple[Flat, Root, bool]:
    """Move m and L from the mode to the bulk; return whether L still changed much, too.

    The curvature at a mode hardly describes a skewed or hierarchical posterior; averaged over m +
    Le it is that of the best Gaussian approximation.
    """
    bulk, d, settled, changes = _Whitening(surface, centre, root, rng), len(centre), 0, [1.0]
    for k in range(rounds):
        # Few points until the whitening settles, as only the last rounds are kept
        count = _POINTS if settled or 2 * k >= rounds else _POINTS // 4
        x = bulk.centre + antithetic(rng, count // 2, d) @ bulk.root.T
        gradients = surface.full(x)[1]
        finite = np.all(np.isfinite(gradients), axis=1)
        curvature = bulk.curvature_of_full_data(x[finite], count)
        if not np.all(np.isfinite(curvature)):
            # The bulk is narrower than the curvature at the centre says
            bulk.root = bulk.root / 2
            changes.append(np.inf)
            continue
        changes.append(bulk.refine(curvature))
        mean = gradients[finite].mean(axis=0) if finite.any() else np.zeros(d)
        slope = np.clip(bulk.root.T @ mean, -3, 3)
        bulk.centre = bulk.centre - _STEP * bulk.root @ slope
        near = changes[-1] < (_SETTLED if settled else 2 * _SETTLED)
        settled = settled + 1 if near and slope @ slope < _SETTLED_SLOPE * d else 0
        if settled == _SETTLED_ROUNDS:
            break
    return bulk.centre, bulk.root, max(changes[-_SETTLED_ROUNDS:]) > _UNSETTLED


@named_step(_MEASUREMENT)
def bulk_of_minibatches(surface: Surface, centre: Flat, root: Root, rng: Rng) -> tuple[Flat, Root]:
    """Move centre and whitening to the bulk, each gradient on one batch."""
    bulk = _Whitening(surface, centre, root, rng)
    # Where Hessians are few, changes of lengths are chance and do not show what has settled
    many = min(_hessians(surface, _WORK)) >= _PAIRS_OF_REGRESSION[0] * surface.dimension
    for _ in range(_MOST_ROUNDS if many else 3):
        for _ in range(2):
            if (change := bulk.whiten(_WORK)) < 2:
                break
        before = bulk.centre
        if bulk.descend() <= 3 and (change < 2 or not many):
            moved = np.linalg.solve(bulk.root, bulk.centre - before)
            if np.abs(moved).max() < 3:
                break
    bulk.whiten(_LAST_WORK)
    bulk.descend()
    return bulk.centre, bulk.root


@named_step(_MEASUREMENT)
def rewhitened(surface: Surface, centre: Flat, root: Root, rng: Rng) -> tuple[Flat, Root]:
    """Return centre and whitening for a centre that the chain itself found."""
    if not surface.batch_size:
        return bulk_of_full_data(surface, centre, root, rng, rounds=_SETTLED_ROUNDS)[:2]
    # The old L is nearly right: where Hessians cost far too much, a few correct it
    count, most = _hessians(surface, _LAST_WORK)
    bulk = _Whitening(surface, centre, root, rng)
    bulk.whiten(_LAST_WORK if count <= 2 * most else _WORK)
    return centre, bulk.root


def _hessians(surface: Surface, work: float) -> tuple[int, int]:
    """Return how many batch Hessians take so much work, and how many are affordable."""
    d, rows = surface.dimension, surface.batch_size + _ROWS_OF_OVERHEAD
    affordable = int(_NUMBERS * work / _LAST_WORK / (d * surface.numbers))
    return max(_LEAST_OF_BATCHES, int(work / (d * rows))), max(_LEAST, affordable)


def _is_flat(slope: Flat) -> bool:
    """Return whether a slope, in sds, is that of a centre that is near enough."""
    return bool(slope @ slope < _FLAT * len(slope) and np.abs(slope).max() < _NEAR)


def _with_circles(line: Root, circular: Flat, lengths: Flat) -> Root:
    """Return L from that of the other coordinates and the lengths of circular ones."""
    root = np.zeros((len(circular), len(circular)))
    root[np.ix_(~circular, ~circular)] = line
    root[circular, circular] = lengths
    return root


def conditional_sds(root: Root) -> Flat:
    """Return conditional sds of N(0, LL'), (d,), along which a difference stays in the bulk."""
    if root.ndim == 1:
        return root
    inverse = np.linalg.pinv(root)
    # A direction without any curvature has a length that pinv takes for infinite
    return np.asarray(1 / np.sqrt(np.maximum(np.sum(inverse**2, axis=0), 1e-100)))
