r"""Maps between a bounded parameter and the unbounded coordinate that is sampled.

Every map here is a PyMC ``Transform`` and can be given to any random variable as
``transform=`` or ``default_transform=``. In PyMC's convention ``backward`` is
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

from abc import abstractmethod
from collections.abc import Callable, Sequence
from math import factorial
from typing import Any, ClassVar, cast

import numpy as np
import pytensor.tensor as pt

from numpy.typing import NDArray
from pymc.logprob.transforms import Transform
from pytensor.compile.builders import OpFromGraph
from pytensor.graph.basic import Constant, Variable
from pytensor.tensor.exceptions import NotScalarConstantError
from pytensor.tensor.variable import TensorVariable

from pymc_sgmcmc.centring import Centring
from pymc_sgmcmc.checks import a_function

__all__ = [
    "ICLL",
    "Arctan",
    "Centring",
    "EntropicMirror",
    "Exp",
    "Sigmoid",
    "Softplus",
    "Softsign",
]

type BoundsFn = Callable[..., tuple[Any, Any]]


class _Bounded(Transform):
    """Base of the elementwise maps: their bounds, and a map F onto a standard range."""

    name: ClassVar[str]
    ndim_supp = 0
    n_bounds: ClassVar[int]
    #: Lipschitz constant of F.
    lipschitz_constant: ClassVar[float]

    def __init__(self, lower: Any, upper: Any, bounds_fn: BoundsFn | None) -> None:
        self.lower, self.upper, self.bounds_fn = lower, upper, bounds_fn
        if bounds_fn is not None:
            a_function(f"The bounds_fn of {type(self).__name__}", bounds_fn)
        else:
            if isinstance(lower, Variable) or isinstance(upper, Variable):
                raise ValueError(
                    f"The bounds of {type(self).__name__} must be numbers. For bounds that depend "
                    "on the distribution's parameters give `bounds_fn(*rv_inputs)`."
                )
            for bound in (lower, upper):
                if bound is None:
                    continue
                if np.asarray(bound).dtype.kind not in "iuf" or np.isnan(bound).any():
                    raise TypeError(
                        f"The bounds of {type(self).__name__} must be numbers, got {bound!r:.80}."
                    )
            self.bounds()

    def bounds(self, *inputs: Variable) -> tuple[Any, Any]:
        """Return the lower and the upper bound, None where there is none."""
        both = self.bounds_fn(*inputs) if self.bounds_fn else (self.lower, self.upper)
        lower, upper = (None if infinite_elements(bound).all() else bound for bound in both)
        if (lower is not None) + (upper is not None) != self.n_bounds or mixed(both):
            raise ValueError(
                f"{type(self).__name__} needs {['exactly one', 'two'][self.n_bounds - 1]} finite "
                f"of `lower` and `upper`, got {both[0]} and {both[1]}."
            )
        return lower, upper

    @abstractmethod
    def _map(self, value: TensorVariable) -> TensorVariable:
        """Return F(value); a two-sided map is asked for value <= 0 only."""

    @abstractmethod
    def _inverse(self, image: TensorVariable) -> TensorVariable:
        """Return the value at which F is `image`."""

    @abstractmethod
    def _log_slope(self, value: TensorVariable) -> TensorVariable:
        """Return log F'(value)."""


class _TwoSided(_Bounded):
    r"""Map onto an interval by an F onto (0, 1) with :math:`F(\varphi) = 1 - F(-\varphi)`.

    Each half is computed as the distance from its own bound:
    :math:`a + (b - a) F(-|\varphi|)` and :math:`b - (b - a) F(-|\varphi|)`.
    """

    n_bounds = 2

    def __init__(
        self, lower: Any = 0.0, upper: Any = 1.0, *, bounds_fn: BoundsFn | None = None
    ) -> None:
        super().__init__(lower, upper, bounds_fn)
        try:
            ordered: Any = bounds_fn is not None or np.all(np.less(lower, upper))
        except ValueError:  # of shapes that do not fit
            ordered = False
        if not ordered:
            raise ValueError(f"`lower` must be below `upper` everywhere, got {lower} and {upper}.")

    def backward(self, value: Any, *inputs: Variable) -> TensorVariable:
        """Map the unbounded `value` into the interval."""
        value, lower, upper = self._value_and_bounds(value, inputs)
        minus_abs = pt.switch(value < 0, value, -value)  # the gradient of pt.abs is 0 at 0
        distance = (upper - lower) * self._map(minus_abs)
        return pt.switch(value < 0, lower + _off(lower, distance), upper - _off(upper, distance))

    def forward(self, value: Any, *inputs: Variable) -> TensorVariable:
        """Map a `value` inside the interval to the real line."""
        value, lower, upper = self._value_and_bounds(value, inputs)
        below, above, width = value - lower, upper - value, upper - lower
        image = pt.switch(
            below < above, _distance(lower, below) / width, _distance(upper, above) / width
        )  # Not switch(...) / width: PyTensor splits the logarithm of that, and digits are lost.
        minus_abs = self._inverse(_normal(image))
        return pt.switch(below < above, minus_abs, -minus_abs)

    def log_jac_det(self, value: Any, *inputs: Variable) -> TensorVariable:
        """Return the logarithm of the derivative of `backward`."""
        value, lower, upper = self._value_and_bounds(value, inputs)
        return pt.log(upper - lower) + self._log_slope(value)

    def _value_and_bounds(
        self, value: Any, inputs: Sequence[Variable]
    ) -> tuple[TensorVariable, TensorVariable, TensorVariable]:
        value = _floating(value)
        lower, upper = self.bounds(*inputs)
        return value, _like(value, lower), _like(value, upper)


class Sigmoid(_TwoSided):
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

    References
    ----------
    .. [1] Yokoi, Otsuka, Sato (2019). On Transformations in Stochastic Gradient MCMC.

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


class Arctan(_TwoSided):
    r"""Arctangent map onto an interval.

    .. math:: \theta = a + (b - a)\left(\frac12 + \frac{\arctan\varphi}{\pi}\right)

    Lipschitz constant :math:`(b - a)/\pi`. A density that is finite at a bound has tails like
    :math:`\varphi^{-2}`, without a mean or variance in :math:`\varphi`.

    Parameters
    ----------
    lower, upper, bounds_fn
        As in `Sigmoid`.

    References
    ----------
    .. [1] Yokoi, Otsuka, Sato (2019). On Transformations in Stochastic Gradient MCMC.

    Examples
    --------
    >>> Arctan().backward([-1.0, 0.0, 1.0]).eval()
    array([0.25, 0.5 , 0.75])
    """

    name = "arctan"
    lipschitz_constant = 1 / np.pi

    def _map(self, value: TensorVariable) -> TensorVariable:
        return pt.arctan2(pt.ones_like(value), -value) / _like(value, np.pi)

    def _inverse(self, image: TensorVariable) -> TensorVariable:
        angle = _like(image, np.pi) * image
        return -pt.cos(angle) / pt.sin(angle)

    def _log_slope(self, value: TensorVariable) -> TensorVariable:
        # log hypot(1, value), without overflow, is log |large| + log1p(small**2) / 2
        far = pt.abs(value) > 1
        large = pt.switch(far, value, 1)
        small = pt.switch(far, 1 / large, value)
        return -_like(value, np.log(np.pi)) - 2 * pt.log(pt.abs(large)) - pt.log1p(pt.sqr(small))


class Softsign(_TwoSided):
    r"""Softsign map onto an interval.

    .. math:: \theta = a + \frac{b - a}{2}\left(1 + \frac{\varphi}{1 + |\varphi|}\right)

    Lipschitz constant :math:`(b - a)/2`; the second derivative jumps at 0. Tails as in `Arctan`.

    Parameters
    ----------
    lower, upper, bounds_fn
        As in `Sigmoid`.

    References
    ----------
    .. [1] Yokoi, Otsuka, Sato (2019). On Transformations in Stochastic Gradient MCMC.

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
        return -_like(value, np.log(2)) - 2 * pt.log1p(pt.abs(value))


class _OneSided(_Bounded):
    r"""Map to above a lower bound, :math:`a + F(\varphi)`, or below an upper one, :math:`b - F`."""

    n_bounds = 1

    def __init__(
        self, *, lower: Any = None, upper: Any = None, bounds_fn: BoundsFn | None = None
    ) -> None:
        super().__init__(0.0 if lower is None and upper is None else lower, upper, bounds_fn)

    def backward(self, value: Any, *inputs: Variable) -> TensorVariable:
        """Map the unbounded `value` to the inner side of the bound."""
        value, bound, sign = self._value_bound_sign(value, inputs)
        return bound + sign * _off(bound, self._map(value))

    def forward(self, value: Any, *inputs: Variable) -> TensorVariable:
        """Map a `value` inside the bound to the real line."""
        value, bound, sign = self._value_bound_sign(value, inputs)
        return self._inverse(_distance(bound, sign * (value - bound)))

    def log_jac_det(self, value: Any, *inputs: Variable) -> TensorVariable:
        """Return the logarithm of the absolute derivative of `backward`."""
        return self._log_slope(_floating(value))

    def _value_bound_sign(
        self, value: Any, inputs: Sequence[Variable]
    ) -> tuple[TensorVariable, TensorVariable, int]:
        value = _floating(value)
        lower, upper = self.bounds(*inputs)
        return (value, *((_like(value, upper), -1) if lower is None else (_like(value, lower), 1)))


class Exp(_OneSided):
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


class Softplus(_OneSided):
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
        return _like(value, self.scale) * pt.softplus(value)

    def _inverse(self, image: TensorVariable) -> TensorVariable:
        x = _normal(image / _like(image, self.scale))
        return x + pt.log(-pt.expm1(-x))

    def _log_slope(self, value: TensorVariable) -> TensorVariable:
        return pt.log(_like(value, self.scale)) - pt.softplus(-value)


class ICLL(_OneSided):
    r"""Integrated complementary log-log map onto the positive numbers.

    .. math:: \theta = \varphi + E_1(e^\varphi) + \gamma, \qquad f'(\varphi) = 1 - e^{-e^\varphi}

    with the exponential integral :math:`E_1` and Euler's constant :math:`\gamma`. Lipschitz
    constant 1. The inverse takes four Newton steps.

    Parameters
    ----------
    lower, upper, bounds_fn
        As in `Exp`.

    References
    ----------
    .. [1] Yokoi, Otsuka, Sato (2019). On Transformations in Stochastic Gradient MCMC.

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
        split = _like(value, np.log(3.0))
        x = pt.exp(pt.minimum(value, split))
        below = pt.zeros_like(x)
        for k in range(26, 0, -1):
            below = x * (_like(x, (-1) ** (k + 1) / (k * factorial(k))) + below)
        x = pt.exp(pt.clip(value, split, self._log_large))
        fraction = x + 61
        for k in range(30, 0, -1):  # exp(x) E1(x) is one over this continued fraction
            fraction = x + (2 * k - 1) - k**2 / fraction
        above = value + _like(value, np.euler_gamma) + pt.exp(-x) / fraction
        return pt.switch(value < split, below, above)

    def _inverse(self, image: TensorVariable) -> TensorVariable:
        small, log_image = image < 1, pt.log(image)
        value = pt.switch(small, log_image + image / 4, image - _like(image, np.euler_gamma))
        for _ in range(4):  # Newton's method on log f below 1, on f above
            f, slope = _normal(self._map(value)), _normal(pt.exp(self._log_slope(value)))
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
        return _off(_like(simplex, 0), simplex)

    def forward(self, value: Any, *inputs: Variable) -> TensorVariable:
        """Map a simplex of K entries in the last axis to K - 1 real coordinates."""
        value = _floating(value)
        log_value = pt.log(_distance(_like(value, 0), value))
        return log_value[..., :-1] - log_value[..., -1, None]

    def log_jac_det(self, value: Any, *inputs: Variable) -> TensorVariable:
        """Return the log determinant of the Jacobian of the first K - 1 entries."""
        return pt.sum(pt.special.log_softmax(self._with_zero(value), axis=-1), axis=-1)

    def _with_zero(self, value: Any) -> TensorVariable:
        value = _floating(value)
        zero = pt.zeros_like(pt.sum(value, axis=-1, keepdims=True))
        return pt.concatenate([value, zero], axis=-1)


def _floating(value: Any) -> TensorVariable:
    """Return `value` as a tensor of floating-point numbers."""
    value = pt.as_tensor_variable(value)
    return value if value.dtype.startswith("float") else value.astype("floatX")


def _like(value: TensorVariable, other: Any) -> TensorVariable:
    """Return `other` as a tensor of the dtype of `value`."""
    return pt.as_tensor_variable(other).astype(value.dtype)


def bounds_of(transform: Transform, inputs: Sequence[Variable]) -> tuple[Any, Any] | None:
    """Return the bounds of one of this module's maps, None for other transforms."""
    return transform.bounds(*inputs) if isinstance(transform, _Bounded) else None


def infinite_elements(bound: Any) -> NDArray[np.bool_]:
    """Return which elements of `bound` are known to be infinite; None is infinite."""
    if bound is None:
        return np.array(True)
    bound = pt.as_tensor_variable(bound)
    if isinstance(bound, Constant):
        return np.asarray(np.isinf(bound.data))
    try:
        return np.asarray(np.isinf(pt.get_underlying_scalar_constant_value(bound)))
    except NotScalarConstantError:
        return np.array(False)


def mixed(bounds: tuple[Any, Any]) -> bool:
    """Return whether some but not all elements of a bound are infinite."""
    return any(infinite_elements(b).any() and not infinite_elements(b).all() for b in bounds)


def _normal(value: TensorVariable) -> TensorVariable:
    """Return `value`, no less than the least normal float: JAX takes what is less for 0."""
    return pt.maximum(value, np.finfo(value.dtype).tiny)


def _spacing(bound: TensorVariable) -> TensorVariable:
    """Return the least distance that moves a float off `bound` (off 0, the least normal float).

    The factor is that of Rump et al. (2009), Computing predecessor and successor in rounding to
    nearest.
    """
    info = np.finfo(bound.dtype)
    factor = _like(bound, 0.5 * float(info.eps) * (1 + float(info.eps)))
    return _normal(pt.abs(bound) * factor)


def _off(bound: TensorVariable, distance: TensorVariable) -> TensorVariable:
    """Return `distance`, raised where ``bound + distance`` would round to `bound`.

    A constant is added, so that the gradient is that of `distance` everywhere.
    """
    spacing = _spacing(bound)
    return distance + pt.switch(distance < spacing, spacing, 0)


def _distance(bound: TensorVariable, difference: TensorVariable) -> TensorVariable:
    """Return `difference`, no less than one float off `bound`; NaN where it is negative."""
    off = pt.maximum(difference, _spacing(bound))
    return pt.switch(difference >= 0, off, _like(difference, np.nan))
