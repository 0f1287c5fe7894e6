r"""Links θ = f(x) to the scale on which a hierarchy is normal, and the laws of x there.

A density :math:`\exp(k\,x - c\,e^{p x})` of a logarithm x has the mean curvature kp, and the normal
law with the least relative entropy has the variance 1 / kp and the mean
:math:`(\log(k / cp) - p / 2k) / p`. With these as its scale and location a positive variable is
standard in the sense of a hierarchy's coordinates: curvature beyond 1 is the data's.

The posterior of the logarithm of a rate with few events or none has a curvature that grows like the
rate: steps become too long towards large rates, and so does the noise of batches, which heats that
side. The rate's square root has about the same curvature everywhere [1]_. For a gamma variable with
shape k and scale s its law is

.. math::
   \sqrt\theta \approx N\Bigl(\frac{k \sqrt s}{\sqrt{k + 1/4}}, \frac{s}{4}\Bigr) .

.. [1] Anscombe (1948). The transformation of Poisson, binomial and negative-binomial data.
   Biometrika 35, 246-254.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytensor.tensor as pt

from pymc.distributions.continuous import WeibullBetaRV
from pytensor.graph.basic import Variable
from pytensor.tensor.random.basic import HalfNormalRV, InvGammaRV, LogNormalRV

from pymc_sgmcmc.floats import as_float, like, off

Law = Callable[..., list[Any]]
"""Maps the inputs of a random variable to location and scale of x."""

# Inputs of an exponential variable: a generator, a size and the scale
_OF_EXPONENTIAL = 3


@dataclass(frozen=True)
class Link:
    """θ = f(x), its inverse, and log|det dθ/dφ| from that of x and x.

    All are functions of tensors, the last of which is the scale of x.
    """

    to: Callable[[Any, Any], Any]
    back: Callable[[Any, Any], Any]
    log_det: Callable[[Any, Any, Any], Any]
    bounded: bool = True


IDENTITY = Link(lambda x, _: x, lambda x, _: x, lambda slope, *_: slope, bounded=False)
LOG = Link(lambda x, _: pt.exp(x), lambda y, _: pt.log(y), lambda slope, x, _: slope + x)
LOGIT = Link(
    lambda x, _: _inside(pt.sigmoid(x), pt.sigmoid(-x)),
    lambda theta, _: pt.log(theta) - pt.log1p(-theta),
    lambda slope, x, _: slope - pt.softplus(x) - pt.softplus(-x),
)
# Towards the bound at 0 the square root bends on the scale c of its law: √θ = c softplus(x / c)
ROOT = Link(
    lambda x, c: (c * pt.softplus(x / c)) ** 2,
    lambda theta, c: c * _softplus_inverse(pt.sqrt(theta) / c),
    lambda slope, x, c: slope + pt.log(2 * c * pt.softplus(x / c)) - pt.softplus(-(x / c)),
)


def zero_sum(own: Any) -> Link:
    """Return the map from independent elements to ``pm.ZeroSumNormal``, by PyMC's transform.

    The elements of θ are Bx, where B has orthonormal columns that sum to zero.
    """
    ndim = len(own.zerosum_axes)
    axes = tuple(range(-ndim, 0))
    return Link(
        lambda x, _: own.backward(x),
        lambda theta, _: own.forward(theta),
        lambda slope, x, _: own.log_jac_det(x) + pt.sum(slope, axis=axes),
        bounded=False,
    )


def _inside(theta: Any, beyond: Any) -> Any:
    """Return θ with 1 − θ = ``beyond``, off 0 and 1 also where it would round to them."""
    lower, upper = like(theta, 0), like(theta, 1)
    return pt.switch(theta < beyond, lower + off(lower, theta), upper - off(upper, beyond))


def _softplus_inverse(y: Any) -> Any:
    return y + pt.log(-pt.expm1(-y))


# ---------------------------------------------------------------------- laws of x


def location_and_scale(*inputs: Variable) -> list[Any]:
    """Return μ and σ, the last two inputs of each location-scale distribution."""
    return [as_float(x) for x in inputs[-2:]]


def scale_of_zero_sum(*inputs: Variable) -> list[Any]:
    """Return 0 and σ of ``pm.ZeroSumNormal``."""
    scale = as_float(inputs[2])
    return [pt.zeros_like(scale), scale]


def root_of_gamma(*inputs: Variable) -> list[Any]:
    """Return location and scale of the square root of a gamma or an exponential variable."""
    scale = as_float(inputs[-1])
    shape = as_float(inputs[-2]) if len(inputs) > _OF_EXPONENTIAL else 1.0
    root = pt.sqrt(scale)
    return [shape * root / pt.sqrt(shape + 0.25), root / 2 + pt.zeros_like(shape)]


def log_odds_of_beta(*inputs: Variable) -> list[Any]:
    """Return location and scale of the log odds of a beta variable."""
    a, b = (as_float(x) for x in inputs[-2:])
    return [pt.log(a) - pt.log(b) - 1 / (2 * a) + 1 / (2 * b), pt.sqrt((a + b + 1) / (a * b))]


def logarithm_of(op: object) -> Law:
    """Return the law of the logarithm of a positive family's variables."""
    law = next(law for kind, law in _LOGARITHMS.items() if isinstance(op, kind))
    # A distribution's parameters stand after a generator and a size
    return lambda *inputs: law(*map(as_float, inputs[2:]))


# Functions of a family's parameters; of all families that are not named the last one is the scale
_LOGARITHMS: dict[type, Law] = {
    LogNormalRV: lambda location, scale: [location, scale],
    InvGammaRV: lambda a, scale: [pt.log(scale) - pt.log(a) + 1 / (2 * a), a**-0.5],
    HalfNormalRV: lambda _, scale: [pt.log(scale) - 0.5, np.sqrt(0.5) * pt.ones_like(scale)],
    WeibullBetaRV: lambda a, scale: [pt.log(scale) - 1 / (2 * a), 1 / a],
    object: lambda *of: [pt.log(of[-1]), pt.ones_like(of[-1])],
}
