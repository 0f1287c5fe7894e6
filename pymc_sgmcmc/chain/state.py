"""All that belongs to one chain, in one place."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from pymc_sgmcmc.chain.memory import Memory
from pymc_sgmcmc.chain.monitor import Monitor
from pymc_sgmcmc.kernel.settings import Comparable, Settings


@dataclass(eq=False)
class ChainState(Comparable):
    """What a chain is between two draws: it goes on from here, bit for bit."""

    tuning_rng: np.random.Generator  # for starts and tuning
    noise_rng: np.random.Generator  # for the noise of updates
    batch_rng: np.random.Generator
    # Seed of the order in which contiguous batches find the rows; of many rows in memory the same
    # in all chains
    row_order: int
    tuning_draws: int  # draws of burn-in
    last_draw: int  # all draws
    monitor: Monitor  # what is watched after tuning
    jitter: float = 1.0  # how far the start is moved at most, in each coordinate
    backend: str | None = None  # None before the first draw
    draw: int = 0  # draws so far
    updates: int = 0  # updates so far
    psi: list[np.ndarray] | None = None  # an array for each block; None before the first draw
    extra: dict[str, list[np.ndarray]] = field(default_factory=dict)  # the sampler's further state
    scales: list[np.ndarray] = field(default_factory=list)  # of coordinates that have one
    # ψ about which the configurational temperature is taken
    origin: list[np.ndarray] = field(default_factory=list)
    settings: Settings | None = None  # of tuning or of the user; None before the first draw
    values: list[np.ndarray] = field(default_factory=list)  # PyMC's, of the last draw
    next_refresh: int = 0  # number of the update at which an anchor that moves is taken anew
    rejected: int = 0  # updates after tuning that were not finite
    tamed: int = 0  # updates after tuning in which a bound on moves acted
    outside: int = 0  # draws after tuning at which a prior or potential has no density
    # Priors and potentials without a density at the first such draw; None before any without one
    zero_terms: list[str] | None = None
    stuck: int = 0  # draws in a row all of whose updates were rejected
    # For each minibatch what the batch scheme has planned for the next updates
    batches_left: list[np.ndarray] = field(default_factory=list)
    memory: Memory = field(default_factory=Memory)  # of variables that other step methods sample

    @classmethod
    def new(
        cls, rng: np.random.Generator, tune: int, draws: int, row_order: int | None = None
    ) -> ChainState:
        """Return the state of a chain that has not begun, with generators made from the chain's."""
        seeds = rng.integers(0, 2**63, size=9).tolist()
        # A fifth faster than NumPy's default at drawing normals, which are most of the cost
        noise_rng, batch_rng = (
            np.random.Generator(np.random.SFC64(seeds[k : k + 4])) for k in (0, 4)
        )
        return cls(
            tuning_rng=rng,
            noise_rng=noise_rng,
            batch_rng=batch_rng,
            row_order=int(seeds[8]) if row_order is None else row_order,
            tuning_draws=tune,
            last_draw=tune + draws,
            monitor=Monitor(),
        )
