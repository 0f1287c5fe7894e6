"""The start of a chain of which the user has set everything."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from pymc.exceptions import SamplingError

from pymc_sgmcmc.adapt import Requested
from pymc_sgmcmc.adaptation import Adaptation
from pymc_sgmcmc.engine import Engine
from pymc_sgmcmc.potential import Potential
from pymc_sgmcmc.runner import Runner
from pymc_sgmcmc.tuning.start import jittered

__all__ = ["start_untuned"]


def start_untuned(
    engine: Engine,
    requested: Requested,
    phi: Sequence[np.ndarray],
    scales: list[np.ndarray],
    others: list[np.ndarray],
    rng: np.random.Generator,
    make_runner: Callable[[Adaptation, list[np.ndarray], list[np.ndarray]], Runner],
) -> Runner:
    """Start a chain where nothing is left to tuning, from a jittered place.

    Parameters
    ----------
    engine : Engine
        The compiled model.
    requested : Requested
        Complete.
    phi, scales, others : list of ndarray
        The start, the scales of its coordinates, the values of what is not sampled.
    rng : numpy.random.Generator
        The chain's.
    make_runner : callable
        Makes the runner of an adaptation, a position ψ and scales.

    Raises
    ------
    SamplingError
        If the density is not finite at the start.
    """
    assert requested.thin is not None and requested.batches != "auto"
    adaptation = Adaptation(thin=requested.thin, batches=int(requested.batches))
    if isinstance(requested.scale, Mapping):
        adaptation.centre = [np.zeros_like(x) for x in phi]
        adaptation.root = engine.scale_arrays(requested.scale, phi)
    whitening = adaptation.whitening()

    def tried() -> Runner:
        """Make a runner and call it once: only then does JAX trace the graph."""
        psi = whitening.to_psi(phi, whitening.arrays)
        runner = make_runner(adaptation, psi, scales)
        runner.potential(psi, others)
        return runner

    def split(flat: np.ndarray) -> list[np.ndarray]:
        ends = np.cumsum([x.size for x in phi])[:-1]
        parts = zip(np.split(flat, ends), phi, strict=True)
        moved = [part.reshape(x.shape).astype(x.dtype) for part, x in parts]
        return list(whitening.to_psi(moved, whitening.arrays))

    runner: Runner = engine.attempt(tried)
    start = jittered(
        Potential.join(phi), rng, lambda points: runner.potential(split(points[0]), others)
    )
    if start is None:
        raise SamplingError(engine.why_not_finite(phi, scales, others))
    psi = split(start)
    runner.restart(psi, engine.sampler.initial_extra(psi, runner.noise_rng))
    return runner
