"""Many updates of a sampler as one compiled function, for numba and for JAX."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, Protocol

import numpy as np
import pytensor
import pytensor.tensor as pt

from pymc.distributions.transforms import CircularTransform
from pytensor.tensor.variable import TensorVariable

from pymc_sgmcmc import jax_backend
from pymc_sgmcmc.batch_density import BatchDensity
from pymc_sgmcmc.blocks import Blocks
from pymc_sgmcmc.compiling import compiled
from pymc_sgmcmc.gradients import Estimator
from pymc_sgmcmc.graphs import substitute
from pymc_sgmcmc.noise import Noise
from pymc_sgmcmc.posterior import Posterior
from pymc_sgmcmc.whitening import Whitening

__all__ = ["Draws", "Gradient", "Sampler", "Transition"]

Extra = dict[str, Blocks]

# Noise of the updates of one compiled call, in numbers: models with millions of parameters
# take several calls for a draw, and lose nothing by it
_LARGEST_NOISE = 20_000_000

# Batches beside those of the updates: what is measured of a draw must not depend on how the
# chain got there
_FRESH = 2


class Gradient:
    """Estimates ∇U at a position; every call inside one update uses the same rows.

    Attributes
    ----------
    variance : Blocks or float
        Variance of the estimate in each coordinate as measured while tuning, 0 where nothing
        was measured: what a sampler may subtract from the noise that it injects.
    """

    def __init__(self, estimate: Callable[[Blocks], Blocks], variance: Blocks | float) -> None:
        self._estimate = estimate
        self.variance = variance

    def __call__(self, position: Blocks) -> Blocks:
        """Return the estimate."""
        return self._estimate(position)


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
        gradient: Gradient,
        step_size: Any,
        noise: Noise,
    ) -> tuple[Blocks, Extra]:
        """One update, symbolic."""

    def statistics(self, extra: Extra) -> Mapping[str, TensorVariable]:
        """Statistics of a draw that belong to this algorithm."""

    def widening(self, step_size: Any, variance: Any, known: Any) -> Any:
        """Relative excess of a unit Gaussian's variance by gradient noise."""


def updates_per_call(thin: int, dimension: int) -> int:
    """Largest divisor of ``thin`` for which the noise of a call stays of moderate size."""
    most = max(1, _LARGEST_NOISE // max(dimension, 1))
    return max(k for k in range(1, thin + 1) if thin % k == 0 and k <= most)


@dataclass
class Draws:
    """What one call gave.

    Attributes
    ----------
    psi : list of ndarray
        Positions, of each draw along the first dimension as all that follows.
    extra : dict of list of ndarray
        The algorithm's further state.
    values : list of ndarray
        PyMC's value variables.
    gradient : list of ndarray
        Estimates of ∇U, independent of how the positions were reached.
    statistics : list of list of float
        As in ``statistic_names``; the last are the rejected updates.
    """

    psi: Sequence[np.ndarray]
    extra: Mapping[str, Sequence[np.ndarray]]
    values: Sequence[np.ndarray]
    gradient: Sequence[np.ndarray]
    statistics: list[list[float]]


class Transition:
    """Some draws of a sampler, ``updates`` updates each, compiled as one scan.

    A deterministic map: noise, batches, step sizes and data are inputs. Chains differ in
    what they put in, never in the compiled function. Several draws in one call share what
    the call itself costs.

    Parameters
    ----------
    posterior : Posterior
        The density.
    sampler : Sampler
        The algorithm.
    whitening : Whitening
        The map from ψ to φ.
    position : list of ndarray
        Any position ψ; only shapes and dtypes are used.
    extra : dict of list of ndarray
        The algorithm's further state at the start; only names, shapes and dtypes are used.
    contiguous : bool
        Whether a batch is given by an offset or by row indices.
    anchored : bool
        Whether gradients have an anchor.
    blocks : int
        Blocks of the data whose gradients at the anchor are known, of which batches are then
        taken; 0 without.
    batches : int
        Batches averaged for one gradient, K.
    joined : int
        Blocks of which the posterior's batches are made, a divisor of K: neighbours that it
        takes in one go.
    adapted : bool
        Whether each coordinate has a step size and a known gradient noise of its own.
    tamed : bool
        Whether there is a bound on the elements of a gradient estimate.
    updates : int
        Updates of a draw. Numba's function makes any number, JAX's this one.
    draws : int
        Draws in a call. Numba's function makes any number unless this is 1.
    backend : {"numba", "jax"}
        The backend.
    compile_kwargs : dict
        For :func:`pymc.compile`.

    Attributes
    ----------
    blocks, batches : int
        Groups of that many blocks, and how many of them are averaged.
    fresh : int
        How many times K batches a draw takes beyond those of its updates, for what is
        measured at its end.
    """

    def __init__(
        self,
        posterior: Posterior,
        sampler: Sampler,
        whitening: Whitening,
        *,
        position: Sequence[np.ndarray],
        extra: Mapping[str, Sequence[np.ndarray]],
        contiguous: bool,
        anchored: bool,
        blocks: int,
        batches: int,
        joined: int,
        adapted: bool,
        tamed: bool,
        updates: int,
        draws: int,
        backend: str,
        compile_kwargs: Mapping[str, Any],
    ) -> None:
        if backend == "jax":
            jax_backend.prepare()
        self.updates = updates
        self.draws = draws
        self._joined, self._weight = joined, -(-blocks // joined) / max(blocks, 1)
        self.batches = batches = batches // joined
        self.blocks = blocks = -(-blocks // joined)
        self.fresh = _FRESH if posterior.minibatches else 0
        self.backend = backend
        self.noise = Noise([x.shape for x in position], [str(x.dtype) for x in position])
        self._extra_shape = {name: len(parts) for name, parts in extra.items()}
        psi = [_like(f"psi_{i}", x) for i, x in enumerate(position)]
        old = [*psi, *(_like(name, x) for name, parts in extra.items() for x in parts)]
        density = BatchDensity(
            posterior, contiguous=contiguous, backend=backend, in_blocks=blocks > 0
        )
        self._estimate = Estimator(
            density, whitening, psi, anchored=anchored, blocks=blocks, batches=batches
        )
        self._relative = [_like(f"relative_{i}", x) for i, x in enumerate(position) if adapted]
        self._variance = [_like(f"variance_{i}", x) for i, x in enumerate(position) if adapted]
        origin = [_like(f"origin_{i}", x) for i, x in enumerate(position)]
        self._bound = [pt.scalar("largest", dtype=pytensor.config.floatX) for _ in range(tamed)]
        fixed = [*self._relative, *self._variance, *self._bound, *self._estimate.fixed]
        step_size = pt.scalar("step_size", dtype=pytensor.config.floatX)

        state = self._one_update(sampler, old, len(psi), step_size)
        rows = self._estimate.rows
        steps = [step_size, *rows, *(flat for _, flat in self.noise.flat_requests())]
        # A sequence of a draw is that of its updates
        sizes = (draws, updates) if backend == "jax" else (None, None)
        sequences = [
            pt.tensor(f"{s.name}_sequence", dtype=s.dtype, shape=(*sizes, *s.type.shape))
            for s in steps
        ]
        count = sizes if backend == "jax" else (sequences[0].shape[0], sequences[0].shape[1])
        placeholders = [*steps, *old, *fixed]
        *states, rejected = pytensor.scan(
            lambda *inner: substitute(state, dict(zip(placeholders, inner, strict=True))),
            sequences=[_of_updates(s, count) for s in sequences],
            outputs_info=[*old, None],
            non_sequences=fixed,
            return_list=True,
            return_updates=False,
            strict=True,
        )
        ends = [_of_draws(x, count, draws) for x in states]
        fresh = [pt.tensor(x.name, dtype=x.dtype, shape=(_FRESH, *x.type.shape)) for x in rows]
        wrapped = _wrapped(posterior, whitening, old[: len(psi)])
        at = [*wrapped, *old[len(psi) :]]
        values, gradient, statistics = self._measured(
            sampler, posterior, at, origin, step_size, [[r[0], r[1]] for r in fresh]
        )
        self.statistic_names = [*statistics, "rejected_updates"]
        scalars = pt.stack([scalar.astype(step_size.dtype) for scalar in statistics.values()])
        fresh_sequences = [
            pt.tensor(f"fresh_{x.name}", dtype=x.dtype, shape=(sizes[0], *x.type.shape))
            for x in fresh
        ]
        measured = _of_each_draw(
            [*wrapped, *values, *gradient, scalars],
            [step_size, *fresh, *old],
            [sequences[0][:, -1], *fresh_sequences, *ends],
            [*origin, *fixed],
            draws,
        )
        counted = pt.sum(_reshaped(rejected, count).astype(step_size.dtype), axis=1)
        # One output: a scalar of JAX costs as much to fetch as a vector
        measured[-1] = pt.concatenate([measured[-1], counted[:, None]], axis=1)
        ends[: len(psi)] = measured[: len(psi)]
        numbers = len(old), len(psi), len(old) - len(psi), len(values), len(gradient)
        self._ends = np.cumsum(numbers).tolist()
        function = compiled(
            [*old, *sequences, *fresh_sequences, *origin, *fixed],
            [*(x[-1] for x in ends), *(ends if draws > 1 else []), *measured[len(psi) :]],
            backend,
            compile_kwargs,
        )
        # What PyTensor wraps around JAX's function costs as much as several updates
        jitted = getattr(function.vm, "jit_fn", None) if backend == "jax" else None
        self._function = jitted or function

    def _steps(self, step_size: TensorVariable) -> tuple[Any, Any]:
        """Step size and known variance of the gradient: of all coordinates, or of each."""
        if not self._relative:
            return step_size, 0.0
        return step_size * Blocks(self._relative), Blocks(self._variance)

    def _tamed_estimate(self, position: Blocks) -> Blocks:
        """Return the estimate, all of it scaled down where an element exceeds the bound."""
        estimate = self._estimate(list(position), self._estimate.rows)
        for bound in self._bound:
            # The whole vector: clipping elements would bend correlations
            estimate = estimate * pt.minimum(1.0, bound / estimate.max_abs())
        return estimate

    def _one_update(
        self,
        sampler: Sampler,
        old: list[TensorVariable],
        n_psi: int,
        step_size: TensorVariable,
    ) -> list[TensorVariable]:
        """Graphs of the next state, and of whether it was rejected."""
        h, variance = self._steps(step_size)
        gradient = Gradient(self._tamed_estimate, variance)
        extra = self._unflatten(old[n_psi:])
        position, extra = sampler.update(Blocks(old[:n_psi]), extra, gradient, h, self.noise)
        new = [*position, *(part for name in self._extra_shape for part in extra[name])]
        new = [part.astype(was.dtype) for part, was in zip(new, old, strict=True)]
        # The sum of a block is finite only if all its elements are
        finite = reduce(pt.and_, [pt.isfinite(pt.sum(part)) for part in new])
        kept = [pt.switch(finite, part, was) for part, was in zip(new, old, strict=True)]
        return [*kept, ~finite]

    def _measured(
        self,
        sampler: Sampler,
        posterior: Posterior,
        state: list[TensorVariable],
        origin: list[TensorVariable],
        step_size: TensorVariable,
        rows: list[list[TensorVariable]],
    ) -> tuple[list[TensorVariable], Blocks, dict[str, TensorVariable]]:
        """Graphs of the values at a state, and of a gradient and statistics there.

        Two fresh estimates at one place: half their squared difference is the variance of
        the noise, whatever the sampler.
        """
        n_psi = len(origin)
        psi, extra = state[:n_psi], self._unflatten(state[n_psi:])
        first, second = ([pair[k] for pair in rows] for k in (0, 1))
        *values, log_density = self._estimate.at(
            [*posterior.values, self._estimate.log_density], psi, first
        )
        gradient = self._estimate(psi, first)
        away = Blocks(psi) - Blocks(origin)
        statistics = {
            "batch_logp": log_density,
            "grad_norm": pt.sqrt(gradient.map(pt.sqr).sum()),
            "config_temperature": _mean_of_line(posterior, away * gradient, len(values)),
            "noise_ratio": pt.constant(0.0),
            **sampler.statistics(extra),
        }
        if rows:
            h, known = self._steps(step_size)
            variance = (gradient - self._estimate(psi, second)).map(lambda x: x**2 / 2)
            widening = sampler.widening(h, variance, known)
            statistics["noise_ratio"] = widening.mean()
        return values, gradient, statistics

    def __call__(
        self,
        position: list[Any],
        extra: dict[str, list[Any]],
        step_sizes: np.ndarray,
        batches: list[np.ndarray],
        fresh: list[np.ndarray],
        noise: list[np.ndarray],
        fixed: list[Any],
    ) -> tuple[list[Any], dict[str, list[Any]], Draws]:
        """Make the draws.

        Parameters
        ----------
        position, extra
            The state.
        step_sizes : ndarray
            Shape (draws, updates).
        batches, fresh : list of ndarray
            For each minibatch the rows of K batches, shapes (draws, updates, ...) and
            (draws, fresh, ...).
        noise : list of ndarray
            Of ``noise.draw``.
        fixed : list
            The origin, then relative step sizes, noise variances and the bound on gradients
            where there are any, then what the estimator takes.

        Returns
        -------
        position, extra
            The state after the last draw, in arrays of the backend.
        draws : Draws
        """
        further = [part for parts in extra.values() for part in parts]
        outputs = self._function(*position, *further, step_sizes, *batches, *noise, *fresh, *fixed)
        a, b, c, d, e = self._ends
        state, arrays = outputs[:a], [np.asarray(x) for x in outputs[a:]]
        if self.draws == 1:
            # Another output of the same would be copied
            arrays[:0] = [np.asarray(x)[None] for x in state]
        n_psi = b - a
        return (
            state[:n_psi],
            {name: list(parts) for name, parts in self._split(state[n_psi:])},
            Draws(
                psi=arrays[: b - a],
                extra=dict(self._split(arrays[b - a : c - a])),
                values=arrays[c - a : d - a],
                gradient=arrays[d - a : e - a],
                statistics=arrays[-1].tolist(),
            ),
        )

    def place(self, arrays: Sequence[np.ndarray]) -> list[Any]:
        """Put arrays where the backend reads them without a copy at every call."""
        return place(arrays, self.backend)

    def of_groups(self, estimates: np.ndarray) -> np.ndarray:
        """Return what groups of blocks estimate, of the estimates of each block."""
        if self._joined == 1:
            return estimates
        sums = np.add.reduceat(estimates, np.arange(0, len(estimates), self._joined), axis=0)
        return (self._weight * sums).astype(estimates.dtype)

    def _split(self, flat: Sequence[Any]) -> list[tuple[str, Sequence[Any]]]:
        pieces, start = [], 0
        for name, count in self._extra_shape.items():
            pieces.append((name, flat[start : start + count]))
            start += count
        return pieces

    def _unflatten(self, flat: Sequence[Any]) -> Extra:
        return {name: Blocks(parts) for name, parts in self._split(flat)}


def _reshaped(x: TensorVariable, count: tuple[Any, Any]) -> TensorVariable:
    """Give the draws a dimension of their own."""
    return x.reshape((*count, *(x.shape[k + 1] if n is None else n
                                for k, n in enumerate(x.type.shape[1:]))))  # fmt: skip


def _of_updates(x: TensorVariable, count: tuple[Any, Any]) -> TensorVariable:
    """Join the updates of all draws."""
    return x.reshape((count[0] * count[1], *x.type.shape[2:]))


def _of_draws(x: TensorVariable, count: tuple[Any, Any], draws: int) -> TensorVariable:
    """Return the last update's state of each draw."""
    # Of one draw the others need not be kept
    return x[-1][None] if draws == 1 else _reshaped(x, count)[:, -1]


def _of_each_draw(
    graphs: list[TensorVariable],
    placeholders: list[TensorVariable],
    sequences: list[TensorVariable],
    fixed: list[TensorVariable],
    draws: int,
) -> list[TensorVariable]:
    """Return graphs for every draw, along a new first dimension."""
    if draws == 1:
        one = substitute(graphs, dict(zip(placeholders, [s[0] for s in sequences], strict=True)))
        return [x[None] for x in one]
    found: list[TensorVariable] = pytensor.scan(
        lambda *inner: substitute(graphs, dict(zip([*placeholders, *fixed], inner, strict=True))),
        sequences=sequences,
        outputs_info=[None] * len(graphs),
        non_sequences=fixed,
        return_list=True,
        return_updates=False,
        strict=True,
    )
    return found


def place(arrays: Sequence[Any], backend: str) -> list[Any]:
    """Put arrays where the backend reads them without a copy at every call."""
    if backend == "jax":
        import jax

        return [jax.device_put(array) for array in arrays]
    # A read-only or strided array would make numba compile anew
    return [np.require(array, array.dtype, ["C", "A", "W"]) for array in arrays]


def _wrapped(
    posterior: Posterior, whitening: Whitening, psi: list[TensorVariable]
) -> list[TensorVariable]:
    """Return ψ with circular coordinates brought back to one period."""
    if not whitening.elementwise:
        return psi
    phi = whitening.to_phi(psi, whitening.symbols)
    moved = posterior.wrapped(phi)
    back = whitening.to_psi(moved, whitening.symbols)
    return [
        x if new is old else there for x, old, new, there in zip(psi, phi, moved, back, strict=True)
    ]


def _mean_of_line(posterior: Posterior, products: Blocks, count: int) -> TensorVariable:
    """Mean over coordinates, those on a circle left out: they have no such law."""
    if len(products) != count:
        return products.mean()
    on_line = [
        part
        for part, c in zip(products, posterior.coordinates, strict=True)
        if not isinstance(c.transform, CircularTransform)
    ]
    return Blocks(on_line).mean() if on_line else pt.constant(1.0)


def _like(name: str, array: np.ndarray) -> TensorVariable:
    return pt.tensor(name, dtype=str(array.dtype), shape=array.shape)
