"""The tuning of one chain: from a start to frozen numbers and a settled state."""

from __future__ import annotations

import logging
import time

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from pymc.exceptions import SamplingError

from pymc_sgmcmc.adaptation import Adaptation
from pymc_sgmcmc.coordinates import rescaled
from pymc_sgmcmc.engine import Engine
from pymc_sgmcmc.gradients import SVRG, Plain
from pymc_sgmcmc.potential import Potential
from pymc_sgmcmc.runner import Runner
from pymc_sgmcmc.tuning.check import Trial, burn_in, settle
from pymc_sgmcmc.tuning.plan import Estimator, Plan, Wishes, find_bulk, make_plan
from pymc_sgmcmc.tuning.policy import Policy
from pymc_sgmcmc.tuning.schedules import constant
from pymc_sgmcmc.tuning.start import jittered
from pymc_sgmcmc.tuning.stiffness import largest_curvatures
from pymc_sgmcmc.tuning.surface import TuningError
from pymc_sgmcmc.tuning.whiten import rewhitened

__all__ = ["Requested", "adapt", "at_anchor"]

_log = logging.getLogger("pymc.sgmcmc")

# Seconds after which the steps of tuning are told
_LONG = 5.0

# Gradients in units of whitened coordinates and of their noise that no sane position has
_FARTHEST = 10.0

# Mean of the burn-in, in whitened coordinates, at which the centre was no centre
_OFF_CENTRE = 2.5
_MOST_CENTRES = 4

# Blocks of the data of which the curvatures at the draws of a trial cost no more than the trial
_MOST_BLOCKS = 20

# Coordinates of which the trials keep every draw
_MOST_WATCHED = 1024


@dataclass(frozen=True)
class Requested:
    """The arguments that tuning may choose; "auto" where it shall.

    Attributes
    ----------
    step_size : callable or None
        The user's schedule.
    thin : int or None
        Updates for each draw.
    scale : str, dict or None
        "auto", "dense", "diagonal", None, or arrays for some variables.
    gradient : str or estimator
    batches : int or str
    policy : Policy
        Of the algorithm.
    """

    step_size: Any
    thin: int | None
    scale: str | Mapping[str, np.ndarray] | None
    gradient: str | Estimator
    batches: int | str
    policy: Policy

    def is_complete(self) -> bool:
        """Whether nothing is left to tuning."""
        return (
            self.step_size is not None
            and self.thin is not None
            and not isinstance(self.scale, str)
            and isinstance(self.gradient, Plain)
            and self.batches != "auto"
        )


def adapt(
    engine: Engine,
    requested: Requested,
    phi: Sequence[np.ndarray],
    scales: Sequence[np.ndarray],
    others: Sequence[np.ndarray],
    rng: np.random.Generator,
    row_order: int,
    make_runner: Callable[[Adaptation, list[np.ndarray], list[np.ndarray]], Runner],
) -> Runner:
    """Tune a chain.

    Parameters
    ----------
    engine : Engine
        The compiled model.
    requested : Requested
        What the user set.
    phi, scales, others : list of ndarray
        The start, the scales of its coordinates, the values of what is not sampled.
    rng : numpy.random.Generator
        The chain's.
    row_order : int
        Seed of the order of the rows in the chain's batches.
    make_runner : callable
        Makes the runner of an adaptation, a position ψ and scales.

    Raises
    ------
    SamplingError
        If the density is not finite at the start, or if a step of tuning fails.
    """
    tuning = _Tuning(engine, requested, scales, others, rng, row_order)
    try:
        return tuning.run(phi, make_runner)
    except TuningError as error:
        raise SamplingError(f"Tuning failed: {error}.") from error


class _Tuning:
    """One run of the algorithm."""

    def __init__(
        self,
        engine: Engine,
        requested: Requested,
        scales: Sequence[np.ndarray],
        others: Sequence[np.ndarray],
        rng: np.random.Generator,
        row_order: int,
    ) -> None:
        self._engine = engine
        self._requested = requested
        self._scales = list(scales)
        self._others = list(others)
        self._rng = rng
        self._row_order = row_order
        self._began = time.perf_counter()
        self._surface: Potential | None = None
        self._tables: list[Any] | None = None

    def run(
        self,
        phi: Sequence[np.ndarray],
        make_runner: Callable[[Adaptation, list[np.ndarray], list[np.ndarray]], Runner],
    ) -> Runner:
        engine, requested, rng = self._engine, self._requested, self._rng
        flat = Potential.join(phi)
        engine.attempt(lambda: self._make_surface(flat))
        surface = self._surface
        assert surface is not None
        evaluated, gradients = surface.evaluations, 0
        start = jittered(flat, rng, self._potential)
        if start is None:
            raise SamplingError(engine.why_not_finite(phi, self._scales, self._others))
        wishes, policy = self._wishes(phi), requested.policy
        centre, root, collapses = find_bulk(
            surface, start, self._rescale, wishes.scale, rng, self._report
        )
        schedule = requested.step_size
        fixed = isinstance(schedule, constant)
        warnings: list[str] = []
        compiled: int | None = None
        for attempt in range(_MOST_CENTRES):
            plan = make_plan(
                surface, centre, root, policy, wishes, rng, self._report,
                without_replacement=engine.scheme.contiguous,
                remembered=engine.remembers_blocks,
                compiled=compiled,
            )  # fmt: skip
            compiled = plan.batches
            adaptation, psi = self._adaptation(surface, plan)
            runner: Runner = engine.attempt(partial(make_runner, adaptation, psi, self._scales))
            if schedule is not None and not fixed:
                break
            chain = _TrialChain(runner, plan, rng, self._others)
            h = plan.step_size if schedule is None else schedule.h
            self._report("burn-in")
            h, seen = burn_in(chain, h, adaptation.thin, fixed_step=fixed)
            offset = seen.mean(axis=0)
            if (
                np.abs(offset).max() < _OFF_CENTRE
                or attempt == _MOST_CENTRES - 1
                or plan.root is None
                or len(offset) < surface.dimension
            ):
                break
            # The chain has found where the density is: look again from there
            self._report("a better centre")
            gradients += runner.gradients
            centre = plan.phi(offset)
            if root.ndim == 2:
                centre, root = rewhitened(surface, centre, root, rng)
        thin = adaptation.thin
        if schedule is None or fixed:
            found = settle(
                chain,
                policy,
                h,
                thin=thin,
                fixed_step=fixed,
                fixed_thin=requested.thin is not None,
                collapses=collapses,
                curvatures=self._curvatures(surface, plan),
                report=self._report,
            )
            adaptation.step_size, thin = found.step_size, found.thin
            warnings = found.warnings
        adaptation.warnings = warnings
        # A step size that moves cannot be checked by trials at one place of its schedule
        adaptation.thin = thin
        runner.updates = 0
        gradients += runner.gradients
        self._log(plan, adaptation, surface.evaluations - evaluated + gradients)
        return runner

    def _curvatures(self, surface: Potential, plan: Plan) -> Callable[..., np.ndarray] | None:
        """Return what finds the largest h λ / max h at positions ψ, None where that costs much."""
        if surface.n_blocks > _MOST_BLOCKS or surface.dimension > _MOST_WATCHED:
            return None
        root = (1.0 if plan.root is None else plan.root) * np.sqrt(plan.relative)
        return lambda psi: largest_curvatures(surface, plan.phi(psi), root, self._rng)

    def _make_surface(self, flat: np.ndarray) -> None:
        self._surface, self._tables = self._engine.potential(), None
        self._fix()
        self._surface.full(flat[None])

    def _fix(self) -> None:
        engine = self._engine
        assert self._surface is not None
        if self._tables is None:
            self._tables = [*engine.data(), *engine.tables(self._row_order, "shuffled")]
        variable = engine.place([np.asarray(x) for x in [*self._scales, *self._others]])
        self._surface.set_fixed([*variable, *self._tables])

    def _potential(self, points: np.ndarray) -> np.ndarray:
        assert self._surface is not None
        potential, gradient = self._surface.full(points)
        finite = np.isfinite(potential) & np.all(np.isfinite(gradient), axis=1)
        return np.where(finite, potential, np.inf)

    def _rescale(self, points: np.ndarray) -> np.ndarray:
        """Fit the scales of softplus coordinates to the first of these positions."""
        assert self._surface is not None
        blocks = [self._surface.split(point) for point in points]
        self._scales, moved = rescaled(self._engine.posterior.coordinates, self._scales, blocks)
        self._fix()
        return np.stack([Potential.join(block) for block in moved])

    def _wishes(self, phi: Sequence[np.ndarray]) -> Wishes:
        scale: Any = self._requested.scale
        if isinstance(scale, Mapping):
            scale = Potential.join(self._engine.scale_arrays(scale, phi))
        return Wishes(scale, self._requested.gradient, self._requested.batches)

    def _adaptation(self, surface: Potential, plan: Plan) -> tuple[Adaptation, list[np.ndarray]]:
        """Return the plan in the blocks of the model's variables, and ψ = 0."""
        centre = surface.split(plan.centre)
        root: Any = plan.root
        if plan.root is not None and plan.root.ndim == 1:
            root = surface.split(plan.root)
        adaptation = Adaptation(
            centre=centre if root is not None else [],
            root=root,
            step_size=plan.step_size,
            batches=plan.batches,
            thin=self._requested.thin or 20,
            refresh=plan.gradient.refresh if isinstance(plan.gradient, SVRG) else None,
            row_order=self._row_order,
        )
        whitening = adaptation.whitening()
        psi = whitening.to_psi(centre, whitening.arrays)

        def in_psi(flat: np.ndarray) -> list[np.ndarray]:
            parts = np.split(flat, np.cumsum([x.size for x in psi])[:-1])
            return [
                part.reshape(x.shape).astype(x.dtype) for part, x in zip(parts, psi, strict=True)
            ]

        if self._requested.policy.adapted and self._requested.step_size is None:
            adaptation.relative = in_psi(plan.relative)
            adaptation.variance = in_psi(plan.variance)
        if root is not None:
            # One that is met ten sds away, or in an abyss of the density
            adaptation.largest_gradient = _FARTHEST * float(np.sqrt(1 + plan.variance.max()))
        if not isinstance(plan.gradient, Plain):
            adaptation.anchor = centre
            adaptation.anchor_gradient, adaptation.anchor_blocks = at_anchor(
                surface, adaptation, centre, blocks=self._engine.remembers_blocks
            )
        return adaptation, psi

    def _report(self, step: str) -> None:
        if time.perf_counter() - self._began > _LONG:
            _log.info("Tuning: %s (%.0f s).", step, time.perf_counter() - self._began)

    def _log(self, plan: Plan, adaptation: Adaptation, gradients: int) -> None:
        noise = float(plan.variance.max())
        _log.info(
            "Tuned in %.1f s by %d gradients: step size %.3g, %d updates a draw, %s, %d batch%s "
            "averaged, gradient noise up to %.2g.",
            time.perf_counter() - self._began,
            gradients,
            adaptation.step_size or float("nan"),
            adaptation.thin,
            type(plan.gradient).__name__,
            adaptation.batches,
            "es" if adaptation.batches > 1 else "",
            noise,
        )


class _TrialChain:
    """The chain as the checks see it."""

    def __init__(
        self,
        runner: Runner,
        plan: Plan,
        rng: np.random.Generator,
        others: list[np.ndarray],
    ) -> None:
        self._runner = runner
        self._plan = plan
        self._rng = rng
        self._others = others
        self._start = [np.asarray(x) for x in runner.psi]
        size = sum(x.size for x in self._start)
        self._watched = np.linspace(0, size - 1, min(size, _MOST_WATCHED)).astype(int)

    def restart(self) -> None:
        runner, unit = self._runner, self._plan.unit
        runner.settle()
        psi = [(x + unit * self._rng.standard_normal(x.shape)).astype(x.dtype) for x in self._start]
        runner.restart(psi, runner.engine.sampler.initial_extra(psi, runner.noise_rng))

    def run(self, step_size: float, thin: int, draws: int) -> Trial:
        runner, unit = self._runner, self._plan.unit
        start = self._flat(self._start)
        psi, gradient, rejected = [], [], 0
        for _ in range(draws):
            draw = runner.advance(step_size, thin, self._others)
            psi.append((self._flat(runner.psi) - start) / unit)
            gradient.append(self._flat(draw.gradient) * unit)
            rejected += draw.rejected
            if rejected:
                break
        return Trial(np.array(psi), np.array(gradient), rejected)

    def _flat(self, parts: Sequence[Any]) -> np.ndarray:
        return Potential.join(parts)[self._watched]


def at_anchor(
    surface: Potential, adaptation: Adaptation, phi: Sequence[np.ndarray], *, blocks: bool
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Return ∇U of the full data with respect to ψ, and what the blocks say of it.

    With ``blocks``, both are of the likelihood alone: of the full data, and with respect to φ
    an estimate from each block. Without, the second list is empty.
    """
    point, whitening, known = Potential.join(phi), adaptation.whitening(), []
    if blocks:
        estimates = surface.blocks_as_batches(point)
        parts = [surface.split(estimate) for estimate in estimates]
        known = [np.stack(of_one) for of_one in zip(*parts, strict=True)]
        gradient = estimates.mean(axis=0)
    else:
        [gradient] = surface.full(point[None])[1]
    pulled = whitening.pull_back(surface.split(gradient), whitening.arrays)
    return [np.asarray(g) for g in pulled], known
