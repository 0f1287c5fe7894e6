"""Values of the variables that other step methods sample, remembered over the draws."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from pymc_sgmcmc.kernel.comparable import Comparable

__all__ = ["Memory", "Place"]

_MOST = 16


@dataclass(eq=False)
class Place(Comparable):
    """A draw of all variables of the model.

    Attributes
    ----------
    others : list of ndarray
        PyMC's value variables that this step does not sample.
    phi : list of ndarray
        Position of those that it samples.
    scales : list of ndarray
        Of the coordinates of that position.
    """

    others: list[np.ndarray]
    phi: list[np.ndarray]
    scales: list[np.ndarray]


@dataclass(eq=False)
class Memory(Comparable):
    """Some places, evenly spread over the chain's draws so far.

    Attributes
    ----------
    places : list of Place
        At most 16, the oldest first.
    stride : int
        Draws from one to the next.
    seen : int
        Draws so far.
    """

    places: list[Place] = field(default_factory=list)
    stride: int = 1
    seen: int = 0

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
