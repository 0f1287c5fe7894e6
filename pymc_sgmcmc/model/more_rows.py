"""Graphs with more rows than the batch they were written for, distributions made anew."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytensor.tensor as pt

from pymc.distributions.custom import CustomSymbolicDistRV
from pymc.distributions.distribution import SymbolicRandomVariable
from pymc.distributions.shape_utils import change_dist_size
from pytensor.compile.builders import OpFromGraph, SymbolicOp
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.traversal import toposort
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.shape import SpecifyShape
from pytensor.tensor.type import TensorType
from pytensor.tensor.type_other import NoneTypeT

__all__ = ["Resized", "with_more_rows"]

_DISTRIBUTIONS = RandomVariable, SymbolicRandomVariable


@dataclass(frozen=True, eq=False)
class Resized:
    """A distribution, and the shape that it gets.

    Attributes
    ----------
    rv : TensorVariable
    shape : sequence of TensorVariable
        Lengths of its axes.
    """

    rv: Any
    shape: Sequence[Any]


def with_more_rows(
    graphs: Sequence[Any], replacements: Mapping[Any, Any], distributions: Sequence[Resized] = ()
) -> list[Any]:
    """Return graphs with inputs of other lengths, the shapes inferred anew.

    A distribution keeps the lengths that it was made with in its size, those of its components and
    the types inside its operation: it is made anew for what its parameters have become.

    Raises
    ------
    AssertionError, IndexError, TypeError, ValueError
        If a graph holds one of the lengths as a number.
    """
    sizes: dict[Apply, list[Any]] = {}
    for one in distributions:
        batch = one.rv.ndim - _distribution(one.rv).op.ndim_supp
        _collect(one.rv, list(one.shape[:batch]), sizes)
    known: dict[Any, Any] = dict(replacements)
    # A distribution's shape is that of its data, and made of what is replaced already
    for node in toposort(list(graphs), blockers=known):
        inputs = [known.get(x, x) for x in node.inputs]
        if node in sizes:
            made = _resized(node, inputs, sizes[node])
        elif all(new is old for new, old in zip(inputs, node.inputs, strict=True)):
            continue
        else:
            made = _remade(node, inputs)
        for old, new in zip(node.outputs, made, strict=True):
            if new is not None:
                new.name = old.name
                known[old] = new
    return [known.get(graph, graph) for graph in graphs]


def _distribution(rv: Any) -> Apply:
    """Return the node of a distribution, below what only asserts its shape."""
    node: Apply = rv.owner
    return _distribution(node.inputs[0]) if isinstance(node.op, SpecifyShape) else node


def _collect(rv: Any, size: list[Any], found: dict[Apply, list[Any]]) -> None:
    """Note a distribution and those that it is made of, its components."""
    node = rv.owner
    if node is None or not isinstance(node.op, (*_DISTRIBUTIONS, SpecifyShape)) or node in found:
        return
    found[node] = size
    if not isinstance(node.op, RandomVariable):
        for x in node.inputs:
            if _is_component(x, len(size)):
                _collect(x, size, found)


def _is_component(x: Any, ndim: int) -> bool:
    node = x.owner
    if node is None or not isinstance(node.op, (*_DISTRIBUTIONS, SpecifyShape)):
        return False
    inner = _distribution(x)
    supported = isinstance(inner.op, _DISTRIBUTIONS)
    return supported and x.name is None and x.ndim - inner.op.ndim_supp >= ndim


def _resized(node: Apply, inputs: list[Any], size: list[Any]) -> list[Any]:
    """Return the outputs of a distribution's node for other parameters and another size."""
    op: Any = node.op
    if isinstance(op, SpecifyShape):
        return [inputs[0]]
    k = _size_index(op)
    if k is not None and not isinstance(inputs[k].type, NoneTypeT):
        inputs = [*inputs[:k], _size(inputs[k], size), *inputs[k + 1 :]]
    if isinstance(op, RandomVariable):
        return list(op.make_node(*inputs).outputs)
    if isinstance(op, CustomSymbolicDistRV):
        # PyMC resizes it with the parameters that it was made with
        return _of_inner_graph(op, inputs)
    types = [
        t.clone(shape=(None,) * t.ndim) if isinstance(t, TensorType) else t
        for t in (output.type for output in node.outputs)
    ]
    # No node that could be computed: PyMC takes the inputs from it, and makes another
    stand_in = Apply(op, inputs, [t() for t in types])
    k = 0 if op.default_output is None else op.default_output
    made: list[Any] = [None] * len(types)
    made[k] = change_dist_size(stand_in.outputs[k], tuple(size))
    return made


def _size_index(op: Any) -> int | None:
    """Return which input of a distribution's operation is its size."""
    # What is truncated has the inputs of what it was before, and two bounds
    op = getattr(op, "base_rv_op", op)
    if isinstance(op, RandomVariable):
        return 1
    signature = op.extended_signature
    found: int | None = None
    if signature is not None:
        found = op.get_input_output_type_idxs(signature)[0][1]
    return found


def _size(old: Any, size: list[Any]) -> Any:
    """Return a size with its first lengths replaced; a mixture's components have another axis."""
    (length,) = old.type.shape
    lengths = [*size, *(old[k] for k in range(len(size), length or len(size)))]
    return pt.stack([pt.as_tensor(x).astype("int64") for x in lengths])


def _remade(node: Apply, inputs: list[Any]) -> list[Any]:
    """Return the outputs of a node that is no distribution's."""
    op: Any = node.op
    if isinstance(op, SymbolicOp):
        return list(op(*inputs, return_list=True))
    if isinstance(op, OpFromGraph):
        return _of_inner_graph(op, inputs)
    return list(node.clone_with_new_inputs(inputs, strict=False).outputs)


def _of_inner_graph(op: Any, inputs: Sequence[Variable]) -> list[Any]:
    """Apply an operation that is a graph itself to inputs of other types."""
    inner = op.fgraph.unfreeze()
    arguments = [x.type() for x in inputs]
    replacements = dict(zip(inner.inputs, arguments, strict=True))
    outputs = with_more_rows(inner.outputs, replacements)
    graph = FunctionGraph(arguments, outputs, clone=False)
    return list(op.clone_with_inner_graph(graph).make_node(*inputs).outputs)
