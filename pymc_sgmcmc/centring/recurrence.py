"""A linear recurrence along a series, as one operation with its own gradient."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytensor.tensor as pt

from pytensor.graph.basic import Apply, Variable
from pytensor.graph.op import Op


class Recurrence(Op):
    """``y_t = x_t + r_t y_{t − 1}`` along the last dimension, or the transpose of that map of x.

    As products of whole vectors it takes log₂ T steps, all of which are compiled; the backends
    have a loop for it.
    """

    __props__ = ("ahead",)

    def __init__(self, *, ahead: bool) -> None:
        self.ahead = ahead

    def make_node(self, *inputs: Any) -> Apply:
        """Return the node of ``x`` and ``r`` of one shape; the first ``r`` has no effect."""
        x, kept = (pt.as_tensor(value) for value in inputs)
        dtype = np.result_type(x.dtype, kept.dtype).name
        shape = [n or m for n, m in zip(x.type.shape, kept.type.shape, strict=True)]
        y = pt.tensor(dtype=dtype, shape=tuple(shape))
        return Apply(self, [x.astype(dtype), kept.astype(dtype)], [y])

    def perform(self, node: Apply, inputs: Any, output_storage: Any) -> None:
        """Loop over places, for all series at once."""
        output_storage[0][0] = solved(*inputs, ahead=self.ahead)

    def infer_shape(self, node: Apply, input_shapes: Any) -> list[Any]:
        """Return the shape of x."""
        return [input_shapes[0]]

    def pullback(
        self, inputs: Sequence[Any], outputs: Sequence[Any], cotangents: Sequence[Any]
    ) -> list[Variable]:
        """Return the transposed recurrence of the cotangent, and its products with y."""
        kept, [y], [cotangent] = inputs[1], outputs, cotangents
        moved: Any = Recurrence(ahead=not self.ahead)(cotangent, kept)
        return [moved, moved * later(y) if self.ahead else later(moved) * y]


def solved(x: np.ndarray, kept: np.ndarray, *, ahead: bool) -> np.ndarray:
    """Return y with y_t = x_t + r_t y_{t − 1}, or else with y_t = x_t + r_{t + 1} y_{t + 1}."""
    y = x.copy()
    length = x.shape[-1]
    for t in range(1, length):
        if ahead:
            y[..., t] += kept[..., t] * y[..., t - 1]
        else:
            y[..., -t - 1] += kept[..., length - t] * y[..., -t]
    return y


def later(x: Any, lib: Any = pt) -> Any:
    """Move elements by one place, with zero before them."""
    return lib.concatenate([lib.zeros_like(x[..., :1]), x[..., :-1]], axis=-1)


def earlier(x: Any, lib: Any = pt) -> Any:
    """Move elements back by one place, with zero after them."""
    return lib.concatenate([x[..., 1:], lib.zeros_like(x[..., :1])], axis=-1)
