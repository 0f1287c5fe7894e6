r"""Coordinates between the centred and the non-centred writing of a hierarchy.

A variable θ with location μ and scale σ, of which one is itself unknown, has a funnel where the
data say little of θ and a ridge between σ and its standardised residuals where they say much. With
a weight λ for each element,

.. math:: \theta = \mu + \sigma^{1 - \lambda} (\varphi - \lambda \mu),

φ is θ itself for λ = 1, the centred writing, and the standardised residual for λ = 0, the
non-centred one [1]_.

References
----------
.. [1] Papaspiliopoulos, Roberts, Sköld (2007). A general framework for the parametrization of
   hierarchical models. Statistical Science 22(1), 59-73.
"""

from __future__ import annotations

import copy

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import pytensor.tensor as pt

from pymc.logprob.transforms import Transform
from pytensor.graph.basic import Variable
from pytensor.tensor.variable import TensorVariable

__all__ = ["Centring", "Recentring", "Weighted"]


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

    def _power(self, scale: TensorVariable, *, complement: bool = False) -> TensorVariable:
        """Return σ^λ, or σ^(1 − λ)."""
        weight = pt.as_tensor(self.weight).astype(scale.dtype)
        power: TensorVariable = pt.exp((1 - weight if complement else weight) * pt.log(scale))
        return power


class Centring(Weighted):
    r"""Map from partially centred coordinates of a location-scale variable.

    .. math:: \theta = \mu + \sigma^{1 - \lambda} (\varphi - \lambda \mu)

    It serves ``pm.Normal``, ``pm.StudentT``, ``pm.Laplace``, ``pm.Cauchy``, ``pm.Logistic`` and
    ``pm.Gumbel``, whose location and scale it takes from the variable itself. In a model for NUTS
    pass it as ``transform=``.

    Parameters
    ----------
    weight : float, array_like or tensor, default 0
        λ, between 0 (non-centred) and 1 (centred), one number or one for each element.

    Raises
    ------
    ValueError
        If a weight is outside 0 to 1.

    Examples
    --------
    >>> import pymc as pm
    >>> with pm.Model():
    ...     mu, tau = pm.Normal("mu", 0, 5), pm.HalfNormal("tau", 5)
    ...     theta = pm.Normal("theta", mu, tau, shape=8, transform=Centring())
    """

    name: ClassVar[str] = "centring"
    as_written: ClassVar[float] = 1.0

    def __init__(self, weight: Any = 0.0) -> None:
        if not isinstance(weight, Variable):
            weight = np.asarray(weight, dtype=float)
            if not np.all((weight >= 0) & (weight <= 1)):
                raise ValueError(
                    f"`weight` must be between 0 (non-centred) and 1 (centred), got {weight}."
                )
        self.weight = weight

    def backward(self, value: Any, *inputs: Variable) -> TensorVariable:
        """Map coordinates to the variable."""
        location, width, weight = self._parts(inputs)
        theta: TensorVariable = (1 - weight * width) * location + width * pt.as_tensor(value)
        return theta

    def forward(self, value: Any, *inputs: Variable) -> TensorVariable:
        """Map the variable to its coordinates."""
        location, width, weight = self._parts(inputs)
        phi: TensorVariable = pt.as_tensor(value) / width + (weight - 1 / width) * location
        return phi

    def log_jac_det(self, value: Any, *inputs: Variable) -> TensorVariable:
        """Return (1 − λ) log σ for each element."""
        _, width, _ = self._parts(inputs)
        slope: TensorVariable = pt.log(width) + pt.zeros_like(pt.as_tensor(value))
        return slope

    def parents(self, *inputs: Variable) -> list[TensorVariable]:
        """Return μ and σ, the last two inputs of each location-scale distribution."""
        return [pt.as_tensor(x) for x in inputs[-2:]]

    def spread(self, *inputs: Variable) -> TensorVariable:
        """Return σ."""
        return self.parents(*inputs)[1]

    def _parts(
        self, inputs: Sequence[Variable]
    ) -> tuple[TensorVariable, TensorVariable, TensorVariable]:
        """Return μ, σ^(1 − λ) and λ."""
        location, scale = self.parents(*inputs)
        weight = pt.as_tensor(self.weight).astype(scale.dtype)
        return location, self._power(scale, complement=True), weight


class Recentring(Weighted):
    r"""Map to a standard variable z of which a model uses μ + σ z alone.

    .. math:: z = \sigma^{-\lambda} (\varphi - \lambda \mu)

    φ is that of :class:`Centring` for θ = μ + σ z.

    Parameters
    ----------
    weight : tensor
        λ for each element.
    location, scale : TensorVariable
        μ and σ as graphs of the model's other variables.
    """

    name: ClassVar[str] = "recentring"
    as_written: ClassVar[float] = 0.0

    def __init__(self, weight: Any, location: TensorVariable, scale: TensorVariable) -> None:
        self.weight = weight
        self.location = location
        self.scale = scale

    def backward(self, value: Any, *inputs: Variable) -> TensorVariable:
        """Map coordinates to the variable."""
        z: TensorVariable = (pt.as_tensor(value) - self._offset()) / self._power(self.scale)
        return z

    def forward(self, value: Any, *inputs: Variable) -> TensorVariable:
        """Map the variable to its coordinates."""
        phi: TensorVariable = self._offset() + self._power(self.scale) * pt.as_tensor(value)
        return phi

    def log_jac_det(self, value: Any, *inputs: Variable) -> TensorVariable:
        """Return −λ log σ for each element."""
        slope: TensorVariable = -self.weight * pt.log(self.scale)
        return slope + pt.zeros_like(pt.as_tensor(value))

    def parents(self, *inputs: Variable) -> list[TensorVariable]:
        """Return μ and σ."""
        return [self.location, self.scale]

    def spread(self, *inputs: Variable) -> TensorVariable:
        """Return σ."""
        return self.scale

    def _offset(self) -> TensorVariable:
        offset: TensorVariable = self.weight * self.location
        return offset
