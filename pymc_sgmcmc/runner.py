"""A chain in one process: its state, placed for the backend, and the function that moves it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytensor

from pymc_sgmcmc.adaptation import Adaptation
from pymc_sgmcmc.engine import Engine
from pymc_sgmcmc.transition import updates_per_call
from pymc_sgmcmc.tuning.schedules import Schedule, step_sizes

__all__ = ["Draw", "Runner"]


@dataclass
class Draw:
    """What some updates gave.

    Attributes
    ----------
    values : list of ndarray
        PyMC's value variables.
    gradient : list
        An estimate of ∇U at the new position, in arrays of the backend.
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


class Runner:
    """The state of a chain beside its generators, and what moves it.

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
        self.engine = engine
        self.adaptation = adaptation
        self.scales = list(scales)
        self.noise_rng = noise_rng
        self.batch_rng = batch_rng
        self.updates = 0
        self._transition = engine.transition(adaptation, psi, adaptation.thin)
        self.psi: list[Any]
        self.extra: dict[str, list[Any]]
        self.restart(psi, extra)
        self._row_order = row_order
        self._tables = engine.tables(row_order)
        self.data = engine.data()
        self.set_origin(origin)
        self.set_anchor(adaptation.anchor, adaptation.anchor_gradient)
        self._constant: tuple[float, int, Any] | None = None

    def restart(self, psi: Sequence[np.ndarray], extra: Mapping[str, Sequence[np.ndarray]]) -> None:
        """Go on from another state."""
        place = self._transition.place
        self.psi = place(psi)
        self.extra = {name: place(parts) for name, parts in extra.items()}

    def set_origin(self, origin: Sequence[np.ndarray]) -> None:
        """Set the centre of the configurational temperature."""
        self.origin = [np.array(x) for x in origin]
        adaptation, largest = self.adaptation, self.adaptation.largest_gradient
        bound = [] if largest is None else [np.array(largest, dtype=pytensor.config.floatX)]
        self._before = self._transition.place(
            [*self.origin, *adaptation.relative, *adaptation.variance, *bound]
        )
        self._before += self._transition.place(self.adaptation.whitening().arrays)

    def set_anchor(self, phi: Sequence[np.ndarray], gradient: Sequence[np.ndarray]) -> None:
        """Set φ̄ and ∇U(ψ̄)."""
        self.adaptation.anchor = list(phi)
        self.adaptation.anchor_gradient = list(gradient)
        place = self._transition.place
        self._anchor = place([*phi, *gradient])
        self._scales = place(self.scales)

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
        state = self.psi, self.extra, self.updates, self.noise_rng, self.batch_rng
        self.restart(psi, self.engine.sampler.initial_extra(list(psi), np.random.default_rng(0)))
        self.noise_rng = self.batch_rng = np.random.default_rng(0)
        found = self.advance(0.0, self._transition.updates, others).statistics
        self.psi, self.extra, self.updates, self.noise_rng, self.batch_rng = state
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
            A multiple of the updates in a compiled call.
        others : list of ndarray
            Values of the variables that are not sampled.
        """
        transition, engine = self._transition, self.engine
        each = transition.updates
        if engine.backend == "numba":
            each = updates_per_call(updates, engine.dimension)
        fixed = [*self._before, *self._anchor, *self._scales, *others, *self.data, *self._tables]
        rejected, weight = 0, 0.0
        for _ in range(updates // each):
            h, total, last = self._step_sizes(step_size, each)
            batches = engine.draw_batches(self.batch_rng, transition, each)
            noise = transition.noise.draw(self.noise_rng, each)
            self.psi, self.extra, values, gradient, measured = transition(
                self.psi, self.extra, h, batches, noise, fixed
            )
            rejected += int(measured[-1])
            weight += total
        statistics = dict(zip(transition.statistic_names, measured, strict=True))
        statistics["step_size"] = last
        return Draw(values, gradient, statistics, rejected, weight)

    def _step_sizes(self, step_size: float | Schedule, count: int) -> tuple[Any, float, float]:
        """Step sizes of a call, placed, with their sum and the last of them."""
        start, self.updates = self.updates, self.updates + count
        if not callable(step_size):
            if self._constant is None or self._constant[:2] != (step_size, count):
                h = np.full(count, step_size, dtype=pytensor.config.floatX)
                self._constant = step_size, count, self._transition.place([h])[0]
            return self._constant[2], step_size * count, step_size
        h = step_sizes(step_size, np.arange(start, self.updates)).astype(pytensor.config.floatX)
        return self._transition.place([h])[0], float(h.sum()), float(h[-1])
