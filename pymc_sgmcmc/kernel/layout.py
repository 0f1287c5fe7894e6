"""What decides the compiled updates, beside the model and the algorithm."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace

__all__ = ["Layout"]


@dataclass(frozen=True)
class Layout:
    """The shape of a compiled function: chains of one layout share it.

    Attributes
    ----------
    backend : {"numba", "jax"}
    whitening : hashable
        Kind of the map from ψ to φ.
    contiguous : bool
        Whether a batch is given by an offset or by row indices.
    anchored : bool
        Whether gradients have an anchor.
    known_blocks : int
        Number of blocks of the data whose gradients at the anchor are known; batches are then
        such blocks. 0 where none are known.
    batches : int
        Batches averaged for one gradient, K.
    joined : int
        Number of neighbouring blocks that one gradient takes in one go, a divisor of K.
    per_coordinate : bool
        Whether each coordinate has a step size of its own.
    compensated : bool
        Whether the algorithm is told the variance of each coordinate's gradient.
    bounded : bool
        Whether there is a bound on the elements of a gradient estimate.
    updates : int
        Updates of a draw. A function of numba makes any number of them, one of JAX this one.
    draws : int
        Draws in a call. A function of numba makes any number of them unless this is 1.
    """

    backend: str
    whitening: Hashable
    contiguous: bool
    anchored: bool
    known_blocks: int
    batches: int
    joined: int
    per_coordinate: bool
    compensated: bool
    bounded: bool
    updates: int
    draws: int

    @property
    def groups(self) -> int:
        """Groups of joined blocks that make up the data, where blocks are known."""
        return -(-self.known_blocks // self.joined)

    @property
    def averaged(self) -> int:
        """How many gradients are averaged, each of joined batches."""
        return self.batches // self.joined

    def key(self) -> Layout:
        """Return the layout by which compiled functions are found again."""
        if self.backend == "jax":
            return self
        return replace(self, updates=0, draws=min(self.draws, 2))
