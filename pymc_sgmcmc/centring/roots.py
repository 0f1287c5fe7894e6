r"""Rates of groups in coordinates in which counts are equally informative everywhere.

The posterior of the logarithm of a rate with few events or none has a curvature that grows like the
rate: steps become too long towards large rates, and so does the noise of batches, which heats that
side. The rate's square root has about the same curvature everywhere [1]_. For a gamma variable with
shape k and scale s it is standardised as a normal variable is, with the law

.. math::
   \sqrt\theta \approx N\Bigl(\frac{k \sqrt s}{\sqrt{k + 1/4}}, \frac{s}{4}\Bigr)

Towards the bound at 0 the map bends on the scale of that law:
:math:`\sqrt\theta = c\,\mathrm{softplus}(v / c)` with c its sd.

.. [1] Anscombe (1948). The transformation of Poisson, binomial and negative-binomial data.
   Biometrika 35, 246-254.
"""

from __future__ import annotations

from typing import Any, ClassVar

import pytensor.tensor as pt

from pytensor.graph.basic import Variable
from pytensor.tensor.variable import TensorVariable

from pymc_sgmcmc.centring.informed import InformedCentring

__all__ = ["InformedRoot"]

# Inputs of an exponential variable: a generator, a size and the scale
_OF_EXPONENTIAL = 3


class InformedRoot(InformedCentring):
    """Map to a gamma or an exponential variable, in its square root v, which the weight is of."""

    name: ClassVar[str] = "informed_root"
    shares_noise: ClassVar[bool] = True
    noise_grows: ClassVar[bool] = True

    @property
    def unbounded(self) -> bool:
        """Whether θ is real."""
        return False

    def parents(self, *inputs: Variable) -> list[TensorVariable]:
        """Return location and scale of the square root."""
        scale = pt.as_tensor(inputs[-1])
        shape = pt.as_tensor(inputs[-2]) if len(inputs) > _OF_EXPONENTIAL else 1.0
        root = pt.sqrt(scale)
        return [shape * root / pt.sqrt(shape + 0.25), root / 2 + pt.zeros_like(shape)]

    def backward(self, value: Any, *inputs: Variable) -> TensorVariable:
        """Map coordinates to the variable."""
        c = self.spread(*inputs)
        theta: TensorVariable = (c * pt.softplus(super().backward(value, *inputs) / c)) ** 2
        return theta

    def forward(self, value: Any, *inputs: Variable) -> TensorVariable:
        """Map the variable to its coordinates."""
        c = self.spread(*inputs)
        return super().forward(c * _softplus_inverse(pt.sqrt(value) / c), *inputs)

    def log_jac_det(self, value: Any, *inputs: Variable) -> TensorVariable:
        """Return the logarithm of dθ / dφ of each element."""
        c = self.spread(*inputs)
        v = super().backward(value, *inputs) / c
        slope: TensorVariable = super().log_jac_det(value, *inputs)
        return slope + pt.log(2 * c * pt.softplus(v)) - pt.softplus(-v)


def _softplus_inverse(y: TensorVariable) -> TensorVariable:
    found: TensorVariable = y + pt.log(-pt.expm1(-y))
    return found
