"""Permutations under which a posterior does not change, as those of a net's hidden units."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import combinations, islice

import numpy as np

# Axes of one unit: weights in and out, a bias, a gain
_MOST_AXES = 4
_MOST_TRIES = 2000

# Difference of two gradients that are equal but for rounding, over that of two unequal ones
_SAME = 1e-2

# Largest change of a unit's gradient that counts as none, where another unit becomes like it, or
# where two are exchanged on all rows, over the difference of the two
_ACTS = 1e-4


def has_permutable_units(
    gradient: Callable[[np.ndarray], np.ndarray],
    position: Sequence[np.ndarray],
    of_all: Callable[[np.ndarray], np.ndarray] | None = None,
) -> bool:
    """Return whether two units, as of a net's layer, can be exchanged in several variables at once.

    ``gradient`` maps a flat position to ∇U, both (d,), of the same batch at each call, and
    ``of_all`` to that of all rows, if these are more.
    """
    flat = np.concatenate([x.reshape(-1) for x in position])
    here, size = None, 1.0
    tries = ((shaped, axes) for shaped in _readings(position) for axes in _units(shaped))
    for shaped, axes in islice(tries, _MOST_TRIES):
        # Most models have no such axes and need no gradient
        if here is None:
            here = gradient(flat)
            if not np.all(np.isfinite(here)):
                return False
            # Far from the bulk squares of a gradient may overflow
            size = np.max(np.abs(here), initial=0.0) or 1.0
            here = here / size
        swapped = _swapped(shaped, axes, _unlike(shaped, axes, here))
        moved = here[swapped]
        there = gradient(flat[swapped]) / size
        unlike = np.linalg.norm(moved - here)
        if np.linalg.norm(there - moved) < _SAME * unlike:
            # Units of which none acts on another, as groups of a hierarchy, have a single mode
            own = np.flatnonzero(swapped > np.arange(len(flat)))
            if np.linalg.norm(here[own]) < np.linalg.norm(here[swapped[own]]):
                own = swapped[own]
            twice = flat.copy()
            twice[swapped[own]] = flat[own]
            change = np.linalg.norm(gradient(twice)[own] / size - here[own])
            acts = not change <= _ACTS * unlike  # NaN counts as a change
            # A batch lacks some classes, which its rows do not distinguish
            if acts and (of_all is None or _are_alike(of_all, flat, swapped)):
                return True
    return False


def _are_alike(
    gradient: Callable[[np.ndarray], np.ndarray], flat: np.ndarray, swapped: np.ndarray
) -> bool:
    """Return whether an exchange of elements, both (d,), exchanges those of the gradient."""
    here, there = gradient(flat), gradient(flat[swapped])
    size = np.max(np.abs(here), initial=0.0) or 1.0
    here, there = here / size, there / size
    unlike = np.linalg.norm(here[swapped] - here)
    return bool(np.linalg.norm(there - here[swapped]) < _ACTS * unlike)


def _readings(position: Sequence[np.ndarray]) -> Iterator[list[np.ndarray]]:
    """Yield the variables, then with an axis of a matrix split in two: units times places of each.

    The output of a convolution is flattened for the next layer.
    """
    yield list(position)
    lengths = {n for x in position for n in x.shape if n > 1}
    for k, x in enumerate(position):
        for axis, length in enumerate(x.shape if x.ndim > 1 else ()):
            for n in sorted(n for n in lengths if n < length and length % n == 0):
                for both in sorted({(n, length // n), (length // n, n)}):
                    shape = *x.shape[:axis], *both, *x.shape[axis + 1 :]
                    yield [*position[:k], x.reshape(shape), *position[k + 1 :]]


def _units(position: Sequence[np.ndarray]) -> Iterator[tuple[tuple[int, int], ...]]:
    """Yield sets of axes (variable, axis) of one length, a matrix's among them."""
    by_length: dict[int, list[tuple[int, int]]] = {}
    for k, x in enumerate(position):
        for axis, length in enumerate(x.shape):
            if length > 1:
                by_length.setdefault(length, []).append((k, axis))
    for axes in by_length.values():
        if all(position[k].ndim == 1 for k, _ in axes):
            continue  # hundreds of vectors have millions of sets
        for count in range(2, _MOST_AXES + 1):
            for some in combinations(axes, count):
                variables = {k for k, _ in some}
                if len(variables) == count and any(position[k].ndim > 1 for k in variables):
                    yield some


def _unlike(
    position: Sequence[np.ndarray], axes: Sequence[tuple[int, int]], gradient: np.ndarray
) -> tuple[int, int]:
    """Return the units with the largest and the least gradient.

    A batch involves few of thousands of groups, and any two of the others could be exchanged.
    """
    ends = np.cumsum([x.size for x in position])[:-1]
    parts = np.split(gradient, ends)
    k, axis = axes[0]
    size = np.zeros(position[k].shape[axis])
    for k, axis in axes:
        square = parts[k].reshape(position[k].shape) ** 2
        size += np.sum(np.moveaxis(square, axis, 0).reshape(len(size), -1), axis=1)
    return int(np.argmax(size)), int(np.argmin(size))


def _swapped(
    position: Sequence[np.ndarray], axes: Sequence[tuple[int, int]], pair: tuple[int, int]
) -> np.ndarray:
    """Return flat indices with two elements along each axis exchanged."""
    parts, start, of = [], 0, dict(axes)
    for k, x in enumerate(position):
        index = np.arange(start, start + x.size).reshape(x.shape)
        if k in of:
            order = np.arange(x.shape[of[k]])
            order[list(pair)] = pair[::-1]
            index = np.take(index, order, axis=of[k])
        parts.append(index.reshape(-1))
        start += x.size
    return np.concatenate(parts)
