"""Whether a density in θ is bounded where a method reflects it."""

from __future__ import annotations

import numpy as np

from pymc.exceptions import SamplingError

from pymc_sgmcmc.chain.memory import Place
from pymc_sgmcmc.kernel.engine import Engine

__all__ = ["refuse_unbounded"]

# Distances to a bound in units of that at the start: the density is compared there
_NEAR, _NEARER = 1e-3, 1e-6

# A density that grows like this power of the inverse distance grows without end
_LEAST_POWER = 0.02

# Elements of one variable that are looked at
_MOST_ELEMENTS = 50


def refuse_unbounded(engine: Engine, place: Place) -> None:
    """Raise where the density grows without end towards a bound.

    Parameters
    ----------
    engine : Engine
        The compiled model, in θ.
    place : Place
        The start; each element is moved alone, the others stay.

    Raises
    ------
    SamplingError
        That names the variable and the bound.
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
    """Return a with which the density goes like distance⁻ᵃ, from its values at two distances."""

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
