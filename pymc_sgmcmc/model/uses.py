"""By what a model multiplies a variable, and what it adds to that."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytensor.scalar as ps
import pytensor.tensor as pt

from pymc.model import Model
from pytensor.compile.ops import ViewOp
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.traversal import ancestors
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.shape import Reshape
from pytensor.tensor.subtensor import AdvancedSubtensor, Subtensor

__all__ = [
    "SELECTING",
    "Clients",
    "Use",
    "added_to",
    "as_large",
    "clients_of",
    "common_factor",
    "is_copy",
    "scalar_op",
    "use_of",
]

# Operations that take elements of a variable: a common scale may come before or after them
SELECTING = (AdvancedSubtensor, Subtensor, DimShuffle, Reshape)
_PRODUCTS = (ps.Mul, ps.TrueDiv)

Clients = dict[Variable, list[Apply]]


@dataclass(frozen=True, eq=False)
class Use:
    """A model's use of x by l + cx alone."""

    location: Any  # l; under an index of x, only the part that shares that index
    scale: Any  # c, None where nothing multiplies x
    end: Variable  # l + cx, which the model then uses otherwise


def clients_of(model: Model) -> Clients:
    """Return the operations in which each variable enters the density."""
    roots = [x for rv in model.basic_RVs for x in rv.owner.inputs] + list(model.potentials)
    clients: Clients = defaultdict(list)
    nodes = {x.owner: None for x in ancestors([*roots, *model.basic_RVs]) if x.owner is not None}
    for node in nodes:
        for x in dict.fromkeys(node.inputs):
            clients[x].append(node)
    for potential in model.potentials:
        # A potential counts as used, whatever else uses it
        clients[potential].append(potential.owner)
    return clients


def use_of(rv: Any, clients: Clients) -> Use:
    """Return a variable's use, followed through products and sums while each has one use."""
    location: Any = pt.zeros((), dtype=rv.dtype)
    scale: Any = None
    x: Any = rv
    whole, index = True, None
    while len(nodes := clients[x]) == 1 and nodes[0].inputs.count(x) == 1:
        [node] = nodes
        if is_copy(node):
            pass
        elif isinstance(node.op, SELECTING) and node.inputs[0] is x:
            known = whole and isinstance(node.op, AdvancedSubtensor)
            whole, index = False, node if known else None
        elif not as_large(x, node):
            break
        elif isinstance(scalar_op(node), ps.Add):
            if whole:
                location = location + added_to(x, node)
            elif index is not None:
                beside = [_of_same(y, index, rv) for y in node.inputs if y is not x]
                location = pt.add(location, *[y for y in beside if y is not None])
        elif (factor := _factor(node, x)) is None:
            break
        elif whole or all(factor.type.broadcastable):
            if not whole and factor.ndim:
                factor = factor.squeeze()
            scale = factor if scale is None else scale * factor
            location = location * factor
        else:
            break
        x = node.outputs[0]
    return Use(location, scale, x)


def common_factor(rv: Any, clients: Clients) -> tuple[Any, list[Variable]] | None:
    """Return the common factor of all products that a variable enters, and these; else None."""
    ends = list(_ends(rv, clients, whole=True))
    products = [end for end in ends if end is not None]
    if not products or len(products) < len(ends):
        return None
    _, scale, _ = products[0]
    whole = all(is_whole for *_, is_whole in products)
    common = all(other is scale for _, other, _ in products)
    if not common or (not whole and not all(scale.type.broadcastable)):
        return None
    factor = scale if whole or not scale.ndim else scale.squeeze()
    return factor, [end for end, *_ in products]


def added_to(x: Variable, node: Apply) -> Any:
    """Return the other terms of a sum."""
    others: list[Any] = [y for y in node.inputs if y is not x]
    return others[0] if len(others) == 1 else pt.add(*others)


def is_copy(node: Apply) -> bool:
    """Whether a node names a variable, as pm.Deterministic does."""
    return isinstance(node.op, ViewOp) or isinstance(scalar_op(node), ps.Identity)


def scalar_op(node: Apply) -> Any:
    """Return the scalar operation of an elementwise operation, else None."""
    return node.op.scalar_op if isinstance(node.op, Elemwise) else None


def as_large(x: Variable, node: Apply) -> bool:
    """Whether an elementwise result has the shape of one argument."""
    mine: Any = x.type
    its: Any = node.outputs[0].type
    elementwise = isinstance(node.op, Elemwise)
    return elementwise and bool(mine.broadcastable == its.broadcastable)


def _ends(x: Variable, clients: Clients, *, whole: bool) -> Iterator[tuple[Any, Any, bool] | None]:
    """Yield the products that a variable enters, and None for each other use."""
    for node in clients[x]:
        if is_copy(node):
            yield from _ends(node.outputs[0], clients, whole=whole)
        elif isinstance(node.op, SELECTING) and node.inputs[0] is x and x not in node.inputs[1:]:
            yield from _ends(node.outputs[0], clients, whole=False)
        elif isinstance(scalar_op(node), _PRODUCTS):
            factor = _factor(node, x)
            if factor is None or (whole and not as_large(x, node)):
                yield None
            else:
                yield node.outputs[0], factor, whole
        else:
            yield None


def _factor(node: Apply, x: Variable) -> Any:
    """Return the factor by which a product multiplies x, else None."""
    if node.inputs.count(x) != 1 or not isinstance(scalar_op(node), _PRODUCTS):
        return None
    others: list[Any] = [y for y in node.inputs if y is not x]
    if isinstance(scalar_op(node), ps.Mul):
        return others[0] if len(others) == 1 else pt.mul(*others)
    return pt.true_div(1.0, others[0]) if node.inputs[0] is x else None


def _of_same(y: Any, index: Apply, rv: Any) -> Any:
    """Return f u of a term f u[index], shaped as rv, None of other terms."""
    node = y.owner
    if node is None:
        return None
    if is_copy(node):
        return _of_same(node.inputs[0], index, rv)
    if node.op == index.op and node.inputs[1:] == index.inputs[1:]:
        same = node.inputs[0].type.broadcastable == rv.type.broadcastable
        return node.inputs[0] if same else None
    if isinstance(scalar_op(node), _PRODUCTS):
        for x in node.inputs:
            factor, found = _factor(node, x), _of_same(x, index, rv)
            if found is not None and factor is not None and all(factor.type.broadcastable):
                return found * (factor.squeeze() if factor.ndim else factor)
    return None
