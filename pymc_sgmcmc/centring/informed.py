r"""Coordinates standardised by an element's prior and data together.

Let θ have unknown location μ and scale σ, and let its likelihood be approximated by a normal one
with information I and score g at θ = 0. Given μ and σ,

.. math::
   \theta \sim N\Bigl(\frac{\mu + \sigma^2 g}{1 + I \sigma^2},
   \frac{\sigma^2}{1 + I \sigma^2}\Bigr),

and φ is θ standardised by that. Where I is right φ is N(0, 1) whatever σ is: neither a funnel nor
a ridge is left [1]_. Without information φ is the non-centred coordinate, and with much of it, but
for a shift and a factor, the centred one.

.. [1] Christensen, Roberts, Sköld (2006). Robust Markov chain Monte Carlo methods for spatial
   generalized linear mixed models. Journal of Computational and Graphical Statistics 15(1), 1-17.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pytensor.tensor as pt

from pymc.logprob.transforms import Transform
from pytensor.graph.basic import Variable
from pytensor.tensor.variable import TensorVariable

from pymc_sgmcmc.centring.nearest_normals import LawOf
from pymc_sgmcmc.centring.weighted import Weighted, logarithm

__all__ = [
    "Informed",
    "InformedCentring",
    "InformedLog",
    "InformedLogit",
    "InformedResidual",
    "InformedZeroSum",
]


# A smaller share cannot be distinguished from the rounding of curvatures
_LEAST_TOLD = 1e-3


class Informed(Weighted):
    """The common part of these maps, with a weight of λ, I and g along its first dimension.

    An element with I = 0 is centred for λ = 1 and non-centred for λ = 0. For other I, λ only
    records the data's share of the information.
    """

    as_written: ClassVar[float] = 1.0
    numbers: ClassVar[tuple[int, ...]] = (3,)
    refines: ClassVar[bool] = True

    def __init__(self, weight: Any = None) -> None:
        self.weight = weight

    @property
    def is_centred(self) -> TensorVariable:
        """Mask of centred elements, φ = θ."""
        found: TensorVariable = pt.and_(pt.eq(self.weight[1], 0), self.weight[0] > 0)
        return found

    def parents(self, *inputs: Variable) -> list[TensorVariable]:
        """Return μ and σ, the last two inputs of each location-scale distribution."""
        return [pt.as_tensor(x) for x in inputs[-2:]]

    def location(self, *inputs: Variable) -> TensorVariable:
        """Return μ."""
        return self.parents(*inputs)[0]

    def spread(self, *inputs: Variable) -> TensorVariable:
        """Return σ."""
        return self.parents(*inputs)[1]

    def residual(self, phi: Any, *inputs: Variable) -> TensorVariable:
        """Return (θ − μ) / σ of an element that is not centred."""
        shift, width = self._conditional(*inputs)
        z: TensorVariable = shift + width * phi
        return z

    def standardised(self, z: Any, *inputs: Variable) -> TensorVariable:
        """Return φ of (θ − μ) / σ."""
        shift, width = self._conditional(*inputs)
        phi: TensorVariable = (z - shift) / width
        return phi

    def log_width(self, *inputs: Variable) -> TensorVariable:
        """Return the logarithm of the sd of (θ − μ) / σ, given μ and σ."""
        return pt.log(self._conditional(*inputs)[1])

    def _conditional(self, *inputs: Variable) -> tuple[TensorVariable, TensorVariable]:
        """Return mean and sd of (θ − μ) / σ, given μ and σ."""
        location, scale = self.location(*inputs), self.spread(*inputs)
        information, score = self.weight[1], self.weight[2]
        precision = 1 + information * scale**2
        return scale * (score - information * location) / precision, precision**-0.5

    # ------------------------------------------------------------------ the choice

    def chosen(
        self,
        curvature: np.ndarray,
        spreads: np.ndarray,
        phi: np.ndarray,
        location: np.ndarray,
        spread: np.ndarray,
    ) -> np.ndarray:
        """Return λ, I and g of elements of which none is centred.

        ``curvature`` is that of U along φ, its mean over the bulk, and ``spreads`` are σ at
        positions there, along the first dimension; φ, μ and σ are in the middle of the bulk.
        """
        _, old, score = np.asarray(self.weight, dtype=float)
        relative = 1 / (1 + old * spreads**2)
        # The curvature along φ is (1 + Iσ²) / (1 + I'σ²) in coordinates of another I'
        known = (curvature - relative.mean(axis=0)) / (spreads**2 * relative).mean(axis=0)
        told = known * (spreads**2).mean(axis=0) > _LEAST_TOLD
        information = np.where(told, known, 0)
        precision = 1 + old * spread**2
        z = spread * (score - old * location) / precision + phi / np.sqrt(precision)
        theta = location + spread * z
        said = information * np.median(spreads, axis=0) ** 2
        score = np.where(told, information * theta + z / spread, 0)
        return np.stack([said / (1 + said), information, score])


class InformedCentring(Informed):
    """Map to a location-scale variable: a normal, Student's t, Laplace, Cauchy, logistic, Gumbel.

    ``beside`` is added to the variable by the model: the data determine the sum of an area's effect
    and a normal one, and I and g are of that sum.
    """

    name: ClassVar[str] = "informed_centring"

    def __init__(self, weight: Any = None, beside: Any = None) -> None:
        super().__init__(weight)
        self.beside = beside

    def location(self, *inputs: Variable) -> TensorVariable:
        """Return μ, or the mean of the sum."""
        location = super().location(*inputs)
        return location if self.beside is None else location + self.beside

    def depends_on(self, *inputs: Variable) -> list[TensorVariable]:
        """Return μ, σ and the added term."""
        return [*self.parents(*inputs), *([] if self.beside is None else [self.beside])]

    def backward(self, value: Any, *inputs: Variable) -> TensorVariable:
        """Map coordinates to the variable."""
        location, scale = self.parents(*inputs)
        theta: TensorVariable = pt.switch(
            self.is_centred, value, location + scale * self.residual(value, *inputs)
        )
        return theta

    def forward(self, value: Any, *inputs: Variable) -> TensorVariable:
        """Map the variable to its coordinates."""
        location, scale = self.parents(*inputs)
        phi: TensorVariable = pt.switch(
            self.is_centred, value, self.standardised((value - location) / scale, *inputs)
        )
        return phi

    def log_jac_det(self, value: Any, *inputs: Variable) -> TensorVariable:
        """Return the logarithm of dθ / dφ of each element."""
        slope = logarithm(self.spread(*inputs)) + self.log_width(*inputs)
        found: TensorVariable = pt.switch(self.is_centred, pt.zeros_like(value), slope)
        return found


class InformedLog(InformedCentring):
    """Map to a positive variable, in its logarithm.

    ``law`` maps the inputs of the variable to the location and scale of its logarithm.
    """

    name: ClassVar[str] = "informed_log"

    def __init__(self, law: LawOf, weight: Any = None) -> None:
        super().__init__(weight)
        self.law = law

    @property
    def unbounded(self) -> bool:
        """Whether θ is real."""
        return False

    def parents(self, *inputs: Variable) -> list[TensorVariable]:
        """Return location and scale of the logarithm."""
        return self.law(*inputs)

    def backward(self, value: Any, *inputs: Variable) -> TensorVariable:
        """Map coordinates to the variable."""
        theta: TensorVariable = pt.exp(super().backward(value, *inputs))
        return theta

    def forward(self, value: Any, *inputs: Variable) -> TensorVariable:
        """Map the variable to its coordinates."""
        return super().forward(pt.log(value), *inputs)

    def log_jac_det(self, value: Any, *inputs: Variable) -> TensorVariable:
        """Return the logarithm of dθ / dφ of each element."""
        slope: TensorVariable = super().log_jac_det(value, *inputs)
        return slope + super().backward(value, *inputs)


class InformedLogit(InformedLog):
    """Map to a probability, in its log odds, with location and scale from ``law``."""

    name: ClassVar[str] = "informed_logit"
    shares_noise: ClassVar[bool] = True
    noise_grows: ClassVar[bool] = True

    def backward(self, value: Any, *inputs: Variable) -> TensorVariable:
        """Map coordinates to the variable."""
        theta: TensorVariable = pt.sigmoid(InformedCentring.backward(self, value, *inputs))
        return theta

    def forward(self, value: Any, *inputs: Variable) -> TensorVariable:
        """Map the variable to its coordinates."""
        odds = pt.log(value) - pt.log1p(-value)
        return InformedCentring.forward(self, odds, *inputs)

    def log_jac_det(self, value: Any, *inputs: Variable) -> TensorVariable:
        """Return the logarithm of dθ / dφ of each element."""
        odds = InformedCentring.backward(self, value, *inputs)
        slope: TensorVariable = InformedCentring.log_jac_det(self, value, *inputs)
        return slope - pt.softplus(odds) - pt.softplus(-odds)


class InformedResidual(Informed):
    """Map to a standard variable z that the model uses only as μ + σz, which the weight is of.

    ``location`` and ``scale``, μ and σ, are graphs of the model's other variables.
    """

    name: ClassVar[str] = "informed_residual"
    as_written: ClassVar[float] = 0.0

    def __init__(self, location: TensorVariable, scale: TensorVariable, weight: Any = None) -> None:
        super().__init__(weight)
        self._parents = [location, scale]

    def parents(self, *inputs: Variable) -> list[TensorVariable]:
        """Return μ and σ."""
        return self._parents

    def backward(self, value: Any, *inputs: Variable) -> TensorVariable:
        """Map coordinates to the variable."""
        location = self._parents[0]
        z: TensorVariable = pt.switch(
            self.is_centred, (value - location) / self._divisor(), self.residual(value, *inputs)
        )
        return z

    def forward(self, value: Any, *inputs: Variable) -> TensorVariable:
        """Map the variable to its coordinates."""
        location, scale = self._parents
        phi: TensorVariable = pt.switch(
            self.is_centred, location + scale * value, self.standardised(value, *inputs)
        )
        return phi

    def log_jac_det(self, value: Any, *inputs: Variable) -> TensorVariable:
        """Return the logarithm of dz / dφ of each element."""
        centred = -logarithm(self._divisor()) + pt.zeros_like(value)
        slope: TensorVariable = pt.switch(self.is_centred, centred, self.log_width(*inputs))
        return slope

    def _divisor(self) -> TensorVariable:
        """Return σ of centred elements; elsewhere it may be 0, whose logarithm is infinite."""
        scale = self._parents[1]
        found: TensorVariable = pt.switch(self.is_centred, scale, pt.ones_like(scale))
        return found


class InformedZeroSum(Informed):
    """Map to ``pm.ZeroSumNormal``, with PyMC's own transform ``own``.

    Its elements are Qx, where PyMC's Q has orthonormal columns that sum to zero. The elements of x
    are independent N(0, σ²); φ and the weight are those of x.
    """

    name: ClassVar[str] = "informed_zero_sum"

    def __init__(self, own: Transform, weight: Any = None) -> None:
        super().__init__(weight)
        self.own: Any = own
        self.ndim_supp = len(self.own.zerosum_axes)

    def parents(self, *inputs: Variable) -> list[TensorVariable]:
        """Return 0 and σ."""
        scale = pt.as_tensor(inputs[2])
        return [pt.zeros_like(scale), scale]

    def backward(self, value: Any, *inputs: Variable) -> TensorVariable:
        """Map coordinates to the variable."""
        x = self.spread(*inputs) * self.residual(value, *inputs)
        theta: TensorVariable = self.own.backward(pt.switch(self.is_centred, value, x), *inputs)
        return theta

    def forward(self, value: Any, *inputs: Variable) -> TensorVariable:
        """Map the variable to its coordinates."""
        x = self.own.forward(value, *inputs)
        z = self.standardised(x / self.spread(*inputs), *inputs)
        phi: TensorVariable = pt.switch(self.is_centred, x, z)
        return phi

    def log_jac_det(self, value: Any, *inputs: Variable) -> TensorVariable:
        """Return the sum of the logarithms of dx / dφ over the elements that sum to zero."""
        slope = logarithm(self.spread(*inputs)) + self.log_width(*inputs)
        logs = pt.switch(self.is_centred, pt.zeros_like(value), slope)
        axes = tuple(range(-self.ndim_supp, 0))
        found: TensorVariable = self.own.log_jac_det(value, *inputs) + pt.sum(logs, axis=axes)
        return found
