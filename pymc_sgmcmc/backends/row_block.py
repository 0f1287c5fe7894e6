"""A block of rows at a moving offset, for JAX."""

from __future__ import annotations

from typing import Any

import pytensor.tensor as pt

from pytensor.graph.basic import Apply
from pytensor.graph.op import Op


class RowBlock(Op):
    """``table[offset : offset + size]`` with a static size.

    JAX refuses a slice with an unknown start, and XLA copies the gather ``table[offset +
    arange(size)]`` element by element on CPUs; its dynamic slice copies memory.
    """

    __props__ = ("size",)

    def __init__(self, size: int) -> None:
        self.size = size

    def make_node(self, *inputs: Any) -> Apply:
        """Return the node of a block of the inputs ``table`` and ``offset``."""
        table, offset = inputs
        block = pt.tensor(dtype=table.dtype, shape=(self.size, *table.type.shape[1:]))
        return Apply(self, [table, offset], [block])

    def perform(self, node: Apply, inputs: Any, output_storage: Any) -> None:
        """Slice with NumPy."""
        table, offset = inputs
        output_storage[0][0] = table[offset : offset + self.size].copy()

    def infer_shape(self, node: Apply, input_shapes: Any) -> list[Any]:
        """Return the shape of the block."""
        return [(pt.constant(self.size, dtype="int64"), *input_shapes[0][1:])]
