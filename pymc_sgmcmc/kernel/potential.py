"""The potential of the full data and of batches, at many points in one compiled call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt

from pytensor.conditional import ifelse
from pytensor.tensor.variable import TensorVariable

from pymc_sgmcmc.backends.compiling import compiled
from pymc_sgmcmc.backends.placing import aligned
from pymc_sgmcmc.disk.fetch import fetched, has_source
from pymc_sgmcmc.kernel.estimators import Estimator
from pymc_sgmcmc.kernel.loop import looped, unchanged
from pymc_sgmcmc.kernel.pair_sums import PairSums, summed_pairs
from pymc_sgmcmc.kernel.whitening import Unwhitened
from pymc_sgmcmc.model.batch_density import BatchDensity
from pymc_sgmcmc.model.graphs import gradient_of, numbers_computed, substitute
from pymc_sgmcmc.model.passes import canonical
from pymc_sgmcmc.model.posterior import Posterior

__all__ = ["Potential"]

# Evaluations in one call, enough to outweigh its cost
_LENGTH = 64
_LARGEST_OUTPUT = 2**22
_LARGEST_CALL = 2**20

# What an evaluation computes: 0 nothing (it only fills the call), ∇U alone, or ∇U and U
_GRADIENT, _VALUE_TOO = 1, 2


class Potential:
    """U and ∇U at flat positions φ, of the full data or of single batches.

    The compiled function evaluates pairs of a position and a block of B rows. The last block of
    the full data starts early enough to be full, and rows counted before have a weight of 0.
    """

    def __init__(
        self,
        posterior: Posterior,
        backend: str,
        compile_kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        self.posterior = posterior
        # Shared by all that differ in what is fixed
        self._count = [0]
        self.shapes = [x.type.shape for x in posterior.phi]  # of each variable's part of φ
        self._ends = np.cumsum([int(np.prod(shape)) for shape in self.shapes]).tolist()
        self.dimension = self._ends[-1]  # d, elements of φ
        # Rows of the data and of a batch, for each minibatch
        self.sizes = [
            (len(arrays[0]), batch.batch_size)
            for batch, arrays in zip(posterior.minibatches, posterior.arrays, strict=True)
        ]
        self.batch_size = sum(size for _, size in self.sizes)  # 0 without minibatches
        # Of a row in a sum over blocks
        self._weights = [size / n for n, size in self.sizes]
        # Blocks in a pass over the full data; 1 without minibatches
        self.n_blocks = max([-(-rows // size) for rows, size in self.sizes], default=1)
        self._length = int(np.clip(_LARGEST_CALL // self.dimension, 1, _LENGTH))
        self._dtype = str(np.result_type(pytensor.config.floatX, *[x.dtype for x in posterior.phi]))
        # Elements of φ of variables without bounds, shape (d,)
        self.unbounded = np.repeat(
            [c.unbounded for c in posterior.coordinates], np.diff(self._ends, prepend=0)
        )
        self.circular = posterior.circular  # elements of φ on a circle, shape (d,)
        self.widest = posterior.widest  # largest sd that a fit may give to each element, shape (d,)
        self.kinked = posterior.kinked  # whether ∇U may jump
        # Relative rounding error of the model's floats
        self.precision = max(float(np.finfo(x.dtype).eps) for x in posterior.phi)
        # Only JAX needs to know how many
        self._padded = backend == "jax"
        self._backend, self._compile_kwargs = backend, compile_kwargs
        self._function = self._compile(backend, compile_kwargs)
        # Compiled when first needed, and shared as the count is
        self._sums: dict[str, Any] = {}
        self._fixed: list[Any] = []
        self._on_disk = has_source(posterior.arrays)

    def _compile(self, backend: str, compile_kwargs: Mapping[str, Any] | None) -> Any:
        """Compile what evaluates a list of pairs."""
        wanted, point, inputs, fixed, outputs = self._evaluation(backend)
        self.numbers = numbers_computed(outputs[1:])  # computed for a gradient of one batch
        zero = pt.zeros((), dtype=outputs[0].dtype)
        # The log density may cost more than its gradient, and most of tuning needs only that
        potential = ifelse(pt.eq(wanted, _VALUE_TOO), -outputs[0], zero)
        results: Any = [potential, self._joined(outputs[1:])]
        if self._padded:
            # Pairs that only fill up the call are skipped
            results = ifelse(wanted >= _GRADIENT, results, [zero, pt.zeros_like(point)])
        steps = [wanted, point, *inputs]
        sequences = _sequences(steps, self._length if self._padded else None)
        evaluated = looped(results, sequences, {}, unchanged(fixed), backend)
        return compiled([*sequences.values(), *fixed], evaluated, backend, compile_kwargs)

    def _compile_sum(self) -> Any:
        """Compile the sum over all blocks at one position, kept in memory for one."""
        _, point, inputs, fixed, outputs = self._evaluation(self._backend)
        zero = pt.zeros((), dtype=outputs[0].dtype)
        sums = [zero.type(), point.type()]
        added = [sums[0] - outputs[0], sums[1] + self._joined(outputs[1:])]
        sequences = _sequences(inputs, self.n_blocks)
        starts = dict(zip(sums, [zero, pt.zeros_like(point)], strict=True))
        same = unchanged([point, *fixed])
        last = looped(added, sequences, starts, same, self._backend)
        arguments = [point, *sequences.values(), *fixed]
        return compiled(arguments, last, self._backend, self._compile_kwargs)

    def _compile_pairs(self, count: int, batches: int) -> Any:
        """Compile sums over pairs of positions, kept in memory for one pair."""
        posterior = self.posterior
        density = BatchDensity(posterior, contiguous=True, backend=self._backend)
        estimate = Estimator(density, Unwhitened(), posterior.phi, anchored=False, batches=batches)
        point = self._point()
        width, signs = point.type("width"), pt.vector("signs", dtype="int8", shape=point.type.shape)
        rows, fixed = estimate.new_rows(), estimate.fixed
        above, below = (
            self._joined(list(estimate(self._parts(point + side * signs * width), rows)))
            for side in (1, -1)
        )
        # A pair with a non-finite gradient is left out
        finite = pt.isfinite(above).all() & pt.isfinite(below).all()
        middle, change = (above + below) / 2, above - below
        # Not powers, which XLA leaves to a function of single numbers
        terms = [middle, middle * middle, change * signs, change * change]
        sums = [point.type() for _ in terms]
        number = pt.scalar("number", dtype=self._dtype)
        added = [
            number + finite.astype(self._dtype),
            *(
                s + pt.switch(finite, t, 0).astype(self._dtype)
                for s, t in zip(sums, terms, strict=True)
            ),
        ]
        steps = [*rows, signs]
        sequences = _sequences(steps, count)
        starts = {number: pt.zeros((), dtype=self._dtype)}
        starts |= {s: pt.zeros_like(point) for s in sums}
        same = unchanged([point, width, *fixed])
        last = looped(added, sequences, starts, same, self._backend)
        arguments = [point, width, *sequences.values(), *fixed]
        return compiled(arguments, last, self._backend, self._compile_kwargs)

    def _evaluation(
        self, backend: str
    ) -> tuple[TensorVariable, TensorVariable, list[Any], list[Any], list[TensorVariable]]:
        """Return graphs of one pair: which outputs, φ, inputs of the block, fixed ones, outputs."""
        posterior, floatX = self.posterior, pytensor.config.floatX
        density = BatchDensity(posterior, contiguous=True, backend=backend)
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
        outputs = density.at([log_density, *gradient], self._parts(point), rows)
        outputs = substitute(outputs, replacements)
        wanted = pt.scalar("wanted", dtype="int8")
        return wanted, point, [base, *rows, *counted, *of_row], density.fixed, outputs

    def _point(self) -> TensorVariable:
        return pt.vector("point", dtype=self._dtype, shape=(self.dimension,))

    def _parts(self, point: TensorVariable) -> list[TensorVariable]:
        """Return the variables' parts of a flat position, as :meth:`split` does of arrays."""
        return [
            point[end - int(np.prod(x.type.shape)) : end].reshape(x.type.shape).astype(x.dtype)
            for end, x in zip(self._ends, self.posterior.phi, strict=True)
        ]

    def _joined(self, gradient: Sequence[TensorVariable]) -> Any:
        return pt.concatenate([g.reshape((-1,)) for g in gradient]).astype(self._dtype)

    @property
    def evaluations(self) -> int:
        """Blocks evaluated so far."""
        return self._count[0]

    def set_fixed(self, fixed: Sequence[Any]) -> None:
        """Set the scales, others, data and tables, placed for the backend.

        The tables hold the rows in the order of batches, wrapped round, as
        ``kernel/row_memory.py`` lays them out.
        """
        self._fixed = list(fixed)

    def at(self, fixed: Sequence[Any]) -> Potential:
        """Return this potential with other fixed inputs, compiled once."""
        other = copy(self)
        other.set_fixed(fixed)
        return other

    def split(self, flat: np.ndarray) -> list[np.ndarray]:
        """Return the variables' parts of a flat position, or of several, shape (..., d)."""
        starts, several = [0, *self._ends[:-1]], flat.shape[:-1]
        return [
            flat[..., start:end].reshape((*several, *shape)).astype(x.dtype)
            for start, end, shape, x in zip(
                starts, self._ends, self.shapes, self.posterior.phi, strict=True
            )
        ]

    @staticmethod
    def join(parts: Sequence[np.ndarray]) -> np.ndarray:
        """Return the flat position of the variables' parts."""
        return np.concatenate([np.asarray(part, dtype=float).reshape(-1) for part in parts])

    def draw_rows(self, rng: np.random.Generator, count: int) -> np.ndarray:
        """Draw ``count`` batches: offsets, shape (count, minibatches)."""
        rows = [rng.integers(0, n, size=count) for n, _ in self.sizes]
        return np.stack(rows, axis=1) if rows else np.zeros((count, 0), dtype=int)

    def full(self, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return U, shape (P,), and ∇U, shape (P, d), of the full data at points (P, d)."""
        if self._on_disk:
            return self._streamed(points)
        total, gradient = np.zeros(len(points)), np.zeros((len(points), self.dimension))
        if self.n_blocks > 1 and self.n_blocks * self.dimension > _LARGEST_OUTPUT:
            # The blocks' gradients would not fit into memory
            for k, point in enumerate(points):
                total[k], gradient[k] = self._summed(point)
            return total, gradient
        portion = max(1, _LARGEST_OUTPUT // (self.n_blocks * self.dimension))
        for start in range(0, len(points), portion):
            part = points[start : start + portion]
            u, g = self._block(
                np.repeat(part, self.n_blocks, axis=0),
                np.tile(np.arange(self.n_blocks), len(part)),
                potential=True,
            )
            blocks = len(part), self.n_blocks
            with np.errstate(invalid="ignore", over="ignore"):
                total[start : start + portion] = u.reshape(blocks).sum(axis=1)
                gradient[start : start + portion] = g.reshape(*blocks, -1).sum(axis=1)
        return total, gradient

    def _streamed(self, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return U and ∇U of the full data, reading each row once for all positions."""
        total, gradient = np.zeros(len(points)), np.zeros((len(points), self.dimension))
        each = max(1, self._length // max(len(points), 1))
        for first in range(0, self.n_blocks, each):
            blocks = np.arange(first, min(first + each, self.n_blocks))
            u, g = self._block(
                np.repeat(points, len(blocks), axis=0), np.tile(blocks, len(points)), potential=True
            )
            shape = len(points), len(blocks)
            with np.errstate(invalid="ignore", over="ignore"):
                total += u.reshape(shape).sum(axis=1)
                gradient += g.reshape(*shape, -1).sum(axis=1)
        return total, gradient

    def _read(self, rows: list[np.ndarray]) -> tuple[list[np.ndarray], list[Any]]:
        """Read rows on disk; return where batches begin in the tables, and all fixed inputs."""
        if not self._on_disk:
            return rows, self._fixed
        arrays = self.posterior.arrays
        before = len(self._fixed) - sum(map(len, arrays))
        tables = iter(self._fixed[before:])
        groups = [[next(tables) for _ in group] for group in arrays]
        rows, found = fetched(groups, rows, self.sizes, aligned)
        return rows, [*self._fixed[:before], *found]

    def _summed(self, point: np.ndarray) -> tuple[float, np.ndarray]:
        """Return U and ∇U of the full data at one position."""
        if "blocks" not in self._sums:
            self._sums["blocks"] = self._compile_sum()
        self._count[0] += self.n_blocks
        floatX, blocks = pytensor.config.floatX, np.arange(self.n_blocks)
        starts, counted = self._layout(blocks)
        u, g = self._sums["blocks"](
            point.astype(self._dtype),
            (blocks == 0).astype(floatX),
            *(x.astype(np.int32) for x in starts),
            *(x.astype(np.int32) for x in counted),
            *(np.full(self.n_blocks, w, dtype=floatX) for w in self._weights),
            *self._fixed,
        )
        return float(u), np.asarray(g, dtype=float)

    def block(self, points: np.ndarray, which: int | np.ndarray) -> np.ndarray:
        """Return one block's share of the full ∇U at points (P, d); ``which`` may be (P,)."""
        return self._block(points, which, potential=False)[1]

    def blocks_as_batches(self, point: np.ndarray) -> np.ndarray:
        """Estimate the likelihood's part of ∇U from each block alone, shape (n_blocks, d).

        Unbiased for a random block: their mean is that of the full data.
        """
        gradient = np.zeros((self.n_blocks, self.dimension))
        weights = [self.n_blocks * w for w in self._weights]
        for first in range(0, self.n_blocks, self._length):
            k = np.arange(first, min(first + self._length, self.n_blocks))
            gradient[k] = self._run(
                np.repeat(point[None], len(k), axis=0), np.zeros(len(k)), *self._layout(k), weights,
                potential=False,
            )[1]  # fmt: skip
        return gradient

    def batch(self, points: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return unbiased estimates of U, shape (P,), and ∇U, shape (P, d), at points (P, d).

        ``rows`` are the offsets of one batch for each point, shape (P, minibatches).
        """
        return self._batch(points, rows, potential=True)

    def batch_gradient(self, points: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Evaluate :meth:`batch` without U."""
        return self._batch(points, rows, potential=False)[1]

    def pair_sums(
        self, point: np.ndarray, width: np.ndarray, signs: np.ndarray, rows: np.ndarray
    ) -> PairSums:
        """Sum batch gradients at ``point ± signs width``, with signs of ±1, shape (P, d).

        ``rows`` are the offsets of each pair's batch, shape (P, minibatches), or of m batches to
        average, shape (P, m, minibatches).
        """
        if self._on_disk:
            return summed_pairs(self.batch_gradient, point, width, signs, rows)
        count, batches = len(signs), rows.shape[1] if rows.ndim == 3 else 1
        self._count[0] += 2 * count * batches
        if (key := f"{count} pairs of {batches}") not in self._sums:
            self._sums[key] = self._compile_pairs(count, batches)
        found = self._sums[key](
            point.astype(self._dtype),
            width.astype(self._dtype),
            *(x.astype(np.int32) for x in np.moveaxis(rows, -1, 0)),
            signs.astype(np.int8),
            *self._fixed,
        )
        number, *sums = (np.asarray(x, dtype=float) for x in found)
        return PairSums(int(number), *sums)

    def _block(
        self, points: np.ndarray, which: int | np.ndarray, *, potential: bool
    ) -> tuple[np.ndarray, np.ndarray]:
        which = np.broadcast_to(which, len(points))
        values, gradient = np.zeros(len(points)), np.zeros((len(points), self.dimension))
        for start in range(0, len(points), self._length):
            part = slice(start, start + self._length)
            k = which[part]
            values[part], gradient[part] = self._run(
                points[part], k == 0, *self._layout(k), self._weights, potential=potential
            )
        return values, gradient

    def _batch(
        self, points: np.ndarray, rows: np.ndarray, *, potential: bool
    ) -> tuple[np.ndarray, np.ndarray]:
        values, gradient = np.zeros(len(points)), np.zeros((len(points), self.dimension))
        for start in range(0, len(points), self._length):
            part = slice(start, start + self._length)
            count = len(points[part])
            values[part], gradient[part] = self._run(
                points[part], np.ones(count), list(rows[part].T),
                [np.full(count, size) for _, size in self.sizes], [1.0] * len(self.sizes),
                potential=potential,
            )  # fmt: skip
        return values, gradient

    def _layout(self, blocks: np.ndarray) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Return offsets of blocks, and how many of their rows are counted."""
        # The first rows follow the last row once more, at the end of their block
        counted = [np.clip(n - blocks * size, 0, size) for n, size in self.sizes]
        starts = [
            np.where(c > 0, blocks * size, 0)
            for c, (_, size) in zip(counted, self.sizes, strict=True)
        ]
        return starts, counted

    def _run(
        self,
        points: np.ndarray,
        base: np.ndarray,
        rows: Sequence[np.ndarray],
        counted: Sequence[np.ndarray],
        weights: Sequence[float],
        *,
        potential: bool,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Evaluate up to ``_length`` pairs; U is 0 where it is not requested."""
        count = len(points)
        self._count[0] += count
        index = np.minimum(np.arange(self._length if self._padded else count), count - 1)
        wanted = np.zeros(len(index), dtype=np.int8)
        wanted[:count] = _VALUE_TOO if potential else _GRADIENT
        floatX = pytensor.config.floatX
        places, fixed = self._read([x[index].astype(np.int32) for x in rows])
        values, gradient = self._function(
            wanted,
            points[index].astype(self._dtype),
            base[index].astype(floatX),
            *places,
            *(x[index].astype(np.int32) for x in counted),
            *(np.full(len(index), w, dtype=floatX) for w in weights),
            *fixed,
        )
        return (
            np.asarray(values, dtype=float)[:count],
            np.asarray(gradient, dtype=float)[:count],
        )


def _sequences(
    steps: Sequence[TensorVariable], length: int | None
) -> dict[TensorVariable, TensorVariable]:
    """Return the symbol of each step's values, for its placeholder."""
    return {
        s: pt.tensor(f"{s.name}_sequence", dtype=s.dtype, shape=(length, *s.type.shape))
        for s in steps
    }
