"""What a chain keeps of its tuning: coordinates, step sizes, gradient estimator, thinning."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pymc_sgmcmc.comparable import Comparable
from pymc_sgmcmc.whitening import Dense, Diagonal, Unwhitened, Whitening

__all__ = ["Adaptation"]


@dataclass(eq=False)
class Adaptation(Comparable):
    """Numbers frozen when tuning ends, or set by hand; part of a chain's state.

    Attributes
    ----------
    centre : list of ndarray
        m, φ of each variable; empty without whitening.
    root : ndarray, list of ndarray or None
        L as a matrix, as a diagonal for each variable, or None without whitening.
    step_size : float or None
        Largest step size of a coordinate; None where the user's schedule says it.
    relative, variance : list of ndarray
        Step sizes over the largest and variances of the gradient estimate, shaped as ψ;
        empty where all coordinates are alike.
    largest_gradient : float or None
        Estimates with a larger element are scaled down to it.
    anchor : list of ndarray
        φ̄, empty for plain gradients.
    anchor_gradient : list of ndarray
        ∇U there, with respect to ψ; of the likelihood alone where blocks are kept.
    anchor_blocks : list of ndarray
        Estimates of it with respect to φ from each block of the data, stacked; empty where they
        are computed with each batch.
    row_order : int
        Seed of the order of the rows that make up these blocks.
    batches : int
        K.
    thin : int
        Updates for each draw.
    refresh : int or None
        Updates after which the anchor is taken anew.
    warnings : list of str
        What looked wrong while tuning.
    """

    centre: list[np.ndarray] = field(default_factory=list)
    root: np.ndarray | list[np.ndarray] | None = None
    step_size: float | None = None
    relative: list[np.ndarray] = field(default_factory=list)
    variance: list[np.ndarray] = field(default_factory=list)
    largest_gradient: float | None = None
    anchor: list[np.ndarray] = field(default_factory=list)
    anchor_gradient: list[np.ndarray] = field(default_factory=list)
    anchor_blocks: list[np.ndarray] = field(default_factory=list)
    row_order: int = 0
    batches: int = 1
    thin: int = 20
    refresh: int | None = None
    warnings: list[str] = field(default_factory=list)

    def whitening(self) -> Whitening:
        """Return the map from ψ to φ."""
        if self.root is None:
            return Unwhitened()
        if isinstance(self.root, np.ndarray):
            return Dense(self.centre, self.root)
        return Diagonal(self.centre, self.root)

    def kind(self) -> tuple[Any, ...]:
        """Return all that decides the compiled function: adaptations of one kind share it."""
        kind = type(self.whitening())
        tamed = self.largest_gradient is not None
        blocks = len(self.anchor_blocks[0]) if self.anchor_blocks else 0
        return kind, bool(self.anchor), blocks, bool(self.relative), tamed, self.batches
