"""Normal variables that sum to zero, in either writing."""

from __future__ import annotations

from typing import Any, ClassVar

import pytensor.tensor as pt

from pymc.logprob.transforms import Transform
from pytensor.graph.basic import Variable
from pytensor.tensor.variable import TensorVariable

from pymc_sgmcmc.centring.weighted import Weighted, power

__all__ = ["ZeroSumCentring"]


class ZeroSumCentring(Weighted):
    r"""Map from coordinates of ``pm.ZeroSumNormal``.

    .. math:: \theta = Q \sigma^{1 - \lambda} \varphi

    Q is PyMC's map, whose columns are orthonormal and sum to zero.

    Parameters
    ----------
    weight : tensor
        λ for each element of φ.
    own : Transform
        PyMC's transform of the variable.
    """

    name: ClassVar[str] = "zero_sum_centring"
    as_written: ClassVar[float] = 1.0

    def __init__(self, weight: Any, own: Transform) -> None:
        self.weight = weight
        self.own: Any = own
        self.ndim_supp = len(self.own.zerosum_axes)

    def backward(self, value: Any, *inputs: Variable) -> TensorVariable:
        """Map coordinates to the variable."""
        theta: TensorVariable = self.own.backward(value * self._width(*inputs), *inputs)
        return theta

    def forward(self, value: Any, *inputs: Variable) -> TensorVariable:
        """Map the variable to its coordinates."""
        phi: TensorVariable = self.own.forward(value, *inputs) / self._width(*inputs)
        return phi

    def log_jac_det(self, value: Any, *inputs: Variable) -> TensorVariable:
        """Return the sum of (1 − λ) log σ over the elements that sum to zero."""
        logs = pt.log(self._width(*inputs)) + pt.zeros_like(value)
        axes = tuple(range(-self.ndim_supp, 0))
        slope: TensorVariable = self.own.log_jac_det(value, *inputs) + pt.sum(logs, axis=axes)
        return slope

    def parents(self, *inputs: Variable) -> list[TensorVariable]:
        """Return σ."""
        return [pt.as_tensor(inputs[2])]

    def spread(self, *inputs: Variable) -> TensorVariable:
        """Return σ."""
        return self.parents(*inputs)[0]

    def _width(self, *inputs: Variable) -> TensorVariable:
        return power(self.spread(*inputs), 1 - self.weight)
