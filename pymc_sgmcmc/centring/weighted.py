"""What maps between the centred and the non-centred writing have in common."""

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
    """A map with a weight λ for each element, from 0, non-centred, to 1, centred.

    Attributes
    ----------
    weight : tensor_like
        λ, or what tuning fits beside it.
    as_written : float
        The λ with which φ is the variable itself.
    numbers : tuple of int
        Dimensions of ``weight`` before those of φ, of which the first element is λ.
    refines : bool
        Whether a choice is made better from the bulk in its own coordinates.
    by_shift : bool
        Whether the choice is made from how gradients change where all elements move alike, by
        methods ``shift`` and ``told``. What is chosen standardises them.
    shares_noise : bool
        Whether a batch's noise is common to many elements, or grows along each: what a thermostat
        of each takes up is then not all of it.
    noise_grows : bool
        Whether a batch's noise grows along each element, in whatever coordinates.
    """

    ndim_supp = 0
    as_written: ClassVar[float]
    numbers: ClassVar[tuple[int, ...]] = ()
    refines: ClassVar[bool] = False
    by_shift: ClassVar[bool] = False
    shares_noise: ClassVar[bool] = False
    noise_grows: ClassVar[bool] = False
    weight: Any

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
        """Return the graphs of which the map consists, of the inputs of the variable."""
        raise NotImplementedError

    def depends_on(self, *inputs: Variable) -> list[TensorVariable]:
        """Return these graphs and others of which the map consists."""
        return self.parents(*inputs)

    def spread(self, *inputs: Variable) -> TensorVariable:
        """Return the standard deviation, or what is as wide, that the hierarchy gives to θ."""
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
        """Return the weight, of a gradient and of its change where all elements move by 1."""
        raise NotImplementedError

    def location(self, *inputs: Variable) -> TensorVariable:
        """Return the μ that the hierarchy gives to θ, where the choice reads it."""
        return pt.zeros_like(self.spread(*inputs))

    def chosen(
        self,
        curvature: np.ndarray,
        spreads: np.ndarray,
        phi: np.ndarray,
        location: np.ndarray,
        spread: np.ndarray,
    ) -> np.ndarray:
        """Choose the weight of elements of which none is centred.

        Parameters
        ----------
        curvature : ndarray
            Of U along φ, its mean over the bulk.
        spreads : ndarray
            σ at positions of the bulk, along the first dimension.
        phi, location, spread : ndarray
            φ, μ and σ in the middle of the bulk.

        Returns
        -------
        ndarray
            λ, 1 where the conditional precision of an element then varies less over the bulk.
        """
        variances = spreads**2
        information = self.information(curvature - 1) / variances.mean(axis=0)
        return (self.pooled(_gain(variances, information)) > 0).astype(float)

    def information(self, excess: np.ndarray) -> np.ndarray:
        """Return what the likelihood says of each element, in units of its prior.

        Parameters
        ----------
        excess : ndarray
            Curvature of U along φ with weights of 0, less the prior's 1.
        """
        return excess

    def pooled(self, gain: np.ndarray) -> np.ndarray:
        """Return for each element by how much its weight should be 1, where some have one weight.

        Parameters
        ----------
        gain : ndarray
            What centring gains for each element alone.
        """
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
    """Return how much less the precision of an element varies if it is centred, as a logarithm.

    Given its scale σ and the information I of the likelihood, the precision of an element is
    1 / σ² + I in centred coordinates and 1 + I σ² in the others. From the middle of the bulk to
    where σ is low the one grows, to where it is high the other.
    """
    low, middle, high = np.quantile(variances, [_LOW, 0.5, _HIGH], axis=0)
    known = np.maximum(information, 0)
    centred = np.log1p(known * low) - np.log(low) - np.log1p(known * middle) + np.log(middle)
    non_centred = np.log1p(known * high) - np.log1p(known * middle)
    # Where the scale is known, only a location is common: the data's share decides
    same = (centred < _SAME) & (non_centred < _SAME)
    return np.where(same, known * middle - 1, non_centred - centred)
