r"""Maps between a bounded parameter and the unbounded coordinate that is sampled.

Every map here is a PyMC ``Transform``. Give it to a random variable as ``default_transform=``, in
the place of its distribution's own. PyMC applies ``transform=`` after that one: it serves
variables whose distribution has none, such as ``pm.Normal``. In PyMC's convention ``backward`` is
:math:`\theta = f(\varphi)`, ``forward`` its inverse and ``log_jac_det`` is
:math:`\log |f'(\varphi)|`. All of them hold over the whole range of floating-point numbers, with
finite gradients (as long as `Exp` does not overflow): a bound is never reached
(:math:`\theta` stays at least one floating-point number off it), and the derivative there is
still that of :math:`f`.

A change of variables multiplies the noise of a stochastic gradient by :math:`f'`, which a
Lipschitz :math:`f` keeps bounded [1]_; `Exp`, `Sigmoid` and `EntropicMirror` are the mirror maps
of mirrored Langevin dynamics [2]_.

References
----------
.. [1] Yokoi, Otsuka, Sato (2019). On Transformations in Stochastic Gradient MCMC.
.. [2] Hsieh, Kavis, Rolland, Cevher (2018). Mirrored Langevin Dynamics. NeurIPS 31.
"""

from math import factorial
from typing import Any, cast

import numpy as np
import pytensor.tensor as pt

from pymc.logprob.transforms import Transform
from pytensor.compile.builders import OpFromGraph
from pytensor.graph.basic import Variable
from pytensor.tensor.variable import TensorVariable

from pymc_sgmcmc.centring.partial import Centring
from pymc_sgmcmc.floats import as_float, distance_from, like, normal, off
from pymc_sgmcmc.transforms.bounded import OneSided, TwoSided

__all__ = ["ICLL", "Arctan", "Centring", "EntropicMirror", "Exp", "Sigmoid", "Softplus", "Softsign"]


class Sigmoid(TwoSided):
    r"""Logistic map onto an interval.

    .. math:: \theta = a + \frac{b - a}{1 + e^{-\varphi}}

    Lipschitz constant :math:`(b - a)/4`.

    Parameters
    ----------
    lower, upper : float or array_like, default 0 and 1
        The bounds :math:`a < b`.
    bounds_fn : callable, optional
        In place of `lower` and `upper`: a function of the inputs of the random variable's
        ``Op`` that returns both, as PyMC's ``Interval`` takes it.

    Examples
    --------
    >>> Sigmoid(-1, 1).backward([-1000.0, 0.0, 2.0]).eval().round(4)
    array([-1.    ,  0.    ,  0.7616])
    """

    name = "sigmoid"
    lipschitz_constant = 0.25

    def _map(self, value: TensorVariable) -> TensorVariable:
        return pt.sigmoid(value)

    def _inverse(self, image: TensorVariable) -> TensorVariable:
        return pt.log(image) - pt.log1p(-image)

    def _log_slope(self, value: TensorVariable) -> TensorVariable:
        return -pt.softplus(value) - pt.softplus(-value)


class Arctan(TwoSided):
    r"""Arctangent map onto an interval.

    .. math:: \theta = a + (b - a)\left(\frac12 + \frac{\arctan\varphi}{\pi}\right)

    Lipschitz constant :math:`(b - a)/\pi`. A density that is finite at a bound has tails like
    :math:`\varphi^{-2}`, without a mean or variance in :math:`\varphi`.

    Parameters
    ----------
    lower, upper, bounds_fn
        As in `Sigmoid`.

    Examples
    --------
    >>> Arctan().backward([-1.0, 0.0, 1.0]).eval()
    array([0.25, 0.5 , 0.75])
    """

    name = "arctan"
    lipschitz_constant = 1 / np.pi

    def _map(self, value: TensorVariable) -> TensorVariable:
        return pt.arctan2(pt.ones_like(value), -value) / like(value, np.pi)

    def _inverse(self, image: TensorVariable) -> TensorVariable:
        angle = like(image, np.pi) * image
        return -pt.cos(angle) / pt.sin(angle)

    def _log_slope(self, value: TensorVariable) -> TensorVariable:
        # log hypot(1, value), without overflow, is log |large| + log1p(small**2) / 2
        far = pt.abs(value) > 1
        large = pt.switch(far, value, 1)
        small = pt.switch(far, 1 / large, value)
        return -like(value, np.log(np.pi)) - 2 * pt.log(pt.abs(large)) - pt.log1p(pt.sqr(small))


class Softsign(TwoSided):
    r"""Softsign map onto an interval.

    .. math:: \theta = a + \frac{b - a}{2}\left(1 + \frac{\varphi}{1 + |\varphi|}\right)

    Lipschitz constant :math:`(b - a)/2`; the second derivative jumps at 0. Tails as in `Arctan`.

    Parameters
    ----------
    lower, upper, bounds_fn
        As in `Sigmoid`.

    Examples
    --------
    >>> Softsign().backward([-1.0, 0.0, 1.0]).eval()
    array([0.25, 0.5 , 0.75])
    """

    name = "softsign"
    lipschitz_constant = 0.5

    def _map(self, value: TensorVariable) -> TensorVariable:
        return 0.5 / (1 - value)

    def _inverse(self, image: TensorVariable) -> TensorVariable:
        return (image - 0.5) / image

    def _log_slope(self, value: TensorVariable) -> TensorVariable:
        return -like(value, np.log(2)) - 2 * pt.log1p(pt.abs(value))


class Exp(OneSided):
    r"""Exponential map onto the positive numbers, PyMC's own default.

    .. math:: \theta = e^{\varphi}

    Not Lipschitz: it amplifies gradient noise in proportion to :math:`\theta`. It is also the
    mirror map of the positive numbers.

    Parameters
    ----------
    lower, upper : float or array_like, optional
        One bound: :math:`a + e^\varphi` with a lower, :math:`b - e^\varphi` with an upper one;
        a lower bound of 0 if neither is given.
    bounds_fn : callable, optional
        In place of `lower` and `upper`: a function of the inputs of the random variable's
        ``Op`` that returns both, one of them None, as PyMC's ``Interval`` takes it.

    Examples
    --------
    >>> Exp(upper=3).backward([0.0]).eval()
    array([2.])
    """

    name = "exp"
    lipschitz_constant = np.inf

    def _map(self, value: TensorVariable) -> TensorVariable:
        return pt.exp(value)

    def _inverse(self, image: TensorVariable) -> TensorVariable:
        return pt.log(image)

    def _log_slope(self, value: TensorVariable) -> TensorVariable:
        return value


class Softplus(OneSided):
    r"""Softplus map onto the positive numbers.

    .. math:: \theta = s \log(1 + e^{\varphi})

    Lipschitz constant :math:`s`. Like an exponential far below :math:`s`, linear far above it:
    with :math:`s` several times the typical value the coordinate is close to a logarithm, and
    means the same in every unit of :math:`\theta`.

    Parameters
    ----------
    scale : float, array_like or tensor, default 1
        The scale :math:`s > 0`; 1 is the map of [1]_.
    **bounds
        `lower`, `upper`, `bounds_fn` as in `Exp`.

    References
    ----------
    .. [1] Yokoi, Otsuka, Sato (2019). On Transformations in Stochastic Gradient MCMC.

    Examples
    --------
    >>> Softplus(10.0).backward([-1000.0, 0.0, 100.0]).eval().round(2)
    array([   0.  ,    6.93, 1000.  ])
    """

    name = "softplus"
    lipschitz_constant = 1.0

    def __init__(self, scale: Any = 1.0, **bounds: Any) -> None:
        if not isinstance(scale, Variable):
            numbers = np.asarray(scale)
            if numbers.dtype.kind not in "iuf" or not (np.isfinite(numbers) & (numbers > 0)).all():
                raise ValueError(f"`scale` must be positive and finite, in numbers, got {scale}.")
        self.scale = scale
        super().__init__(**bounds)

    def _map(self, value: TensorVariable) -> TensorVariable:
        return like(value, self.scale) * pt.softplus(value)

    def _inverse(self, image: TensorVariable) -> TensorVariable:
        x = normal(image / like(image, self.scale))
        return x + pt.log(-pt.expm1(-x))

    def _log_slope(self, value: TensorVariable) -> TensorVariable:
        return pt.log(like(value, self.scale)) - pt.softplus(-value)


class ICLL(OneSided):
    r"""Integrated complementary log-log map onto the positive numbers.

    .. math:: \theta = \varphi + E_1(e^\varphi) + \gamma, \qquad f'(\varphi) = 1 - e^{-e^\varphi}

    with the exponential integral :math:`E_1` and Euler's constant :math:`\gamma`. Lipschitz
    constant 1. The inverse takes four Newton steps.

    Parameters
    ----------
    lower, upper, bounds_fn
        As in `Exp`.

    Examples
    --------
    >>> ICLL().backward([-1000.0, 0.0, 1000.0]).eval().round(2)
    array([0.00000e+00, 8.00000e-01, 1.00058e+03])
    """

    name = "icll"
    lipschitz_constant = 1.0
    _log_large = 6.75  # exp(-exp(x)) is zero for every x above it

    def _map(self, value: TensorVariable) -> TensorVariable:
        # With a gradient of its own: that of the continued fraction is large and overflows.
        argument = value.type()
        op = OpFromGraph(
            [argument],
            [self._series_or_fraction(argument)],
            pullback=lambda inputs, _, cotangents: [
                cotangents[0] * pt.exp(self._log_slope(inputs[0]))
            ],
            name=self.name,
        )
        return cast(TensorVariable, op(value))

    def _series_or_fraction(self, value: TensorVariable) -> TensorVariable:
        split = like(value, np.log(3.0))
        x = pt.exp(pt.minimum(value, split))
        below = pt.zeros_like(x)
        for k in range(26, 0, -1):
            below = x * (like(x, (-1) ** (k + 1) / (k * factorial(k))) + below)
        x = pt.exp(pt.clip(value, split, self._log_large))
        fraction = x + 61
        for k in range(30, 0, -1):  # exp(x) E1(x) is one over this continued fraction
            fraction = x + (2 * k - 1) - k**2 / fraction
        above = value + like(value, np.euler_gamma) + pt.exp(-x) / fraction
        return pt.switch(value < split, below, above)

    def _inverse(self, image: TensorVariable) -> TensorVariable:
        small, log_image = image < 1, pt.log(image)
        value = pt.switch(small, log_image + image / 4, image - like(image, np.euler_gamma))
        for _ in range(4):  # Newton's method on log f below 1, on f above
            f, slope = normal(self._map(value)), normal(pt.exp(self._log_slope(value)))
            value -= pt.switch(small, f * (pt.log(f) - log_image), f - image) / slope
        return value

    def _log_slope(self, value: TensorVariable) -> TensorVariable:
        split = -8
        x = pt.exp(pt.minimum(value, split))
        below = value - x / 2 + pt.sqr(x) / 24
        x = pt.exp(pt.clip(value, split, self._log_large))
        return pt.switch(value < split, below, pt.log(-pt.expm1(-x)))


class EntropicMirror(Transform):
    r"""Entropic mirror map of the simplex: K entries to K - 1 coordinates.

    .. math:: y_l = \log x_l - \log x_K, \qquad x = \operatorname{softmax}(y_1, \dots, y_{K-1}, 0)

    Lipschitz constant 1/2 in the Euclidean norm. The Jacobian determinant is :math:`\prod_k x_k`,
    that of the first K - 1 entries, as for PyMC's ``simplex``, whose coordinates are a linear
    image of these.

    References
    ----------
    .. [1] Hsieh, Kavis, Rolland, Cevher (2018). Mirrored Langevin Dynamics. NeurIPS 31.

    Examples
    --------
    >>> EntropicMirror().backward([0.0, 0.0]).eval().round(3)
    array([0.333, 0.333, 0.333])
    """

    name = "entropic"
    ndim_supp = 1
    lipschitz_constant = 0.5

    def backward(self, value: Any, *inputs: Variable) -> TensorVariable:
        """Map K - 1 real coordinates in the last axis to a simplex of K entries."""
        simplex = pt.special.softmax(self._with_zero(value), axis=-1)
        return off(like(simplex, 0), simplex)

    def forward(self, value: Any, *inputs: Variable) -> TensorVariable:
        """Map a simplex of K entries in the last axis to K - 1 real coordinates."""
        value = as_float(value)
        log_value = pt.log(distance_from(like(value, 0), value))
        return log_value[..., :-1] - log_value[..., -1, None]

    def log_jac_det(self, value: Any, *inputs: Variable) -> TensorVariable:
        """Return the log determinant of the Jacobian of the first K - 1 entries."""
        return pt.sum(pt.special.log_softmax(self._with_zero(value), axis=-1), axis=-1)

    def _with_zero(self, value: Any) -> TensorVariable:
        value = as_float(value)
        zero = pt.zeros_like(pt.sum(value, axis=-1, keepdims=True))
        return pt.concatenate([value, zero], axis=-1)
