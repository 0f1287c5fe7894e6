"""Many updates of a sampler as one compiled function, for numba and for JAX."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from typing import Any

import numpy as np
import pytensor.tensor as pt

from pymc_sgmcmc.backends.compiling import compiled
from pymc_sgmcmc.backends.jax_backend import prepare
from pymc_sgmcmc.backends.placing import on_processor, place
from pymc_sgmcmc.kernel.estimators import Estimator
from pymc_sgmcmc.kernel.groups import Groups
from pymc_sgmcmc.kernel.loop import along, looped, unchanged
from pymc_sgmcmc.kernel.measure import measured, wrapped
from pymc_sgmcmc.kernel.sampler import Sampler
from pymc_sgmcmc.kernel.update import Layout, State, Update, is_finite
from pymc_sgmcmc.kernel.whitening import Whitening
from pymc_sgmcmc.model.batch_density import BatchDensity
from pymc_sgmcmc.model.graphs import substitute
from pymc_sgmcmc.model.posterior import Posterior

# Updates that a GPU runs, and rejects, as one: it reads the state between them once, and checks it
# after the last
_IN_A_ROW = 5

# Batches besides those of the updates: measurements of a draw must not depend on how the chain
# reached it
_FRESH = 2


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
        self.state = state = State(position, extra)
        density = BatchDensity(
            posterior,
            contiguous=layout.contiguous,
            backend=layout.backend,
            in_blocks=layout.stored_batches > 0,
        )
        estimator = Estimator(
            density,
            whitening,
            state.psi,
            anchored=layout.anchored,
            blocks=layout.groups,
            batches=layout.averaged,
        )
        if layout.backend == "jax":
            prepare()
        in_one = not on_processor(layout.backend) and sampler.policy().whitened
        update = Update(sampler, state, estimator, layout, in_one=in_one and state.alike)
        self.noise = update.noise
        # How many sets of K batches an update takes: one, and one for each independent estimate
        self.row_sets = len(update.row_sets)
        # How many sets are drawn for what is measured at a draw's end
        self.fresh = _FRESH if update.row_sets[0] else 0
        self._same = Groups(origin=state.origin, **update.inputs)  # in all updates of a call

        # JAX alone compiles the lengths of loops in
        compiled_in = layout.backend == "jax"
        draws, updates = (layout.draws, layout.updates) if compiled_in else (None, None)
        each = Groups(
            **{name: along(own, updates) for name, own in update.own_inputs.items()},
            fresh=along(update.row_sets[0], _FRESH),
        )
        given = Groups({name: along(own, draws) for name, own in each.items()})
        of_draw = self._draw(update, each)
        outputs = of_draw.flat
        if layout.draws == 1:
            first = [x[0] for x in given.flat]
            outputs = substitute(outputs, dict(zip(each.flat, first, strict=True)))
        else:
            outputs = looped(
                [*of_draw["psi"], *of_draw["extra"], *outputs],
                dict(zip(each.flat, given.flat, strict=True)),
                unchanged(state.symbols),
                unchanged(self._same.flat),
                layout.backend,
            )
        self._of_draw = of_draw
        self.inputs = Groups(**state.groups, **given, **self._same)
        self._function = compiled(self.inputs.flat, outputs, layout.backend, compile_kwargs)

    def _draw(self, update: Update, given: Groups) -> Groups:
        """Return a draw: the state after its updates, then values, gradients, statistics there."""
        state, n_psi = self.state, len(self.state.psi)
        own = update.own_inputs
        *new, acted = update.outputs
        # Counted on the way: a GPU would write each of many flags by a kernel of its own
        counts = [pt.scalar(name, dtype="int32") for name in ("tamed", "accepted")]
        tamed, accepted = counts
        counted = [tamed + acted.astype("int32"), accepted + np.int32(1)]
        in_one = update.state is not state
        begin = state.join(state.symbols) if in_one else state.symbols
        *end, tamed, accepted = looped(
            [*new, *counted],
            {x: many for name, xs in own.items() for x, many in zip(xs, given[name], strict=True)},
            dict(zip(update.state.symbols, begin, strict=True))
            | {n: pt.constant(np.int32(0)) for n in counts},
            unchanged(self._same.flat),
            self.layout.backend,
            in_a_row=1 if on_processor(self.layout.backend) else _IN_A_ROW,
            settled=partial(_without_rejected, self.layout.backend),
        )
        [step_sizes] = given["step_size"]
        rejected = step_sizes.shape[0].astype("int32") - accepted
        end = state.part(end) if in_one else end
        end[:n_psi] = wrapped(update, end[:n_psi])
        values, gradient, statistics = measured(update, end, given["fresh"])
        statistics |= {"tamed_updates": tamed, "rejected_updates": rejected}
        self.statistic_names = list(statistics)
        # In one output: fetching a scalar from JAX costs as much as a vector
        dtype = update.step_size.dtype
        scalars = pt.stack([scalar.astype(dtype) for scalar in statistics.values()])
        measures = Groups(values=values, gradient=list(gradient), statistics=[scalars])
        # The last update of a cycle has nearly no step, and longer ones made the draw
        at_first = measures.like(substitute(measures.flat, {update.step_size: step_sizes[0]}))
        return Groups(psi=end[:n_psi], extra=end[n_psi:], **at_first)

    def __call__(self, arrays: Mapping[str, Sequence[Any]]) -> tuple[Groups, Groups]:
        """Make the draws of a call; return the state after the last one, as placed, and the draws.

        ``arrays`` are placed, in the groups of ``inputs``. Step sizes have the shape (draws,
        updates), rows (draws, updates, ...) for K batches, set after set, and fresh ones (draws,
        fresh, ...). The draws are ψ, the further state, PyMC's values, an estimate of ∇U that is
        independent of how ψ was reached, and the statistics, whose last two count tamed and
        rejected updates; the first dimension counts draws. On a GPU reading one waits for the call.
        """
        outputs = self._function(*self.inputs.arranged(arrays))
        measures: list[Any]
        if self.layout.draws > 1:
            measures = [np.asarray(x) for x in outputs[len(self.state.symbols) :]]
        else:
            # A second output of the same array would be copied
            measures = [[x if self.is_asynchronous else np.asarray(x)] for x in outputs]
        return self.state.groups.like(outputs), self._of_draw.like(measures)

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
        return (self.layout.groups / self.layout.stored_batches * sums).astype(estimates.dtype)


def _without_rejected(backend: str, begin: Sequence[Any], end: Sequence[Any]) -> list[Any]:
    """Return what an update, or some in a row, ends with, or its begin where that is not finite.

    Both are a state, the tamed and the accepted updates.
    """
    *old, _, before = begin
    *new, tamed, accepted = end
    finite = is_finite(new, backend)
    kept = [pt.switch(finite, x, was) for x, was in zip(new, old, strict=True)]
    return [*kept, tamed, pt.switch(finite, accepted, before)]
