"""The density that a chain is tuned for, in coordinates that are chosen on the way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pymc.exceptions import SamplingError

from pymc_sgmcmc.chain.memory import Place
from pymc_sgmcmc.chain.state import ChainState
from pymc_sgmcmc.kernel.engine import Engine
from pymc_sgmcmc.kernel.options import LARGEST_DENSE
from pymc_sgmcmc.kernel.potential import Potential
from pymc_sgmcmc.model.coordinates import rescaled
from pymc_sgmcmc.tuning.centre import WritingChoice, with_weight
from pymc_sgmcmc.tuning.remembered import Remembered
from pymc_sgmcmc.tuning.start import jittered
from pymc_sgmcmc.tuning.surface import Surface

__all__ = ["Density"]

# Half the distance between two points of which the slope of a map is taken, in posterior sds
_SECANT = 0.1


class Density:
    """The density at some places of the variables that are not sampled.

    Parameters
    ----------
    engine : Engine
        The compiled model.
    state : ChainState
        The chain's: its row order, its jitter and its generator for tuning.
    places : sequence of Place
        Values of the other variables, the present ones last; a single place where there are none.

    Attributes
    ----------
    scales : list of ndarray
        Of softplus coordinates, and weights of a hierarchy's writing.
    views : list of Potential
        The potential at each place, once it is compiled.
    others : list of ndarray
        The present values of the variables that are not sampled.
    """

    def __init__(self, engine: Engine, state: ChainState, places: Sequence[Place]) -> None:
        self._engine = engine
        self._state = state
        self._rng = state.tuning_rng
        self.places = list(places)
        self.others = self.places[-1].others
        self.scales = list(self.places[-1].scales)
        self.views: list[Potential] = []

    def compile(self) -> None:
        """Compile the potential and call it: only then does JAX trace the graph."""
        engine = self._engine
        potential = engine.potential()
        self.views = [potential.at(self._fixed(place.others)) for place in self.places]
        self.views[-1].block(Potential.join(self.places[-1].phi)[None], 0)

    def _fixed(self, others: Sequence[np.ndarray]) -> list[Any]:
        return self._engine.fixed(self._state.row_order, self.scales, others)

    def surface(self) -> Surface:
        """Return what is tuned on: of several places their mean."""
        if len(self.views) == 1:
            return self.views[0]
        return Remembered(self.views, self._in_scales())

    def _in_scales(self) -> np.ndarray:
        """Positions of all places in coordinates of the present scales."""
        return np.stack(
            [
                Potential.join(
                    self._engine.at_scales(place.phi, place.scales, self.scales, place.others)
                )
                for place in self.places
            ]
        )

    def rescale(self, points: np.ndarray) -> np.ndarray:
        """Fit the scales of softplus coordinates to the first of these positions."""
        blocks = [self.views[0].split(point) for point in points]
        self.scales, moved = rescaled(self._engine.posterior.coordinates, self.scales, blocks)
        for view, place in zip(self.views, self.places, strict=True):
            view.set_fixed(self._fixed(place.others))
        return np.stack([Potential.join(block) for block in moved])

    def jittered_start(self, phi: Sequence[np.ndarray]) -> np.ndarray:
        """Return a start near φ at which the density is finite.

        Raises
        ------
        SamplingError
            If there is none.
        """

        def potential(points: np.ndarray) -> np.ndarray:
            values, gradient = self.views[-1].full(points)
            finite = np.isfinite(values) & np.all(np.isfinite(gradient), axis=1)
            return np.where(finite, values, np.inf)

        start = jittered(Potential.join(phi), self._rng, potential, self._state.jitter)
        if start is None:
            raise SamplingError(self._engine.why_not_finite(phi, self.scales, self.others))
        return start

    def writing(
        self, surface: Surface, choice: WritingChoice
    ) -> Callable[..., tuple[np.ndarray, np.ndarray] | None]:
        """Return what changes the coordinates of a hierarchy, None where nothing is left to do."""

        def rewrite(
            centre: np.ndarray, root: np.ndarray, *, at_mode: bool = False
        ) -> tuple[np.ndarray, np.ndarray] | None:
            written, changed = self.scales, False
            # The choice is made in non-centred coordinates
            if choice.is_first and not choice.is_done(at_mode=at_mode):
                non_centred = with_weight(self._engine, written, 0.0)
                centre, root = self._moved(centre, root, non_centred)
            while not choice.is_done(at_mode=at_mode):
                scales = choice.next_level(
                    surface, self.scales, self.others, centre, root, self._rng, at_mode=at_mode
                )
                centre, root = self._moved(centre, root, scales)
                changed = not all(map(np.array_equal, scales, written))
                if changed and not at_mode:
                    break
            return (centre, root) if changed else None

        return rewrite

    def _moved(
        self, centre: np.ndarray, root: np.ndarray, scales: Sequence[np.ndarray]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the bulk in coordinates of other scales, in which the surface is from then on."""
        if all(map(np.array_equal, scales, self.scales)):
            return centre, root
        moved = self._moved_root if len(centre) <= LARGEST_DENSE else self._moved_sds
        root = moved(centre, root, scales)
        return Potential.join(self.rewritten(self.views[0].split(centre), scales)), root

    def _moved_root(
        self, centre: np.ndarray, root: np.ndarray, scales: Sequence[np.ndarray]
    ) -> np.ndarray:
        """Return L in coordinates of other scales, by the slopes of the map along its columns."""
        columns = np.diag(root) if root.ndim == 1 else root

        def moved(flat: np.ndarray) -> np.ndarray:
            phi = self.views[0].split(flat)
            return Potential.join(self._engine.at_scales(phi, self.scales, scales, self.others))

        pairs = [(moved(centre + _SECANT * c), moved(centre - _SECANT * c)) for c in columns.T]
        return np.stack([a - b for a, b in pairs], axis=1) / (2 * _SECANT)

    def _moved_sds(
        self, centre: np.ndarray, sd: np.ndarray, scales: Sequence[np.ndarray]
    ) -> np.ndarray:
        """Return sds in coordinates of other scales, each variable's with all others held."""
        split, found = self.views[0].split, []
        phi, widths = split(centre), split(sd)
        known = self._engine.standardised(scales)
        for k, width in enumerate(widths):
            if known[k]:
                found.append(np.ones_like(width))
                continue
            moves = [_SECANT * w * (j == k) for j, w in enumerate(widths)]
            above, below = (
                self._engine.at_scales(
                    [(x + side * move).astype(x.dtype) for x, move in zip(phi, moves, strict=True)],
                    self.scales,
                    scales,
                    self.others,
                )[k]
                for side in (1, -1)
            )
            moved = np.abs(above - below) / (2 * _SECANT)
            # Where the secant is lost in rounding the old width is all that is known
            found.append(np.where(moved > 0, moved, width))
        return Potential.join(found)

    def rewritten(
        self, phi: Sequence[np.ndarray], scales: Sequence[np.ndarray]
    ) -> Sequence[np.ndarray]:
        """Return φ in coordinates of other scales, in which the surface is from then on."""
        if all(map(np.array_equal, scales, self.scales)):
            return phi
        phi = self._engine.at_scales(phi, self.scales, scales, self.others)
        self.scales = list(scales)
        for view, place in zip(self.views, self.places, strict=True):
            view.set_fixed(self._fixed(place.others))
        return phi
