"""A chain in one process: its state, placed for the backend, and the function that moves it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytensor

from pymc_sgmcmc.adaptation import Adaptation
from pymc_sgmcmc.engine import Engine
from pymc_sgmcmc.transition import Draws, updates_per_call
from pymc_sgmcmc.tuning.schedules import Schedule, step_sizes

__all__ = ["Draw", "Runner"]


@dataclass
class Draw:
    """What some updates gave.

    Attributes
    ----------
    values : list of ndarray
        PyMC's value variables.
    gradient : list of ndarray
        An estimate of ∇U at the new position.
    statistics : dict of float
        Of the last update.
    rejected : int
        Updates that were not finite.
    weight : float
        Sum of the step sizes.
    """

    values: list[Any]
    gradient: list[Any]
    statistics: dict[str, float]
    rejected: int
    weight: float


@dataclass
class _Ahead:
    """Draws of one call, of which some were handed out.

    Attributes
    ----------
    draws : Draws
    step_size : float or callable
        With which they were made.
    updates : int
        Of each.
    count : int
        How many there are.
    weights, last_steps : list of float
        Sum and last of the step sizes of each.
    generators : tuple of dict
        States of the generators of noise and batches before the first.
    taken : int
        How many were handed out.
    """

    draws: Draws
    step_size: float | Schedule
    updates: int
    count: int
    weights: list[float]
    last_steps: list[float]
    generators: tuple[Any, Any]
    taken: int = 0


class Runner:
    """The state of a chain beside its generators, and what moves it.

    Where a call of the compiled function costs more than its updates, one call makes several
    draws, which :meth:`advance` hands out one after the other. ``settle`` forgets those to
    come: what follows is the same, whatever was made with it.

    Parameters
    ----------
    engine : Engine
        The compiled model.
    adaptation : Adaptation
        The chain's tuning.
    psi : list of ndarray
        Position.
    extra : dict of list of ndarray
        The algorithm's further state.
    origin : list of ndarray
        ψ about which the configurational temperature is taken.
    scales : list of ndarray
        Of the coordinates that have one.
    noise_rng, batch_rng : numpy.random.Generator
        The chain's.
    row_order : int
        Seed of the order in which contiguous batches find the rows.

    Attributes
    ----------
    gradients : int
        Gradients of a batch that the updates took.
    """

    def __init__(
        self,
        engine: Engine,
        adaptation: Adaptation,
        psi: Sequence[np.ndarray],
        extra: Mapping[str, Sequence[np.ndarray]],
        origin: Sequence[np.ndarray],
        scales: Sequence[np.ndarray],
        noise_rng: np.random.Generator,
        batch_rng: np.random.Generator,
        row_order: int,
    ) -> None:
        if adaptation.anchor_blocks and adaptation.row_order != row_order:
            raise ValueError("An anchor's blocks are of another order of the rows.")
        self.engine = engine
        self.adaptation = adaptation
        self.scales = list(scales)
        self.noise_rng = noise_rng
        self.batch_rng = batch_rng
        self.updates = 0
        self.gradients = 0
        self._transition = engine.transition(adaptation, psi, adaptation.thin)
        self._ahead: _Ahead | None = None
        self.psi: Sequence[Any]
        self.extra: Mapping[str, Sequence[Any]]
        self.restart(psi, extra)
        self._row_order = row_order
        self._tables = engine.tables(row_order)
        self.data = engine.data()
        self.set_origin(origin)
        self.set_anchor(adaptation.anchor, adaptation.anchor_gradient, adaptation.anchor_blocks)
        self._constant: tuple[tuple[float, int, int], Any] | None = None

    def restart(self, psi: Sequence[np.ndarray], extra: Mapping[str, Sequence[np.ndarray]]) -> None:
        """Go on from another state."""
        self.settle()
        place = self._transition.place
        self.psi, self.extra = psi, extra
        self._placed = place(psi), {name: place(parts) for name, parts in extra.items()}

    def settle(self) -> None:
        """Forget draws that were made ahead: the generators are those after the last draw."""
        ahead, self._ahead = self._ahead, None
        if ahead is None or ahead.taken == ahead.count:
            return
        self.noise_rng.bit_generator.state, self.batch_rng.bit_generator.state = ahead.generators
        for _ in range(ahead.taken):
            self._transition.noise.draw(self.noise_rng, ahead.updates)
            self.engine.draw_batches(self.batch_rng, self._transition, ahead.updates)
        self.restart(self.psi, self.extra)

    def set_origin(self, origin: Sequence[np.ndarray]) -> None:
        """Set the centre of the configurational temperature."""
        self.settle()
        self.origin = [np.array(x) for x in origin]
        adaptation, largest = self.adaptation, self.adaptation.largest_gradient
        bound = [] if largest is None else [np.array(largest, dtype=pytensor.config.floatX)]
        self._before = self._transition.place(
            [*self.origin, *adaptation.relative, *adaptation.variance, *bound]
        )
        self._before += self._transition.place(self.adaptation.whitening().arrays)

    def set_anchor(
        self,
        phi: Sequence[np.ndarray],
        gradient: Sequence[np.ndarray],
        blocks: Sequence[np.ndarray],
    ) -> None:
        """Set φ̄, ∇U(ψ̄) and what the blocks of the data say of ∇U(φ̄)."""
        self.settle()
        self.adaptation.anchor = list(phi)
        self.adaptation.anchor_gradient = list(gradient)
        self.adaptation.anchor_blocks = list(blocks)
        place = self._transition.place
        known = [self._transition.of_groups(estimates) for estimates in blocks]
        self._anchor = place([*(known or phi), *gradient])
        self._scales = place(self.scales)

    def phi(self) -> list[np.ndarray]:
        """Return the position in the coordinates φ."""
        whitening = self.adaptation.whitening()
        return whitening.to_phi([np.asarray(x) for x in self.psi], whitening.arrays)

    def away(self) -> list[np.ndarray]:
        """Return ψ about the origin."""
        return [np.asarray(x) - o for x, o in zip(self.psi, self.origin, strict=True)]

    def full_tables(self) -> list[Any]:
        """Return the rows in the layout of contiguous batches."""
        if self.engine.scheme.contiguous:
            return self._tables
        return self.engine.tables(self._row_order, "shuffled")

    def potential(self, psi: Sequence[np.ndarray], others: Sequence[np.ndarray]) -> np.ndarray:
        """Estimate U at ψ, shape (1,), infinite where U or its gradient is not finite.

        The compiled updates with step size 0 do it: nothing else needs to be compiled.
        """
        self.settle()
        state = self.psi, self.extra, self.updates, self.noise_rng, self.batch_rng
        self.noise_rng, self.batch_rng = np.random.default_rng(0), np.random.default_rng(0)
        self.restart(psi, self.engine.sampler.initial_extra(list(psi), np.random.default_rng(0)))
        found = self.advance(0.0, self._transition.updates, others).statistics
        self._ahead = None
        psi, extra, self.updates, self.noise_rng, self.batch_rng = state
        self.restart(psi, extra)
        finite = np.isfinite(found["batch_logp"]) and np.isfinite(found["grad_norm"])
        return np.array([-found["batch_logp"] if finite else np.inf])

    def advance(
        self, step_size: float | Schedule, updates: int, others: Sequence[np.ndarray]
    ) -> Draw:
        """Make ``updates`` updates and measure at the end.

        Parameters
        ----------
        step_size : float or callable
            h, or a schedule of the numbers of the chain's updates.
        updates : int
            A multiple of the updates in a compiled draw.
        others : list of ndarray
            Values of the variables that are not sampled.
        """
        each = self._transition.updates
        if self.engine.backend == "numba":
            each = updates_per_call(updates, self.engine.dimension)
        rejected, weight = 0, 0.0
        for _ in range(updates // each):
            draw = self._next(step_size, each, others)
            rejected += draw.rejected
            weight += draw.weight
        return replace(draw, rejected=rejected, weight=weight)

    def _next(
        self, step_size: float | Schedule, updates: int, others: Sequence[np.ndarray]
    ) -> Draw:
        """Return the next compiled draw, made before or now."""
        ahead = self._ahead
        if ahead is not None and (ahead.step_size, ahead.updates) != (step_size, updates):
            self.settle()
            ahead = None
        if ahead is None or ahead.taken == ahead.count:
            ahead = self._ahead = self._make_ahead(step_size, updates, others)
        k, found = ahead.taken, ahead.draws
        ahead.taken += 1
        self.updates += updates
        self.psi = [x[k] for x in found.psi]
        self.extra = {name: [x[k] for x in parts] for name, parts in found.extra.items()}
        measured = found.statistics[k]
        statistics = dict(zip(self._transition.statistic_names, measured, strict=True))
        statistics["step_size"] = ahead.last_steps[k]
        return Draw(
            values=[x[k] for x in found.values],
            gradient=[x[k] for x in found.gradient],
            statistics=statistics,
            rejected=int(measured[-1]),
            weight=ahead.weights[k],
        )

    def _make_ahead(
        self, step_size: float | Schedule, updates: int, others: Sequence[np.ndarray]
    ) -> _Ahead:
        transition, engine, adaptation = self._transition, self.engine, self.adaptation
        count = transition.draws
        if engine.backend == "numba" and count > 1:
            count = engine.draws_per_call(adaptation, updates)
        twice = bool(adaptation.anchor) and not adaptation.anchor_blocks
        self.gradients += count * updates * adaptation.batches * (2 if twice else 1)
        generators = self.noise_rng.bit_generator.state, self.batch_rng.bit_generator.state
        noise = transition.noise.draw(self.noise_rng, updates, count)
        rows = [engine.draw_batches(self.batch_rng, transition, updates) for _ in range(count)]
        drawn = [np.stack(of_one) for of_one in zip(*rows, strict=True)]
        h, weights, last_steps = self._step_sizes(step_size, count, updates)
        psi, extra, draws = transition(
            *self._placed,
            h,
            [x[:, transition.fresh :] for x in drawn],
            [x[:, : transition.fresh] for x in drawn],
            noise,
            [*self._before, *self._anchor, *self._scales, *others, *self.data, *self._tables],
        )
        self._placed = psi, extra
        return _Ahead(draws, step_size, updates, count, weights, last_steps, generators)

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
        numbers = np.arange(self.updates, self.updates + draws * updates)
        h = step_sizes(step_size, numbers).reshape(draws, updates).astype(pytensor.config.floatX)
        return self._transition.place([h])[0], h.sum(axis=1).tolist(), h[:, -1].tolist()
