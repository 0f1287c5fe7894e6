"""The posterior as a function of a position and of which rows make up a batch."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import chain
from typing import Any

import pytensor.tensor as pt

from pytensor.tensor.variable import TensorVariable

from pymc_sgmcmc.backends.row_block import RowBlock
from pymc_sgmcmc.disk.fetch import has_source
from pymc_sgmcmc.model.adjoints import Adjoints
from pymc_sgmcmc.model.graphs import canonical, gradient_of, substitute
from pymc_sgmcmc.model.posterior import Posterior

__all__ = ["BatchDensity"]


class BatchDensity:
    """Graphs of the posterior with the rows of a batch read from tables.

    With ``in_blocks`` a batch is one of the blocks of B rows, given by its number. Rows of the
    last, shorter block count as often as others; tables of rows on disk hold needed blocks only.
    """

    def __init__(
        self, posterior: Posterior, *, contiguous: bool, backend: str, in_blocks: bool = False
    ) -> None:
        self.posterior = posterior
        self.contiguous = contiguous
        self._in_blocks = in_blocks
        self._elsewhere = in_blocks and has_source(posterior.arrays)
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
        self.fixed = [
            *posterior.scales,
            *posterior.others,
            *posterior.data,
            *(table for group in self.tables for table in group),
        ]
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
        if self._elsewhere:
            of_minibatches += [x.clone(name=f"{x.name}_place") for x in of_minibatches]
        return of_minibatches + [
            pt.tensor(f"{name}_{x.name}", dtype=x.dtype, shape=x.type.shape)
            for x in self.posterior.noise
        ]

    def at(
        self,
        graphs: list[TensorVariable],
        phi: Sequence[TensorVariable],
        rows: Sequence[TensorVariable],
    ) -> list[TensorVariable]:
        """Return graphs of the posterior at φ, for a batch of these rows."""
        posterior = self.posterior
        replacements = dict(zip(posterior.phi, phi, strict=True))
        count = len(posterior.minibatches)
        given = 2 * count if self._elsewhere else count
        replacements.update(zip(posterior.noise, rows[given:], strict=True))
        for k, (minibatch, targets, tables, batch) in enumerate(
            zip(posterior.minibatches, posterior.rows, self.tables, rows[:count], strict=True)
        ):
            if self._in_blocks:
                size, total = minibatch.batch_size, len(posterior.arrays[k][0])
                start = (batch * size).astype("int32")
                counted = pt.arange(size) < total - start
                weight = -(-total // size) * posterior.row_weights[k]
                replacements[self._weights[k]] = pt.switch(counted, weight, 0.0).astype(
                    self._weights[k].dtype
                )
                if self._elsewhere:
                    start = rows[count + k]
            else:
                start = batch
            for target, table in zip(targets, tables, strict=True):
                block = self._take(table, start, minibatch.batch_size)
                replacements[target] = block.astype(target.dtype)
        return substitute(graphs, replacements)

    def gradient(
        self,
        phi: Sequence[TensorVariable],
        rows: Sequence[TensorVariable],
        others: Sequence[TensorVariable] = (),
    ) -> list[TensorVariable]:
        """Return the estimate of ∇U with respect to φ from one batch.

        With blocks it leaves out the part without rows, :meth:`base_gradient`. ``others`` replace
        the values that other step methods give to their variables.
        """
        found = self.at(self._gradient, phi, rows)
        if not others:
            return found
        return substitute(found, dict(zip(self.posterior.others, others, strict=True)))

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
        return self._at_phi(self._adjoints.shared, phi, others)

    def adjoints(
        self,
        shared: Sequence[TensorVariable],
        rows: Sequence[TensorVariable],
        others: Sequence[TensorVariable] = (),
    ) -> list[TensorVariable]:
        """Return ∂U/∂s of one batch, for the first of the shared quantities."""
        adjoints = self._adjoints
        found = self.at(adjoints.adjoints, self.posterior.phi, rows)
        values = zip(self.posterior.others, others, strict=True) if others else ()
        return substitute(
            found, {**dict(zip(adjoints.symbols, shared, strict=True)), **dict(values)}
        )

    def pull_back(
        self,
        adjoints: Sequence[TensorVariable],
        phi: Sequence[TensorVariable],
        others: Sequence[TensorVariable] = (),
    ) -> list[TensorVariable]:
        """Return the gradient at φ from these adjoints."""
        return self._at_phi(self._adjoints.pull_back(adjoints), phi, others)

    def _at_phi(
        self,
        graphs: list[TensorVariable],
        phi: Sequence[TensorVariable],
        others: Sequence[TensorVariable],
    ) -> list[TensorVariable]:
        values = zip(self.posterior.others, others, strict=True) if others else ()
        return substitute(
            graphs, {**dict(zip(self.posterior.phi, phi, strict=True)), **dict(values)}
        )

    def base_gradient(self, phi: Sequence[TensorVariable]) -> list[TensorVariable]:
        """Return the part of ∇U that depends on no rows, where batches are blocks."""
        return substitute(self._base, dict(zip(self.posterior.phi, phi, strict=True)))

    def _take(self, table: TensorVariable, rows: TensorVariable, size: int) -> Any:
        if not self.contiguous:
            return table[rows]
        if self.backend == "jax":
            return RowBlock(size)(table, rows)
        # In numba a slice is a view, and nothing is copied
        block = table[rows : rows + size]
        return pt.specify_shape(block, (size, *table.type.shape[1:]))
