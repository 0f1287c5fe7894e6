"""The density that a chain is tuned for, in coordinates that are chosen on the way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pymc.exceptions import SamplingError

from pymc_sgmcmc.chain.memory import Place
from pymc_sgmcmc.chain.state import ChainState
from pymc_sgmcmc.kernel.compiled_model import CompiledModel
from pymc_sgmcmc.kernel.potential import Potential
from pymc_sgmcmc.model.coordinates import rescaled
from pymc_sgmcmc.tuning.modes import more_starts
from pymc_sgmcmc.tuning.newton import LARGEST_NEWTON
from pymc_sgmcmc.tuning.remembered import Remembered
from pymc_sgmcmc.tuning.start import jittered
from pymc_sgmcmc.tuning.surface import Surface

__all__ = ["Density"]

# Numbers that searches for other modes compute, where they take one gradient of a few batches a
# parameter: they take a hundred. How many there are whatever they cost
_SEARCHED, _BATCHES, _LEAST_STARTS = 2**28, 8, 2


class Density:
    """The density at some places of the variables that are not sampled.

    Parameters
    ----------
    engine : CompiledModel
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

    def __init__(self, engine: CompiledModel, state: ChainState, places: Sequence[Place]) -> None:
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
        scales, moved = rescaled(self._engine.posterior.coordinates, self.scales, blocks)
        self.set_scales(scales)
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

    def more_starts(self, phi: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Return starts to look for other modes from, none where the start is not to be left."""
        start = Potential.join(phi)
        if not self._state.jitter or len(self.places) > 1 or len(start) > LARGEST_NEWTON:
            return []
        view = self.views[-1]
        cost = len(start) * min(view.n_blocks, _BATCHES) * view.numbers
        starts = more_starts(start, self._state.jitter, self._rng)
        return starts[: max(_LEAST_STARTS, _SEARCHED // cost)]

    def set_scales(self, scales: Sequence[np.ndarray]) -> None:
        """Put the views into coordinates of these scales."""
        self.scales = list(scales)
        for view, place in zip(self.views, self.places, strict=True):
            view.set_fixed(self._fixed(place.others))

    def rewritten(
        self, phi: Sequence[np.ndarray], scales: Sequence[np.ndarray]
    ) -> Sequence[np.ndarray]:
        """Return φ in coordinates of other scales, in which the surface is from then on."""
        if all(map(np.array_equal, scales, self.scales)):
            return phi
        phi = self._engine.at_scales(phi, self.scales, scales, self.others)
        self.set_scales(scales)
        return phi
