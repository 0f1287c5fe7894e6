"""What decides the compiled updates, beside the model and the algorithm."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace

__all__ = ["Layout"]


@dataclass(frozen=True)
class Layout:
    """The shape of a compiled function, which chains with the same layout share."""

    backend: str  # "numba" or "jax"
    whitening: Hashable  # kind of the map from ψ to φ
    contiguous: bool  # whether a batch is an offset, not row indices
    anchored: bool  # whether gradients have an anchor
    known_blocks: int  # blocks with known gradients at the anchor, which are then the batches
    batches: int  # K, batches averaged for one gradient
    joined: int  # neighbouring blocks evaluated together, a divisor of K
    per_coordinate: bool  # whether each coordinate has a step size
    compensated: bool  # whether the sampler reads the variance of each coordinate's gradient
    bounded: bool  # whether elements of a gradient estimate are bounded
    updates: int  # of a draw; fixed for JAX, any number for numba
    draws: int  # of a call; any number for numba unless 1

    @property
    def groups(self) -> int:
        """Groups of joined blocks that make up the data, where blocks are known."""
        return -(-self.known_blocks // self.joined)

    @property
    def averaged(self) -> int:
        """How many gradients are averaged, each of joined batches."""
        return self.batches // self.joined

    def key(self) -> Layout:
        """Return the layout under which compiled functions are cached."""
        if self.backend == "jax":
            return self
        return replace(self, updates=0, draws=min(self.draws, 2))
