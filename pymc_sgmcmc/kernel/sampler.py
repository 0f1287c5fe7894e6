"""What an algorithm is to the kernel, and what an update may ask of the density."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any, ClassVar, Protocol

import numpy as np
import pytensor.tensor as pt

from pytensor.tensor.variable import TensorVariable

from pymc_sgmcmc.kernel.blocks import Blocks
from pymc_sgmcmc.kernel.noise import Noise
from pymc_sgmcmc.kernel.policy import Policy
from pymc_sgmcmc.kernel.variables import Variables

__all__ = ["Extra", "Gradient", "Sampler", "Taming"]

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
    _potential: Callable[[Blocks], TensorVariable]
    _independent: Callable[[], Gradient]
    variance: Blocks | float
    centre: Blocks
    taming: Taming
    variables: Variables

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
        self, position: Blocks, extra: Extra, gradient: Gradient, step_size: Any, noise: Noise
    ) -> tuple[Blocks, Extra]:
        """One update, symbolic."""

    def statistics(self, extra: Extra) -> Mapping[str, TensorVariable]:
        """Statistics of a draw that belong to this algorithm."""

    def widening(self, step_size: Any, variance: Any, known: Any) -> Any:
        """Relative excess of a unit Gaussian's variance by gradient noise."""
