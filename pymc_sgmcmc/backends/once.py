"""Arrays that JAX computes once, whatever is made of them."""

from __future__ import annotations

import math

from collections.abc import Sequence
from typing import Any

from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.tensor.variable import TensorVariable

from pymc_sgmcmc.backends.placing import on_processor

# Elements of an array that does not stay in a processor core's cache
_LARGE = 2**17


class Once(Op):
    """The identity, as a barrier to PyTensor's and XLA's rewrites.

    PyTensor expands products of sums, and XLA on CPUs computes an elementwise array anew for each
    use; both read its arguments again, from memory where they are large, and may round otherwise.
    """

    __props__ = ()
    view_map = {0: [0]}  # noqa: RUF012

    def make_node(self, *inputs: Any) -> Apply:
        """Return the node of an array."""
        [x] = inputs
        return Apply(self, [x], [x.type()])

    def perform(self, node: Apply, inputs: Any, output_storage: Any) -> None:
        """Return the array itself."""
        [output_storage[0][0]] = inputs

    def pullback(self, inputs: Any, outputs: Any, cotangents: Any) -> list[Any]:
        """Return the gradient, which is that of the array."""
        return list(cotangents)

    def infer_shape(self, node: Apply, input_shapes: Any) -> list[Any]:
        """Return the array's shape."""
        return list(input_shapes)


def computed_once(parts: Sequence[TensorVariable], backend: str) -> list[TensorVariable]:
    """Return graphs of the same arrays, with large ones computed once for JAX.

    For numba PyTensor fuses all uses of an array into one loop, and for a GPU XLA does.
    """
    once: Any = Once()
    # Of unknown length: 0
    sizes = [math.prod(n or 0 for n in x.type.shape) for x in parts]
    large = [size >= _LARGE for size in sizes] if backend == "jax" else []
    if not any(large) or not on_processor(backend):
        return list(parts)
    return [once(x) if barred else x for x, barred in zip(parts, large, strict=True)]
