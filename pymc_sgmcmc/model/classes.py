"""Log probabilities of classes, and their gradients, as elementwise operations.

PyMC takes the logarithm of one entry of each row of a softmax. The gradient then divides by that
entry, which can be zero in floating point, and adds into zeros at one place of each row: element by
element on a processor, in kernels of their own on a GPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytensor.tensor as pt

from pytensor.graph.basic import Constant, Variable
from pytensor.graph.rewriting.basic import in2out, node_rewriter
from pytensor.graph.rewriting.utils import rewrite_graph
from pytensor.graph.traversal import ancestors
from pytensor.scalar.basic import Log, Second
from pytensor.tensor.basic import Alloc
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.special import LogSoftmax, Softmax
from pytensor.tensor.subtensor import AdvancedIncSubtensor, AdvancedSubtensor
from pytensor.tensor.variable import TensorVariable

__all__ = ["into_one_class_of_each_row", "log_softmax_of_classes"]


def log_softmax_of_classes(graphs: Sequence[Any]) -> list[TensorVariable]:
    """Return ``graphs`` with entries of a log softmax in place of logarithms of a softmax's."""
    if not any(_is_a(Softmax, x) for x in ancestors(list(graphs))):
        return list(graphs)
    rewritten: Any = rewrite_graph(
        list(graphs), include=(), custom_rewrite=in2out(_log_first), clone=True
    )
    return list(rewritten)


@node_rewriter([Elemwise])
def _log_first(fgraph: Any, node: Any) -> list[Variable] | None:
    """Write log softmax(x)[i, j] as (log softmax(x))[i, j]."""
    if not isinstance(node.op.scalar_op, Log):
        return None
    [entry], outer = node.inputs, None
    if _is_a(DimShuffle, entry):
        outer, [entry] = entry.owner.op, entry.owner.inputs
    if not _is_a(AdvancedSubtensor, entry) or not _is_a(Softmax, entry.owner.inputs[0]):
        return None
    probabilities, *indices = entry.owner.inputs
    [scores] = probabilities.owner.inputs
    logs = LogSoftmax(axis=probabilities.owner.op.axis)(scores)
    found = entry.owner.op(logs, *indices)
    return [found if outer is None else outer(found)]


@node_rewriter([AdvancedIncSubtensor])
def into_one_class_of_each_row(fgraph: Any, node: Any) -> list[Variable] | None:
    """Write zeros (N, K) with v added at [arange(N), j] as a choice by comparison with j."""
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
        if _is_a(Alloc, x) or _is_a(DimShuffle, x):
            x = x.owner.inputs[0]
        elif isinstance(getattr(x.owner.op, "scalar_op", None), Second):
            x = x.owner.inputs[1]
        else:
            return False
    return isinstance(x, Constant) and not np.any(x.data)


def _is_a(kind: type, x: Any) -> bool:
    return x.owner is not None and isinstance(x.owner.op, kind)
