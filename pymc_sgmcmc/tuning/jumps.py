"""Jumps of the density, which its gradient does not show.

A switch at a parameter's value, a rounding, or a density of -inf beyond a wall leaves ∇U as it is.
Between two positions U then changes by more than the integral of ∇U along the line.
"""

from __future__ import annotations

import copy

from collections.abc import Sequence

import numpy as np

from pymc_sgmcmc.tuning.messages import Warned
from pymc_sgmcmc.tuning.surface import Flat, Points, Rng, Root, Surface, ranges_of

# Pairs of positions, and nodes of the finer of two quadratures between them
_PAIRS, _NODES = 8, 16

# Change of U that matters, multiples of the quadrature's error from which it is no error, and how
# many pairs have to show it: the kinks of many Laplace terms may seem to be a jump once
_LARGE, _CLEAR, _LEAST = 0.5, 10.0, 2

# Rounding errors of a sum of many terms, relative to the precision of the model's floats
_ROUNDINGS = 100.0


def jumps(
    surface: Surface, centre: Flat, root: Root, names: Sequence[str], sizes: Sequence[int], rng: Rng
) -> list[Warned]:
    """Return a warning that names the variables along which U jumps in N(m, LL'), if there are any.

    The chain's own draws stay the same. Batches are judged by a single one.
    """
    [rng] = copy.deepcopy(rng).spawn(1)
    e = rng.standard_normal((2 * _PAIRS, len(centre)))
    start, end = np.split(centre + (e * root if root.ndim == 1 else e @ root.T), 2)
    rows = surface.draw_rows(rng, 1) if surface.batch_size else None
    largest = _unexplained(surface, start, end - start, rows)
    if not largest:
        return []
    along = []
    for name, part in zip(names, ranges_of(sizes), strict=True):
        move = np.zeros_like(start)
        move[:, part] = (end - start)[:, part]
        if _unexplained(surface, start, move, rows):
            along.append(f"'{name}'")
    size = "to 0" if np.isinf(largest) else f"by a factor of up to {np.exp(min(largest, 99)):.2g}"
    return [("jumps", {"along": " and ".join(along) or "several variables", "size": size})]


def _unexplained(surface: Surface, start: Points, move: Points, rows: np.ndarray | None) -> float:
    """Return the largest change of U along moves that ∇U does not explain, 0 where it does."""

    def at(points: Points) -> tuple[Flat, Points]:
        if rows is None:
            return surface.full(points)
        return surface.batch(points, np.repeat(rows, len(points), axis=0))

    def integral(count: int) -> Flat:
        total = np.zeros(len(start))
        for node, weight in zip(*np.polynomial.legendre.leggauss(count), strict=True):
            gradients = at(start + (node + 1) / 2 * move)[1]
            total += weight / 2 * np.einsum("pd,pd->p", gradients, move)
        return total

    values = np.stack([at(points)[0] for points in (start, start + move)])
    with np.errstate(invalid="ignore"):
        rough, fine = integral(_NODES // 2), integral(_NODES)
        # From one wall to another nothing is known, and neither where gradients are not finite
        change = np.nan_to_num(np.abs(values[1] - values[0] - fine), nan=0.0, posinf=np.inf)
        doubt = np.nan_to_num(np.abs(fine - rough), nan=np.inf, posinf=np.inf)
    finite = np.where(np.isfinite(values), np.abs(values), 0.0)
    least = _LARGE + _ROUNDINGS * surface.precision * finite.max(axis=0)
    seen = change > np.maximum(least, _CLEAR * doubt)
    return float(change[seen].max()) if np.count_nonzero(seen) >= _LEAST else 0.0
