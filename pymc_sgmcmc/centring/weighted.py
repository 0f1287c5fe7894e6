"""The common part of maps between the centred and the non-centred parametrization."""

from __future__ import annotations

import copy

from typing import Any, ClassVar

import numpy as np
import pytensor.tensor as pt

from pymc.logprob.transforms import Transform
from pytensor.graph.basic import Variable
from pytensor.tensor.variable import TensorVariable

__all__ = ["Weighted", "logarithm", "power"]

# Quantiles of the scale between which it is the bulk's
_LOW, _HIGH = 0.05, 0.95

# Logarithm of a ratio of precisions that makes no difference
_SAME = 1e-3


class Weighted(Transform):
    """A map with a weight λ for each element, from 0, non-centred, to 1, centred."""

    ndim_supp = 0
    as_written: ClassVar[float]  # the λ with which φ is the variable itself
    # Dimensions of ``weight`` before those of φ; λ is first
    numbers: ClassVar[tuple[int, ...]] = ()
    # Whether a choice improves from the bulk in its own coordinates
    refines: ClassVar[bool] = False
    # Whether ``shift`` and ``told`` make the choice, which then standardises the elements
    by_shift: ClassVar[bool] = False
    # Whether a batch's noise is common to many elements or grows along each, so that a thermostat
    # of each does not absorb all of it
    shares_noise: ClassVar[bool] = False
    noise_grows: ClassVar[bool] = False  # whether it grows along each in any coordinates
    weight: Any  # λ, and what tuning fits beside it

    @property
    def unbounded(self) -> bool:
        """Whether θ is real."""
        return True

    def with_weight(self, weight: Any) -> Weighted:
        """Return the same map with another weight."""
        other = copy.copy(self)
        other.weight = weight
        return other

    def uniform(self, weight: float, shape: tuple[int, ...]) -> np.ndarray:
        """Return ``weight`` for coordinates φ of this shape that all have one λ."""
        found = np.zeros((*self.numbers, *shape))
        found[0 if self.numbers else ...] = weight
        return found

    def parents(self, *inputs: Variable) -> list[TensorVariable]:
        """Return the graphs that make up the map, of the inputs of the variable."""
        raise NotImplementedError

    def depends_on(self, *inputs: Variable) -> list[TensorVariable]:
        """Return all graphs that the map depends on."""
        return self.parents(*inputs)

    def spread(self, *inputs: Variable) -> TensorVariable:
        """Return the sd, or a similar width, that the hierarchy gives to θ."""
        raise NotImplementedError

    def shift(self, location: np.ndarray, spread: np.ndarray) -> np.ndarray:
        """Return by how much φ moves where all elements move by 1."""
        raise NotImplementedError

    def told(
        self,
        phi: np.ndarray,
        gradient: np.ndarray,
        change: np.ndarray,
        location: np.ndarray,
        spread: np.ndarray,
    ) -> np.ndarray:
        """Return the weight from a gradient and its change where all elements move by 1."""
        raise NotImplementedError

    def location(self, *inputs: Variable) -> TensorVariable:
        """Return the μ that the hierarchy gives to θ, where the choice uses it."""
        return pt.zeros_like(self.spread(*inputs))

    def chosen(
        self,
        curvature: np.ndarray,
        spreads: np.ndarray,
        phi: np.ndarray,
        location: np.ndarray,
        spread: np.ndarray,
    ) -> np.ndarray:
        """Return λ: 1 where an element's conditional precision then varies less over the bulk.

        None of the elements is centred. ``curvature`` is U's along φ, its mean over the bulk, and
        ``spreads`` are σ at positions there, along the first dimension; φ, μ, σ are in its middle.
        """
        variances = spreads**2
        information = self.information(curvature - 1) / variances.mean(axis=0)
        return (self.pooled(_gain(variances, information)) > 0).astype(float)

    def information(self, excess: np.ndarray) -> np.ndarray:
        """Return the likelihood's information on each element, in units of its prior's.

        ``excess`` is the curvature of U along φ with weights of 0, less the prior's 1.
        """
        return excess

    def pooled(self, gain: np.ndarray) -> np.ndarray:
        """Return what centring gains for each element, pooled where some share a weight."""
        return gain


def logarithm(scale: TensorVariable) -> TensorVariable:
    """Return log σ, finite also where σ was rounded to 0."""
    if not scale.dtype.startswith("float"):
        scale = scale.astype("floatX")
    least = np.finfo(scale.dtype).tiny
    found: TensorVariable = pt.log(pt.maximum(scale, np.array(least, dtype=scale.dtype)))
    return found


def power(scale: TensorVariable, exponent: Any) -> TensorVariable:
    """Return σ to a power between 0 and 1, which is 1 for an exponent of 0 and any σ."""
    found: TensorVariable = pt.exp(exponent * logarithm(scale))
    return found


def _gain(variances: np.ndarray, information: np.ndarray) -> np.ndarray:
    """Return the logarithm of how much less an element's precision varies if it is centred.

    With scale σ and likelihood information I the precision is 1 / σ² + I in centred coordinates,
    which grows from the middle of the bulk to low σ, and 1 + I σ² in others, which grows to high σ.
    """
    low, middle, high = np.quantile(variances, [_LOW, 0.5, _HIGH], axis=0)
    known = np.maximum(information, 0)
    centred = np.log1p(known * low) - np.log(low) - np.log1p(known * middle) + np.log(middle)
    non_centred = np.log1p(known * high) - np.log1p(known * middle)
    # Where the scale is known, only a location is common: the data's share decides
    same = (centred < _SAME) & (non_centred < _SAME)
    return np.where(same, known * middle - 1, non_centred - centred)
