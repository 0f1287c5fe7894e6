"""What a chain keeps of its tuning: coordinates, step sizes, gradient estimator, thinning."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

import numpy as np

from pymc.step_methods.state import equal_dataclass_values

from pymc_sgmcmc.kernel.ravel import Ravel
from pymc_sgmcmc.kernel.whitening import (
    Dense,
    Diagonal,
    Shear,
    Sheared,
    Turned,
    Whitening,
)


class Comparable:
    """Equality of dataclasses with arrays, made with ``eq=False``, for PyMC's sampling states."""

    def __eq__(self, other: Any) -> bool:
        return type(other) is type(self) and all(
            equal_dataclass_values(getattr(self, f.name), getattr(other, f.name))
            for f in fields(self)  # type: ignore[arg-type]
        )

    __hash__ = None  # type: ignore[assignment]


@dataclass(eq=False)
class Settings(Comparable):
    """Numbers frozen when tuning ends, or set by hand; part of a chain's state."""

    # m, φ of each variable; empty if unknown
    centre: list[np.ndarray] = field(default_factory=list)
    # L: a matrix, a diagonal for each variable, or None without whitening
    root: np.ndarray | list[np.ndarray] | None = None
    # The turn before that diagonal, as ``Turned`` takes it; no turn where ``middle`` is None
    directions: list[np.ndarray] = field(default_factory=list)
    middle: np.ndarray | None = None
    lengths: list[np.ndarray] = field(default_factory=list)
    # The shear after it, as ``Sheared`` takes it
    families: list[tuple[tuple[int, int, int], ...]] = field(default_factory=list)
    below: list[np.ndarray] = field(default_factory=list)
    step_size: float | None = None  # largest of all coordinates; None where nothing was tuned
    # Step sizes over the largest, shaped as ψ; empty where all are the same
    relative: list[np.ndarray] = field(default_factory=list)
    # Of the gradient estimate, shaped as ψ, for samplers that subtract it, else empty
    variance: list[np.ndarray] = field(default_factory=list)
    largest_gradient: float | None = None  # bound on an estimate's elements; None for no bound
    anchor: list[np.ndarray] = field(default_factory=list)  # φ̄; empty for plain gradients
    # ∇U at the anchor with respect to ψ; the likelihood's alone where blocks are kept
    anchor_gradient: list[np.ndarray] = field(default_factory=list)
    # Estimates of that gradient from each block, with respect to φ, stacked; empty where they are
    # computed with each batch
    anchor_blocks: list[np.ndarray] = field(default_factory=list)
    # Values of other step methods' variables at the anchor; both gradients there use them, so that
    # an estimate stays unbiased when those variables move
    anchor_others: list[np.ndarray] = field(default_factory=list)
    # For each variable: the variance of its gradients over the largest one that tuning allows.
    # Empty if unknown
    noise: list[float] = field(default_factory=list)
    row_order: int = 0  # seed of the order of the rows in these blocks
    batches: int = 1  # K
    thin: int = 20  # updates for each draw
    each: int | None = None  # updates that are compiled, a divisor of ``thin``; None for ``thin``
    refresh: int | None = None  # updates between two anchors
    # What looked wrong while tuning: codes and the numbers in their texts
    warnings: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    adapts: bool = False  # whether clipped gradients lower the step size in tuning draws
    changes: ClassVar[int] = 0
    """How often one of them was set."""

    def __setattr__(self, name: str, value: Any) -> None:
        self.__dict__.update({name: value, "changes": self.changes + 1})

    @property
    def gradients(self) -> int:
        """Gradients of batches that an estimate takes: with an anchor two, unless one is stored."""
        return self.batches * (2 if self.anchor and not self.anchor_blocks else 1)

    def whitening(self) -> Whitening:
        """Return the map from ψ to φ, made once for settings that stay as they are."""
        made = self.__dict__.get("_made")
        if made is None or made[0] != self.changes:
            made = self.__dict__["_made"] = self.changes, self._map()
        return made[1]

    def _map(self) -> Whitening:
        if self.root is None:
            return Whitening()
        if isinstance(self.root, np.ndarray):
            return Dense(self.centre, self.root)
        inner = Diagonal(self.centre, self.root)
        if self.middle is not None:
            inner = Turned(self.centre, self.root, self.directions, self.middle, self.lengths)
        return Sheared(inner, Shear(self.families), self.below) if self.families else inner

    def origin(self, psi: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Return ψ of the centre, shaped as ``psi``: 0 too where nothing is known of it."""
        if self.root is None and self.centre:
            return [np.array(m) for m in self.centre]
        return [np.zeros_like(x) for x in psi]


def in_parts(parts: Sequence[np.ndarray], flat: np.ndarray) -> list[np.ndarray]:
    """Return a flat vector in the shapes and dtypes of a position's parts."""
    return Ravel.of(parts).split(flat)
