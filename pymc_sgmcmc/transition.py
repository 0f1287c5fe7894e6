"""Many updates of a sampler as one compiled function, for numba and for JAX."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any, Protocol

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt

from pytensor.compile.io import In, Out
from pytensor.graph.basic import Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import in2out, node_rewriter
from pytensor.graph.rewriting.utils import rewrite_graph
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.math import Dot
from pytensor.tensor.variable import TensorVariable

from pymc_sgmcmc import jax_backend
from pymc_sgmcmc.blocks import Blocks
from pymc_sgmcmc.graphs import substitute
from pymc_sgmcmc.noise import Noise
from pymc_sgmcmc.posterior import Posterior
from pymc_sgmcmc.row_block import RowBlock

__all__ = ["Sampler", "Transition"]

Extra = dict[str, Blocks]

# Noise of the updates of one compiled call, in numbers: models with millions of parameters
# take several calls for a draw, and lose nothing by it
_LARGEST_NOISE = 20_000_000


class Sampler(Protocol):
    """What the transition needs to know of an algorithm."""

    def initial_extra(
        self, position: list[np.ndarray], rng: np.random.Generator
    ) -> dict[str, list[np.ndarray]]:
        """Draw the state beyond the position."""

    def update(
        self,
        position: Blocks,
        extra: Extra,
        gradient: Callable[[Blocks], Blocks],
        step_size: TensorVariable,
        noise: Noise,
    ) -> tuple[Blocks, Extra]:
        """One update, symbolic."""

    def statistics(self, extra: Extra) -> Mapping[str, TensorVariable]:
        """Statistics of a draw that belong to this algorithm."""


@node_rewriter([Dot])
def _matrix_first(fgraph: FunctionGraph, node: Any) -> list[Variable] | None:
    """Write Xᵀv as vX: XLA on CPUs copies the transposed matrix, at twice the cost."""
    matrix, other = node.inputs
    transposed = (
        matrix.owner is not None
        and isinstance(matrix.owner.op, DimShuffle)
        and tuple(matrix.owner.op.new_order) == (1, 0)
    )
    if not transposed:
        return None
    original = matrix.owner.inputs[0]
    if other.ndim == 1:
        return [pt.dot(other, original)]
    if other.type.shape[1] == 1:
        return [pt.dot(other[:, 0], original)[:, None]]
    return None


def updates_per_call(thin: int, dimension: int) -> int:
    """Largest divisor of ``thin`` for which the noise of a call stays of moderate size."""
    most = max(1, _LARGEST_NOISE // max(dimension, 1))
    return max(k for k in range(1, thin + 1) if thin % k == 0 and k <= most)


class Transition:
    """``updates`` updates of a sampler, compiled as one scan.

    A deterministic map: noise, batches, step sizes and data are inputs. Chains differ in
    what they put in, never in the compiled function.

    Parameters
    ----------
    posterior : Posterior
        The density.
    sampler : Sampler
        The algorithm.
    position : list of ndarray
        Any position; only shapes and dtypes are used.
    extra : dict of list of ndarray
        The algorithm's further state at the start; only names, shapes and dtypes are used.
    whitened : list of bool
        Which coordinates have a scale of their own, φ = scale · ψ.
    contiguous : bool
        Whether a batch is given by an offset or by row indices.
    updates : int
        Updates in a call. Numba's function runs any number, JAX's this one.
    backend : {"numba", "jax"}
        The backend.
    compile_kwargs : dict
        For :func:`pymc.compile`.
    """

    def __init__(
        self,
        posterior: Posterior,
        sampler: Sampler,
        *,
        position: Sequence[np.ndarray],
        extra: Mapping[str, Sequence[np.ndarray]],
        whitened: Sequence[bool],
        contiguous: bool,
        updates: int,
        backend: str,
        compile_kwargs: Mapping[str, Any],
    ) -> None:
        if backend == "jax":
            jax_backend.prepare()
        self.updates = updates
        self.backend = backend
        self.noise = Noise([x.shape for x in position], [str(x.dtype) for x in position])
        self._extra_shape = {name: len(parts) for name, parts in extra.items()}
        psi = [_like(f"psi_{i}", x) for i, x in enumerate(position)]
        old = [*psi, *(_like(name, x) for name, parts in extra.items() for x in parts)]
        density = _Density(posterior, position, whitened, contiguous, backend)
        step_size = pt.scalar("step_size", dtype=pytensor.config.floatX)

        loop_outputs = self._one_update(sampler, density, old, len(psi), step_size)
        requests = [flat for _, flat in self.noise.flat_requests()]
        steps = [step_size, *density.batches, *requests]
        length = updates if backend == "jax" else None
        sequences = [
            pt.tensor(f"{s.name}_sequence", dtype=s.dtype, shape=(length, *s.type.shape))
            for s in steps
        ]
        placeholders = [*steps, *old, *density.fixed]
        trace = pytensor.scan(
            lambda *inner: substitute(loop_outputs, dict(zip(placeholders, inner, strict=True))),
            sequences=sequences,
            outputs_info=[*old, *[None] * (len(loop_outputs) - len(old))],
            non_sequences=density.fixed,
            return_list=True,
            return_updates=False,
            strict=True,
        )
        states, [rejected, *gradient] = trace[: len(old)], trace[len(old) :]
        last = [state[-1] for state in states]
        last[: len(psi)] = density.wrapped(last[: len(psi)])
        last_rows = [rows[-1] for rows in sequences[1 : 1 + len(density.batches)]]
        *values, log_density = density.at(
            [*posterior.values, posterior.log_density], last[: len(psi)], last_rows
        )
        statistics = {
            "batch_logp": log_density,
            "grad_norm": pt.sqrt(Blocks(part[-1] for part in gradient).map(pt.sqr).sum()),
            "rejected_updates": pt.sum(rejected.astype(step_size.dtype)),
            **sampler.statistics(self._unflatten(last[len(psi) :])),
        }
        self.statistic_names = list(statistics)
        self._counts = len(psi), len(old) - len(psi), len(values)
        # One output: a scalar of JAX costs as much to fetch as a vector
        joined = pt.stack([scalar.astype(step_size.dtype) for scalar in statistics.values()])
        self._function = _compile(
            [*old, *sequences, *density.fixed],
            [*last, *values, joined],
            backend,
            dict(compile_kwargs),
        )

    def _one_update(
        self,
        sampler: Sampler,
        density: _Density,
        old: list[TensorVariable],
        n_psi: int,
        step_size: TensorVariable,
    ) -> list[TensorVariable]:
        """Graphs of the next state, of whether it was rejected, and of the gradient used."""
        gradients: list[Blocks] = []

        def gradient(x: Blocks) -> Blocks:
            gradients.append(density.gradient(x))
            return gradients[-1]

        extra = self._unflatten(old[n_psi:])
        position, extra = sampler.update(
            Blocks(old[:n_psi]), extra, gradient, step_size, self.noise
        )
        new = [*position, *(part for name in self._extra_shape for part in extra[name])]
        new = [part.astype(was.dtype) for part, was in zip(new, old, strict=True)]
        # The sum of a block is finite only if all its elements are
        finite = reduce(pt.and_, [pt.isfinite(pt.sum(part)) for part in new])
        kept = [pt.switch(finite, part, was) for part, was in zip(new, old, strict=True)]
        return [*kept, ~finite, *(gradients[-1] if gradients else [])]

    def __call__(
        self,
        position: list[Any],
        extra: dict[str, list[Any]],
        step_sizes: np.ndarray,
        batches: list[np.ndarray],
        noise: list[np.ndarray],
        fixed: list[Any],
    ) -> tuple[list[Any], dict[str, list[Any]], list[Any], dict[str, float]]:
        """Run the updates.

        Returns
        -------
        position, extra
            The new state, in arrays of the backend.
        values : list
            PyMC's value variables at the new position, in arrays of the backend.
        statistics : dict of float
            Statistics of the draw.
        """
        further = [part for parts in extra.values() for part in parts]
        outputs = self._function(*position, *further, step_sizes, *batches, *noise, *fixed)
        n_psi, n_further, n_values = self._counts
        n_state = n_psi + n_further
        statistics = np.asarray(outputs[-1]).tolist()
        return (
            outputs[:n_psi],
            {name: list(parts) for name, parts in self._split(outputs[n_psi:n_state])},
            outputs[n_state : n_state + n_values],
            dict(zip(self.statistic_names, statistics, strict=True)),
        )

    def place(self, arrays: Sequence[np.ndarray]) -> list[Any]:
        """Put arrays where the backend reads them without a copy at every call."""
        if self.backend == "jax":
            import jax

            return [jax.device_put(array) for array in arrays]
        # A read-only or strided array would make numba compile anew
        return [np.require(array, array.dtype, ["C", "A", "W"]) for array in arrays]

    def _split(self, flat: Sequence[Any]) -> list[tuple[str, Sequence[Any]]]:
        pieces, start = [], 0
        for name, count in self._extra_shape.items():
            pieces.append((name, flat[start : start + count]))
            start += count
        return pieces

    def _unflatten(self, flat: Sequence[Any]) -> Extra:
        return {name: Blocks(parts) for name, parts in self._split(flat)}


class _Density:
    """The posterior as a function of ψ and of which rows make up a batch.

    Attributes
    ----------
    batches : list of TensorVariable
        For each minibatch its offset or row indices.
    fixed : list of TensorVariable
        The further inputs, in the order whitening, scales, others, data, tables.
    """

    def __init__(
        self,
        posterior: Posterior,
        position: Sequence[np.ndarray],
        whitened: Sequence[bool],
        contiguous: bool,
        backend: str,
    ) -> None:
        self._posterior = posterior
        # Before an update multiplies it: PyTensor would expand h * (x + likelihood's part),
        # several passes over all parameters
        self._gradient: Any = rewrite_graph(
            posterior.gradient, include=("canonicalize",), custom_rewrite=in2out(_matrix_first)
        )
        self._contiguous = contiguous
        self._backend = backend
        self._whitening = [
            _like(f"scale_{i}", x) if has else None
            for i, (x, has) in enumerate(zip(position, whitened, strict=True))
        ]
        self.batches = [
            pt.tensor(f"rows_{i}", dtype="int32", shape=() if contiguous else (b.batch_size,))
            for i, b in enumerate(posterior.minibatches)
        ]
        self._tables = [
            [
                pt.tensor(f"table_{i}_{j}", dtype=str(a.dtype), shape=(None, *a.shape[1:]))
                for j, a in enumerate(arrays)
            ]
            for i, arrays in enumerate(posterior.arrays)
        ]
        self.fixed = [
            *(w for w in self._whitening if w is not None),
            *posterior.scales,
            *posterior.others,
            *posterior.data,
            *(table for group in self._tables for table in group),
        ]

    def _to_phi(self, psi: Sequence[TensorVariable]) -> list[TensorVariable]:
        return [x if w is None else w * x for x, w in zip(psi, self._whitening, strict=True)]

    def at(
        self,
        graphs: list[TensorVariable],
        psi: Sequence[TensorVariable],
        rows: Sequence[TensorVariable],
    ) -> list[TensorVariable]:
        """Return graphs of the posterior at ψ, for a batch of these rows."""
        posterior = self._posterior
        replacements = dict(zip(posterior.phi, self._to_phi(psi), strict=True))
        for minibatch, targets, tables, batch in zip(
            posterior.minibatches, posterior.rows, self._tables, rows, strict=True
        ):
            for target, table in zip(targets, tables, strict=True):
                replacements[target] = _take(
                    table, batch, minibatch.batch_size, self._contiguous, self._backend
                )
        return substitute(graphs, replacements)

    def gradient(self, psi: Blocks) -> Blocks:
        """Return the estimate of ∇U with respect to ψ from one batch."""
        gradient = self.at(self._gradient, list(psi), self.batches)
        return Blocks(
            g if w is None else w * g for g, w in zip(gradient, self._whitening, strict=True)
        )

    def wrapped(self, psi: Sequence[TensorVariable]) -> list[TensorVariable]:
        """Return ψ with circular coordinates brought back to one period."""
        phi = self._to_phi(psi)
        return [
            x if new is old else (new if w is None else new / w)
            for x, old, new, w in zip(
                psi, phi, self._posterior.wrapped(phi), self._whitening, strict=True
            )
        ]


def _like(name: str, array: np.ndarray) -> TensorVariable:
    return pt.tensor(name, dtype=str(array.dtype), shape=array.shape)


def _take(
    table: TensorVariable, rows: TensorVariable, size: int, contiguous: bool, backend: str
) -> Any:
    """Return the rows of a batch."""
    if not contiguous:
        return table[rows]
    if backend == "jax":
        return RowBlock(size)(table, rows)
    # In numba a slice is a view, and nothing is copied
    block = table[rows : rows + size]
    return pt.specify_shape(block, (size, *table.type.shape[1:]))


def _compile(
    inputs: list[Variable], outputs: list[Variable], backend: str, kwargs: dict[str, Any]
) -> Any:
    kwargs.setdefault("mode", {"jax": "JAX", "numba": "NUMBA"}[backend])
    kwargs.setdefault("on_unused_input", "ignore")
    function = pm.compile(
        [In(variable, borrow=True) for variable in inputs],
        [Out(variable, borrow=True) for variable in outputs],
        **kwargs,
    )
    function.trust_input = True
    return function
