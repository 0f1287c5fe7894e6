"""Which variables are coefficients of processes or columns, and what else is in the same sum."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

import numpy as np
import pytensor.scalar as ps
import pytensor.tensor as pt

from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.traversal import ancestors
from pytensor.tensor.basic import Alloc
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.random.basic import NormalRV
from pytensor.tensor.subtensor import AdvancedSubtensor, Subtensor
from pytensor.tensor.variable import TensorVariable

from pymc_sgmcmc.centring.coefficients import Coefficients, CoefficientsOfOneScale, Member
from pymc_sgmcmc.centring.gaussian_map import GaussianMap
from pymc_sgmcmc.centring.vectors import is_product
from pymc_sgmcmc.model.affine_use import ModelView
from pymc_sgmcmc.model.graphs import depends_on
from pymc_sgmcmc.model.minibatch import evaluate
from pymc_sgmcmc.model.support import constant_of, is_positive, scalar_op

# With more elements an update's factorisation dominates its cost
_LARGEST = 128


def basis_coefficients(view: ModelView) -> dict[TensorVariable, GaussianMap]:
    """Return the maps of basis coefficients and of terms added to them."""
    bases: dict[Variable, Member] = {}
    for rv in view.sampled_of(NormalRV):
        if rv.ndim == 1 and rv in view.unnamed:
            bases.update(_of_basis(view, rv) or _of_parts(view, rv))
    maps: dict[TensorVariable, GaussianMap] = {}
    for end, basis in bases.items():
        if basis.rv in maps or view.shapes[basis.rv][0] > _LARGEST:
            continue
        ends = [x for x, term in bases.items() if term is basis]
        leaves = dict.fromkeys([end, *view.leaves(view.sum_of(ends), bases)])
        terms = list(dict.fromkeys(bases[leaf] for leaf in leaves if leaf in bases))
        alone = len(terms) == 1 and basis.has_one_scale
        if not alone:
            # Scales of several vectors, of which one is a number, would take a factorisation for
            # each update
            terms = [term for term in terms if not term.has_one_scale]
        if basis not in terms:
            continue
        terms += _normal(view, leaves, terms)
        block, count = [], 0
        for term in terms:
            if count + term.size <= _LARGEST and term.rv not in maps:
                block.append(term)
                count += term.size
        if alone:
            block = [*block[1:], basis]
        members = [member.of_block(count) for member in block]
        kind = CoefficientsOfOneScale if alone else Coefficients
        maps.update({x.rv: kind(members, i) for i, x in enumerate(members)})
    return maps


def _of_basis(view: ModelView, rv: TensorVariable) -> dict[Variable, Member]:
    """Return coefficients of a basis from the matrix that multiplies a variable, or nothing."""
    use, shape, zero = view.use_of(rv), view.shapes[rv], pt.zeros((), dtype=rv.dtype)
    if (parents := view.parents.get(rv)) is not None:
        scale = parents.scale
        term = Member(rv, shape, zero, pt.ones((), dtype=rv.dtype), scale)
        proper = not parents.vectors and scale is not None and _is_zero(parents.location)
    else:
        unit = rv.owner.inputs[-1]
        scale = unit if use.scale is None else unit * use.scale
        term = Member(rv, shape, zero, unit, scale)
        # One number of any sign is left as it is: with coefficients it may change its sign
        signed = use.scale is not None and term.has_one_scale
        proper = not (signed and not is_positive(use.scale, view.free)) and _is_zero(
            rv.owner.inputs[-2]
        )
    if not proper or not _is_zero(use.location):
        return {}
    [end] = use.ends
    nodes = view.clients[end]
    alone = len(nodes) == 1 and is_product(nodes[0])
    if not alone and view.joined([end]) is None:
        return {}
    return {end: term} if _has_few(scale, view) else {}


def _has_few(scale: Variable, view: ModelView) -> bool:
    """Whether a scale is made of sampled numbers.

    With one for each element, a Gaussian given all scales says little.
    """
    hyper: list[Any] = [x for x in ancestors([scale]) if x in view.unnamed]
    return bool(hyper) and all(all(x.type.broadcastable) for x in hyper)


def _of_parts(view: ModelView, rv: TensorVariable) -> dict[Variable, Member]:
    """Return coefficients from the operations that join their parts, each with scales of its own.

    The cosines and the sines of a periodic process are such parts.
    """
    if not _is_zero(rv.owner.inputs[-2]):
        return {}
    x, shape = view.after_copies(rv), view.shapes[rv]
    nodes = view.clients[x]
    taken = [_taken(node, x, shape[0]) for node in nodes]
    if len(nodes) < 2 or any(part is None for part in taken):
        return {}
    order = np.concatenate(taken)
    if sorted(order.tolist()) != list(range(shape[0])):
        return {}
    uses = [view.use_of(node.outputs[0]) for node in nodes]
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
    ends = [end for use in uses for end in use.ends]
    if not _has_few(scale, view) or view.joined(ends) is None:
        return {}
    return dict.fromkeys(ends, Member(rv, shape, pt.zeros((), dtype=rv.dtype), unit, scale))


def _taken(node: Apply, x: Any, size: int) -> Any:
    """Return the elements that are taken of a vector, None if unknown."""
    op, index = node.op, node.inputs[1:]
    takes = isinstance(op, Subtensor | AdvancedSubtensor) and node.inputs[0] is x
    if not takes or not all(isinstance(i, Constant) for i in index):
        return None
    numbers = pt.constant(np.arange(size, dtype=x.dtype))
    elements = evaluate(op.make_node(numbers, *index).outputs[0])
    return np.ravel(elements).astype(int) if np.ndim(elements) <= 1 else None


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


def _normal(view: ModelView, leaves: Collection[Any], terms: Sequence[Member]) -> Iterator[Member]:
    """Yield the other terms of a sum that have a fixed normal prior."""
    of_scales = set(ancestors([term.scale for term in terms]))
    normal = view.unnamed.intersection(view.sampled_of(NormalRV))
    for rv in leaves:
        if rv not in normal or depends_on(rv.owner.inputs, view.free):
            continue
        if rv.ndim <= 1 and rv not in of_scales:
            location, spread = (x.astype(rv.dtype) for x in rv.owner.inputs[-2:])
            yield Member(rv, view.shapes[rv], location, spread, spread)
