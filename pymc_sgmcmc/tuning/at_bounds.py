"""A check that a density in θ is bounded where a method reflects."""

from __future__ import annotations

import numpy as np

from pymc.exceptions import SamplingError

from pymc_sgmcmc.chain.memory import Place
from pymc_sgmcmc.kernel.engine import Engine

__all__ = ["refuse_unbounded"]

# Distances to a bound at which densities are compared, in units of the start's distance
_NEAR, _NEARER = 1e-3, 1e-6

# Least power of the inverse distance that counts as unbounded growth
_LEAST_POWER = 0.02

# Most elements checked of one variable
_MOST_ELEMENTS = 50


def refuse_unbounded(engine: Engine, place: Place) -> None:
    """Raise SamplingError if the density in θ grows without end towards a bound.

    Each element is moved alone from its start ``place.phi``.
    """
    theta = place.phi
    bounds = engine.bounds_at(theta, place.scales, place.others)
    for i, (coordinate, pair) in enumerate(zip(engine.posterior.coordinates, bounds, strict=True)):
        step = -(-theta[i].size // _MOST_ELEMENTS) or 1
        for bound in pair:
            for k in range(0, theta[i].size, step):
                edge = float(bound.flat[k])
                if np.isfinite(edge) and _power(engine, place, i, k, edge) > _LEAST_POWER:
                    raise SamplingError(
                        f"The density of '{coordinate.name}' grows without end towards its bound "
                        f"{edge:g}. Reflected there, it is sampled wrongly at every step size. "
                        "Take sg.CoRVSGLD, which needs no reflection, or pass unbounded='allow' "
                        "to see the fault."
                    )


def _power(engine: Engine, place: Place, i: int, k: int, edge: float) -> float:
    """Return a of the density's growth as distance⁻ᵃ, from its values at two distances."""

    def log_density(share: float) -> float:
        moved = [x.copy() for x in place.phi]
        start = float(moved[i].flat[k])
        moved[i].flat[k] = edge + share * (start - edge)
        return -engine.at_worst_rows(moved, place.scales, place.others)[0]

    near, nearer = log_density(_NEAR), log_density(_NEARER)
    if nearer == np.inf:
        return np.inf
    if not np.isfinite(near) or not np.isfinite(nearer):
        return -np.inf
    return (nearer - near) / float(np.log(_NEAR / _NEARER))
