"""The choice of a hierarchy's coordinates, for each element."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from pytensor.tensor.variable import TensorVariable

from pymc_sgmcmc.centring import InformedCoefficients, Weighted
from pymc_sgmcmc.kernel.engine import Engine
from pymc_sgmcmc.model.hierarchy import depends_on
from pymc_sgmcmc.tuning.coefficients import BlockChoice
from pymc_sgmcmc.tuning.surface import Surface

__all__ = ["WritingChoice", "with_weight"]

# Positions at which scales are evaluated
_POSITIONS = 64

# Most rounds that repeat the whole choice in its own coordinates, and what makes them go on: the
# factor by which precisions changed, or the sds between elements and their likelihood's means
_AGAIN, _CHANGED, _FAR = 3, 1.5, 1.0

# Length of a common move, in units of a step's scale
_SHIFT = 0.3

# Pairs of opposite positions at which the curvature is measured, on the full data: for a group of
# few rows a part of the data is unreliable
_PAIRS = 8


def with_weight(model: Engine, scales: Sequence[np.ndarray], weight: float) -> list[np.ndarray]:
    """Return the scales with every weight set to one value."""
    fitted = [c for c in model.posterior.coordinates if c.scale is not None]
    return [
        c.map.uniform(weight, c.phi.type.shape).astype(scale.dtype) if c.weighted else scale
        for c, scale in zip(fitted, scales, strict=True)
    ]


class WritingChoice:
    """Chooses the weights of a hierarchy level by level, from the data upwards.

    In non-centred coordinates the prior's curvature is 1, so any excess is the likelihood's, which
    depends on the weights below. The choice is repeated in its own, more Gaussian coordinates.
    """

    def __init__(self, model: Engine) -> None:
        self._model = model
        self._fitted = [c for c in model.posterior.coordinates if c.scale is not None]
        self._undecided = {c.rv: c for c in self._fitted if c.weighted}
        self._left = _AGAIN if any(c.map.refines for c in self._undecided.values()) else 0
        self._elsewhere = False
        self.is_first = True

    def move(self) -> None:
        """Have the choice repeated in its own coordinates, at another place."""
        self._elsewhere = self._left > 0

    def is_done(self, *, at_mode: bool) -> bool:
        """Return whether every element has its weight, or has to wait for the bulk."""
        return not (self._next(at_mode) or self._elsewhere) and (at_mode or not self._left)

    def next_level(
        self,
        surface: Surface,
        scales: Sequence[np.ndarray],
        others: Sequence[np.ndarray],
        centre: np.ndarray,
        root: np.ndarray,
        rng: np.random.Generator,
        *,
        at_mode: bool,
    ) -> list[np.ndarray]:
        """Return the scales with new weights of the variables whose children are chosen.

        With ``at_mode``, ``centre`` and ``root`` are a mode and its curvature, which describe an
        element at the mode's σ alone, not over the bulk of σ.
        """
        self.is_first = False
        level = self._next(at_mode)
        again = not level
        if again:
            self._left -= not self._elsewhere
            level = {c.rv for c in self._fitted if c.weighted and c.map.refines}
        positions = 0 if at_mode else _POSITIONS
        chosen, change = self._chosen(level, surface, scales, others, centre, root, rng, positions)
        for rv in level:
            self._undecided.pop(rv, None)
        elsewhere, self._elsewhere = self._elsewhere, False
        if again and not elsewhere and change < np.log(_CHANGED):
            self._left = 0
            return list(scales)
        return chosen

    def _next(self, at_mode: bool) -> set[TensorVariable]:
        """Return the undecided variables whose descendants are all decided."""
        return {
            rv
            for rv, c in self._undecided.items()
            if not self._below({rv, *_together(c.map)}) and (c.map.refines or not at_mode)
        }

    def _below(self, rvs: Collection[TensorVariable]) -> bool:
        """Return whether one of these is a parent of an undecided variable."""
        others = [other for other in self._undecided if other not in rvs]
        maps = [(self._undecided[other].map, other.owner.inputs) for other in others]
        return any(depends_on(map_.depends_on(*inputs), rvs) for map_, inputs in maps)

    def _chosen(
        self,
        level: Collection[TensorVariable],
        surface: Surface,
        scales: Sequence[np.ndarray],
        others: Sequence[np.ndarray],
        centre: np.ndarray,
        root: np.ndarray,
        rng: np.random.Generator,
        positions: int,
    ) -> tuple[list[np.ndarray], float]:
        """Return scales with new weights of a level, and the largest log change of curvature."""
        model, posterior = self._model, self._model.posterior
        split = [int(np.prod(x.type.shape)) for x in posterior.phi]
        ends = np.cumsum(split)[:-1]

        def parts(flat: np.ndarray) -> list[np.ndarray]:
            return [
                part.reshape(x.type.shape).astype(x.dtype)
                for part, x in zip(np.split(flat, ends), posterior.phi, strict=True)
            ]

        slices = [slice(end - n, end) for end, n in zip([*ends, len(centre)], split, strict=True)]
        moved_ones = [
            part
            for part, c in zip(slices, posterior.coordinates, strict=True)
            if c.rv in level and not c.map.by_shift and not _together(c.map)
        ]
        curvature = parts(_curvatures(surface, centre, root, moved_ones, rng))
        e = rng.standard_normal((positions, len(centre)))
        moved = centre + (e * root if root.ndim == 1 else e @ root.T)
        seen = [model.hierarchy(parts(x), scales, others)[0] for x in moved if positions]
        spreads, locations = model.hierarchy(middle := parts(centre), scales, others)
        weighted = [c for c in posterior.coordinates if c.weighted]
        found, change = list(scales), 0.0
        blocks = BlockChoice(model, surface, scales, others, centre, root, rng)
        for k, c in enumerate(weighted):
            if c.rv not in level:
                continue
            if isinstance(c.map, InformedCoefficients):
                found[self._fitted.index(c)], moved_by, off = blocks.weight(c)
                change = max(change, moved_by, off / _FAR * np.log(_CHANGED))
                continue
            i, at = self._fitted.index(c), posterior.coordinates.index(c)
            if c.map.by_shift:
                of_map = c.map.with_weight(scales[i].astype(float))
                weight, moved_by = _by_shift(
                    of_map, surface, centre, slices[at], locations[k].astype(float), spreads[k]
                )
                found[i] = weight.astype(scales[i].dtype)
                change = max(change, moved_by)
                continue
            widths = np.stack([places[k].astype(float) for places in seen or [spreads]])
            h = curvature[at].astype(float)
            phi = middle[at].astype(float)
            with np.errstate(all="ignore"):  # a degenerate bulk gives no weights
                weight = c.map.with_weight(scales[i]).chosen(
                    h, widths, phi, locations[k].astype(float), spreads[k]
                )
                ratio = np.abs(np.log(h))
            numbers = tuple(range(len(c.map.numbers)))
            weight = np.where(np.isfinite(weight).all(axis=numbers), weight, 0)
            found[i] = weight.astype(scales[i].dtype)
            change = max(change, float(np.max(ratio, initial=0.0, where=np.isfinite(ratio))))
            if c.map.refines and (told := scales[i][1] > 0).any():
                # Elements far from 0 need another mean, if not another precision
                off = np.sqrt(np.mean(phi[told] ** 2))
                change = max(change, float(off / _FAR * np.log(_CHANGED)))
        return found, change


def _together(of_map: Weighted) -> list[TensorVariable]:
    """Return the variables whose weights are chosen jointly with a map's."""
    block = of_map.block if isinstance(of_map, InformedCoefficients) else ()
    return [member.rv for member in block]


def _by_shift(
    of_map: Weighted,
    surface: Surface,
    centre: np.ndarray,
    part: slice,
    location: np.ndarray,
    spread: np.ndarray,
) -> tuple[np.ndarray, float]:
    """Return the weight that a common move of all elements gives, and a precision's log change."""
    by = float(np.median(spread)) * _SHIFT
    move = np.zeros(len(centre))
    move[part] = by * of_map.shift(location, spread).ravel()
    _, gradient = surface.full(centre + np.outer([1, -1], move))
    there, opposite = (g[part].reshape(spread.shape) for g in gradient)
    with np.errstate(all="ignore"):
        weight = of_map.told(
            centre[part].reshape(spread.shape),
            (there + opposite) / 2,
            (there - opposite) / (2 * by),
            location,
            spread,
        )
        before, after = (2 / spread**2 + w[1] for w in (of_map.weight, weight))
        change = float(np.max(np.abs(np.log(after / before))))
    if not np.all(np.isfinite(weight)):
        return np.asarray(of_map.weight), 0.0
    return weight, change


def _curvatures(
    surface: Surface,
    centre: np.ndarray,
    root: np.ndarray,
    variables: Sequence[slice],
    rng: np.random.Generator,
) -> np.ndarray:
    """Return the curvature of the full U along each coordinate, shape (d,).

    A dense L of the full data implies it. L from batches misses groups of few rows, a diagonal L
    misses dependent levels: moves of all elements of such a variable, on the full data, correct it.
    """
    d = len(centre)
    if root.ndim == 1:
        expected = root**-2.0

        def of_root(move: np.ndarray) -> np.ndarray:
            return expected * move
    else:
        inverse = np.linalg.pinv(root)
        expected = np.sum(inverse**2, axis=0)
        if not surface.batch_size:
            return expected

        def of_root(move: np.ndarray) -> np.ndarray:
            return inverse.T @ (inverse @ move)

    width = expected**-0.5
    error = np.zeros(d)
    for part in variables:
        for sign in rng.choice([-1.0, 1.0], size=(_PAIRS, d)):
            move = np.zeros(d)
            move[part] = width[part] * sign[part]
            _, gradient = surface.full(centre + np.outer([1, -1], move))
            seen = (gradient[0] - gradient[1]) / 2 - of_root(move)
            error[part] += seen[part] / (move[part] * _PAIRS)
    return np.where(np.isfinite(error), expected + error, 1.0)
