"""Many updates of a sampler as one compiled function, for numba and for JAX."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pytensor.tensor as pt

from pytensor.tensor.variable import TensorVariable

from pymc_sgmcmc.backends.compiling import compiled
from pymc_sgmcmc.backends.jax_backend import prepare
from pymc_sgmcmc.backends.placing import on_processor, place
from pymc_sgmcmc.kernel.estimators import Estimator
from pymc_sgmcmc.kernel.layout import Layout
from pymc_sgmcmc.kernel.loop import looped, unchanged
from pymc_sgmcmc.kernel.measure import measured, wrapped
from pymc_sgmcmc.kernel.sampler import Sampler
from pymc_sgmcmc.kernel.update import State, Update
from pymc_sgmcmc.kernel.whitening import Whitening
from pymc_sgmcmc.model.batch_density import BatchDensity
from pymc_sgmcmc.model.graphs import substitute
from pymc_sgmcmc.model.posterior import Posterior

__all__ = ["Draws", "Transition", "updates_per_call"]

# Noise of the updates of one compiled call, in numbers: models with millions of parameters take
# several calls for a draw. What is measured at the end of each costs as much as a few updates
_LARGEST_NOISE = 2**26

# Numbers of rows on disk that a call reads: two or three copies of them are in memory
_LARGEST_READ = 2**22

# Updates that a GPU runs as one, so that the end of one and the begin of the next read a state once
_IN_A_ROW = 4

# Batches besides those of the updates: measurements of a draw must not depend on how the chain
# reached it
_FRESH = 2


def updates_per_call(thin: int, dimension: int, read: int = 0) -> int:
    """Return the largest divisor of ``thin`` for which a call has a moderate amount of noise."""
    most = max(1, min(_LARGEST_NOISE // max(dimension, 1), _LARGEST_READ // max(read, 1)))
    return max(k for k in range(1, thin + 1) if thin % k == 0 and k <= most)


@dataclass
class Draws:
    """The draws of one call; the first dimension of every array counts them.

    On a GPU the arrays are JAX's, and reading one waits for the call to end.
    """

    psi: Sequence[Sequence[Any]]  # positions
    extra: Mapping[str, Sequence[Sequence[Any]]]  # the sampler's further state
    values: Sequence[Sequence[Any]]  # PyMC's value variables
    # Estimates of ∇U, independent of how the positions were reached
    gradient: Sequence[Sequence[Any]]
    # As in ``statistic_names``; the last two count tamed and rejected updates
    statistics: Sequence[Any]


class Transition:
    """Some draws of a sampler, each of many updates, compiled as one deterministic function.

    Noise, batches, step sizes and data are its inputs, so that chains share it. Of ``position``
    and ``extra`` only shapes and dtypes are used.
    """

    def __init__(
        self,
        posterior: Posterior,
        sampler: Sampler,
        whitening: Whitening,
        layout: Layout,
        *,
        position: Sequence[np.ndarray],
        extra: Mapping[str, Sequence[np.ndarray]],
        compile_kwargs: Mapping[str, Any],
    ) -> None:
        self.layout = layout
        self.posterior = posterior
        self._state = State(position, extra)
        density = BatchDensity(
            posterior,
            contiguous=layout.contiguous,
            backend=layout.backend,
            in_blocks=layout.known_blocks > 0,
        )
        estimator = Estimator(
            density,
            whitening,
            self._state.psi,
            anchored=layout.anchored,
            blocks=layout.groups,
            batches=layout.averaged,
        )
        if layout.backend == "jax":
            prepare()
        in_one = not on_processor(layout.backend) and sampler.policy().whitened
        in_one = in_one and self._state.alike
        update = Update(sampler, self._state, estimator, layout, in_one=in_one)
        self.noise = update.noise
        # Times K batches of an update: more than 1 where it asks for independent estimates
        self.row_sets = len(update.row_sets)
        # Times K batches for what is measured at the end of a draw
        self.fresh = _FRESH if update.row_sets[0] else 0
        self._constants = [*self._state.origin, *update.fixed]

        # What is compiled in, for JAX alone
        known = layout.backend == "jax"
        draws, updates = (layout.draws, layout.updates) if known else (None, None)
        each = [
            *(_along(x, updates) for x in _of_one(update)),
            *(_along(x, _FRESH) for x in update.row_sets[0]),
        ]
        given = [_along(x, draws) for x in each]
        of_draw = self._draw(sampler, estimator, update, each)
        n_state = len(self._state.symbols)
        if layout.draws == 1:
            found = substitute(of_draw, dict(zip(each, [x[0] for x in given], strict=True)))
            outputs = list(found)
        else:
            outputs = looped(
                [*of_draw[:n_state], *of_draw],
                dict(zip(each, given, strict=True)),
                unchanged(self._state.symbols),
                unchanged(self._constants),
                layout.backend,
            )
        self._function = compiled(
            [*self._state.symbols, *given, *self._constants],
            outputs,
            layout.backend,
            compile_kwargs,
        )

    def _draw(
        self,
        sampler: Sampler,
        estimator: Estimator,
        update: Update,
        given: Sequence[TensorVariable],
    ) -> list[TensorVariable]:
        """Return a draw: the state after its updates, then values, gradients, statistics there."""
        state, n_psi, of_one = self._state, len(self._state.psi), _of_one(update)
        of_updates, fresh = given[: len(of_one)], list(given[len(of_one) :])
        *new, tamed, rejected = update.outputs
        # Counted on the way: a GPU would write each of many flags by a kernel of its own
        counts = [pt.scalar(name, dtype="int32") for name in ("tamed", "rejected")]
        counted = [n + x.astype("int32") for n, x in zip(counts, (tamed, rejected), strict=True)]
        in_one = update.state is not state
        begin = state.join(state.symbols) if in_one else state.symbols
        *end, tamed, rejected = looped(
            [*new, *counted],
            dict(zip(of_one, of_updates, strict=True)),
            dict(zip(update.state.symbols, begin, strict=True))
            | {n: pt.constant(np.int32(0)) for n in counts},
            unchanged(self._constants),
            self.layout.backend,
            in_a_row=1 if on_processor(self.layout.backend) else _IN_A_ROW,
        )
        end = state.part(end) if in_one else end
        end[:n_psi] = wrapped(estimator.posterior, estimator.whitening, end[:n_psi], state.origin)
        values, gradient, statistics = measured(
            sampler, estimator, update, state, end, fresh, self.layout.backend
        )
        statistics |= {"tamed_updates": tamed, "rejected_updates": rejected}
        self.statistic_names = list(statistics)
        n_old = len(state.symbols)
        numbers = n_old, n_psi, n_old - n_psi, len(values), len(gradient)
        self._ends = np.cumsum(numbers).tolist()
        # In one output: fetching a scalar from JAX costs as much as a vector
        dtype = update.step_size.dtype
        scalars = pt.stack([scalar.astype(dtype) for scalar in statistics.values()])
        measures = [*values, *gradient, scalars]
        return [*end, *substitute(measures, {update.step_size: of_updates[0][-1]})]

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
        """Make the draws; return the state after the last one, in the backend's arrays, and them.

        Step sizes have the shape (draws, updates), ``batches`` (draws, updates, ...) for K batches,
        set after set, and ``fresh`` (draws, fresh, ...). ``fixed`` are the origin, relative step
        sizes, noise variances and the bound on gradients, where used, then the estimator's inputs.
        """
        further = [part for parts in extra.values() for part in parts]
        outputs = self._function(*position, *further, step_sizes, *batches, *noise, *fresh, *fixed)
        a, b, c, d, e = self._ends
        state, measured = outputs[:a], outputs[a:]
        arrays: list[Any]
        if self.layout.draws > 1:
            arrays = [np.asarray(x) for x in measured]
        else:
            # A second output of the same array would be copied
            arrays = [[x if self.is_asynchronous else np.asarray(x)] for x in (*state, *measured)]
        n_psi = b - a
        return (
            state[:n_psi],
            {name: list(parts) for name, parts in self._state.split(state[n_psi:]).items()},
            Draws(
                psi=arrays[: b - a],
                extra=self._state.split(arrays[b - a : c - a]),
                values=arrays[c - a : d - a],
                gradient=arrays[d - a : e - a],
                statistics=arrays[-1],
            ),
        )

    @cached_property
    def is_asynchronous(self) -> bool:
        """Whether a call of one draw returns before it has run, as on a GPU."""
        return self.layout.draws == 1 and not on_processor(self.layout.backend)

    def place(self, arrays: Sequence[np.ndarray]) -> list[Any]:
        """Put arrays where the backend reads them without a copy at every call."""
        return place(arrays, self.layout.backend)

    def of_groups(self, estimates: np.ndarray) -> np.ndarray:
        """Return the estimates of groups of blocks from those of each block."""
        joined = self.layout.joined
        if joined == 1:
            return estimates
        sums = np.add.reduceat(estimates, np.arange(0, len(estimates), joined), axis=0)
        return (self.layout.groups / self.layout.known_blocks * sums).astype(estimates.dtype)


def _along(x: TensorVariable, length: int | None) -> TensorVariable:
    """Return a symbol of such values along a new first dimension."""
    found: TensorVariable = pt.tensor(x.name, dtype=x.dtype, shape=(length, *x.type.shape))
    return found


def _of_one(update: Update) -> list[TensorVariable]:
    """Return the symbols of each update's own inputs."""
    rows = [row for row_set in update.row_sets for row in row_set]
    return [update.step_size, *rows, *(flat for _, flat in update.noise.flat_requests())]
