"""What is done to a model's graphs before they are differentiated, and to gradients after it.

``PASSES_OF_CONSTANTS`` and ``PASSES_OF_SHAPES`` list the rewrites of the graphs in their order.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
import pytensor
import pytensor.scalar as ps
import pytensor.tensor as pt

from pytensor.compile.builders import SymbolicOp
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.op import HasInnerGraph
from pytensor.graph.rewriting.basic import in2out, node_rewriter
from pytensor.graph.rewriting.utils import rewrite_graph
from pytensor.graph.traversal import ancestors, graph_inputs, io_toposort
from pytensor.sparse.basic import as_sparse_variable
from pytensor.sparse.type import SparseTensorType
from pytensor.tensor.basic import Alloc, Nonzero
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.linalg import SolveTriangular, solve_triangular
from pytensor.tensor.linalg.decomposition.eigen import Eigvalsh
from pytensor.tensor.math import Dot
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.shape import Shape
from pytensor.tensor.special import LogSoftmax, Softmax
from pytensor.tensor.subtensor import (
    AdvancedIncSubtensor,
    AdvancedSubtensor,
    indices_from_subtensor,
)
from pytensor.tensor.type import TensorType
from pytensor.tensor.variable import TensorVariable

from pymc_sgmcmc.backends.interpreting import INTERPRETER
from pymc_sgmcmc.backends.workarounds import slow_rewrites
from pymc_sgmcmc.model.graphs import (
    is_a,
    is_data,
    nodes_of,
    rewritten,
    same_memory,
    substitute,
)
from pymc_sgmcmc.model.kinks import kinks_from_one_number
from pymc_sgmcmc.model.minibatch import evaluate
from pymc_sgmcmc.model.whole_numbers import whole_numbers

# Smaller constants stay in the graph: shapes, axes and indices must be constants for JAX, and what
# is this small costs nothing
_LARGEST_CONSTANT = 64

# Elementwise operations as cheap as to read their results, which may be larger than their arguments
_CHEAP = (
    ps.Add, ps.Sub, ps.Mul, ps.TrueDiv, ps.IntDiv, ps.Neg, ps.Abs, ps.Sqr, ps.Sqrt, ps.Identity,
    ps.Cast, ps.Second, ps.Switch, ps.Maximum, ps.Minimum, ps.Sign, ps.basic.LogicalComparison,
    ps.AND, ps.OR, ps.XOR, ps.Invert,
)  # fmt: skip


# ----------------------------------------------------------------------------- classes


def log_softmax_of_classes(graphs: Sequence[Any]) -> list[TensorVariable]:
    """Return ``graphs`` with entries of a log softmax in place of logarithms of a softmax's.

    The gradient of PyMC's logarithm of one entry divides by that entry, which may be 0.
    """
    return rewritten(graphs, _log_first) if nodes_of(graphs, Softmax) else list(graphs)


@node_rewriter([Elemwise])
def _log_first(fgraph: Any, node: Any) -> list[Variable] | None:
    """Write log softmax(x)[i, j] as (log softmax(x))[i, j]."""
    if not isinstance(node.op.scalar_op, ps.Log):
        return None
    [entry], outer = node.inputs, None
    if is_a(DimShuffle, entry):
        outer, [entry] = entry.owner.op, entry.owner.inputs
    if not is_a(AdvancedSubtensor, entry) or not is_a(Softmax, entry.owner.inputs[0]):
        return None
    probabilities, *indices = entry.owner.inputs
    [scores] = probabilities.owner.inputs
    logs = LogSoftmax(axis=probabilities.owner.op.axis)(scores)
    log_entry = entry.owner.op(logs, *indices)
    return [log_entry if outer is None else outer(log_entry)]


# ----------------------------------------------------------------------------- known values


def masks_as_numbers(graphs: Sequence[Any]) -> list[TensorVariable]:
    """Return ``graphs`` with row numbers in place of constant masks, as in PyMC's imputation.

    JAX must know the shape of what a mask selects.
    """
    nodes = nodes_of(graphs, AdvancedSubtensor | AdvancedIncSubtensor)
    return rewritten(graphs, _by_numbers) if any(map(_has_mask, nodes)) else list(graphs)


def _mask_of(index: Any) -> Any:
    """Return a constant mask, or the opposite of one as PyMC's imputation writes it, or None."""
    if isinstance(index, Constant):
        return index.data if index.type.dtype == "bool" else None
    op = None if index.owner is None else index.owner.op
    opposite = isinstance(getattr(op, "scalar_op", None), ps.Invert)
    mask = _mask_of(index.owner.inputs[0]) if opposite else None
    return None if mask is None else ~mask


def _has_mask(node: Any) -> bool:
    # What is indexed, or written, may be a constant of booleans itself
    first = 1 + isinstance(node.op, AdvancedIncSubtensor)
    return any(_mask_of(x) is not None for x in node.inputs[first:])


@node_rewriter([AdvancedSubtensor, AdvancedIncSubtensor])
def _by_numbers(fgraph: Any, node: Any) -> list[Variable] | None:
    """Write x[mask] as x[numbers]."""
    if not _has_mask(node):
        return None
    writes = isinstance(node.op, AdvancedIncSubtensor)
    x, indices = node.inputs[0], node.inputs[1 + writes :]
    numbers: list[Any] = []
    index: Any
    for index in indices_from_subtensor(indices, node.op.idx_list):
        # A slice is no variable
        mask = _mask_of(index) if isinstance(index, Variable) else None
        numbers += [index] if mask is None else map(pt.constant, np.nonzero(mask))
    selected = x[tuple(numbers)]
    if not writes:
        return [selected]
    y = node.inputs[1]
    return [selected.set(y) if node.op.set_instead_of_inc else selected.inc(y)]


def constants_as_numbers(graphs: Sequence[Any]) -> list[TensorVariable]:
    """Return ``graphs`` with numbers in place of constants' results that JAX lacks, or must know.

    ``pm.ICAR`` finds neighbours by the nonzeros of a constant, whose number JAX must know;
    ``pm.CAR`` has generalised eigenvalues, which JAX lacks.
    """
    known = {
        x: pt.constant(x.eval(mode=INTERPRETER), dtype=x.type.dtype)
        for x in ancestors(list(graphs))
        if x.owner is not None
        and isinstance(getattr(x.owner.op, "core_op", x.owner.op), Nonzero | Eigvalsh)
        and all(isinstance(leaf, Constant) for leaf in ancestors([x]) if leaf.owner is None)
    }
    return substitute(graphs, known) if known else list(graphs)


def lengths_as_numbers(graphs: Sequence[Any]) -> list[TensorVariable]:
    """Return ``graphs`` with numbers in place of the lengths of shared variables.

    A graph that needs only an array's length then does not read the array.
    """
    known = {
        node.outputs[0]: pt.constant(
            np.shape(node.inputs[0].get_value(borrow=True)), dtype=node.outputs[0].type.dtype
        )
        for node in nodes_of(graphs, Shape)
        if isinstance(node.inputs[0], SharedVariable)
    }
    return substitute(graphs, known) if known else list(graphs)


def computed_once(graphs: Sequence[Any]) -> list[TensorVariable]:
    """Return ``graphs`` with constants in place of costly results that no parameter changes.

    Such are the basis functions of a process.
    """
    of_data: dict[Variable, bool] = {}  # whether each result of data alone is costly
    used: dict[Variable, None] = {}
    for node in io_toposort([], list(graphs)):
        fixed = all(x in of_data or is_data(x) for x in node.inputs)
        if fixed and _is_repeatable(node):
            costly = _is_costly(node.op) or any(of_data.get(x, False) for x in node.inputs)
            of_data.update(dict.fromkeys(node.outputs, costly))
        else:
            used.update(dict.fromkeys(node.inputs))
    used.update(dict.fromkeys(graphs))
    results: list[Any] = [x for x in used if of_data.get(x, False)]
    if not results:
        return list(graphs)
    try:
        with np.errstate(all="ignore"):
            arrays = pytensor.function([], results, mode=INTERPRETER)()
    except (ValueError, ArithmeticError, NotImplementedError):
        # What the backends compute as NaN, or at all, is an error of the interpreter
        return list(graphs)
    constants = {
        x: pt.constant(np.asarray(array, dtype=x.dtype))
        for x, array in zip(results, arrays, strict=True)
    }
    return substitute(graphs, constants)


def _is_repeatable(node: Any) -> bool:
    tensors = all(isinstance(x.type, TensorType) for x in node.outputs)
    return tensors and not isinstance(node.op, RandomVariable | HasInnerGraph)


def _is_costly(op: Any) -> bool:
    if isinstance(op, Elemwise):
        return not isinstance(op.scalar_op, _CHEAP)
    return isinstance(op, Dot | Blockwise)


# ----------------------------------------------------------------------------- shapes, systems


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


def products_for_solves(graphs: Sequence[Any]) -> list[TensorVariable]:
    """Return ``graphs`` with L⁻¹B in place of the solution of LX = B where B has many columns.

    BLAS shares a solve of some hundred columns among threads, which wait for each other where other
    chains use the cores: microseconds of work take milliseconds. The inverse is a small system.
    """
    return rewritten(graphs, _as_product, clone=False)


@node_rewriter([Blockwise])
def _as_product(fgraph: Any, node: Any) -> list[Variable] | None:
    """Write the solution of a system for more columns than it has rows as a product."""
    op = node.op.core_op
    if not isinstance(op, SolveTriangular):
        return None
    matrix, b = node.inputs
    order, batch = matrix.type.shape[-1], matrix.ndim - 2
    one_system = all(size == 1 for size in matrix.type.shape[:batch])
    if not one_system or None in (order, *b.type.shape) or prod(b.type.shape) <= order**2:
        return None
    if batch:
        matrix = pt.squeeze(matrix, axis=tuple(range(batch)))
    identity = pt.eye(order, dtype=b.type.dtype)
    inverse = solve_triangular(matrix, identity, lower=op.lower, unit_diagonal=op.unit_diagonal)
    product: Any = b @ inverse.T if op.b_ndim == 1 else inverse @ b
    return [product.astype(node.outputs[0].type.dtype)]


# ----------------------------------------------------------------------------- all passes

# In this order; each function's docstring says why. Data become inputs between the two groups
PASSES_OF_CONSTANTS = (
    whole_numbers,
    log_softmax_of_classes,
    masks_as_numbers,
    constants_as_numbers,
    lengths_as_numbers,
    computed_once,
)
PASSES_OF_SHAPES = with_known_shapes, products_for_solves, kinks_from_one_number


def simplify(graphs: Sequence[Any]) -> tuple[list[TensorVariable], dict[Variable, np.ndarray]]:
    """Return ``graphs`` after all passes, and the arrays of data that are their inputs."""
    for rewrite in PASSES_OF_CONSTANTS:
        graphs = rewrite(graphs)
    graphs, data = _lift_data(graphs)
    for rewrite in PASSES_OF_SHAPES:
        graphs = rewrite(graphs)
    return list(graphs), data


def _lift_data(graphs: Sequence[Any]) -> tuple[list[TensorVariable], dict[Variable, np.ndarray]]:
    """Return ``graphs`` with inputs in place of shared variables and large constants.

    New data then need no new compilation, and compilers take long over large constants.
    """
    replacements: dict[Variable, Variable] = {}
    data: dict[Variable, np.ndarray] = {}
    for source in graph_inputs(graphs):
        if not is_data(source):
            continue
        value = evaluate(source)
        if isinstance(source.type, SparseTensorType):
            # JAX multiplies by constants only
            replacements[source] = as_sparse_variable(value)
            continue
        dtype = source.type.dtype
        if value.size <= _LARGEST_CONSTANT:
            if isinstance(source, SharedVariable):
                replacements[source] = pt.constant(value, dtype=dtype)
            continue
        # Clones of a constant share its memory
        same = (x for x, a in data.items() if x.type.dtype == dtype and same_memory(a, value))
        symbol = next(same, None)
        if symbol is None:
            symbol = pt.tensor(f"data_{len(data)}", dtype=dtype, shape=value.shape)
            data[symbol] = value
        replacements[source] = symbol
    return substitute(graphs, replacements), data


# ----------------------------------------------------------------------------- gradients


def canonical(graphs: list[TensorVariable]) -> list[TensorVariable]:
    """Simplify a gradient before it is used further."""
    simple: Any = rewrite_graph(
        graphs,
        include=("canonicalize",),
        exclude=slow_rewrites(graphs),
        custom_rewrite=in2out(_matrix_first, _one_class_of_each_row),
        clone=True,
    )
    return list(simple)


@node_rewriter([Dot])
def _matrix_first(fgraph: Any, node: Any) -> list[Variable] | None:
    """Write Xᵀv as vX: XLA on CPUs copies the transposed matrix, at twice the cost."""
    matrix, other = node.inputs
    if not is_a(DimShuffle, matrix) or tuple(matrix.owner.op.new_order) != (1, 0):
        return None
    original = matrix.owner.inputs[0]
    if other.ndim == 1:
        return [pt.dot(other, original)]
    if other.type.shape[1] == 1:
        return [pt.dot(other[:, 0], original)[:, None]]
    return None


@node_rewriter([AdvancedIncSubtensor])
def _one_class_of_each_row(fgraph: Any, node: Any) -> list[Variable] | None:
    """Write zeros (N, K) with v added at [arange(N), j] as a choice by comparison with j.

    Additions at single places are slow: element by element, or on a GPU in kernels of their own.
    """
    onto, values, *indices = node.inputs
    if onto.type.ndim != 2 or None in onto.type.shape or node.op.idx_list != (0, 1):
        return None
    N, K = onto.type.shape
    if len(indices) != 2 or not _is_zero(onto):
        return None
    values, rows, classes = (_column(x, N) for x in (values, *indices))
    if values is None or classes is None or not isinstance(rows, Constant):
        return None
    if not np.array_equal(rows.data.ravel(), np.arange(N)):
        return None
    from_zero = pt.switch(pt.lt(classes, 0), classes + K, classes)
    chosen = pt.eq(pt.arange(K, dtype=from_zero.dtype), from_zero)
    return [pt.switch(chosen, values, 0).astype(onto.dtype)]


def _column(x: Any, length: int) -> Any:
    """Return a vector or a column of a length as a column, None for other arrays."""
    if x.type.shape == (length, 1) or x.type.broadcastable in ((), (True, True)):
        return x
    if x.type.shape != (length,):
        return None
    return pt.constant(x.data[:, None]) if isinstance(x, Constant) else x[:, None]


def _is_zero(x: Any) -> bool:
    """Whether an array is made of the constant 0."""
    while x.owner is not None:
        if is_a(Alloc, x) or is_a(DimShuffle, x):
            x = x.owner.inputs[0]
        elif isinstance(getattr(x.owner.op, "scalar_op", None), ps.Second):
            x = x.owner.inputs[1]
        else:
            return False
    return isinstance(x, Constant) and not np.any(x.data)
