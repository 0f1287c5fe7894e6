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


class Weighted(Transform):
    """A map with a weight λ for each element, from 0, non-centred, to 1, centred.

    Attributes
    ----------
    weight : tensor_like
        λ.
    as_written : float
        The weight with which φ is the variable itself.
    """

    ndim_supp = 0
    as_written: ClassVar[float]
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

    def parents(self, *inputs: Variable) -> list[TensorVariable]:
        """Return the graphs of which the map consists, of the inputs of the variable."""
        raise NotImplementedError

    def spread(self, *inputs: Variable) -> TensorVariable:
        """Return the standard deviation, or what is as wide, that the hierarchy gives to θ."""
        raise NotImplementedError

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
