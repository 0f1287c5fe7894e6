"""Tools for graphs: search, substitution, shapes, gradients."""

from __future__ import annotations

import math

from collections.abc import Collection, Iterable, Mapping, Sequence
from copy import copy
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt

from pytensor.compile.builders import OpFromGraph, SymbolicOp
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.replace import clone_replace, graph_replace
from pytensor.graph.rewriting.basic import MergeOptimizer, in2out
from pytensor.graph.rewriting.utils import rewrite_graph
from pytensor.graph.traversal import ancestors, apply_ancestors, io_toposort
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.math import Dot
from pytensor.tensor.shape import Shape, Shape_i
from pytensor.tensor.type import TensorType
from pytensor.tensor.variable import TensorVariable


def nodes_of(graphs: Iterable[Any], kinds: Any, blockers: Iterable[Any] = ()) -> list[Any]:
    """List the nodes under ``graphs`` whose operation is of these classes."""
    return [node for node in apply_ancestors(graphs, blockers) if isinstance(node.op, kinds)]


def is_a(kind: type, x: Any) -> bool:
    """Whether an operation of this kind computes a variable."""
    return x.owner is not None and isinstance(x.owner.op, kind)


def rewritten(graphs: Sequence[Any], rewriter: Any, *, clone: bool = True) -> list[TensorVariable]:
    """Return ``graphs`` after a rewriter of single nodes."""
    new: Any = rewrite_graph(list(graphs), include=(), custom_rewrite=in2out(rewriter), clone=clone)
    return list(new)


def depends_on(graphs: Sequence[Variable], variables: Collection[Variable]) -> bool:
    """Return whether one of the variables is in the graphs."""
    return any(x in variables for x in ancestors(list(graphs)))


def is_data(x: Any) -> bool:
    """Whether a variable is a constant or shared array."""
    return isinstance(x, Constant | SharedVariable) and isinstance(x.type, TensorType)


def same_memory(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether two arrays are views of the same numbers."""
    return (
        a.shape == b.shape
        and a.strides == b.strides
        and a.__array_interface__["data"] == b.__array_interface__["data"]
    )


def substitute(graphs: Sequence[Any], replacements: Mapping[Any, Any]) -> list[TensorVariable]:
    """Return ``graphs`` with variables replaced, ignoring those that do not occur."""
    replaced: list[Any] = graph_replace(list(graphs), dict(replacements), strict=False)
    return replaced


def merged(graphs: Sequence[Any]) -> list[TensorVariable]:
    """Return ``graphs`` with each result computed once, so that it has one adjoint."""
    outputs, before = list(graphs), 0
    # Results of equal constants are recognised as the same once the constants are one
    while True:
        graph = FunctionGraph(outputs=outputs, clone=False)
        MergeOptimizer().rewrite(graph)
        outputs, count = list(graph.outputs), len(graph.apply_nodes)
        if count == before:
            return outputs
        before = count


def numbers_computed(
    graphs: Sequence[Any], given: Sequence[Any] = (), rows: Sequence[Any] | None = None
) -> int:
    """Count the numbers that ``graphs`` compute from what is given, as a measure of cost.

    With ``rows``, which are given, those alone that depend on them. In a product of matrices or a
    decomposition, eight multiplications count as one number.
    """
    count, of_rows = 0, set(rows or ())
    for node in io_toposort(list(given), list(graphs)):
        if rows is not None and of_rows.isdisjoint(node.inputs):
            continue
        of_rows.update(node.outputs)
        shape: Any = getattr(node.inputs[0].type, "shape", ()) if node.inputs else ()
        products = isinstance(node.op, Dot) or (isinstance(node.op, Blockwise) and len(shape) > 1)
        each = 1 + (shape[-1] or 1) // 8 if products and shape else 1
        for x in node.outputs:
            count += each * math.prod(n or 1 for n in getattr(x.type, "shape", ()))
    return count


def rebuilt(
    graphs: Sequence[Any], replacements: Mapping[Any, Any], keep: Sequence[Any] = ()
) -> list[Any]:
    """Return ``graphs`` with inputs of other lengths, their shapes inferred again.

    Variables that depend on none of them, and those to keep, stay as they are.
    """
    known: dict[Variable, Variable] = {**{variable: variable for variable in keep}, **replacements}
    for node in io_toposort(list(known), list(graphs)):
        inputs: list[Any] = [known.get(x, x) for x in node.inputs]
        if all(new is old for new, old in zip(inputs, node.inputs, strict=True)):
            continue
        made = made_again(node, inputs)
        for old, new in zip(node.outputs, made, strict=True):
            if old not in known:
                new.name, new.tag = old.name, copy(old.tag)
                known[old] = new
    return [known.get(graph, graph) for graph in graphs]


def made_again(node: Any, inputs: Sequence[Any]) -> list[Any]:
    """Return the outputs of a node's operation on other inputs, whatever their shapes."""
    op = node.op
    if isinstance(op, SymbolicOp):
        outputs: Any = op(*inputs, return_list=True)
        return list(outputs)
    if isinstance(op, OpFromGraph):
        op = _of_types(op, [x.type for x in inputs])
    return list(op.make_node(*inputs).outputs)


def _of_types(op: OpFromGraph, types: Sequence[Any]) -> OpFromGraph:
    """Return the operation with its inner graph made for inputs of other types."""
    if list(op.input_types) == list(types):
        return op
    inner = op.fgraph.unfreeze()
    inputs = [kind() for kind in types]
    outputs = rebuilt(inner.outputs, dict(zip(inner.inputs, inputs, strict=True)))
    return op.clone_with_inner_graph(FunctionGraph(inputs, outputs, clone=False))


def lengthened(
    graphs: Sequence[Any], replacements: Mapping[Any, Any]
) -> list[TensorVariable] | None:
    """Return ``graphs`` with inputs replaced by longer ones, None if they need their lengths.

    A length that is a number in a graph, such as a likelihood's scale, stays as it was.
    """
    simple: Any = rewrite_graph(list(graphs), include=("canonicalize",), clone=True)
    known = {
        variable: constant
        for variable in ancestors(list(simple))
        if (constant := _static_shape(variable)) is not None
    }
    try:
        longer: Any = clone_replace(
            substitute(simple, known), dict(replacements), rebuild_strict=False
        )
    except (TypeError, ValueError, IndexError):
        return None
    return list(longer)


def _static_shape(variable: Any) -> TensorVariable | None:
    node = variable.owner
    if node is None or not isinstance(node.op, Shape | Shape_i):
        return None
    shape = node.inputs[0].type.shape
    lengths = shape if isinstance(node.op, Shape) else shape[node.op.i]
    unknown = None in lengths if isinstance(node.op, Shape) else lengths is None
    return None if unknown else pt.constant(lengths, dtype=variable.type.dtype)


def gradient_of(
    density: TensorVariable, variables: Sequence[TensorVariable]
) -> list[TensorVariable]:
    """Return the gradient, zero for variables on which the density does not depend."""
    return pytensor.grad(  # type: ignore[return-value]
        density, list(variables), disconnected_inputs="ignore"
    )
