"""All that belongs to one chain, in one place."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from pymc_sgmcmc.chain.memory import Memory
from pymc_sgmcmc.chain.monitor import Monitor
from pymc_sgmcmc.kernel.comparable import Comparable
from pymc_sgmcmc.kernel.settings import Settings

__all__ = ["ChainState"]


@dataclass(eq=False)
class ChainState(Comparable):
    """What a chain is between two draws: it goes on from here, bit for bit.

    Attributes
    ----------
    tuning_rng, noise_rng, batch_rng : numpy.random.Generator
        For starts and tuning, for the noise of updates, for batches.
    row_order : int
        Seed of the order in which contiguous batches find the rows; of many rows in memory the same
        in all chains.
    tuning_draws, last_draw : int
        Draws of burn-in, and all of them.
    jitter : float
        How far the start is moved at most, in each coordinate.
    backend : str or None
        Which backend serves the chain; None before the first draw.
    draw, updates : int
        How many were made.
    psi : list of ndarray or None
        Position, one array for each block; None before the first draw.
    extra : dict of list of ndarray
        The algorithm's further state.
    scales : list of ndarray
        Of the coordinates that have one.
    origin : list of ndarray
        ψ about which the configurational temperature is taken.
    settings : Settings or None
        What tuning found, or the user set; None before the first draw.
    values : list of ndarray
        PyMC's value variables of the last draw.
    next_refresh : int
        Number of the update at which an anchor that moves is taken anew.
    rejected, tamed, stuck : int
        Updates after tuning that were not finite, and draws in a row without any other.
    monitor : Monitor
        What is watched after tuning.
    batches_left : list of ndarray
        For each minibatch what the batch scheme has planned for the next updates.
    memory : Memory
        Values of the variables that other step methods sample.
    """

    tuning_rng: np.random.Generator
    noise_rng: np.random.Generator
    batch_rng: np.random.Generator
    row_order: int
    tuning_draws: int
    last_draw: int
    monitor: Monitor
    jitter: float = 1.0
    backend: str | None = None
    draw: int = 0
    updates: int = 0
    psi: list[np.ndarray] | None = None
    extra: dict[str, list[np.ndarray]] = field(default_factory=dict)
    scales: list[np.ndarray] = field(default_factory=list)
    origin: list[np.ndarray] = field(default_factory=list)
    settings: Settings | None = None
    values: list[np.ndarray] = field(default_factory=list)
    next_refresh: int = 0
    rejected: int = 0
    tamed: int = 0
    stuck: int = 0
    batches_left: list[np.ndarray] = field(default_factory=list)
    memory: Memory = field(default_factory=Memory)

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
