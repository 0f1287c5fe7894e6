"""Where a variable can be: the kind of its support and its bounds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor.tensor as pt

from pymc.distributions.custom import CustomDistRV, CustomSymbolicDistRV
from pymc.distributions.transforms import (
    CholeskyCorrTransform,
    CholeskyCovPacked,
    CholeskyCovTransform,
    LogExpM1,
    Ordered,
    ZeroSumTransform,
    _default_transform,
)
from pymc.logprob.transforms import (
    CircularTransform,
    IntervalTransform,
    LogOddsTransform,
    LogTransform,
    SimplexTransform,
    Transform,
)
from pymc.model import Model
from pytensor.graph.basic import Constant
from pytensor.tensor.variable import TensorVariable

from pymc_sgmcmc.transforms import EntropicMirror
from pymc_sgmcmc.transforms.bounded import bounds_of, infinite_elements

__all__ = ["kind_of_support", "narrower"]

_KINDS: list[tuple[tuple[type, ...], str]] = [
    ((CircularTransform,), "circle"),
    ((SimplexTransform, EntropicMirror), "simplex"),
    ((Ordered,), "ordered"),
    ((CholeskyCovPacked, CholeskyCovTransform, CholeskyCorrTransform), "cholesky"),
    ((ZeroSumTransform,), "zero-sum"),
]


def kind_of_support(
    transform: Transform | None, rv: TensorVariable
) -> tuple[str, Any | None, Any | None]:
    """Return the kind of a variable's support, and its lower and upper bound or None.

    Kinds are "real", "half-line", "interval", "simplex", "ordered", "circle", "cholesky",
    "zero-sum" and "other"; a ``transform`` of None stands for the distribution's default.
    """
    if transform is None:
        # A bounded variable can be declared with default_transform=None
        transform = _default_transform(rv.owner.op, rv)
    if transform is None:
        return "real", None, None
    for types, kind in _KINDS:
        if isinstance(transform, types):
            return kind, None, None
    if isinstance(transform, LogTransform | LogExpM1):
        return "half-line", 0.0, None
    if isinstance(transform, LogOddsTransform):
        return "interval", 0.0, 1.0
    found = bounds_of(transform, rv.owner.inputs)
    if found is None and isinstance(transform, IntervalTransform):
        found = transform.args_fn(*rv.owner.inputs)
    if found is None:
        return "other", None, None
    lower, upper = (None if infinite_elements(bound).all() else bound for bound in found)
    count = (lower is not None) + (upper is not None)
    return ("real", "half-line", "interval")[count], lower, upper


def narrower(transform: Transform, model: Model, rv: TensorVariable) -> str | None:
    """Return how a map leaves out part of a variable's support, or None.

    It is None for the user's own distributions and for maps of unknown kind.
    """
    if isinstance(rv.owner.op, CustomDistRV | CustomSymbolicDistRV):
        return None
    kind, *bounds = kind_of_support(transform, rv)
    own, *least = kind_of_support(model.rvs_to_transforms[rv], rv)
    if "other" in (kind, own):
        return None
    on_line = ("real", "half-line", "interval")
    if kind != own and not {kind, own} <= set(on_line):
        return f"for the kind {kind}, and '{rv.name}' is of the kind {own}"
    for side, sign, bound, of_own in zip(("above", "below"), (1, -1), bounds, least, strict=True):
        if bound is None or not _beyond(bound, of_own, sign):
            continue
        support = "unbounded there" if of_own is None else f"{side} {of_own}"
        return f"to {side} {bound}, and '{rv.name}' is {support}"
    return None


def _beyond(bound: Any, of_own: Any, sign: int) -> bool:
    """Whether a bound lies inside of a variable's own one, where both are numbers."""
    if of_own is None:
        return True
    numbers: list[np.ndarray] = []
    for x in (bound, of_own):
        constant = pt.as_tensor_variable(x)
        if not isinstance(constant, Constant):
            return False
        numbers.append(np.asarray(constant.data, dtype=np.float64))
    inner, outer = numbers
    return bool(np.any(sign * (inner - outer) > 1e-6 * np.abs(outer)))
