"""What a sampler defines: its update, its state, and how it is run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from pytensor.tensor.variable import TensorVariable

from pymc_sgmcmc.kernel.blocks import Blocks
from pymc_sgmcmc.kernel.noise import Noise
from pymc_sgmcmc.kernel.policy import Policy
from pymc_sgmcmc.kernel.sampler import Extra, Gradient

__all__ = ["Algorithm"]


class Algorithm:
    """The methods of a step method that its sampler defines; defaults but for :meth:`update`."""

    own_statistics: ClassVar[tuple[str, ...]] = ()
    """Names of the statistics that :meth:`statistics` returns."""

    def policy(self) -> Policy:
        """Return how the method is run and tuned; by default as a first-order method."""
        return Policy(step_size=0.04)

    def initial_extra(
        self, position: list[np.ndarray], rng: np.random.Generator
    ) -> dict[str, list[np.ndarray]]:
        """Draw the state beyond the position at the start of a chain.

        Parameters
        ----------
        position : list of ndarray
            The start, one array for each block.
        rng : numpy.random.Generator
            The chain's generator.

        Returns
        -------
        dict
            Name to one array for each block, such as a momentum.
        """
        return {}

    def update(
        self,
        position: Blocks,
        extra: Extra,
        gradient: Gradient,
        step_size: Any,
        noise: Noise,
    ) -> tuple[Blocks, Extra]:
        """One update, in symbols.

        Parameters
        ----------
        position : Blocks
            The position.
        extra : dict of Blocks
            The further state.
        gradient : callable
            Estimates ∇U at a position, U of the full data set; every call inside one
            update uses the same rows. ``gradient.potential`` estimates U from them,
            ``gradient.independent()`` returns an estimate from other rows,
            ``gradient.variance`` is what is known of its noise, and ``gradient.variables``
            what the blocks stand for.
        step_size : TensorVariable or Blocks
            h, a scalar; with ``policy().per_coordinate`` possibly one for each coordinate.
        noise : Noise
            Source of fresh noise.

        Returns
        -------
        position, extra
            The next state.
        """
        raise NotImplementedError(f"{type(self).__name__} must define update().")

    def statistics(self, extra: Extra) -> Mapping[str, TensorVariable]:
        """Scalars to record with each draw, named in ``own_statistics``.

        Parameters
        ----------
        extra : dict of Blocks
            The further state at the recorded position.

        Returns
        -------
        dict
            Name to symbolic scalar.
        """
        return {}

    def widening(self, step_size: Any, variance: Any, known: Any) -> Any:
        """Relative excess of a unit Gaussian's variance through gradient noise.

        Parameters
        ----------
        step_size : TensorVariable or Blocks
            h.
        variance : Blocks
            Variance of the gradient estimate in each coordinate.
        known : Blocks or float
            The part of that variance that :meth:`update` makes up for; 0 unless the policy
            compensates.

        Returns
        -------
        Blocks
            The relative excess, for each coordinate.
        """
        return step_size * (variance - known) / 2
