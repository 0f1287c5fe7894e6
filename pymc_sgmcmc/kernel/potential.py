"""The potential of the full data and of batches, at many points in one compiled call."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt

from pytensor.conditional import ifelse
from pytensor.tensor.variable import TensorVariable

from pymc_sgmcmc.backends.compiling import compiled
from pymc_sgmcmc.backends.placing import aligned
from pymc_sgmcmc.disk.fetch import has_source
from pymc_sgmcmc.kernel.estimators import Estimator, inputs_of
from pymc_sgmcmc.kernel.loop import along, looped, unchanged
from pymc_sgmcmc.kernel.pair_sums import PairSums, summed_pairs
from pymc_sgmcmc.kernel.ravel import Ravel
from pymc_sgmcmc.kernel.tables import read_batches, sizes_of
from pymc_sgmcmc.kernel.whitening import Whitening
from pymc_sgmcmc.model.batch_density import BatchDensity
from pymc_sgmcmc.model.graphs import gradient_of, numbers_computed, substitute
from pymc_sgmcmc.model.passes import canonical
from pymc_sgmcmc.model.posterior import Posterior

# Evaluations in one call, enough to outweigh its cost
_LENGTH = 64
# Numbers in the gradients of one call, and in those that are kept for a sum, for moderate memory
_LARGEST_CALL = 2**20
_LARGEST_OUTPUT = 2**22

# What an evaluation computes: nothing, where it only fills up a call, ∇U alone, or ∇U and U
_NOTHING, _GRADIENT, _VALUE_TOO = range(3)


@dataclass(frozen=True)
class _Rows:
    """The rows of P evaluations; lists have an entry for each minibatch."""

    base: np.ndarray  # share of the part without rows, (P,)
    starts: list[np.ndarray]  # offsets in the tables, (P,)
    counted: list[np.ndarray]  # rows from there that count, (P,)
    weights: list[float]  # of a row


class Potential:
    """U and ∇U at flat positions φ, of the full data or of single batches.

    The compiled function evaluates pairs of a position and a block of B rows. The last block of
    the full data starts early enough to be full, and rows counted before have a weight of 0.
    """

    join = staticmethod(Ravel.join)

    def __init__(
        self, posterior: Posterior, backend: str, compile_kwargs: Mapping[str, Any] | None = None
    ) -> None:
        self.posterior = posterior
        self._backend, self._compile_kwargs = backend, compile_kwargs
        self._ravel = Ravel.of(posterior.phi)
        self.shapes = self._ravel.shapes  # of each variable's part of φ
        self.dimension = self._ravel.size  # d, elements of φ
        self.sizes = sizes_of(posterior)  # rows of the data and of a batch, for each minibatch
        self.batch_size = sum(size for _, size in self.sizes)  # 0 without minibatches
        # Blocks in a pass over the full data; 1 without minibatches
        self.n_blocks = max([-(-rows // size) for rows, size in self.sizes], default=1)
        self.on_disk = has_source(posterior.arrays)
        # A call reads its rows first
        read = sum(
            minibatch.batch_size * (array.size // len(array))
            for minibatch, arrays in zip(posterior.minibatches, posterior.arrays, strict=True)
            for array in arrays
            if has_source([arrays])
        )
        fit = min(_LARGEST_CALL // self.dimension, _LARGEST_OUTPUT // max(read, 1))
        self._length = int(np.clip(fit, 1, _LENGTH))
        self.dtype = str(np.result_type(pytensor.config.floatX, *[x.dtype for x in posterior.phi]))
        # Elements of φ of variables without bounds, shape (d,)
        self.unbounded = np.repeat([c.unbounded for c in posterior.coordinates], self._ravel.sizes)
        self.circular = posterior.circular  # elements of φ on a circle, shape (d,)
        self.widest = posterior.widest  # largest sd that a fit may give to each element, shape (d,)
        self.kinked = posterior.kinked  # whether ∇U may jump
        # Relative rounding error of the model's floats
        self.precision = max(float(np.finfo(x.dtype).eps) for x in posterior.phi)
        # Only JAX needs to know how many evaluations a call makes
        self._padded = backend == "jax"
        self._density = BatchDensity(posterior, contiguous=True, backend=backend)
        self.inputs = inputs_of(self._density)  # what is fixed
        self._sums: dict[Hashable, Any] = {}  # compiled when first needed
        self._fixed: list[Any] = []
        self._function = self._compile()

    # ------------------------------------------------------------------ what is compiled

    def _compile(self) -> Any:
        """Compile what evaluates a list of pairs."""
        wanted, point, inputs, outputs = self._evaluation()
        self.numbers = max(1, numbers_computed(outputs[1:]))  # for a gradient of one batch
        zero = pt.zeros((), dtype=outputs[0].dtype)
        # The log density may cost more than its gradient, and most of tuning needs only that
        potential = ifelse(pt.eq(wanted, _VALUE_TOO), -outputs[0], zero)
        results: Any = [potential, self._joined(outputs[1:])]
        if self._padded:
            # Pairs that only fill up the call are skipped
            results = ifelse(wanted >= _GRADIENT, results, [zero, pt.zeros_like(point)])
        length = self._length if self._padded else None
        return self._loop(results, [wanted, point, *inputs], length)

    def _compile_sum(self) -> Any:
        """Compile the sum over all blocks at one position, kept in memory for one."""
        _, point, inputs, outputs = self._evaluation()
        zero = pt.zeros((), dtype=outputs[0].dtype)
        starts = {zero.type(): zero, point.type(): pt.zeros_like(point)}
        value, gradient = starts
        added = [value - outputs[0], gradient + self._joined(outputs[1:])]
        return self._loop(added, inputs, self.n_blocks, starts, [point])

    def _compile_pairs(self, count: int, batches: int, whitening: Whitening) -> Any:
        """Compile sums over pairs of positions, kept in memory for one pair."""
        phi, point = self.posterior.phi, self._point()
        estimate = Estimator(self._density, whitening, phi, anchored=False, batches=batches)
        width, signs = point.type("width"), pt.vector("signs", dtype="int8", shape=point.type.shape)
        rows = estimate.new_rows()
        above, below = (
            self._joined(list(estimate(self._ravel.split(point + side * signs * width), rows)))
            for side in (1, -1)
        )
        # A pair with a non-finite gradient is left out
        finite = pt.isfinite(above).all() & pt.isfinite(below).all()
        middle, change = (above + below) / 2, above - below
        # Not powers, which XLA leaves to a function of single numbers
        terms = [middle, middle * middle, change * signs, change * change]
        sums = [point.type() for _ in terms]
        number = pt.scalar("number", dtype=self.dtype)
        added = [
            number + finite.astype(self.dtype),
            *(
                s + pt.switch(finite, t, 0).astype(self.dtype)
                for s, t in zip(sums, terms, strict=True)
            ),
        ]
        starts = {number: pt.zeros((), dtype=self.dtype)}
        starts |= {s: pt.zeros_like(point) for s in sums}
        same = [point, width, *whitening.symbols]
        return self._loop(added, [*rows, signs], count, starts, same)

    def _loop(
        self,
        graphs: Sequence[TensorVariable],
        steps: Sequence[TensorVariable],
        length: int | None,
        starts: Mapping[TensorVariable, TensorVariable] | None = None,
        same: Sequence[TensorVariable] = (),
    ) -> Any:
        """Compile a loop over steps; its function takes ``same``, the steps, and what is fixed."""
        sequences = dict(zip(steps, along(steps, length), strict=True))
        fixed = self.inputs.flat
        outputs = looped(graphs, sequences, starts or {}, unchanged([*same, *fixed]), self._backend)
        inputs = [*same, *sequences.values(), *fixed]
        return compiled(inputs, outputs, self._backend, self._compile_kwargs)

    def _evaluation(self) -> tuple[TensorVariable, TensorVariable, list[Any], list[TensorVariable]]:
        """Return graphs of one pair: which outputs, φ, inputs of the block, and −U and ∇U."""
        posterior, density, floatX = self.posterior, self._density, pytensor.config.floatX
        log_density, base, weights = posterior.weighted()
        gradient = canonical(gradient_of(-log_density, posterior.phi))
        point = self._point()
        rows = density.rows()
        counted = [pt.scalar(f"counted_{i}", dtype="int32") for i in range(len(rows))]
        of_row = [pt.scalar(f"weight_{i}", dtype=floatX) for i in range(len(rows))]
        replacements = {
            weight: pt.switch(pt.arange(size) < count, w, 0.0).astype(floatX)
            for weight, count, w, (_, size) in zip(
                weights, counted, of_row, self.sizes, strict=True
            )
        }
        outputs = density.at([log_density, *gradient], self._ravel.split(point), rows)
        outputs = substitute(outputs, replacements)
        wanted = pt.scalar("wanted", dtype="int8")
        return wanted, point, [base, *rows, *counted, *of_row], outputs

    def _point(self) -> TensorVariable:
        return pt.vector("point", dtype=self.dtype, shape=(self.dimension,))

    def _joined(self, gradient: Sequence[TensorVariable]) -> Any:
        return pt.concatenate([g.reshape((-1,)) for g in gradient]).astype(self.dtype)

    # ------------------------------------------------------------------ what it is evaluated on

    def set_fixed(self, fixed: Sequence[Any]) -> None:
        """Set the scales, others, data and tables, placed for the backend.

        The tables hold the rows in the order of batches, as ``kernel/tables.py`` lays them out.
        """
        self._fixed = list(fixed)

    def at(self, fixed: Sequence[Any]) -> Potential:
        """Return this potential with other fixed inputs, compiled once."""
        other = copy(self)
        other.set_fixed(fixed)
        return other

    def split(self, flat: np.ndarray) -> list[np.ndarray]:
        """Return the variables' parts of a flat position, or of several, shape (..., d)."""
        return self._ravel.split(flat)

    def draw_rows(self, rng: np.random.Generator, count: int) -> np.ndarray:
        """Draw ``count`` batches: offsets, shape (count, minibatches)."""
        rows = [rng.integers(0, n, size=count) for n, _ in self.sizes]
        return np.stack(rows, axis=1) if rows else np.zeros((count, 0), dtype=int)

    # ------------------------------------------------------------------ evaluation

    def full(self, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return U, shape (P,), and ∇U, shape (P, d), of the full data at points (P, d)."""
        total, gradient = np.zeros(len(points)), np.zeros((len(points), self.dimension))
        too_large = self.n_blocks > 1 and self.n_blocks * self.dimension > _LARGEST_OUTPUT
        if too_large and not self.on_disk:
            # The blocks' gradients would not fit into memory
            for k, point in enumerate(points):
                total[k], gradient[k] = self._summed(point)
            return total, gradient
        for part, blocks in self._tiles(len(points)):
            some = points[part]
            rows = self._blocks(np.tile(blocks, len(some)))
            u, g = self._evaluate(np.repeat(some, len(blocks), axis=0), rows, value=True)
            shape = len(some), len(blocks)
            with np.errstate(invalid="ignore", over="ignore"):
                total[part] += u.reshape(shape).sum(axis=1)
                gradient[part] += g.reshape(*shape, -1).sum(axis=1)
        return total, gradient

    def _tiles(self, count: int) -> list[tuple[slice, np.ndarray]]:
        """Return parts of the points, and blocks that are evaluated at each of them."""
        blocks = np.arange(self.n_blocks)
        if self.on_disk:
            # Each row is read once for all points
            each = max(1, self._length // max(count, 1))
            return [(slice(None), blocks[k : k + each]) for k in range(0, len(blocks), each)]
        each = max(1, _LARGEST_OUTPUT // (self.n_blocks * self.dimension))
        return [(slice(k, k + each), blocks) for k in range(0, count, each)]

    def _summed(self, point: np.ndarray) -> tuple[float, np.ndarray]:
        """Return U and ∇U of the full data at one position."""
        if "blocks" not in self._sums:
            self._sums["blocks"] = self._compile_sum()
        _, arrays = self._arrays(self._blocks(np.arange(self.n_blocks)), slice(None), self.n_blocks)
        u, g = self._sums["blocks"](point.astype(self.dtype), *arrays, *self._fixed)
        return float(u), np.asarray(g, dtype=float)

    def block(self, points: np.ndarray, which: int | np.ndarray) -> np.ndarray:
        """Return one block's share of the full ∇U at points (P, d); ``which`` may be (P,)."""
        return self._evaluate(points, self._blocks(np.broadcast_to(which, len(points))))[1]

    def blocks_as_batches(self, point: np.ndarray) -> np.ndarray:
        """Estimate the likelihood's part of ∇U from each block alone, shape (n_blocks, d).

        Unbiased for a random block: their mean is that of the full data.
        """
        n, rows = self.n_blocks, self._blocks(np.arange(self.n_blocks))
        alone = _Rows(np.zeros(n), rows.starts, rows.counted, [n * w for w in rows.weights])
        return self._evaluate(np.broadcast_to(point, (n, self.dimension)), alone)[1]

    def batch(self, points: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return unbiased estimates of U, shape (P,), and ∇U, shape (P, d), at points (P, d).

        ``rows`` are the offsets of one batch for each point, shape (P, minibatches).
        """
        return self._evaluate(points, self._batches(rows), value=True)

    def batch_gradient(self, points: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Evaluate :meth:`batch` without U."""
        return self._evaluate(points, self._batches(rows))[1]

    def pair_sums(
        self,
        point: np.ndarray,
        width: np.ndarray,
        signs: np.ndarray,
        rows: np.ndarray,
        whitening: Whitening | None = None,
    ) -> PairSums:
        """Sum batch gradients at ``point ± signs width``, with signs of ±1, shape (P, d).

        ``rows`` are the offsets of each pair's batch, shape (P, minibatches), or of m batches to
        average, shape (P, m, minibatches). Positions and gradients are those of a ``whitening``
        where it is given, not for rows on disk.
        """
        if self.on_disk:
            assert whitening is None
            return summed_pairs(self.batch_gradient, point, width, signs, rows)
        whitening = whitening or Whitening()
        count, batches = len(signs), rows.shape[1] if rows.ndim == 3 else 1
        if (key := ("pairs", count, batches, whitening.kind)) not in self._sums:
            self._sums[key] = self._compile_pairs(count, batches, whitening)
        sums = self._sums[key](
            point.astype(self.dtype),
            width.astype(self.dtype),
            *whitening.arrays,
            *(x.astype(np.int32) for x in np.moveaxis(rows, -1, 0)),
            signs.astype(np.int8),
            *self._fixed,
        )
        number, *of_gradients = (np.asarray(x, dtype=float) for x in sums)
        return PairSums(int(number), *of_gradients)

    def _batches(self, rows: np.ndarray) -> _Rows:
        """Return the rows of one batch for each evaluation, at offsets (P, minibatches)."""
        counted = [np.full(len(rows), size) for _, size in self.sizes]
        return _Rows(np.ones(len(rows)), list(rows.T), counted, [1.0] * len(self.sizes))

    def _blocks(self, blocks: np.ndarray) -> _Rows:
        """Return the rows of one block of the full data for each evaluation."""
        # The first rows follow the last row once more, at the end of their block
        counted = [np.clip(n - blocks * size, 0, size) for n, size in self.sizes]
        starts = [
            np.where(c > 0, blocks * size, 0)
            for c, (_, size) in zip(counted, self.sizes, strict=True)
        ]
        return _Rows(blocks == 0, starts, counted, self.posterior.row_weights)

    def _evaluate(
        self, points: np.ndarray, rows: _Rows, *, value: bool = False
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return U, 0 unless its ``value`` is asked for, and ∇U at points (P, d), from rows each.

        A call of the compiled function takes up to ``_length`` of them, for JAX exactly as many.
        """
        values, gradient = np.zeros(len(points)), np.zeros((len(points), self.dimension))
        for first in range(0, len(points), self._length):
            part = slice(first, min(first + self._length, len(points)))
            count = part.stop - first
            length = self._length if self._padded else count
            index = first + np.minimum(np.arange(length), count - 1)
            wanted = np.full(length, _NOTHING, dtype=np.int8)
            wanted[:count] = _VALUE_TOO if value else _GRADIENT
            fixed, arrays = self._arrays(rows, index, length)
            u, g = self._function(wanted, points[index].astype(self.dtype), *arrays, *fixed)
            values[part] = np.asarray(u, dtype=float)[:count]
            gradient[part] = np.asarray(g, dtype=float)[:count]
        return values, gradient

    def _arrays(
        self, rows: _Rows, index: slice | np.ndarray, length: int
    ) -> tuple[list[Any], list[np.ndarray]]:
        """Return all fixed inputs and those of a call; rows on disk are read."""
        floatX = pytensor.config.floatX
        starts, fixed = [x[index].astype(np.int32) for x in rows.starts], self._fixed
        if self.on_disk:
            of_call = self.inputs.like(fixed)
            read = read_batches(self.posterior, of_call["tables"], starts, aligned)
            starts, of_call["tables"] = read
            fixed = of_call.flat
        return fixed, [
            rows.base[index].astype(floatX),
            *starts,
            *(x[index].astype(np.int32) for x in rows.counted),
            *(np.full(length, w, dtype=floatX) for w in rows.weights),
        ]


def gradient_at_anchor(
    potential: Potential, whitening: Whitening, phi: Sequence[np.ndarray], *, blocks: bool
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Return ∇U(ψ̄) of the full data at an anchor φ̄, and block estimates with respect to φ.

    With ``blocks`` both are of the likelihood alone and the estimates are stacked; else
    there are no estimates.
    """
    point, of_blocks = potential.join(phi), []
    if blocks:
        estimates = potential.blocks_as_batches(point)
        of_blocks = potential.split(estimates)
        gradient = estimates.mean(axis=0)
    else:
        [gradient] = potential.full(point[None])[1]
    pulled = whitening.pull_back(potential.split(gradient), whitening.arrays)
    return [np.asarray(g) for g in pulled], of_blocks
