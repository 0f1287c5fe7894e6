"""Which variables are coefficients of processes or columns, and what else is in the same sum."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytensor.scalar as ps
import pytensor.tensor as pt

from pymc.model import Model
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.traversal import ancestors
from pytensor.tensor.basic import Alloc
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.random.basic import NormalRV
from pytensor.tensor.subtensor import AdvancedSubtensor, Subtensor
from pytensor.tensor.variable import TensorVariable

from pymc_sgmcmc.centring import (
    Coefficients,
    CoefficientsOfOneScale,
    InformedCoefficients,
)
from pymc_sgmcmc.centring.vectors import is_product
from pymc_sgmcmc.model.hierarchy import constant_of, depends_on
from pymc_sgmcmc.model.minibatch import evaluate
from pymc_sgmcmc.model.standardised import Parents
from pymc_sgmcmc.model.uses import Clients, clients_of, is_copy, scalar_op, use_of

__all__ = ["coefficients_of"]

# With more elements an update's factorisation dominates its cost
_LARGEST = 128

_SUMS = (ps.Add, ps.Sub)


@dataclass(frozen=True, eq=False)
class _Term:
    """A variable θ = c + u x, x standard normal, that enters a sum by s x."""

    rv: TensorVariable
    offset: Any
    unit: Any
    scale: Any

    @property
    def has_one_scale(self) -> bool:
        """Whether s is a number."""
        return all(self.scale.type.broadcastable)


def coefficients_of(
    model: Model,
    sampled: Collection[Variable],
    found: Mapping[TensorVariable, Parents],
    shapes: Mapping[TensorVariable, tuple[int, ...]],
) -> dict[TensorVariable, InformedCoefficients]:
    """Return the map, without its weight, of basis coefficients and of terms added to them.

    ``found`` has the standard variables and their parents, ``shapes`` those of sampled variables.
    """
    clients, free = clients_of(model), set(model.free_RVs)
    bases: dict[Variable, _Term] = {}
    for rv in model.free_RVs:
        if rv in sampled:
            bases.update(_of_basis(model, rv, sampled, found, clients))
            bases.update(_of_parts(model, rv, sampled, shapes[rv], clients))
    maps: dict[TensorVariable, InformedCoefficients] = {}
    for end, basis in bases.items():
        if basis.rv in maps or shapes[basis.rv][0] > _LARGEST:
            continue
        ends = [x for x, term in bases.items() if term is basis]
        leaves = dict.fromkeys([end, *_terms(_sum_of(ends, free, clients), free, bases)])
        terms = list(dict.fromkeys(bases[leaf] for leaf in leaves if leaf in bases))
        alone = len(terms) == 1 and basis.has_one_scale
        if not alone:
            # Scales of several vectors, of which one is a number, would take a factorisation for
            # each update
            terms = [term for term in terms if not term.has_one_scale]
        if basis not in terms:
            continue
        terms += _normal(model, [leaf for leaf in leaves if leaf in sampled], terms)
        small, count = [], 0
        for term in terms:
            size = int(np.prod(shapes[term.rv]))
            if count + size <= _LARGEST and term.rv not in maps:
                small.append(term)
                count += size
        if alone:
            small = [*small[1:], basis]
        block = [
            Coefficients.of(x.rv, x.offset, x.unit, x.scale, shapes[x.rv], count) for x in small
        ]
        kind = CoefficientsOfOneScale if alone else InformedCoefficients
        maps.update({x.rv: kind(block, i) for i, x in enumerate(block)})
    return maps


def _of_basis(
    model: Model,
    rv: TensorVariable,
    sampled: Collection[Variable],
    found: Mapping[TensorVariable, Parents],
    clients: Clients,
) -> dict[Variable, _Term]:
    """Return coefficients of a basis from the matrix that multiplies a variable, or nothing."""
    if rv.ndim != 1 or not isinstance(rv.owner.op, NormalRV) or model.rvs_to_transforms[rv]:
        return {}
    use, zero = use_of(rv, clients), pt.zeros((), dtype=rv.dtype)
    if rv in found:
        scale = found[rv].scale
        term = _Term(rv, zero, pt.ones((), dtype=rv.dtype), scale)
        proper = not found[rv].vectors and scale is not None and _is_zero(found[rv].location)
    else:
        unit = rv.owner.inputs[-1]
        scale = unit if use.scale is None else unit * use.scale
        term = _Term(rv, zero, unit, scale)
        # One number of any sign is left as it is: with coefficients it may change its sign
        several = use.scale is None or not term.has_one_scale
        proper = several and _is_zero(rv.owner.inputs[-2])
    if not proper or not _is_zero(use.location):
        return {}
    nodes = clients[use.end]
    alone = len(nodes) == 1 and is_product(nodes[0])
    if not alone and _joined([use.end], set(model.free_RVs), clients) is None:
        return {}
    return {use.end: term} if _has_few(scale, sampled) else {}


def _has_few(scale: Variable, sampled: Collection[Variable]) -> bool:
    """Whether a scale is made of sampled numbers.

    With one for each element, a Gaussian given all scales says little.
    """
    hyper: list[Any] = [x for x in ancestors([scale]) if x in sampled]
    return bool(hyper) and all(all(x.type.broadcastable) for x in hyper)


def _of_parts(
    model: Model,
    rv: TensorVariable,
    sampled: Collection[Variable],
    shape: tuple[int, ...],
    clients: Clients,
) -> dict[Variable, _Term]:
    """Return coefficients from the operations that join their parts, each with scales of its own.

    The cosines and the sines of a periodic process are such parts.
    """
    plain = isinstance(rv.owner.op, NormalRV) and model.rvs_to_transforms[rv] is None
    if rv.ndim != 1 or not plain or not _is_zero(rv.owner.inputs[-2]):
        return {}
    x: Any = rv
    while len(nodes := clients[x]) == 1 and is_copy(nodes[0]):
        x = nodes[0].outputs[0]
    taken = [_taken(node, x, shape) for node in nodes]
    if len(nodes) < 2 or any(part is None for part in taken):
        return {}
    order = np.concatenate(taken)
    if len(order) != shape[0] or len(set(order.tolist())) != len(order):
        return {}
    uses = [use_of(node.outputs[0], clients) for node in nodes]
    if not all(_is_zero(use.location) for use in uses):
        return {}
    unit: Any = rv.owner.inputs[-1]
    scale = unit
    if any(use.scale is not None for use in uses):
        factors = [
            pt.broadcast_to(pt.ones(()) if use.scale is None else use.scale, part.shape)
            for use, part in zip(uses, taken, strict=True)
        ]
        scale = (unit * pt.concatenate(factors)[np.argsort(order)]).astype(rv.dtype)
    ends = [use.end for use in uses]
    if not _has_few(scale, sampled) or _joined(ends, set(model.free_RVs), clients) is None:
        return {}
    return dict.fromkeys(ends, _Term(rv, pt.zeros((), dtype=rv.dtype), unit, scale))


def _taken(node: Apply, x: Any, shape: tuple[int, ...]) -> Any:
    """Return the elements that are taken of a vector, None if unknown."""
    op, index = node.op, node.inputs[1:]
    takes = isinstance(op, Subtensor | AdvancedSubtensor) and node.inputs[0] is x
    if not takes or not all(isinstance(i, Constant) for i in index):
        return None
    numbers = pt.constant(np.arange(shape[0], dtype=x.dtype))
    found = evaluate(op.make_node(numbers, *index).outputs[0])
    return np.ravel(found).astype(int) if np.ndim(found) <= 1 else None


def _is_zero(x: Any) -> bool:
    """Whether a graph shows that it is 0."""
    if constant_of(x) == 0:
        return True
    node = x.owner
    if node is None:
        return False
    op = scalar_op(node)
    if isinstance(op, ps.Mul | ps.Add):
        some = any if isinstance(op, ps.Mul) else all
        return some(_is_zero(argument) for argument in node.inputs)
    return isinstance(node.op, Alloc | DimShuffle) and _is_zero(node.inputs[0])


def _sum_of(ends: Sequence[Variable], free: Collection[Variable], clients: Clients) -> Variable:
    """Return the sum in which products with coefficients are terms."""
    alone = len(ends) == 1 and len(clients[ends[0]]) == 1
    x: Any = ends[0] if alone else _joined(ends, free, clients)
    while len(nodes := clients[x]) == 1 and _is_linear(nodes[0], x, free):
        x = nodes[0].outputs[0]
    return x


def _is_linear(node: Any, x: Any, free: Collection[Variable]) -> bool:
    """Whether the use of x is linear in it; that of a potential by its own node is not."""
    if x in node.outputs:
        return False
    linear = isinstance(scalar_op(node), _SUMS) or _of_one(node, free) is x
    return linear or is_copy(node) or isinstance(node.op, DimShuffle)


def _joined(
    starts: Sequence[Variable], free: Collection[Variable], clients: Clients
) -> Variable | None:
    """Return the sum in which all uses of coefficients are joined.

    None where one of them is not linear, or none is a product with a matrix.
    """
    # The longest path there gives the order in which they are computed
    ways, reached = dict.fromkeys(starts, 0), [*starts]
    for x in reached:
        for node in clients[x]:
            [y, *_] = node.outputs
            # A potential is its own use
            if y is not x and ways.get(y, 0) <= ways[x]:
                ways[y] = ways[x] + 1
                reached.append(y)
    ends, products = set(starts), False
    while True:
        x = min(ends, key=ways.__getitem__)
        nodes = clients[x]
        if not nodes or not all(_is_linear(node, x, free) for node in nodes):
            return None
        products |= any(map(is_product, nodes))
        ends = (ends - {x}) | {node.outputs[0] for node in nodes}
        if len(ends) == 1 and products:
            return ends.pop()


def _of_one(node: Any, free: Collection[Variable]) -> Any:
    """Return the one unknown argument of a product or quotient, else None."""
    op = scalar_op(node)
    if not (is_product(node) or isinstance(op, ps.Mul | ps.TrueDiv)):
        return None
    unknown = [x for x in node.inputs if depends_on([x], free)]
    if len(unknown) != 1 or (isinstance(op, ps.TrueDiv) and unknown[0] is node.inputs[1]):
        return None
    return unknown[0]


def _terms(x: Any, free: Collection[Variable], bases: Collection[Variable]) -> Iterator[Variable]:
    """Return coefficients, and variables, that enter a sum by constant factors alone."""
    node = x.owner
    if x in bases or x in free:
        yield x
    elif node is None:
        return
    elif isinstance(scalar_op(node), _SUMS):
        for term in node.inputs:
            yield from _terms(term, free, bases)
    elif is_copy(node) or isinstance(node.op, DimShuffle):
        yield from _terms(node.inputs[0], free, bases)
    elif (unknown := _of_one(node, free)) is not None:
        yield from _terms(unknown, free, bases)


def _normal(model: Model, leaves: Collection[Any], terms: Collection[_Term]) -> Iterator[_Term]:
    """Return the other terms of a sum that have a fixed normal prior."""
    free = set(model.free_RVs)
    of_scales = set(ancestors([term.scale for term in terms]))
    for rv in leaves:
        normal = isinstance(rv.owner.op, NormalRV) and model.rvs_to_transforms[rv] is None
        fixed = normal and not depends_on(rv.owner.inputs, free)
        if fixed and rv.ndim <= 1 and rv not in of_scales:
            location, spread = (x.astype(rv.dtype) for x in rv.owner.inputs[-2:])
            yield _Term(rv, location, spread, spread)
