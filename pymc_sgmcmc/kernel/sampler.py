"""What a sampler defines, and what its update may ask of the density."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any, ClassVar

import numpy as np
import pytensor.tensor as pt

from pytensor.tensor.variable import TensorVariable

from pymc_sgmcmc.kernel.blocks import Blocks
from pymc_sgmcmc.kernel.noise import Noise
from pymc_sgmcmc.kernel.policy import Policy
from pymc_sgmcmc.kernel.variables import Variables

Extra = dict[str, Blocks]


class Taming:
    """The bounds of one update, in symbols, and whether any of them acted.

    An update in which :meth:`shortened` or :meth:`clipped` changes anything is counted in the
    statistic ``tamed_updates``.
    """

    def __init__(self) -> None:
        self._acted: list[TensorVariable] = []

    def shortened(self, move: Blocks, largest: Any) -> Blocks:
        """Scale a whole vector down until no element exceeds ``largest``.

        Clipping its elements one by one would bend correlations.
        """
        size = move.max_abs()
        self._acted.append(size > largest)
        return move * pt.minimum(1.0, largest / size)

    def shortened_power(self, signs: Blocks, logs: Blocks, largest: Any) -> Blocks:
        """Return sign · exp(log), shortened, of elements that are too large to be written."""
        size = reduce(pt.maximum, [pt.max(part) for part in logs])
        limit = pt.log(largest)
        self._acted.append(size > limit)
        scaled = (logs - size + pt.minimum(size, limit)).map(pt.exp)
        # All of them zero: the largest logarithm is −∞
        return signs * scaled.map(lambda x: pt.switch(pt.isnan(x), 0.0, x).astype(x.dtype))

    def clipped(self, noise: Blocks, largest: float) -> Blocks:
        """Clip each element at ± ``largest``."""
        self._acted.append(noise.max_abs() > largest)
        return noise.map(lambda x: pt.clip(x, -largest, largest))

    def acted(self) -> TensorVariable:
        """Whether a bound acted in this update."""
        return reduce(pt.or_, self._acted) if self._acted else pt.constant(np.bool_(False))


@dataclass(frozen=True)
class Gradient:
    """Estimates ∇U at a position; every call inside one update uses the same rows.

    Attributes
    ----------
    potential : callable
        ``potential(position)`` is the estimate of U from the same rows, a scalar.
    independent : callable
        ``independent()`` is an estimate from other rows, independent of these; each call takes new
        ones.
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

    _estimate: Callable[[Blocks], Blocks]
    potential: Callable[[Blocks], TensorVariable]
    independent: Callable[[], Gradient]
    variance: Blocks | float
    centre: Blocks
    taming: Taming
    variables: Variables

    def __call__(self, position: Blocks) -> Blocks:
        """Return the estimate of ∇U."""
        return self._estimate(position)


class Sampler:
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
            Name to a list of arrays, usually one for each block, such as a momentum.
        """
        return {}

    def update(
        self, position: Blocks, extra: Extra, gradient: Gradient, step_size: Any, noise: Noise
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

    def in_metric(
        self, noise: Blocks, position: Blocks, extra: Extra, variables: Variables
    ) -> Blocks:
        """Return noise of ∇U in units in which an update injects √(2h) η, for ``noise_ratio``.

        Parameters
        ----------
        noise : Blocks
            The difference of two gradients at the position.
        position : Blocks
            The position.
        extra : dict of Blocks
            The further state there.
        variables : Variables
            What the blocks of the position stand for.

        Returns
        -------
        Blocks
            The noise, unchanged unless a sampler has a metric.
        """
        return noise

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

    def remaining(self, noise_ratio: float, step_size: float) -> float:
        """Return what of a chain's mean ``noise_ratio`` widens variances.

        Parameters
        ----------
        noise_ratio : float
            Mean of :meth:`widening` over coordinates and draws.
        step_size : float
            Mean h.

        Returns
        -------
        float
            All of it, or nothing if the policy absorbs noise.
        """
        return 0.0 if self.policy().absorbs_noise else noise_ratio
