"""The tuning of one chain: from a start to frozen numbers and a settled state."""

from __future__ import annotations

import copy
import logging
import time

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from pymc.exceptions import SamplingError
from threadpoolctl import threadpool_limits

from pymc_sgmcmc.chain.memory import Place
from pymc_sgmcmc.chain.runner import Runner
from pymc_sgmcmc.chain.state import ChainState
from pymc_sgmcmc.kernel.anchor import gradient_at_anchor
from pymc_sgmcmc.kernel.engine import Engine
from pymc_sgmcmc.kernel.estimators import SVRG, ControlVariates, Plain
from pymc_sgmcmc.kernel.options import LARGEST_DENSE, Options
from pymc_sgmcmc.kernel.potential import Potential
from pymc_sgmcmc.kernel.settings import Settings, in_parts
from pymc_sgmcmc.model.properties import improper
from pymc_sgmcmc.schedules import constant, thin_of
from pymc_sgmcmc.tuning.begin import beginning
from pymc_sgmcmc.tuning.bounds import anchored_bound
from pymc_sgmcmc.tuning.bulk import find_bulk
from pymc_sgmcmc.tuning.check import burn_in, settle
from pymc_sgmcmc.tuning.cost import spoken_of, told_cost, too_dear
from pymc_sgmcmc.tuning.cost_bounds import CostBounds
from pymc_sgmcmc.tuning.density import Density
from pymc_sgmcmc.tuning.descent import descended, held_of
from pymc_sgmcmc.tuning.failure import NEARER
from pymc_sgmcmc.tuning.nearness import is_below, refuse_stiff
from pymc_sgmcmc.tuning.noise import met_noise
from pymc_sgmcmc.tuning.plan import Plan, make_plan
from pymc_sgmcmc.tuning.report import Report
from pymc_sgmcmc.tuning.shared_index import in_blocks
from pymc_sgmcmc.tuning.stiffness import largest_curvatures
from pymc_sgmcmc.tuning.surface import NoGaussianError, Surface, TuningError
from pymc_sgmcmc.tuning.trial_chain import MOST_WATCHED, TrialChain
from pymc_sgmcmc.tuning.turn import Turn, shared_directions
from pymc_sgmcmc.tuning.wander import (
    NO_GAUSSIAN,
    units_of,
    wandering_plan,
    warm_up,
)
from pymc_sgmcmc.tuning.whiten import rewhitened

__all__ = ["Tuning"]

_log = logging.getLogger("pymc.sgmcmc")

# Seconds of a chain from which warnings of its tuning are logged before its draws, too
_LONG = 30.0

# Factor of a gradient's usual size, noise included, that no plausible position exceeds
_FARTHEST = 10.0

# Sds from the burn-in's mean beyond which a centre is wrong, and the share of many that may be
_OFF_CENTRE = 2.5
_FEW = 0.05
_MOST_CENTRES = 4

# E vψ² / E ψ² over E v in most posteriors, and how much noisier than planned a chain may be
_OF_SQUARES, _HOTTER = 2.0, 2.0

# Most parameters for which the space of shared directions fits in memory
_MOST_TURNED = 2**19

# With at most so many blocks of data, the curvatures at a trial's draws cost no more than the trial
_MOST_BLOCKS = 20


class Tuning:
    """Tunes a chain at places of the variables that are not sampled, the present one last.

    The state's scales, position and settings are set; ``again`` goes on from the chain's position.
    """

    def __init__(
        self,
        engine: Engine,
        options: Options,
        state: ChainState,
        places: Sequence[Place],
        *,
        again: bool = False,
    ) -> None:
        self._engine = engine
        self._options = options
        self._policy = engine.sampler.policy()
        self._state = state
        self._rng = state.tuning_rng
        self._density = Density(engine, state, places)
        self._again = again
        self._report = Report()
        self._gradients = 0
        self._seconds = 0.0

    def run(self, *, thorough: bool = True) -> Runner:
        """Tune and return the chain's runner, without trials of step size unless ``thorough``."""
        try:
            # The matrices are small: beside another program several threads of BLAS wait for each
            # other, and tuning takes several times as long
            with threadpool_limits(limits=1, user_api="blas"), spoken_of(self._report.still):
                return self._run(thorough)
        except TuningError as error:
            told = improper(self._engine.model)
            raise SamplingError(
                f"Tuning failed: {error}.{told and f' Besides, {told}.'}"
            ) from error
        except np.linalg.LinAlgError as error:
            why = f"the step '{self._report.step}' broke down ({str(error).rstrip('.')}). {NEARER}"
            raise SamplingError(f"Tuning failed: {why}.") from error
        except KeyboardInterrupt:
            if not self._again:
                _log.warning("The chain was interrupted while it was tuned: it has no draws.")
            raise

    def _run(self, thorough: bool) -> Runner:
        engine, density = self._engine, self._density
        phi: Sequence[np.ndarray] = density.places[-1].phi
        engine.attempt(density.compile)
        evaluated = density.views[0].evaluations
        start, surface = Potential.join(phi), density.surface()
        how: dict[str, Any] = {"permutable": False}
        if not self._again:
            phi, start, surface, how = beginning(
                density, engine, self._rng, permutes=self._policy.second_moments
            )
        scale = self._flat_scale(phi)
        begun_at = density.scales
        try:
            runner, plan = self._near_a_gaussian(surface, start, scale, how, thorough=thorough)
        except NoGaussianError:
            begin, moved = (
                Potential.join(engine.at_scales(x, begun_at, density.scales, density.others))
                for x in (phi, density.views[0].split(start))
            )
            runner, plan = self._wandering(surface, begin, moved - begin, scale)
        return self._told(runner, plan, evaluated, thorough=thorough)

    def _near_a_gaussian(
        self,
        surface: Surface,
        start: np.ndarray,
        scale: str | np.ndarray | None,
        how: Mapping[str, Any],
        *,
        thorough: bool,
    ) -> tuple[Runner, Plan]:
        """Tune a chain by the Gaussian fitted to its bulk."""
        centre, root, collapses = find_bulk(
            surface, start, self._density, scale, self._rng, self._report, **how
        )
        if how["permutable"] and root.ndim == 1:
            refuse_stiff(surface, centre, root, self._rng)
        schedule = self._options.step_size
        fixed = isinstance(schedule, constant)
        runner, plan, chain, h = self._centred(
            surface, centre, root, scale, fixed, how["permutable"]
        )
        settings, surface = runner.settings, plan.blocks or surface
        if not (schedule is None or fixed):
            return runner, plan
        if not thorough:
            settings.step_size = h
            return runner, plan
        bounds = self._bounds(plan)
        most_thin = bounds.largest_thin(settings.thin)
        if settings.variance and surface.batch_size and len(self._density.places) == 1:
            chain.noise = plan.noise_on_the_way(surface, self._rng)
        found = settle(
            chain,
            self._policy,
            h,
            thin=settings.thin,
            fixed_step=fixed,
            fixed_thin=self._options.thin is not None,
            # Exchangeable coordinates never mix, and trials would cost more than the draws
            most_thin=settings.thin if plan.endless else most_thin,
            draws=bounds.draws_of_a_trial(settings.thin),
            most_updates=bounds.updates_of_trials(),
            collapses=collapses,
            curvatures=self._curvatures(surface, plan),
            report=self._report,
            moves=len(self._density.others) > 0,
            permutable=how["permutable"],
            whole=surface.dimension <= MOST_WATCHED,
        )
        settings.step_size, settings.thin = found.step_size, found.thin
        if plan.endless and self._options.thin is None:
            settings.thin = max(found.thin, most_thin)
        settings.warnings = found.warnings
        self._seconds, draws = chain.seconds, self._state.last_draw - self._state.draw
        if self._options.thin is None and not plan.endless and found.needed > found.thin:
            found.warnings.append(
                too_dear(found.thin, found.needed, draws, chain.seconds, bounds.passes)
            )
        lasts = self._report.seconds + draws * found.thin * chain.seconds
        for warning in found.warnings if lasts > _LONG else []:
            # Logged before the draws, and again at the end of the chain
            _log.warning("Tuning: %s.", warning)
        if chain.noise is not None and (variance := chain.noise.variance()) is not None:
            # The fit's widths are those of independent normals
            plan.heed(variance, found.step_size, self._policy)
            settings.variance = in_parts(settings.variance, plan.variance)
            if settings.relative:
                settings.relative = in_parts(settings.relative, plan.relative)
        return runner, plan

    def _told(self, runner: Runner, plan: Plan, evaluated: int, *, thorough: bool) -> Runner:
        """Log what was found, and let the chain begin."""
        self._state.updates = self._state.next_refresh = 0
        if runner.settings.warnings and (told := improper(self._engine.model)):
            runner.settings.warnings.append(told)
        runner.settings.noise = plan.noise_of_each([x.size for x in runner.settings.centre])
        self._gradients += runner.gradients
        gradients = self._density.views[0].evaluations - evaluated + self._gradients
        self._log(plan, runner.settings, gradients, thorough=thorough)
        return runner

    # ------------------------------------------------------------------ the plan

    def _flat_scale(self, phi: Sequence[np.ndarray]) -> str | np.ndarray | None:
        scale: Any = self._options.scale
        if isinstance(scale, Mapping):
            return Potential.join(self._engine.scale_arrays(scale, phi))
        return scale

    def _centred(
        self,
        surface: Surface,
        centre: np.ndarray,
        root: np.ndarray,
        scale: str | np.ndarray | None,
        fixed: bool,
        permutable: bool,
    ) -> tuple[Runner, Plan, TrialChain, float]:
        """Plan and burn in, repeatedly if the chain finds a better centre."""
        engine, schedule = self._engine, self._options.step_size
        before = self._state.settings
        compiled = before.batches if self._again and before is not None else None
        wished = isinstance(scale, str) and scale == "diagonal"
        many = len(centre) > LARGEST_DENSE or (root.ndim == 1 and not wished)
        met, turn, attempt = 0.0, None, 0
        if not permutable:
            surface, centre, root = self._in_blocks(surface, centre, root, scale)
        while True:
            if not (met or permutable):
                centre, turn = self._turned(surface, centre, root, scale)
            plan = make_plan(
                surface, centre, root, self._policy, self._options, scale, self._rng, self._report,
                scheme=engine.scheme, remembered=engine.remembers_blocks, compiled=compiled,
                many=many, permutable=permutable, met=met, turn=turn,
                coupled=engine.shares_noise, grows=engine.noise_grows,
                sizes=[] if permutable else [x.size for x in self._density.places[-1].phi],
            )  # fmt: skip
            compiled = plan.batches
            runner: Runner = engine.attempt(partial(self._runner, plan))
            chain = TrialChain(
                runner,
                plan.unit,
                self._rng,
                self._density.others,
                many=plan.many,
                shared=None if turn is None else turn.coordinates,
                report=self._report.trial,
            )
            if schedule is not None and not fixed:
                # Trials at one place of a schedule cannot check a step size that changes
                chain.restart()
                return runner, plan, chain, plan.step_size
            h = schedule.h if isinstance(schedule, constant) else plan.step_size
            self._report("burn-in")
            each = runner.settings.each or runner.settings.thin
            h, seen = burn_in(
                chain, h, each, fixed_step=fixed,
                updates=self._bounds(plan).updates_of_a_burn_in(),
            )  # fmt: skip
            # A single jump of heavy-tailed noise can move a mean by many sds
            middle = np.mean if self._policy.second_moments else np.median
            offset = middle(seen, axis=0)
            astray = np.abs(offset).max() >= _OFF_CENTRE
            if not astray and not met and (met := self._met_noise(surface, plan, seen)):
                # Far noisier than planned: the plan is repeated once, whatever the round
                self._gradients += runner.gradients
                compiled = None
                continue
            if plan.endless:
                # Along products' ridges a chain has no mean: U shows whether it has left the fit
                here = Potential.join(runner.phi())
                if attempt == _MOST_CENTRES - 1 or not is_below(surface, here, centre, root):
                    break
                self._report("a better centre")
                self._gradients += runner.gradients
                centre, root, _ = find_bulk(
                    surface, here, self._density, scale, self._rng, self._report,
                    permutable=True,
                )  # fmt: skip
                refuse_stiff(surface, centre, root, self._rng)
                attempt += 1
                continue
            if len(offset) < surface.dimension and self._policy.second_moments:
                offset = chain.middle
            if (
                not astray
                or attempt == _MOST_CENTRES - 1
                # A few slow ones of thousands always are
                or (attempt and plan.many and np.mean(np.abs(offset) >= _OFF_CENTRE) <= _FEW)
                or plan.root is None
                or len(offset) < surface.dimension
                or len(self._density.places) > 1
            ):
                break
            # The chain has found the bulk, and the search is repeated from there
            self._report("a better centre")
            self._gradients += runner.gradients
            centre = plan.phi(offset)
            if root.ndim == 2:
                centre, root = rewhitened(surface, centre, root, self._rng)
            attempt += 1
        return runner, plan, chain, h

    def _in_blocks(
        self, surface: Surface, centre: np.ndarray, root: np.ndarray, scale: Any
    ) -> tuple[Surface, np.ndarray, np.ndarray]:
        """Return surface, centre and sds with correlated elements of one index whitened jointly."""
        mixes = self._mixes(scale, len(centre))
        inside = in_blocks(surface, centre, root) if mixes else None
        if inside is None:
            return surface, centre, root
        return inside, inside.inward(centre[None])[0], inside.sd

    def _turned(
        self, surface: Surface, centre: np.ndarray, root: np.ndarray, scale: Any
    ) -> tuple[np.ndarray, Turn | None]:
        """Return centre and turn, with directions that thousands of parameters share."""
        if not self._mixes(scale, len(centre)):
            return centre, None
        self._report("directions that variables share")
        sizes = [x.size for x in self._density.places[-1].phi]
        return shared_directions(surface, centre, root, sizes, self._rng)

    def _mixes(self, scale: Any, dimension: int) -> bool:
        """Return whether coordinates that a diagonal L keeps apart may be mixed."""
        # A sum of jumps with heavy tails is wider than each
        mixed = isinstance(scale, str) and scale == "auto" and self._policy.isotropic
        return mixed and LARGEST_DENSE < dimension <= _MOST_TURNED

    def _wandering(
        self,
        surface: Surface,
        begin: np.ndarray,
        jitter: np.ndarray,
        scale: str | np.ndarray | None,
    ) -> tuple[Runner, Plan]:
        """Tune the chain along its own trajectory, from its own start."""
        engine, schedule = self._engine, self._options.step_size
        blocks = self._density.views[0].split(begin)
        root = units_of(engine.posterior.coordinates, blocks, scale, self._rng)
        self._report("descent")
        held = held_of(engine.posterior.coordinates, blocks)
        start = descended(surface, begin, root, jitter, held, self._rng)
        plan = wandering_plan(start, root, self._options)
        runner: Runner = engine.attempt(partial(self._runner, plan))
        settings = runner.settings
        fixed = schedule.h if isinstance(schedule, constant) else None
        if self._options.thin is None:
            settings.thin = self._bounds(plan).largest_thin(settings.thin)
        thin, policy, began = settings.thin, self._policy, time.perf_counter()
        found = warm_up(
            runner, surface, plan, policy, self._density.others, self._rng, self._report,
            thin=thin, fixed=fixed,
        )  # fmt: skip
        self._seconds = (time.perf_counter() - began) * plan.batches / max(1, runner.gradients)
        if found.damping > 1:
            self._gradients += runner.gradients
            plan = replace(plan, centre=Potential.join(runner.phi()), root=root / found.damping)
            runner = engine.attempt(partial(self._runner, plan))
            settings = runner.settings
        plan.step_size = settings.step_size = found.step_size
        settings.thin = thin
        settings.largest_gradient = found.largest_gradient
        settings.warnings = [NO_GAUSSIAN]
        return runner, plan

    def _met_noise(self, surface: Surface, plan: Plan, psi: np.ndarray) -> float:
        """Return the noise of an anchored batch in a burn-in if it is far too large, else 0."""
        root, by_hand = plan.root, self._options.batches != "auto"
        if root is None or not isinstance(plan.gradient, ControlVariates) or plan.many or by_hand:
            return 0.0
        if len(self._density.places) > 1 or psi.shape[1] < surface.dimension:
            return 0.0
        # Squares of heavy-tailed draws have no mean
        if not self._policy.second_moments:
            return 0.0
        # A copy, so that nothing changes where nothing is wrong
        rng = copy.deepcopy(self._rng)
        met = met_noise(surface, plan.centre, root, psi, plan.phi(psi), rng) / _OF_SQUARES
        ratio = self._engine.scheme.variance_ratio
        averaged = met.max() * max(ratio(n, size, plan.batches) for n, size in surface.sizes)
        return float(met.max()) if averaged > _HOTTER * anchored_bound(self._policy) else 0.0

    def _bounds(self, plan: Plan) -> CostBounds:
        return CostBounds(plan, self._density.views[0], self._engine.remembers_blocks)

    def _runner(self, plan: Plan) -> Runner:
        """Set the chain to a plan, at its centre."""
        state = self._state
        state.scales = list(self._density.scales)
        state.settings, state.psi = self._settings(plan)
        state.origin, state.next_refresh, state.batches_left = [], 0, []
        state.extra = self._engine.sampler.initial_extra(state.psi, state.noise_rng)
        return Runner(self._engine, state)

    def _settings(self, plan: Plan) -> tuple[Settings, list[np.ndarray]]:
        """Return a plan's settings in the blocks of the model's variables, and ψ = 0."""
        split, blocks = self._density.views[0].split, plan.blocks
        centre = split(plan.centre if blocks is None else blocks.whole(plan.centre[None])[0])
        root: Any = plan.root
        if plan.root is not None and plan.root.ndim == 1:
            root = split(plan.root)
        thin = thin_of(self._options.step_size, self._options.thin)
        if self._options.thin is None and self._options.step_size is None:
            thin = self._bounds(plan).least_thin(thin)
        before = self._state.settings
        turn = plan.turn
        settings = Settings(
            centre=centre,
            root=root,
            directions=[] if turn is None else turn.parts([x.size for x in centre]),
            middle=None if turn is None else turn.middle,
            lengths=[] if turn is None else split(turn.lengths),
            families=[] if blocks is None else list(blocks.shear.families),
            below=[] if blocks is None else blocks.below,
            step_size=plan.step_size,
            batches=plan.batches,
            thin=thin if before is None or not self._again else before.thin,
            each=thin,
            refresh=plan.gradient.refresh if isinstance(plan.gradient, SVRG) else None,
            row_order=self._state.row_order,
        )
        whitening = settings.whitening()
        psi = whitening.to_psi(centre, whitening.arrays)

        if self._options.step_size is None:
            if self._policy.per_coordinate:
                settings.relative = in_parts(psi, plan.relative)
            # The errors of a sweep cancel by themselves
            if self._policy.compensates and self._engine.scheme.independent:
                settings.variance = in_parts(psi, plan.variance)
        if root is not None and self._policy.gradients_bounded:
            # Larger ones occur ten sds away or in an abyss of the density. Few batches move a
            # coordinate that few rows touch: one of M is at most √M sds from their mean
            of_few = max(1.0, self._density.views[-1].n_blocks / plan.batches) if plan.many else 1.0
            largest = _FARTHEST * np.sqrt(1 + of_few * plan.variance.max())
            settings.largest_gradient = float(largest)
        if not isinstance(plan.gradient, Plain):
            settings.anchor = centre
            settings.anchor_others = self._density.others
            settings.anchor_gradient, settings.anchor_blocks = gradient_at_anchor(
                self._density.views[-1], whitening, centre, blocks=self._engine.remembers_blocks
            )
        return settings, psi

    def _curvatures(self, surface: Surface, plan: Plan) -> Callable[..., np.ndarray] | None:
        """Return a function of ψ for the largest h λ / max h, or None if it costs much."""
        if surface.n_blocks > _MOST_BLOCKS or surface.dimension > MOST_WATCHED:
            return None
        root = plan.matrix() * np.sqrt(plan.relative)

        def of_trial(psi: np.ndarray) -> np.ndarray:
            found = np.empty(len(psi))
            views: Sequence[Surface] = [plan.blocks] if plan.blocks else self._density.views
            for k, view in enumerate(views):
                part = slice(k, None, len(views))
                found[part] = largest_curvatures(view, plan.phi(psi[part]), root, self._rng)
            return found

        return of_trial

    # ------------------------------------------------------------------ logging

    def _log(self, plan: Plan, settings: Settings, gradients: int, *, thorough: bool) -> None:
        _log.debug(
            "Tuned in %.1f s by %d gradients: step size %.3g, %s, gradient noise up to %.2g.",
            self._report.seconds,
            gradients,
            settings.step_size or float("nan"),
            type(plan.gradient).__name__,
            float(plan.variance.max()),
        )
        if not thorough:
            return  # a tuning that will be repeated is of no interest to the user
        draws, blocks = self._state.last_draw - self._state.draw, self._density.views[0].n_blocks
        told = told_cost(
            draws,
            settings.thin,
            settings.batches,
            anchored=bool(settings.anchor) and not settings.anchor_blocks,
            blocks=blocks,
            all_rows=plan.takes_all_rows(blocks),
            dimension=len(plan.centre),
        )
        self._report.end(told, draws * settings.thin * self._seconds)
