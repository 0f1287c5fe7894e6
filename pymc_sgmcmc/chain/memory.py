"""Values of the variables that other step methods sample, remembered over the draws."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from pymc_sgmcmc.kernel.settings import Comparable

# Places that are remembered: tuning takes at most seven of the later half
_MOST = 16


@dataclass(eq=False)
class Place(Comparable):
    """A draw of all variables of the model."""

    others: list[np.ndarray]  # PyMC's value variables that this step does not sample
    phi: list[np.ndarray]  # position of those that it samples
    scales: list[np.ndarray]  # of the coordinates of that position


@dataclass(eq=False)
class Memory(Comparable):
    """Some places, evenly spread over the chain's draws so far."""

    places: list[Place] = field(default_factory=list)  # at most 16, the oldest first
    stride: int = 1  # draws from one to the next
    seen: int = 0  # draws so far

    def add(self, place: Place) -> None:
        """Remember a place, if it is time for one."""
        if self.seen % self.stride == 0:
            self.places.append(place)
        self.seen += 1
        if len(self.places) > _MOST:
            self.places = self.places[::2]
            self.stride *= 2

    def recent(self, most: int) -> list[Place]:
        """Return at most so many places, evenly spread over the second half."""
        half = self.places[len(self.places) // 2 :]
        return half[:: -(-len(half) // most)]
