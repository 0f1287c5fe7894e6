"""What a chain keeps of its tuning: coordinates, step sizes, gradient estimator, thinning."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from pymc_sgmcmc.kernel.comparable import Comparable
from pymc_sgmcmc.kernel.whitening import (
    Dense,
    Diagonal,
    Shear,
    Sheared,
    Turned,
    Unwhitened,
    Whitening,
)

__all__ = ["Settings", "in_parts"]


@dataclass(eq=False)
class Settings(Comparable):
    """Numbers frozen when tuning ends, or set by hand; part of a chain's state.

    Attributes
    ----------
    centre : list of ndarray
        m, φ of each variable; empty where nothing is known of it.
    root : ndarray, list of ndarray or None
        L as a matrix, as a diagonal for each variable, or None without whitening.
    directions, middle, lengths
        Of the turn before that diagonal is applied, as
        :class:`~pymc_sgmcmc.kernel.whitening.Turned` takes them; ``middle`` is None for no turn.
    families, below
        Of the shear after it, as :class:`~pymc_sgmcmc.kernel.whitening.Sheared` takes them.
    step_size : float or None
        Largest step size of a coordinate; None where the user's schedule says it.
    relative : list of ndarray
        Step sizes over the largest, shaped as ψ; empty where all coordinates have the same.
    variance : list of ndarray
        Variance of the gradient estimate, shaped as ψ, for algorithms that inject less noise in
        return; empty for all others.
    largest_gradient : float or None
        Estimates whose largest element exceeds it are scaled down to it; None for no bound.
    anchor : list of ndarray
        φ̄, empty for plain gradients.
    anchor_gradient : list of ndarray
        ∇U at the anchor, with respect to ψ; that of the likelihood alone where blocks are kept.
    anchor_blocks : list of ndarray
        Estimates of that gradient from each block of the data, with respect to φ, stacked; empty
        where they are computed with each batch.
    anchor_others : list of ndarray
        Values that the variables of other step methods had when the anchor was taken. Both
        gradients at the anchor use them, so that an estimate is unbiased whatever those
        variables are now.
    row_order : int
        Seed of the order of the rows that make up these blocks.
    batches : int
        K.
    thin : int
        Updates for each draw.
    each : int or None
        Updates for which the function is compiled, a divisor of ``thin``; None if it is ``thin``.
    refresh : int or None
        Updates after which the anchor is taken anew.
    warnings : list of str
        What looked wrong while tuning.
    """

    centre: list[np.ndarray] = field(default_factory=list)
    root: np.ndarray | list[np.ndarray] | None = None
    directions: list[np.ndarray] = field(default_factory=list)
    middle: np.ndarray | None = None
    lengths: list[np.ndarray] = field(default_factory=list)
    families: list[tuple[tuple[int, int, int], ...]] = field(default_factory=list)
    below: list[np.ndarray] = field(default_factory=list)
    step_size: float | None = None
    relative: list[np.ndarray] = field(default_factory=list)
    variance: list[np.ndarray] = field(default_factory=list)
    largest_gradient: float | None = None
    anchor: list[np.ndarray] = field(default_factory=list)
    anchor_gradient: list[np.ndarray] = field(default_factory=list)
    anchor_blocks: list[np.ndarray] = field(default_factory=list)
    anchor_others: list[np.ndarray] = field(default_factory=list)
    row_order: int = 0
    batches: int = 1
    thin: int = 20
    each: int | None = None
    refresh: int | None = None
    warnings: list[str] = field(default_factory=list)
    changes: ClassVar[int] = 0
    """How often one of them was set."""

    def __setattr__(self, name: str, value: Any) -> None:
        self.__dict__.update({name: value, "changes": self.changes + 1})

    def whitening(self) -> Whitening:
        """Return the map from ψ to φ."""
        if self.root is None:
            return Unwhitened()
        if isinstance(self.root, np.ndarray):
            return Dense(self.centre, self.root)
        inner = Diagonal(self.centre, self.root)
        if self.middle is not None:
            inner = Turned(self.centre, self.root, self.directions, self.middle, self.lengths)
        if not self.families:
            return inner
        return Sheared(inner, [m.shape for m in self.centre], Shear(self.families), self.below)

    def origin(self, psi: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Return ψ of the centre, shaped as ``psi``: 0 too where nothing is known of it."""
        if self.root is None and self.centre:
            return [np.array(m) for m in self.centre]
        return [np.zeros_like(x) for x in psi]


def in_parts(parts: Sequence[np.ndarray], flat: np.ndarray) -> list[np.ndarray]:
    """Return a flat vector in the shapes and dtypes of a position's parts."""
    split = np.split(flat, np.cumsum([x.size for x in parts])[:-1])
    return [new.reshape(x.shape).astype(x.dtype) for new, x in zip(split, parts, strict=True)]
