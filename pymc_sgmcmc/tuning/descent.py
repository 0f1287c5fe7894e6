"""Descent from a random start, as neural networks are trained."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pymc_sgmcmc.model.affine_use import shape_priors
from pymc_sgmcmc.model.coordinates import Coordinate
from pymc_sgmcmc.tuning.surface import Surface

__all__ = ["descended", "held_of"]

# Factor of the jitter, in units of the priors: networks are trained from weights as small
_NEAR = 0.3

# Passes over the data: far more reach regions sharper than the bulk. Least and most updates, and
# most numbers in their gradients: a larger network, whose start is jittered alone, descends while
# its step size is tuned
_PASSES, _LEAST, _MOST, _MOST_NUMBERS = 60, 60, 4_000, 2**26

# Adam's first rate in units of the priors, and the shares forgotten in an update
_RATE, _FORGET, _FORGET_SQUARES, _TINY = 0.01, 0.1, 0.01, 1e-8


def descended(
    surface: Surface,
    begin: np.ndarray,
    widths: np.ndarray,  # the priors' sds, shape (d,)
    jitter: np.ndarray,  # in units of these, or of φ where that is not finite or costs too much
    held: np.ndarray,  # which coordinates don't move, shape (d,)
    rng: np.random.Generator,
) -> np.ndarray:
    """Return where Adam, with a rate annealed as a cosine, ends from a jittered start, shape (d,).

    Adam (Kingma and Ba, 2015, ICLR) moves equally far whatever the gradients are: a network's are
    small at random weights, and a step size found there would be too large in the bulk.
    """
    steps = int(np.clip(_PASSES * surface.n_blocks, _LEAST, _MOST))
    if steps * len(begin) > _MOST_NUMBERS:
        return begin + jitter
    moves = np.where(held, 0.0, widths)
    start = begin + _NEAR * widths * jitter
    if not _is_finite(surface, start, rng):
        start = begin + jitter
    x, mean, square = start.copy(), np.zeros(start.shape), np.zeros(start.shape)
    for t in range(1, steps + 1):
        rows = surface.draw_rows(rng, 1)
        gradient = surface.batch_gradient(x[None], rows)[0] * widths
        with np.errstate(over="ignore"):
            squared = gradient**2
        if not np.all(np.isfinite(squared)):
            return start
        mean += _FORGET * (gradient - mean)
        square += _FORGET_SQUARES * (squared - square)
        rate = _RATE * (1 + np.cos(np.pi * t / steps)) / 2
        m, s = mean / (1 - (1 - _FORGET) ** t), square / (1 - (1 - _FORGET_SQUARES) ** t)
        x -= rate * moves * m / (np.sqrt(s) + _TINY)
    return x


def held_of(coordinates: Sequence[Coordinate], blocks: Sequence[np.ndarray]) -> np.ndarray:
    """Return which coordinates shape the priors of others, shape (d,).

    The density may be infinite where a scale goes to 0 with all that it scales: a descent ends
    there, and no step size lets a chain with noise leave.
    """
    return np.repeat(shape_priors([c.rv for c in coordinates]), [x.size for x in blocks])


def _is_finite(surface: Surface, x: np.ndarray, rng: np.random.Generator) -> bool:
    values, gradients = surface.batch(x[None], surface.draw_rows(rng, 1))
    return bool(np.isfinite(values[0]) and np.all(np.isfinite(gradients)))
