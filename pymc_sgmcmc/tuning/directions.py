"""Part of step 3 of tuning: directions that thousands of parameters share with a few others."""

from __future__ import annotations

import copy

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from scipy.optimize import linear_sum_assignment

from pymc_sgmcmc.tuning.curvature import difference_step, mean_gradient_change, rounding
from pymc_sgmcmc.tuning.failure import named_step
from pymc_sgmcmc.tuning.surface import (
    MOST_NUMBERS,
    Flat,
    Map,
    Points,
    Rng,
    Surface,
    antithetic,
    gradients_of_batches,
    parts_of,
    ranges_of,
)

# Most elements of a variable, and of all such variables, that each have their own direction; others
# have only the one in which all elements move alike
_SMALL, _MOST_OWN = 16, 32

# Least share in the directions for which a small variable's coordinate becomes one of them, and
# what keeps a coordinate from becoming one unless no other is left
_SHARE_OF_SMALL, _LAST = 0.5, 1e9

# Least coupling, in units of the sds, and least independent part of another variable's response
# that is a direction; rounds of responses, and most directions, of which each costs two passes
_COUPLED, _DEPENDENT, _ROUNDS, _LARGEST_BASIS = 0.15, 1e-6, 3, 48

# Range of lengths that count as 1, and the share of a direction in a single element of thousands
# above which it is not a common one
_SHORT, _LONG, _ALONE = 0.7, 1.3, 0.2
# Divisor of their number, so that another centre mostly uses the same compiled function
_EACH = 4

# Batches that show noisy directions, as many that confirm them, the positions of these, and the
# factor of the noisiest coordinate's variance above which that is no chance
_BATCHES, _PLACES, _NOISIER = 512, 8, 2.0

# Least curvature
_LEAST = 1e-5

# Share of a direction in a variable below which it leaves that variable as it is
_SHARE = 0.02

# Most moves along directions, the slope at which they end, the longest in units of the lengths, and
# the least share of one that is taken; centres at which directions are sought, as these hold nearby
_MOVES, _NEAR, _FARTHEST, _LEAST_SHARE, _CENTRES = 12, 0.1, 30.0, 1e-3, 3


@dataclass(frozen=True)
class Turn:
    r"""The orthogonal map Q that makes a few directions coordinates, and their lengths Λ.

    With U the directions and E the coordinates that become them, :math:`Q E = U` and
    :math:`Q = I - (E - U) (I - U^\top E)^{-1} (E - U)^\top`.
    """

    away: np.ndarray  # V = E - U, shape (d, r), with zero columns up to a multiple of 4
    middle: np.ndarray  # inverse of I - U'E, shape (r, r), with zeros too
    lengths: Flat  # Λ, 1 but for directions and where noise shortens a coordinate, shape (d,)
    coordinates: np.ndarray  # indices of these, shape (r,)

    @classmethod
    def to(cls, directions: np.ndarray, lengths: Flat, sizes: Sequence[int], sd: Flat) -> Turn:
        """Return the turn that makes coordinates of orthonormal directions, shape (d, r).

        Replaced coordinates take on others' noise: of small variables they are mostly in the
        directions, of large ones hardly, with a median ``sd``.
        """
        d, r = directions.shape
        part, small = np.sum(directions**2, axis=1), is_small(sizes)
        known = np.flatnonzero(small & (part >= _SHARE_OF_SMALL))
        known = known[np.argsort(-part[known])][:r]
        usual, usual_part = (
            np.concatenate([np.full(x.size, np.median(x)) for x in parts_of(y, sizes) if x.size])
            for y in (sd, part)
        )
        unlike = np.abs(np.log(sd / usual)) + _LAST * (small | (part > usual_part) | (part == 0))
        unlike[known] = np.inf
        chosen = np.concatenate([known, np.argsort(unlike, kind="stable")[: r - len(known)]])
        rows, columns = linear_sum_assignment(-np.abs(directions[chosen]))
        chosen = chosen[rows[np.argsort(columns)]]
        # A direction has no sign: away from its coordinate the middle is well conditioned
        directions = directions * -np.where(directions[chosen, range(r)] < 0, -1, 1)
        own = np.zeros((d, r))
        own[chosen, range(r)] = 1
        each = np.ones(d)
        each[chosen] = lengths
        away, middle = own - directions, np.linalg.inv(np.eye(r) - directions[chosen].T)
        spare = -r % _EACH
        away, middle = np.pad(away, ((0, 0), (0, spare))), np.pad(middle, (0, spare))
        return cls(away, middle, each, np.sort(chosen))

    def __call__(self, psi: np.ndarray) -> np.ndarray:
        """Return QΛψ for vectors of shape (..., d)."""
        x = psi * self.lengths
        return x - (x @ self.away) @ (self.middle.T @ self.away.T)

    def pull_back(self, gradient: Points) -> Points:
        """Return ΛQ'g for vectors of shape (..., d)."""
        turned = gradient - (gradient @ self.away) @ (self.middle @ self.away.T)
        return turned * self.lengths

    def parts(self, sizes: Sequence[int]) -> list[np.ndarray]:
        """Return V' of each variable, without rows where the variable is left as it is."""
        parts = parts_of(self.away.T, sizes)
        return [part if part.any() else part[:0] for part in parts]


@named_step("the search for directions that variables share")
def shared_directions(
    surface: Surface, centre: Flat, sd: Flat, sizes: Sequence[int], rng: Rng
) -> tuple[Flat, Turn | None]:
    """Return a better centre, and a turn to directions far from fitted normals, if any.

    They are eigenvectors (Rayleigh-Ritz; Saad, 2011, chapter 4) in the space of variables' common
    moves, as of an intercept and its effects, of directions along which batches are noisiest, as of
    correlated columns, and of other variables' responses :math:`H_{ij} c_j`.
    """
    # A copy, so that nothing changes where there are none
    noisy = _noisy_directions(surface, centre, sd, copy.deepcopy(rng))
    around = sd * antithetic(rng, 1, len(centre))
    for _ in range(_CENTRES):
        eigen = _ritz(surface, centre + around, sd, sizes, noisy)
        if eigen is None:
            return centre, None
        before, (directions, lengths) = centre, eigen
        far = np.flatnonzero(
            ((lengths > _LONG) | (lengths < _SHORT))
            & ~np.any(directions[~is_small(sizes)] ** 2 > _ALONE, axis=0)
        )
        far = far[np.argsort(-np.abs(np.log(lengths[far])))[:_LARGEST_BASIS]]
        if not far.size:
            return before, None
        centre = _moved(surface, centre, around, sd, directions, lengths)
        gone = ((centre - before) / sd) @ directions / lengths
        if np.abs(gone).max() < 1:
            break
    return centre, Turn.to(_without_traces(directions[:, far], sizes), lengths[far], sizes, sd)


def _noisy_directions(surface: Surface, centre: Flat, sd: Flat, rng: Rng) -> np.ndarray:
    """Return orthonormal sums of coordinates that are far noisier than any coordinate, (d, k).

    The noise is that of anchored gradients, of batches' gradients less those at the centre. Half of
    the batches show the directions, and the others measure the noise along them: along directions
    that the same batches show, chance alone would be large.
    """
    if not surface.batch_size:
        return np.zeros((len(sd), 0))
    each = int(np.clip(MOST_NUMBERS // (2 * len(sd)), 2, _BATCHES // _PLACES))
    samples = []
    for e in rng.standard_normal((2 * _PLACES, len(sd))):
        points, rows = np.stack([centre + sd * e, centre]), surface.draw_rows(rng, each)
        # Without anchors few batches would be noisy along their own gradients alone
        there, here = gradients_of_batches(surface, points, rows)
        away = there - here
        samples.append(np.nan_to_num(away - away.mean(axis=0)) * sd * ~surface.circular)
    first, second = np.concatenate(samples[::2]), np.concatenate(samples[1::2])
    vectors = np.linalg.svd(first, full_matrices=False)[2][:_LARGEST_BASIS]
    variances = np.var(second @ vectors.T, axis=0)
    of_one = np.max((first.var(axis=0) + second.var(axis=0)) / 2)
    return vectors[variances > _NOISIER * of_one].T


def _ritz(
    surface: Surface, points: Points, sd: Flat, sizes: Sequence[int], noisy: np.ndarray
) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the Hessian's eigenvectors in the space of common moves, (d, k), and their lengths."""
    products, basis = _products(surface, points, sd), _common_moves(sd, sizes, surface.circular)
    if noisy.shape[1] and np.all(np.isfinite(turned := products(noisy))):
        # Few batches show them roughly: a power iteration
        basis = np.linalg.qr(np.hstack([basis, turned]))[0]
    if not basis.shape[1]:
        return None
    images = products(basis)
    for k in range(_ROUNDS + 1):
        if not np.all(np.isfinite(images)):
            return None
        values, vectors = np.linalg.eigh(basis.T @ images)
        least = max(_LEAST, rounding(surface) * np.abs(values).max())
        lengths = np.maximum(np.abs(values), least) ** -0.5
        ritz = basis @ vectors
        if k == _ROUNDS:
            break
        # What is left of H u outside, in units of the directions' new lengths
        answers = (images @ vectors - ritz * values) * np.maximum(lengths, 1.0)
        new = _new_directions(answers, basis, sizes)
        if not new.shape[1]:
            break
        basis, images = np.hstack([basis, new]), np.hstack([images, products(new)])
    return ritz, lengths


def _products(surface: Surface, points: Points, sd: Flat) -> Map:
    """Return a function for H V, H the mean Hessian in units of the sds and V of shape (d, k)."""
    change, width = mean_gradient_change(surface, points), difference_step(surface)

    def products(basis: np.ndarray) -> np.ndarray:
        images = np.zeros(basis.shape)
        for k, direction in enumerate(basis.T):
            # A direction of many coordinates moves each of them little
            step = width / np.abs(direction).max()
            images[:, k] = change(step * sd * direction) / step
        return images * (sd * ~surface.circular)[:, None]

    return products


def _common_moves(sd: Flat, sizes: Sequence[int], circular: Flat) -> np.ndarray:
    """Return common moves of variables, or a small one's elements, in units of the sds, (d, k)."""
    own = min(_SMALL, _MOST_OWN // max(1, sum(1 < n <= _SMALL for n in sizes)))
    columns = [np.zeros((len(sd), 0))]
    for part in ranges_of(sizes):
        for some in ([k] for k in part) if len(part) <= own else [list(part)]:
            column = np.zeros(len(sd))
            column[some] = ~circular[some] / sd[some]
            if column.any():
                columns.append(column / np.linalg.norm(column))
    return np.column_stack(columns)


def _new_directions(answers: np.ndarray, basis: np.ndarray, sizes: Sequence[int]) -> np.ndarray:
    """Return the strongest responses of single variables, orthonormal and off the basis."""
    responses = []
    for part in ranges_of(sizes):
        u, strengths, _ = np.linalg.svd(answers[part.start : part.stop], full_matrices=False)
        responses += [(s, part, x) for s, x in zip(strengths, u.T, strict=True) if s > _COUPLED]
    responses.sort(key=lambda of: -of[0])
    known = basis
    for _, part, column in responses[: max(0, _LARGEST_BASIS - basis.shape[1])]:
        whole = np.zeros(len(answers))
        whole[part.start : part.stop] = column
        for _ in range(2):
            whole -= known @ (known.T @ whole)
        if (norm := np.linalg.norm(whole)) > _DEPENDENT:
            known = np.column_stack([known, whole / norm])
    return known[:, basis.shape[1] :]


def _without_traces(directions: np.ndarray, sizes: Sequence[int]) -> np.ndarray:
    """Return the directions, without variables that they hardly move, orthonormal again."""
    kept = directions.copy()
    for part in ranges_of(sizes):
        if np.linalg.norm(kept[part.start : part.stop], axis=0).max() < _SHARE:
            kept[part.start : part.stop] = 0
    u, _, vt = np.linalg.svd(kept, full_matrices=False)
    return u @ vt


def _moved(
    surface: Surface, centre: Flat, around: Flat, sd: Flat, directions: np.ndarray, lengths: Flat
) -> Flat:
    """Return the centre after Newton steps along the directions, shorter where U would rise.

    The gradient is a mean over points around the centre, at which a noise scale is far smaller than
    where thousands of parameters have their own spread.
    """

    def at(x: Flat) -> tuple[float, Flat]:
        potentials, gradients = surface.full(x + around)
        return float(potentials.mean()), gradients.mean(axis=0)

    level, gradient = at(centre)
    share = 1.0
    for _ in range(_MOVES):
        along = (sd * gradient) @ directions * lengths
        if not np.all(np.isfinite(along)) or np.abs(along).max() < _NEAR or share < _LEAST_SHARE:
            break
        move = sd * (directions @ (np.clip(along, -_FARTHEST, _FARTHEST) * lengths))
        there, gradient_there = at(centre - share * move)
        if there < level:
            centre, level, gradient = centre - share * move, there, gradient_there
            share = min(1.0, 2 * share)
        else:
            share /= 4
    return centre


def is_small(sizes: Sequence[int]) -> Flat:
    """Return which coordinates are those of small variables, shape (d,)."""
    return np.repeat(np.array(sizes) <= _SMALL, sizes)
