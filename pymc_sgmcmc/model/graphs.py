"""Substitution and differentiation of graphs."""

from __future__ import annotations

import math

from collections.abc import Mapping, Sequence
from copy import copy
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt

from pytensor.compile.builders import OpFromGraph, SymbolicOp
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.op import HasInnerGraph
from pytensor.graph.replace import clone_replace, graph_replace
from pytensor.graph.rewriting.basic import MergeOptimizer, in2out, node_rewriter
from pytensor.graph.rewriting.utils import rewrite_graph
from pytensor.graph.traversal import ancestors, io_toposort
from pytensor.tensor.basic import Nonzero
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.linalg.decomposition.eigen import Eigvalsh
from pytensor.tensor.math import Dot
from pytensor.tensor.shape import Shape, Shape_i
from pytensor.tensor.subtensor import (
    AdvancedIncSubtensor,
    AdvancedSubtensor,
    indices_from_subtensor,
)
from pytensor.tensor.variable import TensorVariable

from pymc_sgmcmc.backends.compiling import INTERPRETER
from pymc_sgmcmc.backends.workarounds import slow_rewrites
from pymc_sgmcmc.model.classes import into_one_class_of_each_row

__all__ = [
    "canonical",
    "constants_as_numbers",
    "gradient_of",
    "lengthened",
    "lengths_as_numbers",
    "made_again",
    "masks_as_numbers",
    "merged",
    "numbers_computed",
    "rebuilt",
    "substitute",
    "with_known_shapes",
]


def substitute(graphs: Sequence[Any], replacements: Mapping[Any, Any]) -> list[TensorVariable]:
    """Return ``graphs`` with variables replaced, ignoring those that do not occur."""
    replaced: list[Any] = graph_replace(list(graphs), dict(replacements), strict=False)
    return replaced


def merged(graphs: Sequence[Any]) -> list[TensorVariable]:
    """Return ``graphs`` with each result computed once, so that it has one adjoint."""
    found, before = list(graphs), 0
    # Results of equal constants are recognised as the same once the constants are one
    while True:
        graph = FunctionGraph(outputs=found, clone=False)
        MergeOptimizer().rewrite(graph)
        found, count = list(graph.outputs), len(graph.apply_nodes)
        if count == before:
            return found
        before = count


def numbers_computed(graphs: Sequence[Any], given: Sequence[Any] = ()) -> int:
    """Count the numbers that ``graphs`` compute from what is given, as a measure of cost.

    In a product of matrices or a decomposition, eight multiplications count as one number.
    """
    count = 0
    for node in io_toposort(list(given), list(graphs)):
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


def with_known_shapes(graphs: Sequence[Any]) -> list[TensorVariable]:
    """Return ``graphs`` with the static shapes that follow from those of their inputs.

    PyMC leaves lengths open for ``dims``; JAX must know those of all broadcast arrays.
    """
    known: dict[Variable, Variable] = {}
    for node in io_toposort([], list(graphs)):
        inputs = [known.get(x, x) for x in node.inputs]
        vague = any(None in getattr(x.type, "shape", ()) for x in node.outputs)
        if vague and isinstance(node.op, SymbolicOp):
            # Its inner graph is made for the shapes of its inputs
            made: Any = node.op(*inputs, return_list=True)
        elif vague and not isinstance(node.op, HasInnerGraph):
            made = node.op.make_node(*inputs).outputs
        elif any(new is not old for new, old in zip(inputs, node.inputs, strict=True)):
            made = node.clone_with_new_inputs(inputs, strict=False).outputs
        else:
            continue
        for old, new in zip(node.outputs, made, strict=True):
            new.name = old.name
            known[old] = new
    return [known.get(graph, graph) for graph in graphs]


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
    found = shape if isinstance(node.op, Shape) else shape[node.op.i]
    unknown = None in found if isinstance(node.op, Shape) else found is None
    return None if unknown else pt.constant(found, dtype=variable.type.dtype)


def gradient_of(
    density: TensorVariable, variables: Sequence[TensorVariable]
) -> list[TensorVariable]:
    """Return the gradient, zero for variables on which the density does not depend."""
    gradient: list[TensorVariable] = pytensor.grad(  # type: ignore[assignment]
        density, list(variables), disconnected_inputs="ignore"
    )
    return gradient


def masks_as_numbers(graphs: Sequence[Any]) -> list[TensorVariable]:
    """Return ``graphs`` with row numbers in place of constant masks, as in PyMC's imputation.

    JAX must know the shape of what a mask selects.
    """
    if not any(_masked(variable.owner) for variable in ancestors(list(graphs))):
        return list(graphs)
    rewritten: Any = rewrite_graph(
        list(graphs), include=(), custom_rewrite=in2out(_numbered), clone=True
    )
    return list(rewritten)


def constants_as_numbers(graphs: Sequence[Any]) -> list[TensorVariable]:
    """Return ``graphs`` with numbers in place of constants' results that JAX lacks, or must know.

    ``pm.ICAR`` finds neighbours by the nonzeros of a constant, whose number JAX must know;
    ``pm.CAR`` has generalised eigenvalues, which JAX lacks.
    """
    known = {
        variable: pt.constant(variable.eval(mode=INTERPRETER), dtype=variable.type.dtype)
        for variable in ancestors(list(graphs))
        if variable.owner is not None
        and isinstance(getattr(variable.owner.op, "core_op", variable.owner.op), Nonzero | Eigvalsh)
        and all(isinstance(x, Constant) for x in ancestors([variable]) if x.owner is None)
    }
    return substitute(graphs, known) if known else list(graphs)


def lengths_as_numbers(graphs: Sequence[Any]) -> list[TensorVariable]:
    """Return ``graphs`` with numbers in place of the lengths of shared variables.

    A graph that needs only an array's length then does not read the array.
    """
    known = {
        variable: pt.constant(
            np.shape(variable.owner.inputs[0].get_value(borrow=True)), dtype=variable.type.dtype
        )
        for variable in ancestors(list(graphs))
        if variable.owner is not None
        and isinstance(variable.owner.op, Shape)
        and isinstance(variable.owner.inputs[0], SharedVariable)
    }
    return substitute(graphs, known) if known else list(graphs)


def _is_mask(index: Any) -> bool:
    return isinstance(index, Constant) and index.type.dtype == "bool"


def _masked(node: Any) -> bool:
    indexing = node is not None and isinstance(node.op, AdvancedSubtensor | AdvancedIncSubtensor)
    return indexing and any(_is_mask(index) for index in node.inputs)


@node_rewriter([AdvancedSubtensor, AdvancedIncSubtensor])
def _numbered(fgraph: Any, node: Any) -> list[Variable] | None:
    """Write x[mask] as x[numbers]."""
    if not _masked(node):
        return None
    writes = isinstance(node.op, AdvancedIncSubtensor)
    x, indices = node.inputs[0], node.inputs[1 + writes :]
    numbers: list[Any] = []
    index: Any
    for index in indices_from_subtensor(indices, node.op.idx_list):
        numbers += map(pt.constant, np.nonzero(index.data)) if _is_mask(index) else [index]
    selected = x[tuple(numbers)]
    if not writes:
        return [selected]
    y = node.inputs[1]
    return [selected.set(y) if node.op.set_instead_of_inc else selected.inc(y)]


def canonical(graphs: list[TensorVariable]) -> list[TensorVariable]:
    """Simplify a gradient before it is used further."""
    rewritten: Any = rewrite_graph(
        graphs,
        include=("canonicalize",),
        exclude=slow_rewrites(graphs),
        custom_rewrite=in2out(_matrix_first, into_one_class_of_each_row),
        clone=True,
    )
    return list(rewritten)


@node_rewriter([Dot])
def _matrix_first(fgraph: Any, node: Any) -> list[Variable] | None:
    """Write Xᵀv as vX: XLA on CPUs copies the transposed matrix, at twice the cost."""
    matrix, other = node.inputs
    transposed = (
        matrix.owner is not None
        and isinstance(matrix.owner.op, DimShuffle)
        and tuple(matrix.owner.op.new_order) == (1, 0)
    )
    if not transposed:
        return None
    original = matrix.owner.inputs[0]
    if other.ndim == 1:
        return [pt.dot(other, original)]
    if other.type.shape[1] == 1:
        return [pt.dot(other[:, 0], original)[:, None]]
    return None
