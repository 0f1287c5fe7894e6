"""Where a variable can be: the kind of its support and its bounds."""

from __future__ import annotations

from typing import Any

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
from pytensor.tensor.variable import TensorVariable

from pymc_sgmcmc.transforms import EntropicMirror, bounds_of, infinite_elements

__all__ = ["kind_of_support"]

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
    """Return the kind of a variable's support and its bounds, from the transform of the model.

    Parameters
    ----------
    transform : Transform or None
        ``model.rvs_to_transforms[rv]``; where it is None, that which the distribution would have.
    rv : TensorVariable
        The variable; its inputs can be the bounds.

    Returns
    -------
    kind : str
        "real", "half-line", "interval", "simplex", "ordered", "circle", "cholesky", "zero-sum"
        or "other".
    lower, upper : tensor_like or None
        Graphs of the variable's inputs; None where there is no bound.
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
