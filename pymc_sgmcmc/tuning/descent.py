"""The way down from a random start, as nets are trained."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pymc_sgmcmc.model.coordinates import Coordinate
from pymc_sgmcmc.model.hierarchy import shape_priors
from pymc_sgmcmc.tuning.surface import Surface

__all__ = ["descended", "held_of"]

# Of the jitter, in units of the priors: as small as the weights are that nets are trained from
_NEAR = 0.3

# Passes over the data: far more lead into places that are sharper than the bulk ever is. At least
# and at most so many updates, and numbers in their gradients: a larger net finds the way down while
# its step size is sought
_PASSES, _LEAST, _MOST, _MOST_NUMBERS = 60, 60, 4_000, 2**26

# Of Adam: the first rate in units of the priors, and what is forgotten in an update
_RATE, _FORGET, _FORGET_SQUARES, _TINY = 0.01, 0.1, 0.01, 1e-8


def descended(
    surface: Surface,
    begin: np.ndarray,
    widths: np.ndarray,
    jitter: np.ndarray,
    held: np.ndarray,
    rng: np.random.Generator,
) -> np.ndarray:
    r"""Return where Adam [1]_ comes from a start, with a rate that falls to 0 as a cosine.

    A chain that begins at random weights of a net is far from the bulk, where gradients are small
    beside those that it meets when it arrives: the step size that it found is too large there.
    Adam's moves have the same length whatever the gradients are.

    Parameters
    ----------
    surface : Surface
        The potential.
    begin, widths, jitter : ndarray
        φ of the start, the sds of the priors, and what moves the start in units of these, shape
        (d,).
        Where the density is not finite so far away, or where so many passes would cost too much,
        the start is moved by ``jitter`` itself.
    held : ndarray of bool
        Which coordinates don't move, shape (d,).
    rng : numpy.random.Generator
        Draws the batches.

    References
    ----------
    .. [1] Kingma, Ba (2015). Adam: a method for stochastic optimization. ICLR.
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

    The density may be infinite where a scale goes to 0 with all that it scales: a way down ends
    there, and a chain with noise finds no step size with which to leave it.
    """
    return np.repeat(shape_priors([c.rv for c in coordinates]), [x.size for x in blocks])


def _is_finite(surface: Surface, x: np.ndarray, rng: np.random.Generator) -> bool:
    values, gradients = surface.batch(x[None], surface.draw_rows(rng, 1))
    return bool(np.isfinite(values[0]) and np.all(np.isfinite(gradients)))
