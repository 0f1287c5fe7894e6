"""Where a variable can be, its support and bounds, and where graphs show that they are positive."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
import pytensor.scalar as ps
import pytensor.tensor as pt

from pymc.distributions.custom import CustomDistRV, CustomSymbolicDistRV
from pymc.distributions.distribution import SymbolicRandomVariable
from pymc.distributions.transforms import (
    CholeskyCorrTransform,
    CholeskyCovPacked,
    CholeskyCovTransform,
    LogExpM1,
    Ordered,
    ZeroSumTransform,
    _default_transform,
    log,
    logodds,
)
from pymc.distributions.truncated import TruncatedRV
from pymc.logprob.transforms import (
    CircularTransform,
    IntervalTransform,
    LogOddsTransform,
    LogTransform,
    SimplexTransform,
    Transform,
)
from pymc.model import Model
from pytensor.compile.ops import ViewOp
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.traversal import ancestors
from pytensor.tensor.basic import Alloc
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.math import Dot, Prod, Sum
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.shape import Reshape
from pytensor.tensor.subtensor import AdvancedIncSubtensor, AdvancedSubtensor, Subtensor
from pytensor.tensor.variable import TensorVariable

from pymc_sgmcmc.backends.interpreting import INTERPRETER
from pymc_sgmcmc.transforms import EntropicMirror
from pymc_sgmcmc.transforms.bounded import Bounded, infinite_elements

# Operations that take elements of a variable: a common scale may come before or after them
SELECTING = (AdvancedSubtensor, Subtensor, DimShuffle, Reshape)

# Operations with positive results for a positive first argument, as in a process's spectral density
_KEEPS_THE_SIGN = (*SELECTING, Alloc, Prod, Sum)
# Functions of any number, and of positive numbers, that are positive; powers are of any exponent
_POSITIVE = (ps.Exp, ps.Softplus, ps.Sigmoid, ps.Cosh)
_POSITIVE_OF_POSITIVE = (
    ps.Add, ps.Mul, ps.TrueDiv, ps.Sqrt, ps.Sqr, ps.Gamma, ps.Identity, ps.Cast,
)  # fmt: skip

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
    transform = transform or usual_transform(rv)
    if transform is None:
        return "real", None, None
    transform = within_truncated(transform, rv)
    for types, kind in _KINDS:
        if isinstance(transform, types):
            return kind, None, None
    if isinstance(transform, LogTransform | LogExpM1):
        return "half-line", 0.0, None
    if isinstance(transform, LogOddsTransform):
        return "interval", 0.0, 1.0
    if isinstance(transform, Bounded):
        bounds = transform.bounds(*rv.owner.inputs)
    elif isinstance(transform, IntervalTransform):
        bounds = transform.args_fn(*rv.owner.inputs)
    else:
        return "other", None, None
    lower, upper = (None if infinite_elements(bound).all() else bound for bound in bounds)
    count = (lower is not None) + (upper is not None)
    return ("real", "half-line", "interval")[count], lower, upper


def usual_transform(rv: TensorVariable) -> Transform | None:
    """Return the transform that a variable's distribution has if the model names none.

    PyMC has none for a distribution that is written as a graph, such as its LogitNormal.
    """
    node = rv.owner
    transform = _default_transform(node.op, rv)
    if transform is not None or not isinstance(node.op, CustomSymbolicDistRV):
        return transform
    drawn = node.op.inner_outputs[node.outputs.index(rv)]
    if drawn.owner is not None and isinstance(scalar_op(drawn.owner), ps.Sigmoid):
        return logodds
    random = RandomVariable, SymbolicRandomVariable
    known = [x for x in ancestors([drawn]) if x.owner and isinstance(x.owner.op, random)]
    return log if is_positive(drawn, known) else None


def within_truncated(transform: Transform, rv: TensorVariable) -> Transform:
    """Return the interval of a ``pm.Truncated`` variable within the support of what is truncated.

    PyMC's knows only where it is cut off: a gamma variable below 3 might be negative.
    """
    op = rv.owner.op
    if not isinstance(op, TruncatedRV) or not isinstance(transform, IntervalTransform):
        return transform

    def bounds(*inputs: Variable) -> tuple[Any, Any]:
        whole = op.base_rv_op.make_node(*inputs[:-2]).default_output()
        _, *support = kind_of_support(None, whole)
        both = zip(transform.args_fn(*inputs), support, (pt.maximum, pt.minimum), strict=True)
        lower, upper = (_inner(bound, own, nearer) for bound, own, nearer in both)
        return lower, upper

    return IntervalTransform(bounds)


def _inner(bound: Any, own: Any, nearer: Any) -> Any:
    """Return the inner one of two bounds, each of which may be infinite or None."""
    if own is None or infinite_elements(own).all():
        return bound
    if infinite_elements(bound).all():
        return own
    inner = nearer(bound, own)
    constant = all(isinstance(x, Constant) for x in inner.owner.inputs)
    return pt.constant(inner.eval(mode=INTERPRETER)) if constant else inner


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


# ---------------------------------------------------------------------- what graphs show


def constant_of(x: Variable) -> float | None:
    """Return the common value of a constant's elements, or None."""
    values = values_of(x)
    return float(values[0]) if values.size and (values == values[0]).all() else None


def values_of(x: Variable) -> np.ndarray:
    """Return the elements of a constant as a vector, empty for other graphs."""
    while x.owner is not None and isinstance(x.owner.op, DimShuffle):
        x = x.owner.inputs[0]
    return np.ravel(x.data) if isinstance(x, Constant) else np.empty(0)


def scalar_op(node: Apply) -> Any:
    """Return the scalar operation of an elementwise operation, else None."""
    return node.op.scalar_op if isinstance(node.op, Elemwise) else None


def is_copy(node: Apply) -> bool:
    """Whether a node names a variable, as pm.Deterministic does."""
    return isinstance(node.op, ViewOp) or isinstance(scalar_op(node), ps.Identity)


def is_positive(x: Any, known: Collection[Variable]) -> bool:
    """Whether a graph of the variables ``known`` shows that it is positive."""
    node = x.owner
    if node is None:
        return isinstance(x, Constant) and bool((x.data > 0).all())
    if x in known:
        kind, lower, _ = kind_of_support(None, x)
        bound = None if lower is None else constant_of(pt.as_tensor(lower))
        return kind in ("half-line", "interval") and bound is not None and bound >= 0
    op = scalar_op(node)
    if isinstance(op, ps.Sub):
        return _is_below(node.inputs[1], constant_of(node.inputs[0]), known)
    if isinstance(node.op, _KEEPS_THE_SIGN) or is_copy(node) or isinstance(op, ps.Pow):
        return is_positive(node.inputs[0], known)
    if isinstance(op, _POSITIVE_OF_POSITIVE) or isinstance(node.op, Dot):
        return all(is_positive(argument, known) for argument in node.inputs)
    return isinstance(op, _POSITIVE)


def _is_below(x: Any, bound: float | None, known: Collection[Variable]) -> bool:
    """Whether a variable has an upper bound below a number, as a share is below 1."""
    while x.owner is not None and isinstance(x.owner.op, DimShuffle) and x not in known:
        x = x.owner.inputs[0]
    if bound is None or x not in known:
        return False
    kind, _, upper = kind_of_support(None, x)
    highest = None if upper is None else constant_of(pt.as_tensor(upper))
    return kind == "interval" and highest is not None and highest <= bound


def is_triangular(x: Any, known: Collection[Variable]) -> bool:
    """Whether a graph is a Cholesky factor as LKJCholeskyCov gives it.

    A Gaussian process's is left out: each update would solve with it.
    """
    node = x.owner
    if node is None or not isinstance(node.op, AdvancedIncSubtensor) or len(node.inputs) != 4:
        return False
    onto, packed, rows, columns = node.inputs
    zeros = onto.owner is not None and all(constant_of(z) == 0 for z in onto.owner.inputs[:1])
    constant = isinstance(rows, Constant) and isinstance(columns, Constant)
    below = constant and bool((rows.data >= columns.data).all())
    return zeros and below and packed in known and kind_of_support(None, packed)[0] == "cholesky"
