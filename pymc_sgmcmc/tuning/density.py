"""The density that a chain is tuned for, in coordinates chosen during tuning."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pymc.exceptions import SamplingError

from pymc_sgmcmc.chain.memory import Place
from pymc_sgmcmc.chain.state import ChainState
from pymc_sgmcmc.kernel.engine import Engine
from pymc_sgmcmc.kernel.potential import Potential
from pymc_sgmcmc.model.coordinates import rescaled
from pymc_sgmcmc.tuning.remembered import Remembered
from pymc_sgmcmc.tuning.surface import Flat, Points, Surface

# Lengths of the jitter that are tried before the unjittered start is used, or jittered starts where
# that is not finite, as many as PyMC tries
_MOST_TRIES = 10


class Density:
    """The density at ``places`` of the variables that are not sampled, the present one last.

    ``scales`` has an array for each coordinate that tuning fits: the scale of a softplus or of
    masses, or what a hierarchy's map knows of the likelihood (``centring/information.py``).
    ``views`` are the compiled potentials of the places, ``others`` the present values of the
    variables not sampled, and ``jitter`` is how far chains begin from a start, by ``rng``.
    """

    def __init__(self, engine: Engine, state: ChainState, places: Sequence[Place]) -> None:
        self.engine, self._row_order = engine, state.row_order
        self.rng, self.jitter = state.tuning_rng, state.jitter
        self.places = list(places)
        self.others = self.places[-1].others
        self.scales = list(self.places[-1].scales)
        self.views: list[Potential] = []

    def compile(self) -> None:
        """Compile the potential and call it, as JAX traces the graph only then."""
        potential = self.engine.potential()
        self.views = [potential.at(self._fixed(place.others)) for place in self.places]
        self.views[-1].block(Potential.join(self.places[-1].phi)[None], 0)

    def _fixed(self, others: Sequence[np.ndarray]) -> list[Any]:
        return self.engine.fixed(self._row_order, self.scales, others)

    def surface(self) -> Surface:
        """Return the potential to tune on, the mean over several places."""
        if len(self.views) == 1:
            return self.views[0]
        return Remembered(self.views, self._positions)

    def _positions(self) -> Points:
        """Return φ at the places in the present coordinates, shape (places, d)."""
        at_scales = self.engine.at_scales
        phi = [at_scales(x.phi, x.scales, self.scales, x.others) for x in self.places]
        return np.stack([Potential.join(x) for x in phi])

    def rescale(self, points: Points) -> Points:
        """Fit softplus scales to the first of these positions; return all in them, shape (P, d)."""
        blocks = [self.views[0].split(point) for point in points]
        scales, moved = rescaled(self.engine.posterior.coordinates, self.scales, blocks)
        self.set_scales(scales)
        return np.stack([Potential.join(block) for block in moved])

    def is_bent(self, point: Flat) -> bool:
        """Return whether some half-line at a position, (d,), is beyond the bend of its map."""
        parts = zip(self.engine.posterior.coordinates, self.views[0].split(point), strict=True)
        return any(c.bends and bool(np.any(x > 0)) for c, x in parts)

    def jittered_start(self, phi: Sequence[np.ndarray]) -> Flat:
        """Return a start near φ with a finite density, (d,), or raise SamplingError."""

        def potential(points: Points) -> Flat:
            values, gradient = self.views[-1].full(points)
            finite = np.isfinite(values) & np.all(np.isfinite(gradient), axis=1)
            return np.where(finite, values, np.inf)

        start = jittered(Potential.join(phi), self.rng, potential, self.jitter)
        if start is None:
            raise SamplingError(self.engine.why_not_finite(phi, self.scales, self.others))
        return start

    def set_scales(self, scales: Sequence[np.ndarray]) -> None:
        """Set the scales, and with them the coordinates of the views."""
        self.scales = list(scales)
        for view, place in zip(self.views, self.places, strict=True):
            view.set_fixed(self._fixed(place.others))

    def rewritten(
        self, phi: Sequence[np.ndarray], scales: Sequence[np.ndarray]
    ) -> Sequence[np.ndarray]:
        """Change the coordinates to other scales, and return φ in them."""
        if all(map(np.array_equal, scales, self.scales)):
            return phi
        phi = self.engine.at_scales(phi, self.scales, scales, self.others)
        self.set_scales(scales)
        return phi


def jittered(
    start: np.ndarray,
    rng: np.random.Generator,
    potential: Callable[[np.ndarray], np.ndarray],  # (P, d) to (P,), inf if ∇U is not finite
    width: float = 1.0,  # 0 keeps the start
) -> np.ndarray | None:
    """Return a start moved by up to ``width`` in each coordinate, (d,), or None if none is finite.

    The jitter is halved until the potential is not absurdly above the start's; other starts are
    tried if that is infinite, as where the probability of a single row underflows.
    """
    jitter = width * rng.uniform(-1, 1, size=start.shape)
    at_start = potential(start[None])[0]
    if not np.isfinite(at_start):
        others = (start + width * rng.uniform(-1, 1, start.shape) for _ in range(_MOST_TRIES))
        tried = (x for x in others if width and np.isfinite(potential(x[None])[0]))
        return next(tried, None)
    highest = min(2 * abs(float(at_start)) + 1000, np.finfo(float).max)
    for k in range(_MOST_TRIES):
        moved = start + jitter * 2.0**-k
        if potential(moved[None])[0] <= highest:
            return moved
    return start
