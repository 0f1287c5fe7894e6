"""What an algorithm is to the kernel, and what an update may ask of the density."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Protocol

import numpy as np

from pytensor.tensor.variable import TensorVariable

from pymc_sgmcmc.kernel.blocks import Blocks
from pymc_sgmcmc.kernel.noise import Noise
from pymc_sgmcmc.kernel.policy import Policy
from pymc_sgmcmc.kernel.taming import Taming
from pymc_sgmcmc.kernel.variables import Variables

__all__ = ["Extra", "Gradient", "Sampler"]

Extra = dict[str, Blocks]


class Gradient:
    """Estimates ∇U at a position; every call inside one update uses the same rows.

    Attributes
    ----------
    variance : Blocks or float
        Variance of the estimate in each coordinate, which a sampler may subtract from the noise
        that it injects: measured while tuning for a policy that ``compensates``, else 0.
    centre : Blocks
        Centre of the posterior as far as the chain knows it: 0 where coordinates are whitened.
    taming : Taming
        Bounds on the moves of the update; it counts the updates in which one acted.
    variables : Variables
        What the blocks of the position stand for.
    """

    def __init__(
        self,
        estimate: Callable[[Blocks], Blocks],
        potential: Callable[[Blocks], TensorVariable],
        independent: Callable[[], Gradient],
        variance: Blocks | float,
        centre: Blocks,
        taming: Taming,
        variables: Variables,
    ) -> None:
        self._estimate = estimate
        self._potential = potential
        self._independent = independent
        self.variance = variance
        self.centre = centre
        self.taming = taming
        self.variables = variables

    def __call__(self, position: Blocks) -> Blocks:
        """Return the estimate of ∇U."""
        return self._estimate(position)

    def potential(self, position: Blocks) -> TensorVariable:
        """Return the estimate of U from the same rows, a scalar."""
        return self._potential(position)

    def independent(self) -> Gradient:
        """Return an estimate from other rows, independent of these; each call takes new ones."""
        return self._independent()


class Sampler(Protocol):
    """What the kernel needs to know of an algorithm."""

    own_statistics: ClassVar[tuple[str, ...]]

    def policy(self) -> Policy:
        """How it is to be run."""

    def initial_extra(
        self, position: list[np.ndarray], rng: np.random.Generator
    ) -> dict[str, list[np.ndarray]]:
        """Draw the state beyond the position."""

    def update(
        self,
        position: Blocks,
        extra: Extra,
        gradient: Gradient,
        step_size: Any,
        noise: Noise,
    ) -> tuple[Blocks, Extra]:
        """One update, symbolic."""

    def statistics(self, extra: Extra) -> Mapping[str, TensorVariable]:
        """Statistics of a draw that belong to this algorithm."""

    def widening(self, step_size: Any, variance: Any, known: Any) -> Any:
        """Relative excess of a unit Gaussian's variance by gradient noise."""
