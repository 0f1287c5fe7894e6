"""The likelihood's curvature along coefficients that enter one sum, as a matrix."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pymc_sgmcmc.centring import InformedCoefficients, told_of_block
from pymc_sgmcmc.kernel.engine import Engine
from pymc_sgmcmc.model.coordinates import Coordinate
from pymc_sgmcmc.model.hierarchy import depends_on
from pymc_sgmcmc.tuning.surface import Surface

__all__ = ["BlockChoice"]

# Positions drawn in the bulk, and the quantile of their scales at which the matrix is measured: it
# vanishes at small scales
_POSITIONS, _WIDE = 64, 0.9

# Length of a move, in units of a step's scale
_MOVE = 0.3

# Most gradients of batches in a measurement
_MOST_GRADIENTS = 20_000


class BlockChoice:
    """Measures the matrix of each block once, for a bulk, or a mode, with centre m and root L."""

    def __init__(
        self,
        model: Engine,
        surface: Surface,
        scales: Sequence[np.ndarray],
        others: Sequence[np.ndarray],
        centre: np.ndarray,
        root: np.ndarray,
        rng: np.random.Generator,
    ) -> None:
        self._model, self._surface = model, surface
        self._scales, self._others = scales, others
        self._centre, self._root, self._rng = centre, root, rng
        self._known: dict[Coordinate, tuple[np.ndarray, float, float]] = {}

    def weight(self, c: Coordinate) -> tuple[np.ndarray, float, float]:
        """Return a coordinate's weight, the largest log change of a precision, and an offset.

        The offset is the root mean square of the block's distance from 0, in sds.
        """
        if c not in self._known:
            self._measure(c)
        return self._known[c]

    def _measure(self, c: Coordinate) -> None:
        coordinates = self._model.posterior.coordinates
        assert isinstance(c.map, InformedCoefficients)
        of_rv = {x.rv: x for x in coordinates}
        block = [of_rv[member.rv] for member in c.map.block]
        sizes = [int(np.prod(x.type.shape)) for x in self._model.posterior.phi]
        starts = dict(zip(coordinates, np.cumsum([0, *sizes[:-1]]).tolist(), strict=True))
        size_of = dict(zip(coordinates, sizes, strict=True))
        rows = np.concatenate([np.arange(starts[x], starts[x] + size_of[x]) for x in block])
        fitted = [x for x in coordinates if x.scale is not None]
        old = [np.asarray(self._scales[fitted.index(x)]) for x in block]
        told = any(w[1].any() for w in old)
        # At other scales only informed coordinates stay in the bulk
        at = self._place(c.map, block, starts, size_of) if told else self._centre
        scale = self._spreads(at, block)
        gradient, curvature = self._seen(at, rows)
        phi = at[rows].astype(float)
        with np.errstate(all="ignore"):
            try:
                new = told_of_block(old, scale, phi, gradient, curvature, c.map.factorised)
                ratio = np.abs(np.log(np.abs(np.linalg.eigvalsh(curvature))))
            except np.linalg.LinAlgError:
                new, ratio = old, np.zeros(1)
        if not all(np.all(np.isfinite(w)) for w in new):
            new, ratio = old, np.zeros(1)
        off = float(np.sqrt(np.mean(self._centre[rows] ** 2))) if told else 0.0
        for x, w, before in zip(block, new, old, strict=True):
            self._known[x] = w.astype(before.dtype), float(ratio.max()), off

    def _place(
        self,
        of_map: InformedCoefficients,
        block: Sequence[Coordinate],
        starts: dict[Coordinate, int],
        sizes: dict[Coordinate, int],
    ) -> np.ndarray:
        """Return the centre, with the block's scales as wide as the bulk's."""
        of_scales = [
            x
            for x in self._model.posterior.coordinates
            if x not in block and depends_on(of_map.parents(), {x.rv})
        ]
        root, at = self._root, np.tile(self._centre, (_POSITIONS, 1))
        e = self._rng.standard_normal(at.shape)
        moves = e * root if root.ndim == 1 else e @ root.T
        for x in of_scales:
            part = slice(starts[x], starts[x] + sizes[x])
            at[:, part] += moves[:, part]
        least = np.finfo(float).tiny
        # Only the size of a factor of either sign matters
        sizes_at = [np.maximum(np.abs(self._spreads(place, block)), least) for place in at]
        widths = [np.log(spreads).mean() for spreads in sizes_at]
        return at[np.argsort(widths)[int(_WIDE * (len(at) - 1))]]

    def _spreads(self, at: np.ndarray, block: Sequence[Coordinate]) -> np.ndarray:
        """Return the scales of a block's elements at a position, shape (n,)."""
        posterior = self._model.posterior
        ends = np.cumsum([int(np.prod(x.type.shape)) for x in posterior.phi])[:-1]
        phi = [
            part.reshape(x.type.shape).astype(x.dtype)
            for part, x in zip(np.split(at, ends), posterior.phi, strict=True)
        ]
        spreads, _ = self._model.hierarchy(phi, self._scales, self._others)
        weighted = [x for x in posterior.coordinates if x.weighted]
        return np.concatenate([spreads[weighted.index(x)].ravel() for x in block]).astype(float)

    def _seen(self, at: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return gradient and curvature of U along a block, shapes (n,) and (n, n)."""
        surface, n = self._surface, len(rows)
        moves = np.zeros((n, len(at)))
        moves[np.arange(n), rows] = _MOVE
        points = np.concatenate([at + moves, at - moves])
        count = max(1, _MOST_GRADIENTS // len(points))
        if count < surface.n_blocks:
            batches = surface.draw_rows(self._rng, count)
            found = surface.batch_gradient(
                np.repeat(points, count, axis=0), np.tile(batches, (len(points), 1))
            )
            gradients = found.reshape(len(points), count, -1).mean(axis=1)
        else:
            gradients = surface.full(points)[1]
        curvature = (gradients[:n] - gradients[n:])[:, rows] / (2 * _MOVE)
        return surface.full(at[None])[1][0][rows], (curvature + curvature.T) / 2
