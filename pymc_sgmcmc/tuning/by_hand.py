"""The start of a chain whose settings are all the user's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy

import numpy as np

from pymc.exceptions import SamplingError

from pymc_sgmcmc.chain.memory import Place
from pymc_sgmcmc.chain.runner import Runner
from pymc_sgmcmc.chain.state import ChainState
from pymc_sgmcmc.kernel.engine import Engine
from pymc_sgmcmc.kernel.options import Options
from pymc_sgmcmc.kernel.potential import Potential
from pymc_sgmcmc.kernel.settings import Settings, in_parts
from pymc_sgmcmc.tuning.density import jittered

# Distances to a bound at which densities are compared, in units of the start's distance, and the
# least power of the inverse distance that counts as growth without end
_NEAR, _NEARER, _LEAST_POWER = 1e-3, 1e-6, 0.02

# Most elements checked of one variable
_MOST_ELEMENTS = 50


def start_by_hand(
    engine: Engine,
    options: Options,
    state: ChainState,
    place: Place,
    point: Mapping[str, np.ndarray],
) -> Runner:
    """Start a chain without tuning, from a jittered ``place`` that equals PyMC's ``point``.

    The state's settings, position and scales are set. Raises SamplingError if the density is not
    finite at the start, or unbounded at a bound where the method reflects.
    """
    assert options.thin is not None and options.batches != "auto"
    settings = Settings(thin=options.thin, batches=int(options.batches))
    if isinstance(options.scale, Mapping):
        settings.centre = [np.zeros_like(x) for x in place.phi]
        settings.root = engine.scale_arrays(options.scale, place.phi)
    whitening = settings.whitening()

    def rehearsed() -> Runner:
        """Move a copy of the chain: only the first call lets JAX trace the graph."""
        Runner(engine, deepcopy(state)).advance(0.0, settings.thin, place.others)
        return Runner(engine, state)

    state.settings, state.scales = settings, list(place.scales)
    state.psi = list(whitening.to_psi(place.phi, whitening.arrays))
    state.extra = engine.sampler.initial_extra(state.psi, state.noise_rng)
    runner: Runner = engine.attempt(rehearsed)
    start = _jittered(engine, options, state, place, point)
    if start is None:
        raise SamplingError(engine.why_not_finite(place.phi, place.scales, place.others))
    if engine.sampler.policy().reflects:
        _refuse_unbounded(engine, place)
    runner.restart(list(whitening.to_psi(in_parts(place.phi, start), whitening.arrays)))
    return runner


def _jittered(
    engine: Engine,
    options: Options,
    state: ChainState,
    place: Place,
    point: Mapping[str, np.ndarray],
) -> np.ndarray | None:
    """Return a flat start, jittered in φ; in θ as PyMC's unconstrained values, to keep its bounds.

    It is None where the density is not finite.
    """

    def potential(phi: Sequence[np.ndarray]) -> float:
        u, gradient = engine.at_some_rows(phi, place.scales, place.others)
        return float(u) if np.all(np.isfinite(gradient)) else np.inf

    names = [str(value.name) for value in engine.values]
    values = [np.asarray(point[name]) for name in names]

    def in_theta(flat: np.ndarray) -> np.ndarray:
        at = {**point, **dict(zip(names, in_parts(values, flat), strict=True))}
        return Potential.join(engine.expressed(at, place.scales))

    of_theta = options.transforms == "identity"
    start = jittered(
        Potential.join(values).astype(float) if of_theta else Potential.join(place.phi),
        state.tuning_rng,
        lambda points: np.array(
            [potential(in_parts(place.phi, in_theta(x) if of_theta else x)) for x in points]
        ),
        state.jitter,
    )
    return in_theta(start) if of_theta and start is not None else start


def _refuse_unbounded(engine: Engine, place: Place) -> None:
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
                        f"The density of '{coordinate.name}' grows without limit towards its bound "
                        f"{edge:g}. Reflected there, it is sampled wrongly at every step size. "
                        "Take sg.CoRVSGLD, which needs no reflection, or pass unbounded='allow' "
                        "to sample it nevertheless."
                    )


def _power(engine: Engine, place: Place, i: int, k: int, edge: float) -> float:
    """Return a of the density's growth as distance⁻ᵃ, from its values at two distances."""

    def log_density(share: float) -> float:
        moved = [x.copy() for x in place.phi]
        start = float(moved[i].flat[k])
        moved[i].flat[k] = edge + share * (start - edge)
        return -engine.at_some_rows(moved, place.scales, place.others)[0]

    near, nearer = log_density(_NEAR), log_density(_NEARER)
    if nearer == np.inf:
        return np.inf
    if not np.isfinite(near) or not np.isfinite(nearer):
        return -np.inf
    return (nearer - near) / float(np.log(_NEAR / _NEARER))
