"""Which variables a model uses only as l + cz or, centred, beside others with as many elements."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

import pytensor.scalar as ps
import pytensor.tensor as pt

from pymc.model import Model
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.traversal import ancestors
from pytensor.tensor.basic import Alloc
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.extra_ops import CumOp
from pytensor.tensor.math import Dot, Prod, Sum
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.subtensor import AdvancedIncSubtensor
from pytensor.tensor.variable import TensorVariable

from pymc_sgmcmc.centring import InformedCentring, InformedResidual, VectorRecentring, Weighted
from pymc_sgmcmc.centring.vectors import is_product, transposed
from pymc_sgmcmc.model.hierarchy import LOCATION_SCALE, constant_of, depends_on
from pymc_sgmcmc.model.support import kind_of_support
from pymc_sgmcmc.model.uses import (
    SELECTING,
    Clients,
    added_to,
    as_large,
    clients_of,
    common_factor,
    is_copy,
    scalar_op,
    use_of,
)

__all__ = ["Parents", "is_standard", "standardised"]

# Operations with positive results for a positive first argument, as in a process's spectral density
_KEEPS_THE_SIGN = (*SELECTING, Alloc, Prod, Sum)
# Functions of any number, and of positive numbers, that are positive; powers are of any exponent
_POSITIVE = (ps.Exp, ps.Softplus, ps.Sigmoid, ps.Cosh)
_POSITIVE_OF_POSITIVE = (
    ps.Add, ps.Mul, ps.TrueDiv, ps.Sqrt, ps.Sqr, ps.Gamma, ps.Identity, ps.Cast,
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Parents:
    """Location μ and scale σ, or L of vectors, of a standard variable: graphs of others.

    For a centred variable the location is the term that the model adds to it, without a scale.
    """

    location: Any
    scale: Any
    vectors: bool = False

    @property
    def graphs(self) -> list[Any]:
        """The graphs of location and scale."""
        return [x for x in (self.location, self.scale) if x is not None]

    def map(self) -> Weighted:
        """Return the map between the parametrizations, without its weight."""
        if self.scale is None:
            return InformedCentring(beside=self.location)
        kind = VectorRecentring if self.vectors else InformedResidual
        return kind(self.location, self.scale)


def standardised(
    model: Model, sampled: Collection[Variable], fields: Collection[TensorVariable] = ()
) -> dict[TensorVariable, Parents]:
    """Find standard variables that enter the density only by μ + σz, and effects of areas.

    μ or σ depends on a sampled variable. μ is 0 where z is only multiplied, or where elements of it
    are taken first; of an effect beside one of ``fields`` the data determine only the sum.
    """
    candidates = [
        rv
        for rv in model.free_RVs
        if rv in sampled
        and model.rvs_to_transforms[rv] is None
        and isinstance(rv.owner.op, LOCATION_SCALE)
        and (is_standard(rv) or fields)
    ]
    if not candidates:
        return {}
    clients = clients_of(model)
    known = {*model.free_RVs}
    found: dict[TensorVariable, Parents] = {}
    for rv in candidates:
        parents = _parents(rv, clients) if is_standard(rv) else None
        if parents is None:
            beside = use_of(rv, clients)
            usable = beside.scale is None and not _others_random([beside.location], known)
            if usable and depends_on([beside.location], fields):
                found[rv] = Parents(beside.location, None)
            continue
        proper = _is_triangular if parents.vectors else _is_positive
        for tried in (parents, replace(parents, location=pt.zeros((), dtype=rv.dtype))):
            if (
                depends_on(tried.graphs, sampled)
                and proper(tried.scale, known)
                and not _others_random(tried.graphs, known)
                and not _reaches(tried.graphs, rv, found)
            ):
                found[rv] = tried
                break
    return found


def is_standard(rv: TensorVariable) -> bool:
    """Return whether the prior is that of a location-scale family at 0 and 1."""
    node = rv.owner
    if node is None or not isinstance(node.op, LOCATION_SCALE):
        return False
    values = [constant_of(x) for x in node.inputs[-2:]]
    return values == [0.0, 1.0]


def _parents(rv: TensorVariable, clients: Clients) -> Parents | None:
    vectors = _of_vectors(rv, clients)
    if vectors is not None:
        return vectors
    use = use_of(rv, clients)
    location, scale, ends = use.location, use.scale, [use.end]
    if scale is None:
        found = common_factor(rv, clients)
        if found is None:
            return None
        scale, ends = found
    # The data's curvature is no information on single steps of a walk
    walks = any(isinstance(node.op, CumOp) for end in ends for node in clients[end])
    return None if walks else Parents(location, scale)


def _of_vectors(rv: TensorVariable, clients: Clients) -> Parents | None:
    """Return the operation that z enters by z Lᵀ, or by Lz where z is a vector."""
    x: Variable = rv
    nodes = clients[x]
    column = rv.ndim == 1 and len(nodes) == 1 and _reorders(nodes[0], (0, "x"))
    if column:
        x = nodes[0].outputs[0]
        nodes = clients[x]
    if len(nodes) != 1 or not is_product(nodes[0]):
        return None
    left, right = nodes[0].inputs
    product: Any = nodes[0].outputs[0]
    factor: Any = None
    if column and right is x:
        after = clients[product]
        if len(after) == 1 and _reorders(after[0], (0,)):
            factor, product = left, after[0].outputs[0]
    elif left is x:
        factor = transposed(right)
    if factor is None:
        return None
    location: Any = pt.zeros((), dtype=rv.dtype)
    end: Variable = product
    while len(nodes := clients[end]) == 1 and is_copy(nodes[0]):
        end = nodes[0].outputs[0]
    if len(nodes) == 1 and isinstance(scalar_op(nodes[0]), ps.Add) and as_large(end, nodes[0]):
        location = added_to(end, nodes[0])
    return Parents(location, factor, vectors=True)


def _reorders(node: Apply, order: tuple[Any, ...]) -> bool:
    return isinstance(node.op, DimShuffle) and tuple(node.op.new_order) == order


def _is_positive(x: Any, known: Collection[Variable]) -> bool:
    """Whether a graph shows that it is positive."""
    node = x.owner
    if isinstance(x, Constant):
        found = bool((x.data > 0).all())
    elif node is None:
        found = False
    elif x in known:
        kind, lower, _ = kind_of_support(None, x)
        bound = None if lower is None else constant_of(pt.as_tensor(lower))
        found = kind in ("half-line", "interval") and bound is not None and bound >= 0
    elif isinstance(scalar_op(node), ps.Sub):
        found = _is_below(node.inputs[1], constant_of(node.inputs[0]), known)
    elif isinstance(node.op, _KEEPS_THE_SIGN) or is_copy(node):
        found = _is_positive(node.inputs[0], known)
    else:
        of_each = [_is_positive(argument, known) for argument in node.inputs]
        op = scalar_op(node)
        of_positive = isinstance(op, _POSITIVE_OF_POSITIVE) or isinstance(node.op, Dot)
        found = (
            isinstance(op, _POSITIVE)
            or (isinstance(op, ps.Pow) and of_each[0])
            or (of_positive and all(of_each))
        )
    return found


def _is_below(x: Any, bound: float | None, known: Collection[Variable]) -> bool:
    """Whether a variable has an upper bound below a number, as a share is below 1."""
    while x.owner is not None and isinstance(x.owner.op, DimShuffle) and x not in known:
        x = x.owner.inputs[0]
    if bound is None or x not in known:
        return False
    kind, _, upper = kind_of_support(None, x)
    highest = None if upper is None else constant_of(pt.as_tensor(upper))
    return kind == "interval" and highest is not None and highest <= bound


def _is_triangular(x: Any, known: Collection[Variable]) -> bool:
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


def _others_random(graphs: list[TensorVariable], known: Collection[Variable]) -> bool:
    """Whether graphs have random numbers, or batches of rows, besides the model's variables."""
    pending: list[Any] = list(graphs)
    seen: set[Any] = set()
    while pending:
        x = pending.pop()
        if x in seen or x in known or x.owner is None:
            continue
        seen.add(x)
        if not hasattr(x.type, "dtype") or isinstance(x.owner.op, RandomVariable):
            return True
        pending += x.owner.inputs
    return False


def _reaches(
    graphs: list[TensorVariable], rv: TensorVariable, found: dict[TensorVariable, Parents]
) -> bool:
    """Whether graphs depend on rv, also through the parents found so far."""
    pending: list[Any] = list(graphs)
    seen: set[Any] = set()
    while pending:
        below: set[Any] = set(ancestors([pending.pop()]))
        if rv in below:
            return True
        for x in (below & found.keys()) - seen:
            seen.add(x)
            pending += found[x].graphs
    return False
