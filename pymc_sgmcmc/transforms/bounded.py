"""Bases of the elementwise maps, which keep off a bound by at least one floating-point number."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
import pytensor.tensor as pt

from numpy.typing import NDArray
from pymc.logprob.transforms import Transform
from pytensor.graph.basic import Constant, Variable
from pytensor.tensor.exceptions import NotScalarConstantError
from pytensor.tensor.variable import TensorVariable

from pymc_sgmcmc.checks import a_function
from pymc_sgmcmc.floats import as_float, distance_from, like, normal, off

type BoundsFn = Callable[..., tuple[Any, Any]]


class Bounded(Transform):
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


class TwoSided(Bounded):
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
        return pt.switch(value < 0, lower + off(lower, distance), upper - off(upper, distance))

    def forward(self, value: Any, *inputs: Variable) -> TensorVariable:
        """Map a `value` inside the interval to the real line."""
        value, lower, upper = self._value_and_bounds(value, inputs)
        below, above, width = value - lower, upper - value, upper - lower
        image = pt.switch(
            below < above, distance_from(lower, below) / width, distance_from(upper, above) / width
        )  # Not switch(...) / width: PyTensor splits the logarithm of that, and digits are lost.
        minus_abs = self._inverse(normal(image))
        return pt.switch(below < above, minus_abs, -minus_abs)

    def log_jac_det(self, value: Any, *inputs: Variable) -> TensorVariable:
        """Return the logarithm of the derivative of `backward`."""
        value, lower, upper = self._value_and_bounds(value, inputs)
        return pt.log(upper - lower) + self._log_slope(value)

    def _value_and_bounds(
        self, value: Any, inputs: Sequence[Variable]
    ) -> tuple[TensorVariable, TensorVariable, TensorVariable]:
        value = as_float(value)
        lower, upper = self.bounds(*inputs)
        return value, like(value, lower), like(value, upper)


class OneSided(Bounded):
    r"""Map to above a lower bound, :math:`a + F(\varphi)`, or below an upper one, :math:`b - F`."""

    n_bounds = 1

    def __init__(
        self, *, lower: Any = None, upper: Any = None, bounds_fn: BoundsFn | None = None
    ) -> None:
        super().__init__(0.0 if lower is None and upper is None else lower, upper, bounds_fn)

    def backward(self, value: Any, *inputs: Variable) -> TensorVariable:
        """Map the unbounded `value` to the inner side of the bound."""
        value, bound, sign = self._value_bound_sign(value, inputs)
        return bound + sign * off(bound, self._map(value))

    def forward(self, value: Any, *inputs: Variable) -> TensorVariable:
        """Map a `value` inside the bound to the real line."""
        value, bound, sign = self._value_bound_sign(value, inputs)
        return self._inverse(distance_from(bound, sign * (value - bound)))

    def log_jac_det(self, value: Any, *inputs: Variable) -> TensorVariable:
        """Return the logarithm of the absolute derivative of `backward`."""
        return self._log_slope(as_float(value))

    def _value_bound_sign(
        self, value: Any, inputs: Sequence[Variable]
    ) -> tuple[TensorVariable, TensorVariable, int]:
        value = as_float(value)
        lower, upper = self.bounds(*inputs)
        return (value, *((like(value, upper), -1) if lower is None else (like(value, lower), 1)))


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
