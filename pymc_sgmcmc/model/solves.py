"""Triangular systems with many right-hand sides, as those of a multivariate normal's rows."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import pytensor.tensor as pt

from pytensor.graph.basic import Variable
from pytensor.graph.rewriting.basic import in2out, node_rewriter
from pytensor.graph.rewriting.utils import rewrite_graph
from pytensor.graph.traversal import ancestors
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.linalg import SolveTriangular, solve_triangular
from pytensor.tensor.variable import TensorVariable

__all__ = ["products_for_solves"]


def products_for_solves(graphs: Sequence[Any]) -> list[TensorVariable]:
    """Return ``graphs`` with L⁻¹B in place of the solution of LX = B where B has many columns.

    BLAS shares a solve of some hundred columns among threads, which wait for each other where other
    chains use the cores: microseconds of work take milliseconds. The inverse is a small system.
    """
    if not any(_product(variable.owner) is not None for variable in ancestors(list(graphs))):
        return list(graphs)
    rewritten: Any = rewrite_graph(list(graphs), include=(), custom_rewrite=in2out(_as_product))
    return list(rewritten)


@node_rewriter([Blockwise])
def _as_product(fgraph: Any, node: Any) -> list[Variable] | None:
    product = _product(node)
    return None if product is None else [product]


def _product(node: Any) -> TensorVariable | None:
    """Return the replacement of a node that solves a system for more columns than it has rows."""
    if node is None or not isinstance(node.op, Blockwise):
        return None
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
    as_solved: TensorVariable = product.astype(node.outputs[0].type.dtype)
    return as_solved
