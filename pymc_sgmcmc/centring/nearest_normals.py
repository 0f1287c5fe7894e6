r"""Location and scale of the normal law nearest to that of a logarithm, or of log odds.

A density :math:`\exp(k\varphi - c\,e^{p\varphi})` of a logarithm φ has the mean curvature kp, and
the normal law with the least relative entropy has the variance 1 / kp and the mean
:math:`(\log(k / cp) - p / 2k) / p`. With these as its scale and location a positive variable
is standard in the sense of a hierarchy's coordinates: curvature beyond 1 is the data's.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytensor.tensor as pt

from pymc.distributions.continuous import WeibullBetaRV
from pytensor.graph.basic import Variable
from pytensor.tensor.random.basic import HalfNormalRV, InvGammaRV, LogNormalRV
from pytensor.tensor.variable import TensorVariable

__all__ = ["LawOf", "log_odds_of_beta", "logarithm_of"]

LawOf = Callable[..., list[TensorVariable]]
"""Maps the inputs of a random variable to location and scale."""


def logarithm_of(op: object) -> LawOf:
    """Return what gives location and scale of the logarithm of a family's variables."""
    return next((law for kind, law in _LAWS.items() if isinstance(op, kind)), _of_scale)


def log_odds_of_beta(*inputs: Variable) -> list[TensorVariable]:
    """Return location and scale of the log odds of a beta variable."""
    a, b = (pt.as_tensor(x) for x in inputs[-2:])
    return [pt.log(a) - pt.log(b) - 1 / (2 * a) + 1 / (2 * b), pt.sqrt((a + b + 1) / (a * b))]


def _of_scale(*inputs: Variable) -> list[TensorVariable]:
    scale = pt.as_tensor(inputs[-1])
    return [pt.log(scale), pt.ones_like(scale)]


def _of_log_normal(*inputs: Variable) -> list[TensorVariable]:
    return [pt.as_tensor(x) for x in inputs[-2:]]


def _of_inverse_gamma(*inputs: Variable) -> list[TensorVariable]:
    shape, scale = (pt.as_tensor(x) for x in inputs[-2:])
    return [pt.log(scale) - pt.log(shape) + 1 / (2 * shape), shape**-0.5]


def _of_half_normal(*inputs: Variable) -> list[TensorVariable]:
    scale = pt.as_tensor(inputs[-1])
    return [pt.log(scale) - 0.5, np.sqrt(0.5) * pt.ones_like(scale)]


def _of_weibull(*inputs: Variable) -> list[TensorVariable]:
    shape, scale = (pt.as_tensor(x) for x in inputs[-2:])
    return [pt.log(scale) - 1 / (2 * shape), 1 / shape]


_LAWS: dict[type, LawOf] = {
    LogNormalRV: _of_log_normal,
    InvGammaRV: _of_inverse_gamma,
    HalfNormalRV: _of_half_normal,
    WeibullBetaRV: _of_weibull,
}
