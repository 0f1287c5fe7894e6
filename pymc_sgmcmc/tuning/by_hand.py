"""The start of a chain whose settings are all the user's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy

import numpy as np

from pymc.exceptions import SamplingError

from pymc_sgmcmc.chain.memory import Place
from pymc_sgmcmc.chain.runner import Runner
from pymc_sgmcmc.chain.state import ChainState
from pymc_sgmcmc.kernel.engine import Engine
from pymc_sgmcmc.kernel.options import Options
from pymc_sgmcmc.kernel.potential import Potential
from pymc_sgmcmc.kernel.settings import Settings
from pymc_sgmcmc.tuning.at_bounds import refuse_unbounded
from pymc_sgmcmc.tuning.start import jittered

__all__ = ["start_by_hand"]


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

    def split(flat: np.ndarray) -> list[np.ndarray]:
        ends = np.cumsum([x.size for x in place.phi])[:-1]
        parts = zip(np.split(flat, ends), place.phi, strict=True)
        return [part.reshape(x.shape).astype(x.dtype) for part, x in parts]

    def potential(points: np.ndarray) -> np.ndarray:
        found = [engine.at_worst_rows(split(x), place.scales, place.others) for x in points]
        return np.array([u if np.all(np.isfinite(g)) else np.inf for u, g in found])

    def rehearsed() -> Runner:
        """Move a copy of the chain: only the first call lets JAX trace the graph."""
        Runner(engine, deepcopy(state)).advance(0.0, settings.thin, place.others)
        return Runner(engine, state)

    state.settings, state.scales = settings, list(place.scales)
    state.psi = list(whitening.to_psi(place.phi, whitening.arrays))
    state.extra = engine.sampler.initial_extra(state.psi, state.noise_rng)
    runner: Runner = engine.attempt(rehearsed)
    if options.transforms == "identity":
        start = _jittered_in_values(engine, state, place, point, potential)
    else:
        start = jittered(Potential.join(place.phi), state.tuning_rng, potential, state.jitter)
    if start is None:
        raise SamplingError(engine.why_not_finite(place.phi, place.scales, place.others))
    if engine.sampler.policy().reflects:
        refuse_unbounded(engine, place)
    runner.restart(list(whitening.to_psi(split(start), whitening.arrays)))
    return runner


def _jittered_in_values(
    engine: Engine,
    state: ChainState,
    place: Place,
    point: Mapping[str, np.ndarray],
    potential: Callable[[np.ndarray], np.ndarray],
) -> np.ndarray | None:
    """Return a start in θ, jittered as PyMC's unconstrained values to keep its bounds."""
    names = [str(value.name) for value in engine.values]
    parts = [np.asarray(point[name]) for name in names]
    ends = np.cumsum([x.size for x in parts])[:-1]

    def in_theta(flat: np.ndarray) -> np.ndarray:
        split = zip(np.split(flat, ends), parts, strict=True)
        moved = [x.reshape(was.shape).astype(was.dtype) for x, was in split]
        at = {**point, **dict(zip(names, moved, strict=True))}
        return Potential.join(engine.expressed(at, place.scales))

    start = jittered(
        Potential.join(parts).astype(float),
        state.tuning_rng,
        lambda flat: potential(np.stack([in_theta(x) for x in flat])),
        state.jitter,
    )
    return None if start is None else in_theta(start)
