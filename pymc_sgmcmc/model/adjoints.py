r"""The gradient of a batch in two parts: through its rows, and through what all batches share.

A log density is :math:`\ell(s(\varphi), \text{rows})`, where :math:`s` are the quantities that
enter operations on rows and depend on none of them: group effects, a scale, the value of the prior.
The gradient of a mean over batches is :math:`s'(\varphi)^\top` times the mean of the adjoints
:math:`\partial \ell / \partial s`. So shared quantities are computed and differentiated once for
all batches, and an adjoint that rows touch at few places is changed there alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pytensor
import pytensor.tensor as pt

from pytensor.graph.basic import Variable
from pytensor.graph.traversal import io_toposort
from pytensor.tensor.type import TensorType
from pytensor.tensor.variable import TensorVariable

from pymc_sgmcmc.model.graphs import canonical, gradient_of, substitute

__all__ = ["Adjoints"]


class Adjoints:
    """Graphs of the gradient of U, estimated from one batch, through what its batches share."""

    def __init__(
        self,
        potential: TensorVariable,
        phi: Sequence[TensorVariable],
        rows: Iterable[TensorVariable],
    ) -> None:
        self._phi = list(phi)
        shared = _shared(potential, phi, rows)
        smooth = [s for s in shared if s.dtype.startswith("float")]
        # s(φ), as graphs of φ; a condition on φ is shared too, but has no adjoint
        self.shared = smooth + [s for s in shared if s not in smooth]
        # Placeholders for s in ``adjoints``
        self.symbols = [s.type(f"shared_{i}") for i, s in enumerate(self.shared)]
        [of_symbols] = substitute([potential], dict(zip(self.shared, self.symbols, strict=True)))
        found = gradient_of(of_symbols, self.symbols[: len(smooth)])
        # Also of what is shared in single precision, as constants can make it
        floatX = pytensor.config.floatX
        self.adjoints = canonical([pt.cast(a, floatX) for a in found])  # ∂U/∂s of one batch
        self._given = [
            pt.tensor(f"adjoint_{i}", dtype=floatX, shape=s.type.shape)
            for i, s in enumerate(smooth)
        ]
        inner = pt.add(*[pt.sum(s * a) for s, a in zip(smooth, self._given, strict=True)], 0.0)
        self._pulled = canonical(gradient_of(inner, self._phi))

    def pull_back(self, adjoints: Sequence[Any]) -> list[TensorVariable]:
        """Return s′(φ)ᵀ of these adjoints, as graphs of φ."""
        return substitute(self._pulled, dict(zip(self._given, adjoints, strict=True)))


def _shared(
    graph: TensorVariable, phi: Sequence[TensorVariable], rows: Iterable[TensorVariable]
) -> list[TensorVariable]:
    """Return the quantities that depend on φ, not on rows, and enter operations on rows."""
    of_phi: set[Any] = set(phi)
    of_rows: set[Any] = set(rows)
    found: dict[Any, None] = {}

    def share(inputs: Sequence[Variable]) -> None:
        for x in inputs:
            if x in of_phi and x not in of_rows:
                if isinstance(x.type, TensorType):
                    found[x] = None
                else:
                    # Only tensors can be handed into a loop over batches
                    share(x.owner.inputs)

    for node in io_toposort([], [graph]):
        if any(x in of_rows for x in node.inputs):
            of_rows.update(node.outputs)
            share(node.inputs)
        elif any(x in of_phi for x in node.inputs):
            of_phi.update(node.outputs)
    return list(found)
