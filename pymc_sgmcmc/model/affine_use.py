"""How variables enter a model's density: by which affine expressions of others."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import pytensor.scalar as ps
import pytensor.tensor as pt

from pymc.model import Model
from pymc.variational.minibatch_rv import MinibatchRandomVariable
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.traversal import ancestors, apply_ancestors, walk
from pytensor.tensor.basic import Join
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.extra_ops import CumOp
from pytensor.tensor.random.basic import (
    CauchyRV,
    GumbelRV,
    LaplaceRV,
    LogisticRV,
    NormalRV,
    StudentTRV,
)
from pytensor.tensor.random.type import RandomType
from pytensor.tensor.subtensor import AdvancedSubtensor
from pytensor.tensor.variable import TensorVariable

from pymc_sgmcmc.centring.fields import Field
from pymc_sgmcmc.centring.vectors import is_product, transposed
from pymc_sgmcmc.floats import as_float
from pymc_sgmcmc.model.graphs import depends_on
from pymc_sgmcmc.model.support import (
    SELECTING,
    constant_of,
    is_copy,
    is_positive,
    is_triangular,
    scalar_op,
)

# Families whose last two inputs are location and scale
LOCATION_SCALE = (NormalRV, StudentTRV, LaplaceRV, CauchyRV, LogisticRV, GumbelRV)
_PRODUCTS = (ps.Mul, ps.TrueDiv)
_SUMS = (ps.Add, ps.Sub)


@dataclass(frozen=True, eq=False)
class Use:
    """A model's use of x by l + cx alone."""

    location: Any  # l; under an index of x, only the part that shares that index
    scale: Any  # c, None where nothing multiplies x
    ends: list[Variable]  # l + cx, or each c x, which the model then uses otherwise


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


class ModelView:
    """A model, the variables that are sampled and their shapes, and the use of each variable.

    Those ``named`` have transforms by the user.
    """

    def __init__(
        self,
        model: Model,
        sampled: Collection[Variable],
        shapes: Mapping[Any, tuple[int, ...]],
        named: Collection[str] = (),
    ) -> None:
        self.model, self.sampled, self.shapes = model, set(sampled), shapes
        self.unnamed = {rv for rv in self.sampled if rv.name not in named}
        self.free = set(model.free_RVs)
        self.fields: Mapping[TensorVariable, Field] = {}  # effects of areas

    def sampled_of(self, *kinds: type) -> list[TensorVariable]:
        """Return the sampled variables of some families that have no transform."""
        return [
            rv
            for rv in self.model.free_RVs
            if rv in self.sampled
            and self.model.rvs_to_transforms[rv] is None
            and isinstance(rv.owner.op, kinds)
        ]

    def noise_of(self, rv: TensorVariable) -> Any:
        """Return the sd of the normal variable whose mean alone depends on elements of another.

        None unless it is observed, and has one sd, which sampled variables determine.
        """
        using = [
            x for x in self.model.basic_RVs if x is not rv and depends_on(x.owner.inputs, {rv})
        ]
        if depends_on(self.model.potentials, {rv}) or len(using) != 1 or using[0] in self.free:
            return None
        node: Any = using[0].owner
        if isinstance(node.op, MinibatchRandomVariable):
            node = node.inputs[0].owner
        if not isinstance(node.op, NormalRV):
            return None
        mean, sd = node.inputs[-2:]
        # A batch of one row is no number
        one = all(sd.type.broadcastable) and not self.draws([sd])
        sampled = depends_on([sd], self.sampled) and not depends_on([sd], {rv})
        of_elements = all(
            isinstance(node.op, (Elemwise, *SELECTING))
            for node in apply_ancestors([mean], [rv])
            if depends_on(node.inputs, {rv})
        )
        return as_number(sd) if one and sampled and of_elements else None

    @cached_property
    def clients(self) -> Mapping[Variable, list[Apply]]:
        """The operations in which each variable enters the density."""
        model = self.model
        clients: dict[Variable, list[Apply]] = defaultdict(list)
        graphs = ancestors([*model.potentials, *model.basic_RVs])
        for node in {x.owner: None for x in graphs if x.owner is not None}:
            for x in dict.fromkeys(node.inputs):
                clients[x].append(node)
        for potential in model.potentials:
            # A potential counts as used otherwise than by sums and products
            clients[potential].append(pt.sqr(potential).owner)
        return clients

    # ------------------------------------------------------------------ one variable

    def use_of(self, rv: Any) -> Use:
        """Return a variable's use, followed through products and sums while each has one use."""
        location: Any = pt.zeros((), dtype=rv.dtype)
        scale: Any = None
        x: Any = rv
        whole, index = True, None
        while len(nodes := self.clients[x]) == 1 and nodes[0].inputs.count(x) == 1:
            [node] = nodes
            if is_copy(node):
                pass
            elif isinstance(node.op, SELECTING) and node.inputs[0] is x:
                known = whole and isinstance(node.op, AdvancedSubtensor)
                whole, index = False, node if known else None
            elif not _as_large(x, node):
                break
            elif isinstance(scalar_op(node), ps.Add):
                if whole:
                    location = location + _added_to(x, node)
                elif index is not None:
                    beside = [_of_same(y, index, rv) for y in node.inputs if y is not x]
                    location = pt.add(location, *[y for y in beside if y is not None])
            elif (factor := _factor(node, x)) is None:
                break
            elif whole or all(factor.type.broadcastable):
                factor = as_float(factor) if whole else as_number(factor)
                scale = factor if scale is None else scale * factor
                location = location * factor
            else:
                break
            x = node.outputs[0]
        return Use(location, scale, [x])

    def scaled_use_of(self, rv: Any) -> Use | None:
        """Return a use with a scale: the same factor of all products where there are several."""
        use = self.use_of(rv)
        if use.scale is not None:
            return use
        products = list(self._products(rv, whole=True))
        if not products or any(product is None for product in products):
            return None
        ends, factors, whole = zip(*products, strict=True)
        factor = factors[0]
        if any(other is not factor for other in factors):
            return None
        if not all(whole):
            if not all(factor.type.broadcastable):
                return None
            factor = as_number(factor)
        return Use(use.location, as_float(factor), list(ends))

    def _products(self, x: Variable, *, whole: bool) -> Iterator[Any]:
        """Yield each product that a variable enters, its factor and whether all elements do.

        None stands for each other use.
        """
        for node in self.clients[x]:
            if is_copy(node):
                yield from self._products(node.outputs[0], whole=whole)
            elif (
                isinstance(node.op, SELECTING) and node.inputs[0] is x and x not in node.inputs[1:]
            ):
                yield from self._products(node.outputs[0], whole=False)
            elif (factor := _factor(node, x)) is None or (whole and not _as_large(x, node)):
                yield None
            else:
                yield node.outputs[0], factor, whole

    def vectors_of(self, rv: TensorVariable) -> Parents | None:
        """Return μ and L of a variable z that enters by μ + z Lᵀ, or by Lz where it is a vector."""
        x: Variable = rv
        nodes = self.clients[x]
        column = rv.ndim == 1 and len(nodes) == 1 and _reorders(nodes[0], (0, "x"))
        if column:
            x = nodes[0].outputs[0]
            nodes = self.clients[x]
        if len(nodes) != 1 or not is_product(nodes[0]):
            return None
        left, right = nodes[0].inputs
        product: Any = nodes[0].outputs[0]
        factor: Any = None
        if column and right is x:
            after = self.clients[product]
            if len(after) == 1 and _reorders(after[0], (0,)):
                factor, product = left, after[0].outputs[0]
        elif left is x:
            factor = transposed(right)
        if factor is None:
            return None
        location: Any = pt.zeros((), dtype=rv.dtype)
        end = self.after_copies(product)
        nodes = self.clients[end]
        if len(nodes) == 1 and isinstance(scalar_op(nodes[0]), ps.Add) and _as_large(end, nodes[0]):
            location = _added_to(end, nodes[0])
        return Parents(location, factor, vectors=True)

    def after_copies(self, x: Any) -> Any:
        """Return what x is called last."""
        while len(nodes := self.clients[x]) == 1 and is_copy(nodes[0]):
            x = nodes[0].outputs[0]
        return x

    # ------------------------------------------------------------------ standard variables

    @cached_property
    def parents(self) -> dict[TensorVariable, Parents]:
        """Parents of standard variables that enter the density only by μ + σz.

        μ or σ depends on a sampled variable. μ is 0 where z is only multiplied, or where elements
        of it are taken first. Of an effect beside one of ``fields`` the data determine the sum.
        """
        parents: dict[TensorVariable, Parents] = {}
        for rv in self.sampled_of(*LOCATION_SCALE):
            for tried in self._candidates(rv):
                if not self.draws(tried.graphs) and not _reaches(tried.graphs, rv, parents):
                    parents[rv] = tried
                    break
        return parents

    def _candidates(self, rv: TensorVariable) -> Iterator[Parents]:
        own = self._parents(rv) if is_standard(rv) else None
        if own is not None:
            proper = is_triangular if own.vectors else is_positive
            for tried in (own, replace(own, location=pt.zeros((), dtype=rv.dtype))):
                if depends_on(tried.graphs, self.sampled) and proper(tried.scale, self.free):
                    yield tried
        elif self.fields and (use := self.use_of(rv)).scale is None:
            if depends_on([use.location], self.fields):
                yield Parents(use.location, None)

    def _parents(self, rv: TensorVariable) -> Parents | None:
        if (vectors := self.vectors_of(rv)) is not None:
            return vectors
        use = self.scaled_use_of(rv)
        # The data's curvature is no information on single steps of a walk
        if use is None or any(
            isinstance(node.op, CumOp) for end in use.ends for node in self.clients[end]
        ):
            return None
        return Parents(use.location, use.scale)

    def draws(self, graphs: Sequence[Any]) -> bool:
        """Whether graphs have random numbers, or batches of rows, besides the model's variables."""
        return any(isinstance(x.type, RandomType) for x in ancestors(graphs, blockers=self.free))

    # ------------------------------------------------------------------ linear sums

    def sum_of(self, ends: Sequence[Variable]) -> Variable:
        """Return the sum in which products with coefficients are terms."""
        alone = len(ends) == 1 and len(self.clients[ends[0]]) == 1
        x: Any = ends[0] if alone else self.joined(ends)
        while len(nodes := self.clients[x]) == 1 and self._is_linear(nodes[0], x):
            x = nodes[0].outputs[0]
        return x

    def joined(self, starts: Sequence[Variable]) -> Variable | None:
        """Return the sum in which all uses of coefficients are joined.

        None where one of them is not linear, or none is a product with a matrix.
        """
        # The longest path to each gives the order in which they are computed
        steps, reached = dict.fromkeys(starts, 0), [*starts]
        for x in reached:
            for node in self.clients[x]:
                [y, *_] = node.outputs
                if steps.get(y, 0) <= steps[x]:
                    steps[y] = steps[x] + 1
                    reached.append(y)
        ends, products = set(starts), False
        while True:
            x = min(ends, key=steps.__getitem__)
            nodes = self.clients[x]
            if not nodes or not all(self._is_linear(node, x) for node in nodes):
                return None
            products |= any(map(is_product, nodes))
            ends = (ends - {x}) | {node.outputs[0] for node in nodes}
            if len(ends) == 1 and products:
                return ends.pop()

    def leaves(self, x: Any, bases: Collection[Variable]) -> Iterator[Variable]:
        """Yield variables, and those in ``bases``, that enter a sum by constant factors alone."""
        node = x.owner
        if x in bases or x in self.free:
            yield x
        elif node is None:
            return
        elif isinstance(scalar_op(node), _SUMS):
            for term in node.inputs:
                yield from self.leaves(term, bases)
        elif is_copy(node) or isinstance(node.op, DimShuffle) or _accumulates(node):
            yield from self.leaves(node.inputs[0], bases)
        elif isinstance(node.op, Join):
            for part in node.inputs[1:]:
                yield from self.leaves(part, bases)
        elif (unknown := self._unknown_of(node)) is not None:
            yield from self.leaves(unknown, bases)

    def _is_linear(self, node: Any, x: Any) -> bool:
        """Whether the use of x is linear in it."""
        linear = isinstance(scalar_op(node), _SUMS) or self._unknown_of(node) is x
        rearranged = is_copy(node) or isinstance(node.op, DimShuffle | Join)
        return linear or rearranged or _accumulates(node)

    def _unknown_of(self, node: Any) -> Any:
        """Return the one unknown argument of a product or quotient, else None."""
        op = scalar_op(node)
        if not (is_product(node) or isinstance(op, _PRODUCTS)):
            return None
        unknown = [x for x in node.inputs if depends_on([x], self.free)]
        if len(unknown) != 1 or (isinstance(op, ps.TrueDiv) and unknown[0] is node.inputs[1]):
            return None
        return unknown[0]


def _accumulates(node: Apply) -> bool:
    """Whether an operation is a cumulative sum."""
    return isinstance(node.op, CumOp) and node.op.mode == "add"


def is_standard(rv: TensorVariable) -> bool:
    """Return whether the prior is that of a location-scale family at 0 and 1."""
    node = rv.owner
    if node is None or not isinstance(node.op, LOCATION_SCALE):
        return False
    return [constant_of(x) for x in node.inputs[-2:]] == [0.0, 1.0]


def as_number(x: Any) -> Any:
    """Return a tensor of one element without dimensions, of floats."""
    return as_float(x.squeeze() if x.ndim else x)


def _added_to(x: Variable, node: Apply) -> Any:
    """Return the other terms of a sum."""
    others: list[Any] = [y for y in node.inputs if y is not x]
    return others[0] if len(others) == 1 else pt.add(*others)


def _as_large(x: Variable, node: Apply) -> bool:
    """Whether an elementwise result has the shape of one argument."""
    mine: Any = x.type
    its: Any = node.outputs[0].type
    return isinstance(node.op, Elemwise) and bool(mine.broadcastable == its.broadcastable)


def _reorders(node: Apply, order: tuple[Any, ...]) -> bool:
    return isinstance(node.op, DimShuffle) and tuple(node.op.new_order) == order


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
            factor, same_index = _factor(node, x), _of_same(x, index, rv)
            if same_index is not None and factor is not None and all(factor.type.broadcastable):
                return same_index * as_number(factor)
    return None


def _reaches(
    graphs: Sequence[Any], rv: TensorVariable, parents: Mapping[TensorVariable, Parents]
) -> bool:
    """Whether graphs depend on rv, also through the parents of others."""

    def below(x: Any) -> list[Any]:
        return [*(x.owner.inputs if x.owner else ()), *(parents[x].graphs if x in parents else ())]

    return any(x is rv for x in walk(graphs, below))
