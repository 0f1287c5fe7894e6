"""What moves a chain in one process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pytensor

from pymc_sgmcmc.chain.by_variable import ByVariable
from pymc_sgmcmc.chain.feed import Feed
from pymc_sgmcmc.chain.monitor import watched
from pymc_sgmcmc.chain.state import ChainState
from pymc_sgmcmc.kernel.engine import Engine
from pymc_sgmcmc.kernel.groups import Groups
from pymc_sgmcmc.kernel.potential import gradient_at_anchor
from pymc_sgmcmc.kernel.settings import Settings
from pymc_sgmcmc.schedules import Schedule, step_sizes


@dataclass
class Draw:
    """The end of some updates."""

    values: list[Any]  # PyMC's value variables
    gradient: list[Any]  # an estimate of ∇U at the new position
    statistics: dict[str, float]  # of the last update
    rejected: int  # updates that were not finite
    tamed: int  # updates in which a bound on moves acted
    weight: float  # sum of the step sizes


@dataclass
class _Call:
    """Draws of one call, of which ``taken`` were handed out."""

    draws: Groups  # as the transition returns them
    step_size: float | Schedule
    updates: int  # of each
    count: int
    extra: Groups  # the sampler's further state in the draws
    weights: list[float]  # sum of the step sizes of each
    last_steps: list[float]  # last step size of each
    # States of the generators of noise and batches, and batches left, before the first
    before: tuple[Any, Any, list[np.ndarray]]
    taken: int = 0
    measured: list[list[float]] = field(default_factory=list)  # statistics of each, once read


class Runner:
    """Moves a chain, whose state has a position and settings, in place.

    Where a call of the compiled function costs more than its updates, one call makes several
    draws, which :meth:`advance` hands out one after the other. On a GPU the next call runs while a
    draw is handed out. ``settle`` forgets draws that were not handed out: random numbers go on
    as if these had never been made. ``gradients`` counts gradients of batches.
    """

    def __init__(self, engine: Engine, state: ChainState) -> None:
        assert state.psi is not None and state.settings is not None
        settings = state.settings
        if settings.anchor_blocks and settings.row_order != state.row_order:
            raise ValueError(
                "The stored gradients of blocks at the anchor belong to another order of the rows."
            )
        self.engine = engine
        self.state = state
        self.settings = settings
        thin = settings.each or settings.thin
        self._transition = engine.program.transition(engine.backend, settings, state.psi, thin)
        # The call whose draws are handed out, and the next one where it was made already
        self._current: _Call | None = None
        self._next_call: _Call | None = None
        self._constant: tuple[tuple[float, int, int], Any] | None = None
        self._hold(state.psi, state.extra)
        self._feed = Feed(engine, self._transition, state)
        # Inputs that calls have in common, and how often the settings in them had been changed
        self._fixed_inputs: dict[str, list[Any]] = {}
        self._pushed_changes: int | None = None
        # The centre of the temperatures, and its watched elements
        self._origin: tuple[list[np.ndarray], np.ndarray] | None = None
        if not state.origin:
            state.origin = settings.origin(state.psi)

    def restart(
        self, psi: Sequence[np.ndarray], extra: Mapping[str, Sequence[np.ndarray]] | None = None
    ) -> None:
        """Go on from another position. Without ``extra``, momenta and thermostats begin anew."""
        self.settle()
        if extra is None:
            extra = self.engine.sampler.initial_extra(list(psi), self.state.noise_rng)
        self._hold(psi, extra)

    def _hold(self, psi: Sequence[np.ndarray], extra: Mapping[str, Sequence[np.ndarray]]) -> None:
        """Let the next call begin here."""
        self.state.psi = list(psi)
        self.state.extra = {name: list(parts) for name, parts in extra.items()}
        place = self._transition.place
        self._placed = Groups(psi=place(psi), extra=place(Groups(self.state.extra).flat))

    def settle(self) -> None:
        """Forget draws that were made ahead: the generators are those after the last draw."""
        call = self._next_call or self._current
        self._current = self._next_call = None
        if call is None or call.taken == call.count:
            return
        state = self.state
        noise, batches, left = call.before
        state.noise_rng.bit_generator.state, state.batch_rng.bit_generator.state = noise, batches
        state.batches_left = list(left)
        for _ in range(call.taken):
            self._transition.noise.draw(state.noise_rng, call.updates)
        self._feed.drawn(state.batch_rng, call.updates, call.taken, state.batches_left)
        assert state.psi is not None
        self._hold(state.psi, state.extra)

    def push(self, settings: Settings) -> None:
        """Let the next updates have these settings; draws that were made by others are forgotten.

        :meth:`advance` does so where one of the chain's settings was changed.
        """
        self.settle()
        self.settings = self.state.settings = settings
        self._pushed_changes, largest = settings.changes, settings.largest_gradient
        blocks = [self._transition.of_groups(estimates) for estimates in settings.anchor_blocks]
        arrays = {
            "origin": self.state.origin,
            "relative": settings.relative,
            "variance": settings.variance,
            "bound": [] if largest is None else [np.array(largest, pytensor.config.floatX)],
            "whitening": settings.whitening().arrays,
            "anchor": blocks or settings.anchor,
            "anchor_gradient": settings.anchor_gradient,
            "anchor_others": [] if blocks else settings.anchor_others,
            "scales": self.state.scales,
        }
        self._transition.inputs.check(arrays)
        place = self._transition.place
        self._fixed_inputs = {name: place(own) for name, own in arrays.items()}
        self._fixed_inputs["data"] = self.engine.data()

    def set_origin(self, origin: Sequence[np.ndarray]) -> None:
        """Set the centre of the configurational temperature."""
        self.settle()
        self.state.origin = [np.array(x) for x in origin]
        self._fixed_inputs["origin"] = self._transition.place(self.state.origin)

    def away(self) -> np.ndarray:
        """Return ψ minus the centre of its temperatures, in the watched elements alone."""
        state, on_line = self.state, self.engine.posterior.on_line
        assert state.psi is not None
        if self._origin is None or self._origin[0] is not state.origin:
            self._origin = state.origin, watched(on_line(state.origin))
        return watched(on_line(state.psi)) - self._origin[1]

    @cached_property
    def by_variable(self) -> ByVariable:
        """What draws record of each variable."""
        return ByVariable(self.engine, self.state)

    def phi(self) -> list[np.ndarray]:
        """Return the position in the coordinates φ."""
        whitening = self.settings.whitening()
        assert self.state.psi is not None
        return whitening.to_phi([np.asarray(x) for x in self.state.psi], whitening.arrays)

    def _refresh_anchor(self, others: Sequence[np.ndarray]) -> None:
        """Take the chain's position as the anchor where it is time to."""
        engine, state, settings = self.engine, self.state, self.settings
        assert settings.refresh is not None
        if state.updates < state.next_refresh:
            return
        state.next_refresh = state.updates + settings.refresh
        phi = self.phi()
        potential = engine.potential_at(state.row_order, state.scales, others)
        settings.anchor_gradient, settings.anchor_blocks = gradient_at_anchor(
            potential, settings.whitening(), phi, blocks=bool(settings.anchor_blocks)
        )
        settings.anchor, settings.anchor_others = phi, list(others)

    def advance(
        self, step_size: float | Schedule, updates: int, others: Sequence[np.ndarray]
    ) -> Draw:
        """Make so many updates, a multiple of those in a compiled draw, and measure at the end.

        The step size may be a schedule; ``others`` are values of variables that are not sampled.
        """
        if self.settings.refresh is not None:
            self._refresh_anchor(others)
        each = self._transition.layout.updates
        if self.engine.backend == "numba":
            # As JAX has it: each call draws rows and noise for measurements
            each = self.settings.each or updates
            each = self.engine.program.updates_per_call(self.settings, each)
        draw = self._next(step_size, each, others)
        for _ in range(updates // each - 1):
            before, draw = draw, self._next(step_size, each, others)
            draw.rejected += before.rejected
            draw.tamed += before.tamed
            draw.weight += before.weight
        return draw

    def _next(
        self, step_size: float | Schedule, updates: int, others: Sequence[np.ndarray]
    ) -> Draw:
        """Return the next compiled draw, made before or now."""
        if self._pushed_changes != self.settings.changes:
            self.push(self.settings)
        call = self._current
        if call is not None and (call.step_size, call.updates) != (step_size, updates):
            self.settle()
            call = None
        if call is None or call.taken == call.count:
            call = self._current = self._next_call or self._call(step_size, updates, others)
            self._next_call = None
        k, draws = call.taken, call.draws
        call.taken += 1
        self.state.updates += updates
        is_last = self.state.draw + 1 == self.state.last_draw
        if self._transition.is_asynchronous and not (
            others or self.settings.refresh or self.engine.on_disk or is_last
        ):
            # A GPU makes the next draw while this one is read
            self._next_call = self._call(step_size, updates, others)
        self.state.psi = [x[k] for x in draws["psi"]]
        self.state.extra = {name: [x[k] for x in xs] for name, xs in call.extra.items()}
        if not call.measured:
            call.measured = [np.asarray(x).tolist() for x in draws["statistics"][0]]
        measured = call.measured[k]
        statistics = dict(zip(self._transition.statistic_names, measured, strict=True))
        statistics["step_size"] = call.last_steps[k]
        return Draw(
            values=[np.asarray(x[k]) for x in draws["values"]],
            gradient=[x[k] for x in draws["gradient"]],
            statistics=statistics,
            rejected=int(measured[-1]),
            tamed=int(measured[-2]),
            weight=call.weights[k],
        )

    def _call(
        self, step_size: float | Schedule, updates: int, others: Sequence[np.ndarray]
    ) -> _Call:
        """Call the compiled function."""
        transition, state = self._transition, self.state
        count = transition.layout.draws
        if self.engine.backend == "numba" and count > 1:
            count = self.engine.program.draws_per_call(self.settings, updates)
        before = (
            state.noise_rng.bit_generator.state,
            state.batch_rng.bit_generator.state,
            list(state.batches_left),
        )
        noise = transition.noise.draw(state.noise_rng, updates, count)
        drawn, tables = self._feed.next(updates, count)
        h, weights, last_steps = self._step_sizes(step_size, count, updates)
        sets, fresh = transition.row_sets, transition.fresh
        self._placed, draws = transition(
            {
                **self._placed,
                "step_size": [h],
                "rows": [x[:, fresh + k :: sets] for k in range(sets) for x in drawn],
                "noise": noise,
                "fresh": [x[:, :fresh] for x in drawn],
                **self._fixed_inputs,
                "others": others,
                "tables": tables,
            }
        )
        extra = transition.state.extra.like(draws["extra"])
        return _Call(draws, step_size, updates, count, extra, weights, last_steps, before)

    def _step_sizes(
        self, step_size: float | Schedule, draws: int, updates: int
    ) -> tuple[Any, list[float], list[float]]:
        """Step sizes of a call, placed, with their sum and the last of them for each draw."""
        if not callable(step_size):
            key = step_size, draws, updates
            if self._constant is None or self._constant[0] != key:
                h = np.full((draws, updates), step_size, dtype=pytensor.config.floatX)
                self._constant = key, self._transition.place([h])[0]
            return self._constant[1], [step_size * updates] * draws, [step_size] * draws
        numbers = np.arange(self.state.updates, self.state.updates + draws * updates)
        left = (self.state.last_draw - self.state.draw) * updates
        try:
            h = step_sizes(step_size, numbers)
        except ValueError:
            # A schedule may end with the chain: draws behind its last one are not handed out
            if not 0 < left < len(numbers):
                raise
            h = step_sizes(step_size, np.minimum(numbers, numbers[left - 1]))
        h = h.reshape(draws, updates).astype(pytensor.config.floatX)
        return self._transition.place([h])[0], h.sum(axis=1).tolist(), h[:, -1].tolist()
