"""Floats, and numbers that stay off a bound, or off 0, by at least one of them."""

from typing import Any

import numpy as np
import pytensor.tensor as pt

from pytensor.tensor.variable import TensorVariable


def like(value: TensorVariable, other: Any) -> TensorVariable:
    """Return `other` as a tensor of the dtype of `value`."""
    return pt.as_tensor_variable(other).astype(value.dtype)


def as_float(value: Any) -> Any:
    """Return a tensor of floats: the square of 20, an 8-bit integer in a graph, is -112."""
    tensor = pt.as_tensor(value)
    return tensor if tensor.dtype.startswith("float") else tensor.astype("floatX")


def normal(value: TensorVariable) -> TensorVariable:
    """Return `value`, no less than the least normal float: JAX takes what is less for 0."""
    return pt.maximum(value, np.finfo(value.dtype).tiny)


def _spacing(bound: TensorVariable) -> TensorVariable:
    """Return the least distance that moves a float off `bound` (off 0, the least normal float).

    The factor is that of Rump et al. (2009), Computing predecessor and successor in rounding to
    nearest.
    """
    info = np.finfo(bound.dtype)
    factor = like(bound, 0.5 * float(info.eps) * (1 + float(info.eps)))
    return normal(pt.abs(bound) * factor)


def off(bound: TensorVariable, distance: TensorVariable) -> TensorVariable:
    """Return `distance`, raised where ``bound + distance`` would round to `bound`.

    A constant is added, so that the gradient is that of `distance` everywhere.
    """
    spacing = _spacing(bound)
    return distance + pt.switch(distance < spacing, spacing, 0)


def distance_from(bound: TensorVariable, difference: TensorVariable) -> TensorVariable:
    """Return `difference`, no less than one float off `bound`; NaN where it is negative."""
    kept = pt.maximum(difference, _spacing(bound))
    return pt.switch(difference >= 0, kept, like(difference, np.nan))
