"""The potential that tuning needs, on the full data and on batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from pymc_sgmcmc.kernel.pair_sums import PairSums

# What a positive number is at least, so that nothing is divided by 0
TINY = 1e-300

# Numbers in the gradients of batches that are kept at once
MOST_NUMBERS = 2**22

# Standard errors from 0 beyond which a measurement is not chance
CLEAR = 3.0

# Share of thousands of measurements that may be far off, as some always are, and the quantile that
# stands for all of them
FEW = 0.05
MOST_OF_MANY = 1 - FEW

type Flat = np.ndarray  # a number for each coordinate, (d,), or for each position, (P,)
type Root = np.ndarray  # L of shape (d, d), or its diagonal (d,)
type Matrix = np.ndarray  # a Hessian, or LᵀHL, of shape (d, d)
type Points = np.ndarray  # positions, or gradients at them, shape (P, d)
type Rows = np.ndarray  # batches, as the first row of each minibatch, shape (P, minibatches)
type Rng = np.random.Generator
type Map = Callable[[np.ndarray], np.ndarray]  # of positions, directions or gradients


class TuningError(RuntimeError):
    """A step of tuning failed; the message names it and what to try."""


class NoGaussianError(Exception):
    """No Gaussian is near a posterior of exchangeable units: the chain is tuned another way."""


class Surface(Protocol):
    """The potential at flat positions φ, as :class:`~pymc_sgmcmc.kernel.potential.Potential`."""

    dimension: int
    shapes: list[tuple[int, ...]]  # of each variable, where elements may share an index
    n_blocks: int
    batch_size: int
    sizes: list[tuple[int, int]]  # rows N and batch size B of each minibatch
    precision: float  # relative rounding error of the model's floats
    unbounded: Flat  # which coordinates are those of variables without bounds, shape (d,)
    circular: Flat  # which coordinates lie on a circle, shape (d,)
    widest: Flat  # the largest sd that a fit may give to each coordinate, shape (d,)
    kinked: bool  # whether ∇U may jump, as that of a Laplace distribution does
    numbers: int  # numbers that a gradient of one batch computes: what it costs

    def full(self, points: Points) -> tuple[Flat, Points]:
        """Return U and ∇U of the full data, (P,) and (P, d), at positions (P, d)."""

    def batch(self, points: Points, rows: Rows) -> tuple[Flat, Points]:
        """Return unbiased estimates of U and ∇U from one batch for each position."""

    def batch_gradient(self, points: Points, rows: Rows) -> Points:
        """Return estimates of ∇U alone, which may cost far less."""

    def block(self, points: Points, which: int | np.ndarray) -> Points:
        """Return the share of the full ∇U of one block of the data for each position."""

    def pair_sums(self, point: Flat, width: Flat, signs: Points, rows: Rows) -> PairSums:
        """Sum gradients at ``point ± signs width``, each pair from a batch of its own."""

    def draw_rows(self, rng: Rng, count: int) -> Rows:
        """Draw batches."""


def gradients_of_batches(surface: Surface, points: Points, rows: Rows) -> np.ndarray:
    """Return estimates of ∇U at each position from each batch, shape (P, n, d)."""
    each = np.repeat(points, len(rows), axis=0), np.tile(rows, (len(points), 1))
    return surface.batch_gradient(*each).reshape(len(points), len(rows), -1)


def mean_gradients(surface: Surface, points: Points, rows: Rows | None) -> Points:
    """Return the mean of batches' estimates of ∇U at positions, or of all rows for None, (P, d)."""
    if rows is None:
        return surface.full(points)[1]
    total, each = np.zeros(points.shape), max(1, MOST_NUMBERS // points.size)
    for first in range(0, len(rows), each):
        total += gradients_of_batches(surface, points, rows[first : first + each]).sum(axis=1)
    return total / len(rows)


def antithetic(rng: Rng, pairs: int, dimension: int) -> Points:
    """Return standard normal vectors e and −e, shape (2 pairs, d), neighbours opposite."""
    e = rng.standard_normal((pairs, dimension))
    return np.stack([e, -e], axis=1).reshape(2 * pairs, dimension)


def parts_of(flat: np.ndarray, sizes: Sequence[int]) -> list[np.ndarray]:
    """Return each variable's part of vectors, shape (..., d)."""
    return np.split(flat, np.cumsum(sizes)[:-1], axis=-1)


def ranges_of(sizes: Sequence[int]) -> list[range]:
    """Return the coordinates of each variable, in order."""
    ends = np.cumsum(sizes).tolist()
    return [range(a, b) for a, b in zip([0, *ends[:-1]], ends, strict=True)]
