r"""Coordinates of a chosen weight between the centred and the non-centred parametrization.

A variable θ with location μ and scale σ, at least one of them unknown, has a funnel where the data
are weak and a ridge between σ and its standardised residuals where they are strong. With a weight λ
for each element,

.. math:: \theta = \mu + \sigma^{1 - \lambda} (\varphi - \lambda \mu),

φ is θ itself for λ = 1, centred, and the standardised residual for λ = 0, non-centred [1]_.

.. [1] Papaspiliopoulos, Roberts, Sköld (2007). A general framework for the parametrization of
   hierarchical models. Statistical Science 22(1), 59-73.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import pytensor.tensor as pt

from pymc.logprob.transforms import Transform
from pytensor.graph.basic import Variable
from pytensor.tensor.variable import TensorVariable

from pymc_sgmcmc.centring.gaussian_map import logarithm
from pymc_sgmcmc.centring.links import location_and_scale


class Centring(Transform):
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
    ndim_supp = 0

    def __init__(self, weight: Any = 0.0) -> None:
        if not isinstance(weight, Variable):
            weight = np.asarray(weight)
            if weight.dtype.kind not in "fiu" or not np.all((weight >= 0) & (weight <= 1)):
                raise ValueError(
                    f"`weight` must be between 0 (non-centred) and 1 (centred), got {weight}."
                )
            weight = weight.astype(float)
        self.weight = weight

    def backward(self, value: Any, *inputs: Variable) -> TensorVariable:
        """Map coordinates to the variable."""
        location, width, weight = self._parts(inputs)
        return (1 - weight * width) * location + width * pt.as_tensor(value)

    def forward(self, value: Any, *inputs: Variable) -> TensorVariable:
        """Map the variable to its coordinates."""
        location, width, weight = self._parts(inputs)
        return pt.as_tensor(value) / width + (weight - 1 / width) * location

    def log_jac_det(self, value: Any, *inputs: Variable) -> TensorVariable:
        """Return (1 − λ) log σ for each element."""
        _, width, _ = self._parts(inputs)
        return pt.log(width) + pt.zeros_like(pt.as_tensor(value))

    def _parts(self, inputs: Sequence[Variable]) -> tuple[Any, Any, Any]:
        """Return μ, σ^(1 − λ), which is 1 for λ = 1 and any σ, and λ."""
        location, scale = location_and_scale(*inputs)
        weight = pt.as_tensor(self.weight).astype(scale.dtype)
        return location, pt.exp((1 - weight) * logarithm(scale)), weight
