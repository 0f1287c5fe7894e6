r"""The posterior as a function of a position and of which rows make up a batch.

The gradient of a batch has two parts. A log density is :math:`\ell(s(\varphi), \text{rows})`, where
:math:`s` are the quantities that enter operations on rows and depend on none of them: group
effects, a scale, the value of the prior. The gradient of a mean over batches is
:math:`s'(\varphi)^\top` times the mean of the adjoints :math:`\partial \ell / \partial s`. So
shared quantities are computed and differentiated once for all batches, and an adjoint that rows
touch at few places is changed there alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import chain
from typing import Any

import pytensor
import pytensor.tensor as pt

from pytensor.graph.basic import Variable
from pytensor.graph.traversal import io_toposort
from pytensor.tensor.type import TensorType
from pytensor.tensor.variable import TensorVariable

from pymc_sgmcmc.backends.row_block import RowBlock
from pymc_sgmcmc.disk.fetch import has_source
from pymc_sgmcmc.model.graphs import gradient_of, substitute
from pymc_sgmcmc.model.passes import canonical
from pymc_sgmcmc.model.posterior import Posterior


class BatchDensity:
    """Graphs of the posterior with the rows of a batch read from tables.

    With ``in_blocks`` a batch is one of the blocks of B rows, given by its number. Rows of the
    last, shorter block count as often as others; tables of rows on disk hold needed blocks only.
    Where a method takes ``others``, they replace the values that other step methods give to their
    variables.
    """

    def __init__(
        self, posterior: Posterior, *, contiguous: bool, backend: str, in_blocks: bool = False
    ) -> None:
        self.posterior = posterior
        self.contiguous = contiguous
        self._in_blocks = in_blocks
        self._on_disk = in_blocks and has_source(posterior.arrays)
        self.backend = backend
        # For each minibatch the arrays that its rows come from
        self.tables = [
            [
                pt.tensor(
                    f"table_{i}_{j}",
                    dtype=str(getattr(a, "held", a.dtype)),
                    shape=(None, *a.shape[1:]),
                )
                for j, a in enumerate(arrays)
            ]
            for i, arrays in enumerate(posterior.arrays)
        ]
        # Inputs beside position and rows
        tables = chain.from_iterable(self.tables)
        self.fixed = [*posterior.scales, *posterior.others, *posterior.data, *tables]
        # The estimate from one batch, in the posterior's symbols
        self.log_density = self._differentiated = posterior.log_density
        self._weights: list[TensorVariable] = []
        if in_blocks:
            weighted, base, self._weights = posterior.weighted()
            self.log_density, self._differentiated = (
                substitute([weighted], {base: pt.constant(b, dtype=base.dtype)})[0] for b in (1, 0)
            )

    def rows(self, name: str = "rows") -> list[TensorVariable]:
        """Return new symbols for the inputs of a batch.

        They are each minibatch's offset, number or row indices; for blocks on disk also offsets in
        the tables; then the likelihood's own random numbers.
        """
        of_minibatches = [
            pt.tensor(
                f"{name}_{i}", dtype="int32", shape=() if self.contiguous else (b.batch_size,)
            )
            for i, b in enumerate(self.posterior.minibatches)
        ]
        if self._on_disk:
            of_minibatches += [x.clone(name=f"{x.name}_place") for x in of_minibatches]
        return of_minibatches + [
            pt.tensor(f"{name}_{x.name}", dtype=x.dtype, shape=x.type.shape)
            for x in self.posterior.noise
        ]

    def at(
        self,
        graphs: list[TensorVariable],
        phi: Sequence[TensorVariable],
        rows: Sequence[TensorVariable] = (),
        others: Sequence[TensorVariable] = (),
    ) -> list[TensorVariable]:
        """Return graphs of the posterior at φ, for a batch of these rows where they need one."""
        posterior = self.posterior
        values: dict[Any, Any] = dict(zip(posterior.phi, phi, strict=True))
        if rows:
            values.update(self._of_rows(rows))
        if others:
            values.update(zip(posterior.others, others, strict=True))
        return substitute(graphs, values)

    def _of_rows(self, rows: Sequence[TensorVariable]) -> dict[Any, Any]:
        """Map the posterior's rows, row weights and random numbers to those of a batch."""
        posterior = self.posterior
        count = len(posterior.minibatches)
        given = 2 * count if self._on_disk else count
        values: dict[Any, Any] = dict(zip(posterior.noise, rows[given:], strict=True))
        for k, minibatch in enumerate(posterior.minibatches):
            start, size = rows[k], minibatch.batch_size
            if self._in_blocks:
                total, symbol = len(posterior.arrays[k][0]), self._weights[k]
                start = (start * size).astype("int32")
                counted = pt.arange(size) < total - start
                weight = -(-total // size) * posterior.row_weights[k]
                values[symbol] = pt.switch(counted, weight, 0.0).astype(symbol.dtype)
                if self._on_disk:
                    start = rows[count + k]
            for target, table in zip(posterior.rows[k], self.tables[k], strict=True):
                values[target] = self._take(table, start, size).astype(target.dtype)
        return values

    def _take(self, table: TensorVariable, rows: TensorVariable, size: int) -> Any:
        if not self.contiguous:
            return table[rows]
        if self.backend == "jax":
            return RowBlock(size)(table, rows)
        # In numba a slice is a view, and nothing is copied
        block = table[rows : rows + size]
        return pt.specify_shape(block, (size, *table.type.shape[1:]))

    def gradient(
        self,
        phi: Sequence[TensorVariable],
        rows: Sequence[TensorVariable],
        others: Sequence[TensorVariable] = (),
    ) -> list[TensorVariable]:
        """Return the estimate of ∇U with respect to φ from one batch.

        With blocks it leaves out the part without rows, :meth:`base_gradient`.
        """
        return self.at(self._gradient, phi, rows, others)

    def base_gradient(self, phi: Sequence[TensorVariable]) -> list[TensorVariable]:
        """Return the part of ∇U that depends on no rows, where batches are blocks."""
        return self.at(self._base, phi)

    # Gradients are simplified before an update multiplies them: PyTensor would expand
    # h * (x + likelihood's part) to several passes over all parameters
    @cached_property
    def _gradient(self) -> list[TensorVariable]:
        posterior = self.posterior
        if not self._in_blocks:
            return canonical(posterior.gradient)
        return canonical(gradient_of(-self._differentiated, posterior.phi))

    @cached_property
    def _base(self) -> list[TensorVariable]:
        return canonical(gradient_of(-self.posterior.base, self.posterior.phi))

    @cached_property
    def _adjoints(self) -> Adjoints:
        posterior = self.posterior
        rows = [*chain.from_iterable(posterior.rows), *posterior.noise, *self._weights]
        return Adjoints(-self._differentiated, posterior.phi, rows)

    def shared(
        self, phi: Sequence[TensorVariable], others: Sequence[TensorVariable] = ()
    ) -> list[TensorVariable]:
        """Return the quantities at φ that all batches share."""
        return self.at(self._adjoints.shared, phi, others=others)

    def adjoints(
        self,
        shared: Sequence[TensorVariable],
        rows: Sequence[TensorVariable],
        others: Sequence[TensorVariable] = (),
    ) -> list[TensorVariable]:
        """Return ∂U/∂s of one batch, for the first of the shared quantities."""
        of_batch = self.at(self._adjoints.adjoints, self.posterior.phi, rows, others)
        return substitute(of_batch, dict(zip(self._adjoints.symbols, shared, strict=True)))

    def pull_back(
        self,
        adjoints: Sequence[TensorVariable],
        phi: Sequence[TensorVariable],
        others: Sequence[TensorVariable] = (),
    ) -> list[TensorVariable]:
        """Return the gradient at φ from these adjoints."""
        return self.at(self._adjoints.pull_back(adjoints), phi, others=others)


class Adjoints:
    """Graphs of the gradient of U, estimated from one batch, through what its batches share."""

    def __init__(
        self,
        potential: TensorVariable,
        phi: Sequence[TensorVariable],
        rows: Iterable[TensorVariable],
    ) -> None:
        shared = _shared(potential, phi, rows)
        smooth = [s for s in shared if s.dtype.startswith("float")]
        # s(φ), as graphs of φ; a condition on φ is shared too, but has no adjoint
        self.shared = smooth + [s for s in shared if s not in smooth]
        # Placeholders for s in ``adjoints``
        self.symbols = [s.type(f"shared_{i}") for i, s in enumerate(self.shared)]
        [of_symbols] = substitute([potential], dict(zip(self.shared, self.symbols, strict=True)))
        slopes = gradient_of(of_symbols, self.symbols[: len(smooth)])
        # Constants can make shared quantities single precision; their adjoints are of floatX
        floatX = pytensor.config.floatX
        self.adjoints = canonical([pt.cast(a, floatX) for a in slopes])  # ∂U/∂s of one batch
        self._given = [
            pt.tensor(f"adjoint_{i}", dtype=floatX, shape=s.type.shape)
            for i, s in enumerate(smooth)
        ]
        inner = pt.add(*[pt.sum(s * a) for s, a in zip(smooth, self._given, strict=True)], 0.0)
        self._pulled = canonical(gradient_of(inner, phi))

    def pull_back(self, adjoints: Sequence[Any]) -> list[TensorVariable]:
        """Return s′(φ)ᵀ of these adjoints, as graphs of φ."""
        return substitute(self._pulled, dict(zip(self._given, adjoints, strict=True)))


def _shared(
    graph: TensorVariable, phi: Sequence[TensorVariable], rows: Iterable[TensorVariable]
) -> list[TensorVariable]:
    """Return the quantities that depend on φ, not on rows, and enter operations on rows."""
    of_phi: set[Any] = set(phi)
    of_rows: set[Any] = set(rows)
    shared: dict[Any, None] = {}

    def share(inputs: Sequence[Variable]) -> None:
        for x in inputs:
            if x in of_phi and x not in of_rows:
                if isinstance(x.type, TensorType):
                    shared[x] = None
                else:
                    # Only tensors can be handed into a loop over batches
                    share(x.owner.inputs)

    for node in io_toposort([], [graph]):
        if any(x in of_rows for x in node.inputs):
            of_rows.update(node.outputs)
            share(node.inputs)
        elif any(x in of_phi for x in node.inputs):
            of_phi.update(node.outputs)
    return list(shared)
