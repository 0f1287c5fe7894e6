"""The coordinates of a hierarchy: what its maps learn of the likelihood during tuning."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from pytensor.tensor.variable import TensorVariable

from pymc_sgmcmc.centring.coefficients import Coefficients, information_of_block
from pymc_sgmcmc.centring.gaussian_map import Middle, Probe
from pymc_sgmcmc.centring.information import read
from pymc_sgmcmc.kernel.potential import Potential
from pymc_sgmcmc.kernel.ravel import Ravel
from pymc_sgmcmc.model.coordinates import Coordinate
from pymc_sgmcmc.model.graphs import depends_on
from pymc_sgmcmc.model.recognise import LARGEST_DENSE
from pymc_sgmcmc.tuning.curvature import difference_step
from pymc_sgmcmc.tuning.density import Density
from pymc_sgmcmc.tuning.passes import PAIRS
from pymc_sgmcmc.tuning.surface import TINY, Surface, mean_gradients
from pymc_sgmcmc.tuning.whiten import conditional_sds

# Positions at which scales are evaluated
_POSITIONS = 64

# Of these the quantile of the scales at which a block's matrix is measured: it vanishes at small
# scales
_WIDE = 0.9

# All information is learned at most this many more times, each time in the coordinates of the last.
# Learning ends when no precision has changed by more than this factor. An element that is one sd
# from its likelihood's mean counts as such a change
_ROUNDS, _CHANGED = 3, 1.5

# Length of a move of all elements, in units of a scale, or of one of a block, in units of its sd,
# 1 at most
_MOVE = 0.3

# Most gradients of batches in a measurement of a block
_MOST_GRADIENTS = 20_000

# Half the distance between the two points of a map's slope, in posterior sds
SECANT = 0.1


def uniform(density: Density, share: float) -> list[np.ndarray]:
    """Return the scales with one λ of all hierarchies, and no other information."""
    fitted = [c for c in density.engine.posterior.coordinates if c.scale is not None]
    return [
        c.map.uniform(share, c.phi.type.shape).astype(scale.dtype) if c.weighted else scale
        for c, scale in zip(fitted, density.scales, strict=True)
    ]


class Parametrisation:
    """Learns the information of a hierarchy's maps level by level, from the data upwards.

    In non-centred coordinates the prior's curvature is 1, so any excess is the likelihood's, which
    depends on the information below. All is repeated in its own, more Gaussian coordinates.
    """

    def __init__(self, density: Density, surface: Surface) -> None:
        self._density, self._surface = density, surface
        self._begun_at = density.scales
        self._hierarchy = [c for c in density.engine.posterior.coordinates if c.weighted]
        self._forget()

    def _forget(self) -> None:
        self._undecided = {c.rv: c for c in self._hierarchy}
        self._rounds_left = _ROUNDS if any(c.map.refines for c in self._hierarchy) else 0
        self._is_elsewhere = False
        self._is_first = True

    def repeat_here(self) -> None:
        """Have the learning repeated in its own coordinates at the next place."""
        self._is_elsewhere = self._rounds_left > 0

    def undo(self) -> None:
        """Restore the initial coordinates, and forget what was learned."""
        self._density.set_scales(self._begun_at)
        self._forget()

    def __call__(
        self, centre: np.ndarray, root: np.ndarray, *, at_mode: bool = False
    ) -> tuple[np.ndarray, np.ndarray] | None:
        """Change the coordinates; return centre and root in them, None if nothing changes.

        With ``at_mode`` they are a mode and the root of the curvature there, which describe an
        element at the mode's σ alone, not over the bulk of σ.
        """
        density, changed = self._density, False
        before = density.scales
        if self._is_first and not self._is_done(at_mode):
            centre, root = self._moved(centre, root, uniform(density, 0.0))
        while not self._is_done(at_mode):
            scales = self._next_level(_Probes(density, self._surface, centre, root), at_mode)
            centre, root = self._moved(centre, root, scales)
            changed = not all(map(np.array_equal, scales, before))
            if changed and not at_mode:
                break
        return (centre, root) if changed else None

    # ------------------------------------------------------------------ the levels

    def _is_done(self, at_mode: bool) -> bool:
        """Return whether every map has its information, or has to wait for the bulk."""
        waits = at_mode or not self._rounds_left
        return waits and not self._is_elsewhere and not self._level(at_mode)

    def _level(self, at_mode: bool) -> set[TensorVariable]:
        """Return the undecided variables whose descendants are all decided."""
        return {
            rv
            for rv, c in self._undecided.items()
            if (c.map.refines or not at_mode) and not self._are_parents(_block_of(c) or {rv})
        }

    def _are_parents(self, rvs: Collection[TensorVariable]) -> bool:
        """Return whether one of these is a parent of another undecided variable."""
        return any(
            depends_on(c.map.depends_on(*rv.owner.inputs), rvs)
            for rv, c in self._undecided.items()
            if rv not in rvs
        )

    def _next_level(self, probes: _Probes, at_mode: bool) -> list[np.ndarray]:
        """Return the scales with new information of the variables whose children have theirs."""
        self._is_first = False
        level = self._level(at_mode)
        repeats = not level
        if repeats:
            if not self._is_elsewhere:
                self._rounds_left -= 1
            level = {c.rv for c in self._hierarchy if c.map.refines}
        scales, change = probes.learned(level, 0 if at_mode else _POSITIONS)
        for rv in level:
            self._undecided.pop(rv, None)
        was_elsewhere, self._is_elsewhere = self._is_elsewhere, False
        if repeats and not was_elsewhere and change < np.log(_CHANGED):
            self._rounds_left = 0
            return list(self._density.scales)
        return scales

    # ------------------------------------------------------------------ the bulk in new coordinates

    def _moved(
        self, centre: np.ndarray, root: np.ndarray, scales: Sequence[np.ndarray]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Change the coordinates to other scales, and return the bulk in them."""
        density = self._density
        if all(map(np.array_equal, scales, density.scales)):
            return centre, root
        moved = self._moved_root if len(centre) <= LARGEST_DENSE else self._moved_sds
        root = moved(centre, root, scales)
        return Potential.join(density.rewritten(density.views[0].split(centre), scales)), root

    def _at(self, phi: Sequence[np.ndarray], scales: Sequence[np.ndarray]) -> list[np.ndarray]:
        density = self._density
        return density.engine.at_scales(phi, density.scales, scales, density.others)

    def _moved_root(
        self, centre: np.ndarray, root: np.ndarray, scales: Sequence[np.ndarray]
    ) -> np.ndarray:
        """Return L in coordinates of other scales, by the slopes of the map along its columns."""
        split = self._density.views[0].split
        columns = np.diag(root) if root.ndim == 1 else root
        differences = []
        for column in SECANT * columns.T:
            above, below = (
                Potential.join(self._at(split(x), scales))
                for x in (centre + column, centre - column)
            )
            differences.append(above - below)
        return np.stack(differences, axis=1) / (2 * SECANT)

    def _moved_sds(
        self, centre: np.ndarray, sd: np.ndarray, scales: Sequence[np.ndarray]
    ) -> np.ndarray:
        """Return sds in coordinates of other scales, each variable's with all others held."""
        split = self._density.views[0].split
        phi, widths, moved_widths = split(centre), split(sd), []
        known = self._density.engine.standardised(scales)
        for k, width in enumerate(widths):
            if known[k]:
                moved_widths.append(np.ones_like(width))
                continue
            ends = [(phi[k] + side * SECANT * width).astype(phi[k].dtype) for side in (1, -1)]
            above, below = (self._at([*phi[:k], x, *phi[k + 1 :]], scales)[k] for x in ends)
            moved = np.abs(above - below) / (2 * SECANT)
            # The old width is kept where the secant is lost in rounding
            moved_widths.append(np.where(moved > 0, moved, width))
        return Potential.join(moved_widths)


def _block_of(c: Coordinate) -> set[TensorVariable]:
    """Return the variables whose information is learned jointly with a coordinate's."""
    return {member.rv for member in c.map.block} if isinstance(c.map, Coefficients) else set()


@dataclass(frozen=True, eq=False)
class _Probes:
    """Measures information in a bulk, or at a mode, in the density's present coordinates."""

    density: Density
    surface: Surface
    centre: np.ndarray  # (d,)
    root: np.ndarray  # (d, d), or its diagonal

    @cached_property
    def ravel(self) -> Ravel:
        """The coordinates as parts of a flat position."""
        return Ravel.of(self.density.engine.posterior.phi)

    @cached_property
    def coordinates(self) -> dict[Coordinate, slice]:
        """Each coordinate's slice of a flat position."""
        coordinates = self.density.engine.posterior.coordinates
        return dict(zip(coordinates, self.ravel.ranges, strict=True))

    @cached_property
    def hierarchy(self) -> dict[Coordinate, int]:
        """The index of each hierarchy's information in the scales."""
        fitted = [c for c in self.coordinates if c.scale is not None]
        return {c: k for k, c in enumerate(fitted) if c.weighted}

    def widths(self, at: np.ndarray) -> tuple[dict[Coordinate, Any], dict[Coordinate, Any]]:
        """Return scales and locations of hierarchies at a position."""
        density, scales = self.density, self.density.scales
        phi = self.ravel.split(at)
        *both, _ = density.engine.hierarchy(phi, scales, density.others, weights=scales)
        spreads, locations = (dict(zip(self.hierarchy, x, strict=True)) for x in both)
        return spreads, locations

    def moves(self, count: int) -> np.ndarray:
        """Return random moves from the centre, shape (count, d)."""
        e = self.density.rng.standard_normal((count, len(self.centre)))
        return e * self.root if self.root.ndim == 1 else e @ self.root.T

    def learned(
        self, level: Collection[TensorVariable], positions: int
    ) -> tuple[list[np.ndarray], float]:
        """Return scales with new information of a level, and a curvature's largest log change."""
        by_signs = [c for c in self.hierarchy if c.rv in level and c.map.probe is Probe.SIGNS]
        curvatures = self.ravel.split(self._curvatures([self.coordinates[c] for c in by_signs]))
        phi = self.ravel.split(self.centre)
        places = self.centre + self.moves(positions)
        spreads, locations = self.widths(self.centre)
        at_places = [self.widths(place)[0] for place in places] or [spreads]
        blocks: dict[Coordinate, tuple[np.ndarray, float]] = {}
        scales, change = list(self.density.scales), 0.0
        for c, k in self.hierarchy.items():
            if c.rv not in level:
                continue
            at = list(self.coordinates).index(c)
            middle = Middle(*(x.astype(float) for x in (phi[at], locations[c], spreads[c])))
            if c.map.probe is Probe.UNIT:
                if c not in blocks:
                    blocks.update(self._by_unit_moves(c))
                new, changed = blocks[c]
            elif c.map.probe is Probe.COMMON:
                new, changed = self._by_common_move(c, middle)
            else:
                of_places = np.stack([x[c].astype(float) for x in at_places])
                curvature = curvatures[at].astype(float)
                new, changed = self._by_curvature(c, curvature, of_places, middle)
            scales[k] = new.astype(scales[k].dtype)
            change = max(change, changed)
        return scales, change

    def _by_curvature(
        self, c: Coordinate, curvature: np.ndarray, spreads: np.ndarray, middle: Middle
    ) -> tuple[np.ndarray, float]:
        """Return the information of a coordinate from U's curvature, and that one's log change."""
        old = self.density.scales[self.hierarchy[c]]
        with np.errstate(all="ignore"):  # a degenerate bulk gives no information
            of_map = c.map.with_information(old.astype(float))
            new = of_map.from_curvature(curvature, spreads, middle)
            ratio = np.abs(np.log(curvature))
        new = np.where(np.isfinite(new).all(axis=0), new, 0)
        change = float(np.max(ratio, initial=0.0, where=np.isfinite(ratio)))
        if c.map.refines and (known := of_map.information.precision > 0).any():
            # Elements far from 0 need another mean, if not another precision
            change = max(change, _log_change(middle.phi[known]))
        return new, change

    def _by_common_move(self, c: Coordinate, middle: Middle) -> tuple[np.ndarray, float]:
        """Return the information from a move of all elements, and a precision's log change."""
        of_map = c.map.with_information(self.density.scales[self.hierarchy[c]].astype(float))
        part = self.coordinates[c]
        by, rng = float(np.median(middle.spread)) * _MOVE, self.density.rng
        move, vectors = np.zeros(len(self.centre)), middle.spread.shape[:-1]
        # Vectors of one row, as in a difference, would hide each other
        signs = rng.choice([-1.0, 1.0], (PAIRS, *vectors, 1)) if vectors else np.ones((1, 1))
        with np.errstate(all="ignore"):  # a degenerate bulk gives no information
            shift, mean, slope = of_map.shift(middle), *np.zeros((2, *middle.spread.shape))
            for sign in signs:
                move[part] = by * (sign * shift).ravel()
                _, gradient = self.surface.full(self.centre + np.outer([1, -1], move))
                there, opposite = (g[part].reshape(middle.spread.shape) for g in gradient)
                mean = mean + (there + opposite) / (2 * len(signs))
                slope = slope + sign * (there - opposite) / (2 * by * len(signs))
            if not np.all(np.isfinite(mean) & np.isfinite(slope)):
                return of_map.array, 0.0
            new = of_map.from_shift(mean, slope, middle)
            before, after = (
                2 / middle.spread**2 + read(c.map.kind, x).precision for x in (of_map.array, new)
            )
            change = float(np.max(np.abs(np.log(after / before))))
        return (new, change) if np.all(np.isfinite(new)) else (of_map.array, 0.0)

    def _curvatures(self, variables: Sequence[slice]) -> np.ndarray:
        """Return the curvature of the full U along each coordinate, shape (d,).

        A dense L of the full data implies it. L from batches misses groups of few rows, a diagonal
        L misses dependent levels: random signs of a variable, on the full data, correct it.
        """
        root, d = self.root, len(self.centre)
        if root.ndim == 1:
            expected = root**-2.0
        else:
            inverse = np.linalg.pinv(root)
            expected = np.sum(inverse**2, axis=0)
            if not self.surface.batch_size:
                return expected
        width = expected**-0.5
        error = np.zeros(d)
        for part in variables:
            # On the full data: for a group of few rows a part of the data is unreliable
            for sign in self.density.rng.choice([-1.0, 1.0], size=(PAIRS, d)):
                move = np.zeros(d)
                move[part] = width[part] * sign[part]
                _, gradient = self.surface.full(self.centre + np.outer([1, -1], move))
                of_root = expected * move if root.ndim == 1 else inverse.T @ (inverse @ move)
                beyond = (gradient[0] - gradient[1]) / 2 - of_root
                error[part] += beyond[part] / (move[part] * PAIRS)
        return np.where(np.isfinite(error), expected + error, 1.0)

    # ------------------------------------------------------------------ blocks of coefficients

    def _by_unit_moves(self, c: Coordinate) -> dict[Coordinate, tuple[np.ndarray, float]]:
        """Return the information of a coordinate's block, and the log change of a precision."""
        assert isinstance(c.map, Coefficients)
        of_rv = {x.rv: x for x in self.coordinates}
        block = [of_rv[member.rv] for member in c.map.block]
        parts = [np.arange(len(self.centre))[self.coordinates[x]] for x in block]
        elements = np.concatenate(parts)
        old = [np.asarray(self.density.scales[self.hierarchy[x]]) for x in block]
        is_known = any(read(c.map.kind, x).precision.any() for x in old)
        # At other scales only informed coordinates stay in the bulk
        at = self._wide_place(c.map, block) if is_known else self.centre
        # Kinks may be few within a short move
        move = max(_MOVE, difference_step(self.surface)) * np.minimum(
            1.0, conditional_sds(self.root)[elements]
        )
        gradient, curvature = _derivatives(self.surface, at, elements, move, self.density.rng)
        scale, phi = self._scales_of(block, at), at[elements].astype(float)
        with np.errstate(all="ignore"):
            try:
                new = information_of_block(old, scale, phi, gradient, curvature, c.map.factorised)
                change = float(np.abs(np.log(np.abs(np.linalg.eigvalsh(curvature)))).max())
            except np.linalg.LinAlgError:
                new, change = old, 0.0
        if not all(np.all(np.isfinite(x)) for x in new):
            new, change = old, 0.0
        if is_known:
            change = max(change, _log_change(self.centre[elements]))
        return {x: (array, change) for x, array in zip(block, new, strict=True)}

    def _wide_place(self, of_map: Coefficients, block: Sequence[Coordinate]) -> np.ndarray:
        """Return the centre, with the block's scales as wide as the bulk's."""
        at, moves = np.tile(self.centre, (_POSITIONS, 1)), self.moves(_POSITIONS)
        for x, part in self.coordinates.items():
            if x not in block and depends_on(of_map.parents(), {x.rv}):
                at[:, part] += moves[:, part]
        # Only the size of a factor of either sign matters
        sizes = [np.maximum(np.abs(self._scales_of(block, place)), TINY) for place in at]
        widths = [np.log(size).mean() for size in sizes]
        return at[np.argsort(widths)[int(_WIDE * (len(at) - 1))]]

    def _scales_of(self, block: Sequence[Coordinate], at: np.ndarray) -> np.ndarray:
        """Return the scales of a block's elements at a position, shape (n,)."""
        spreads, _ = self.widths(at)
        return np.concatenate([spreads[x].ravel() for x in block]).astype(float)


def _log_change(phi: np.ndarray) -> float:
    """Return elements' distance from 0, as a change of a precision that matters as much."""
    return float(np.sqrt(np.mean(phi**2)) * np.log(_CHANGED))


def _derivatives(
    surface: Surface,
    at: np.ndarray,
    elements: np.ndarray,
    move: np.ndarray,  # of each element, shape (n,)
    rng: np.random.Generator,
) -> tuple[np.ndarray, np.ndarray]:
    """Return gradient and curvature of U along a block, shapes (n,) and (n, n)."""
    n = len(elements)
    moves = np.zeros((n, len(at)))
    moves[np.arange(n), elements] = move
    points = np.concatenate([at + moves, at - moves])
    count = max(1, _MOST_GRADIENTS // len(points))
    rows = surface.draw_rows(rng, count) if count < surface.n_blocks else None
    gradients = mean_gradients(surface, points, rows)
    curvature = (gradients[:n] - gradients[n:])[:, elements] / (2 * move[:, None])
    return surface.full(at[None])[1][0][elements], (curvature + curvature.T) / 2
