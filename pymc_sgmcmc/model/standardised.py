"""Which standard variables a model uses only as μ + σ z, the non-centred writing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytensor.scalar as ps
import pytensor.tensor as pt

from pymc.model import Model
from pytensor.compile.ops import ViewOp
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.traversal import ancestors
from pytensor.tensor.basic import Alloc
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.extra_ops import CumOp
from pytensor.tensor.math import Dot, Prod, Sum
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.shape import Reshape
from pytensor.tensor.subtensor import AdvancedIncSubtensor, AdvancedSubtensor, Subtensor
from pytensor.tensor.variable import TensorVariable

from pymc_sgmcmc.centring import InformedResidual, VectorRecentring, Weighted
from pymc_sgmcmc.centring.vectors import is_product, transposed
from pymc_sgmcmc.model.hierarchy import LOCATION_SCALE, constant_of, depends_on
from pymc_sgmcmc.model.support import kind_of_support

__all__ = ["Parents", "is_standard", "standardised"]

# What takes elements of a variable, so that a scale common to all of them may come before or after
_SELECTING = (AdvancedSubtensor, Subtensor, DimShuffle, Reshape)
# Whose results are positive where the first argument is, as in the spectral density of a process
_KEEPS_THE_SIGN = (*_SELECTING, Alloc, Prod, Sum)
_PRODUCTS = (ps.Mul, ps.TrueDiv)
# Functions of any number, and of positive numbers, that are positive; powers are of any exponent
_POSITIVE = (ps.Exp, ps.Softplus, ps.Sigmoid, ps.Cosh)
_POSITIVE_OF_POSITIVE = (
    ps.Add, ps.Mul, ps.TrueDiv, ps.Sqrt, ps.Sqr, ps.Gamma, ps.Identity, ps.Cast,
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Parents:
    """Location μ and scale σ, or L of vectors, of a standard variable: graphs of others."""

    location: Any
    scale: Any
    vectors: bool = False

    @property
    def graphs(self) -> list[Any]:
        """Both."""
        return [self.location, self.scale]

    def map(self) -> Weighted:
        """Return the map between the writings, without its weight."""
        kind = VectorRecentring if self.vectors else InformedResidual
        return kind(self.location, self.scale)


def standardised(model: Model, sampled: Collection[Variable]) -> dict[TensorVariable, Parents]:
    """Find the standard variables that enter the density only by μ + σ z.

    Parameters
    ----------
    model : pymc.Model
        The model.
    sampled : collection of Variable
        The random variables that the step samples; μ or σ must depend on one of them.

    Returns
    -------
    dict
        Location and scale of each of them. The location is 0 where z is only ever multiplied, or
        where elements of it are taken first.
    """
    candidates = [
        rv
        for rv in model.free_RVs
        if rv in sampled and model.rvs_to_transforms[rv] is None and is_standard(rv)
    ]
    if not candidates:
        return {}
    clients = _clients(model)
    known = {*model.free_RVs}
    found: dict[TensorVariable, Parents] = {}
    for rv in candidates:
        parents = _parents(rv, clients)
        if parents is None:
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


def _clients(model: Model) -> dict[Variable, list[Apply]]:
    """Return where each variable enters what the density is made of."""
    roots = [x for rv in model.basic_RVs for x in rv.owner.inputs] + list(model.potentials)
    clients: dict[Variable, list[Apply]] = defaultdict(list)
    nodes = {x.owner: None for x in ancestors([*roots, *model.basic_RVs]) if x.owner is not None}
    for node in nodes:
        for x in dict.fromkeys(node.inputs):
            clients[x].append(node)
    for potential in model.potentials:
        # A potential is used, whatever else uses it
        clients[potential].append(potential.owner)
    return clients


def _parents(rv: TensorVariable, clients: dict[Variable, list[Apply]]) -> Parents | None:
    vectors = _of_vectors(rv, clients)
    if vectors is not None:
        return vectors
    ends = list(_ends(rv, clients, whole=True))
    products = [end for end in ends if end is not None]
    if not products or len(products) < len(ends):
        return None
    product, scale, _ = products[0]
    zero: Any = pt.zeros((), dtype=rv.dtype)
    whole = all(is_whole for *_, is_whole in products)
    common = all(other is scale for _, other, _ in products)
    # Of the steps of a walk the data's curvature is no information on each of them
    walks = any(isinstance(node.op, CumOp) for end, *_ in products for node in clients[end])
    if not common or walks or (not whole and not all(scale.type.broadcastable)):
        return None
    if not whole:
        return Parents(zero, scale.squeeze() if scale.ndim else scale)
    return Parents(zero, scale) if len(products) > 1 else _summed(product, scale, zero, clients)


def _summed(
    product: Any,
    scale: Any,
    location: Any,
    clients: dict[Variable, list[Apply]],
    *,
    vectors: bool = False,
) -> Parents:
    """Follow a product to further factors, as in z * tau * local, and then to what is added."""
    while (step := _only_client(product, clients)) is not None:
        node, arguments = step
        if not _as_large(product, node):
            break
        if isinstance(_scalar_op(node), ps.Add):
            location = arguments[0] if len(arguments) == 1 else pt.add(*arguments)
            break
        factor = _factor(node, product)
        if factor is None or vectors:
            break
        scale, product = scale * factor, node.outputs[0]
    return Parents(location, scale)


def _of_vectors(rv: TensorVariable, clients: dict[Variable, list[Apply]]) -> Parents | None:
    """Return what z enters by z Lᵀ, or by Lz where z is a vector."""
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
    parents = _summed(product, factor, pt.zeros((), dtype=rv.dtype), clients, vectors=True)
    return replace(parents, vectors=True)


def _reorders(node: Apply, order: tuple[Any, ...]) -> bool:
    return isinstance(node.op, DimShuffle) and tuple(node.op.new_order) == order


def _ends(
    x: Variable, clients: dict[Variable, list[Apply]], *, whole: bool
) -> Iterator[tuple[Any, Any, bool] | None]:
    """Follow a variable to the products that it enters; None for each other use."""
    for node in clients[x]:
        if _is_copy(node):
            yield from _ends(node.outputs[0], clients, whole=whole)
        elif isinstance(node.op, _SELECTING) and node.inputs[0] is x and x not in node.inputs[1:]:
            yield from _ends(node.outputs[0], clients, whole=False)
        elif isinstance(_scalar_op(node), _PRODUCTS):
            factor = _factor(node, x)
            if factor is None or (whole and not _as_large(x, node)):
                yield None
            else:
                yield node.outputs[0], factor, whole
        else:
            yield None


def _is_copy(node: Apply) -> bool:
    """Whether a node names a variable, as pm.Deterministic does."""
    return isinstance(node.op, ViewOp) or isinstance(_scalar_op(node), ps.Identity)


def _scalar_op(node: Apply) -> Any:
    """Return what an elementwise operation does to each element, None for others."""
    return node.op.scalar_op if isinstance(node.op, Elemwise) else None


def _factor(node: Apply, x: Variable) -> Any:
    """Return by what a product multiplies x, None where it does not."""
    if node.inputs.count(x) != 1:
        return None
    others: list[Any] = [y for y in node.inputs if y is not x]
    if isinstance(_scalar_op(node), ps.Mul):
        return others[0] if len(others) == 1 else pt.mul(*others)
    return pt.true_div(1.0, others[0]) if node.inputs[0] is x else None


def _only_client(x: Variable, clients: dict[Variable, list[Apply]]) -> tuple[Apply, Any] | None:
    """Return the one sum or product that x enters, and its other arguments."""
    nodes = clients[x]
    while len(nodes) == 1 and _is_copy(nodes[0]):
        x = nodes[0].outputs[0]
        nodes = clients[x]
    fits = (
        len(nodes) == 1
        and isinstance(_scalar_op(nodes[0]), (ps.Add, *_PRODUCTS))
        and nodes[0].inputs.count(x) == 1
    )
    return (nodes[0], [y for y in nodes[0].inputs if y is not x]) if fits else None


def _as_large(x: Variable, node: Apply) -> bool:
    """Whether an elementwise result has the shape of one argument."""
    mine: Any = x.type
    its: Any = node.outputs[0].type
    return bool(mine.broadcastable == its.broadcastable)


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
    elif isinstance(node.op, _KEEPS_THE_SIGN) or _is_copy(node):
        found = _is_positive(node.inputs[0], known)
    else:
        of_each = [_is_positive(argument, known) for argument in node.inputs]
        op = _scalar_op(node)
        of_positive = isinstance(op, _POSITIVE_OF_POSITIVE) or isinstance(node.op, Dot)
        found = (
            isinstance(op, _POSITIVE)
            or (isinstance(op, ps.Pow) and of_each[0])
            or (of_positive and all(of_each))
        )
    return found


def _is_triangular(x: Any, known: Collection[Variable]) -> bool:
    """Whether a graph is a Cholesky factor as LKJCholeskyCov gives it.

    That of a Gaussian process is not looked for: each update would solve with it.
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
    """Whether graphs have random numbers, or batches of rows, beside the model's variables."""
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
    """Whether graphs depend on rv, by way of the parents found so far as well."""
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
