"""Rows of a sparse matrix as arrays that batches are drawn from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytensor.tensor as pt

from pytensor.graph.basic import Apply, Variable
from pytensor.graph.op import Op
from pytensor.graph.traversal import apply_ancestors
from pytensor.sparse.math import Dot, StructuredDot
from pytensor.tensor.variable import TensorVariable

__all__ = ["columns_and_values", "products"]


class ColumnsAndValues(Op):
    """Columns and values of a sparse matrix's rows, both (N, m) for at most m entries in a row.

    Shorter rows are filled up with zeros in column 0.
    """

    __props__ = ()

    def make_node(self, *inputs: Any) -> Apply[Any]:
        """Return the node of a sparse matrix, (N, p)."""
        [matrix] = inputs
        shape = (matrix.type.shape[0], None)
        kinds = ("int32", matrix.type.dtype)
        return Apply(self, [matrix], [pt.tensor(dtype=kind, shape=shape) for kind in kinds])

    def perform(self, node: Apply[Any], inputs: Sequence[Any], output_storage: Any) -> None:
        """Compute both arrays."""
        rows = inputs[0].tocsr()
        counts = np.diff(rows.indptr)
        filled = np.arange(counts.max(initial=1)) < counts[:, None]
        for output, storage, entries in zip(
            node.outputs, output_storage, (rows.indices, rows.data), strict=True
        ):
            storage[0] = np.zeros(filled.shape, dtype=output.type.dtype)
            storage[0][filled] = entries


columns_and_values = ColumnsAndValues()


def products(
    matrix: Variable, graphs: Sequence[Variable], columns: Any, values: Any
) -> dict[Variable, TensorVariable]:
    """Return the products of a sparse matrix's rows that are used, for rows of a batch.

    ``columns`` and ``values`` are those of the batch's rows, (B, m).
    """
    found: dict[Variable, TensorVariable] = {}
    for node in apply_ancestors(list(graphs)):
        if isinstance(node.op, Dot | StructuredDot) and node.inputs[0] is matrix:
            taken: Any = pt.as_tensor(node.inputs[1])[columns]
            entries = values if taken.ndim == values.ndim else values[:, :, None]
            product = pt.sum(entries * taken, axis=1)
            found[node.outputs[0]] = product.astype(node.outputs[0].type.dtype)
    return found
