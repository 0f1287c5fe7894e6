"""The tuning of one chain: from a start to frozen numbers and a settled state."""

from __future__ import annotations

import logging

from collections.abc import Callable, Sequence

import numpy as np

from pymc.exceptions import SamplingError
from threadpoolctl import threadpool_limits

from pymc_sgmcmc.chain.memory import Place
from pymc_sgmcmc.chain.monitor import MOST_WATCHED
from pymc_sgmcmc.chain.runner import Runner
from pymc_sgmcmc.chain.state import ChainState
from pymc_sgmcmc.kernel.engine import Engine
from pymc_sgmcmc.kernel.options import Options
from pymc_sgmcmc.kernel.potential import Potential
from pymc_sgmcmc.kernel.settings import in_parts
from pymc_sgmcmc.model.properties import improper
from pymc_sgmcmc.schedules import updates_of_draw
from pymc_sgmcmc.tuning.bulk import find_bulk
from pymc_sgmcmc.tuning.check import Rules, Verdict, settle
from pymc_sgmcmc.tuning.curvature import largest_curvatures
from pymc_sgmcmc.tuning.density import Density
from pymc_sgmcmc.tuning.exchangeable import has_modes_by_permutation, refuse_stiff
from pymc_sgmcmc.tuning.failure import NEARER
from pymc_sgmcmc.tuning.job import Job
from pymc_sgmcmc.tuning.jumps import jumps
from pymc_sgmcmc.tuning.messages import Warned, cost_of_draws, costly, text_of
from pymc_sgmcmc.tuning.no_gaussian import tune_without_gaussian
from pymc_sgmcmc.tuning.plan import Fit, Plan
from pymc_sgmcmc.tuning.regimes import regime_of
from pymc_sgmcmc.tuning.report import LoggedLines, Report
from pymc_sgmcmc.tuning.rounds import Round, Rounds
from pymc_sgmcmc.tuning.start import Beginning, beginning
from pymc_sgmcmc.tuning.surface import NoGaussianError, Surface, TuningError

_log = logging.getLogger("pymc.sgmcmc")

# Seconds of a chain from which warnings of its tuning are logged before its draws, too
_LONG = 30.0

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
        logged: LoggedLines,
        *,
        again: bool = False,
    ) -> None:
        density = Density(engine, state, places)
        # A schedule goes on where the chain was
        self._updates = state.updates if again else 0
        self._job = Job(engine, options, state, density, Report(logged), again)
        self._of_model: list[Warned] = []  # what is off whatever the settings

    def run(self, *, trials: bool = True) -> Runner:
        """Tune and return the chain's runner, without trials of the step size unless ``trials``."""
        report, model = self._job.report, self._job.engine.model
        try:
            # The matrices are small: beside another program several threads of BLAS wait for each
            # other, and tuning takes several times as long
            with threadpool_limits(limits=1, user_api="blas"), report.watching():
                return self._run(trials=trials)
        except TuningError as error:
            why = improper(model)
            raise SamplingError(f"Tuning failed: {error}.{why and f' Besides, {why}.'}") from error
        except np.linalg.LinAlgError as error:
            broken = f"the step '{report.step}' failed ({str(error).rstrip('.')})"
            raise SamplingError(f"Tuning failed: {broken}. {NEARER}.") from error
        except KeyboardInterrupt:
            if not self._job.again:
                _log.warning("The chain was interrupted while it was tuned: it has no draws.")
            raise

    def _run(self, *, trials: bool) -> Runner:
        """Take the steps in their order: begin, fit, plan and burn in, try, or go without a fit."""
        job, density = self._job, self._job.density
        job.engine.attempt(density.compile)
        if job.again:
            phi, surface = density.places[-1].phi, density.surface()
            permutes = job.policy.second_moments and has_modes_by_permutation(
                surface, density.views[0].split, job.rng
            )
            begin = Beginning(surface, density, Potential.join(phi), phi, exchangeable=permutes)
        else:
            begin = beginning(density, permutes=job.policy.second_moments)
        scales = density.scales
        try:
            runner, plan = self._near_a_gaussian(begin, trials=trials)
        except NoGaussianError:
            start, jittered = (
                Potential.join(job.engine.at_scales(x, scales, density.scales, density.others))
                for x in (begin.phi, density.views[0].split(begin.start))
            )
            runner, plan = tune_without_gaussian(job, begin.surface, start, jittered - start)
        self._finish(runner, plan, trials=trials)
        return runner

    def _near_a_gaussian(self, begin: Beginning, *, trials: bool) -> tuple[Runner, Plan]:
        """Tune a chain by the Gaussian fitted to its bulk, which :func:`find_bulk` searches for."""
        job, surface = self._job, begin.surface
        centre, root, collapses = find_bulk(begin, job.rng, job.report)
        if begin.exchangeable:
            refuse_stiff(surface, centre, root, job.rng)
        if trials:
            names = [c.name for c in job.engine.posterior.coordinates]
            self._of_model = jumps(surface, centre, root, names, job.problem.sizes, job.rng)
        regime = regime_of(root, exchangeable=begin.exchangeable)
        rounds = Rounds(job, surface, Fit(centre, root), regime)
        last = rounds.run()
        runner, plan = last.runner, last.plan
        if job.step_changes:
            return runner, plan
        if not trials:
            runner.settings.step_size = last.step_size
            return runner, plan
        plan = self._tried(last, collapses=collapses)
        if (quieter := rounds.replanned(last, plan)) is not None:
            runner, plan = quieter.runner, self._tried(quieter, collapses=collapses)
        return runner, plan

    # ------------------------------------------------------------------ trials

    def _tried(self, last: Round, *, collapses: bool) -> Plan:
        """Set step size and thinning by trials, and return the plan with the noise along them."""
        job, plan, chain, settings = self._job, last.plan, last.chain, last.runner.settings
        policy, regime, bounds = job.policy, plan.regime, job.bounds(plan)
        # Squares of heavy-tailed draws have no mean, the noise of a sweep cancels, and where units
        # can be exchanged noise grows as the chain leaves the Gaussian
        independent = job.engine.scheme.independent
        is_steady = policy.second_moments and independent and not regime.exchangeable
        if len(job.density.places) == 1 and (settings.variance or is_steady):
            chain.noise = plan.noise_on_the_way(last.surface, job.rng)
        most_thin = bounds.largest_thin(settings.thin)
        rules = Rules(
            policy,
            settings.thin,
            fixed_step=job.fixed_step is not None,
            fixed_thin=job.options.thin is not None,
            # Exchangeable coordinates never mix, and trials would cost more than the draws
            most_thin=settings.thin if regime.thinned_by_cost else most_thin,
            draws=bounds.draws_of_a_trial(settings.thin),
            most_updates=bounds.updates_of_trials(),
            about_mean=len(job.density.others) > 0,
            collapses=collapses,
            exchangeable=regime.exchangeable,
            all_seen=last.surface.dimension <= MOST_WATCHED,
        )
        job.report("trying the step size")
        settled = settle(chain, last.step_size, rules, self._curvatures(last))
        job.seconds = chain.seconds
        settings.step_size, settings.thin = settled.step_size, settled.thin
        if regime.thinned_by_cost and job.options.thin is None:
            settings.thin = max(settled.thin, most_thin)
        self._keep_warnings(last, settled)
        if (variance := chain.variance) is not None:
            # The fit's widths are those of independent normals
            plan = plan.with_noise(variance, settled.step_size, policy)
            if settings.variance:
                settings.variance = in_parts(settings.variance, plan.variance)
            if settings.relative:
                settings.relative = in_parts(settings.relative, plan.relative)
            bound = job.largest_gradient(plan)
            if is_steady and bound and settings.largest_gradient:
                # A gradient that is scaled down moves all coordinates too little: they are wider
                settings.largest_gradient = max(bound, settings.largest_gradient)
        return plan

    def _keep_warnings(self, last: Round, settled: Verdict) -> None:
        """Keep the warnings of the trials, and one of a draw that costs much."""
        job, settings, thin = self._job, last.runner.settings, settled.thin
        settings.warnings = settled.warnings
        automatic = job.options.thin is None and not last.plan.regime.thinned_by_cost
        if automatic and settled.needed > thin:
            passes = job.bounds(last.plan).passes
            settings.warnings.append(costly(thin, settled.needed, job.seconds, passes))

    def _curvatures(self, last: Round) -> Callable[[np.ndarray], np.ndarray] | None:
        """Return a function of trials' positions for the largest curvature at each.

        It is in units in which all coordinates have the largest step size. None if it costs much,
        or if trials do not see all coordinates (``MOST_WATCHED``).
        """
        surface, plan = last.surface, last.plan
        if surface.n_blocks > _MOST_BLOCKS or surface.dimension > MOST_WATCHED:
            return None
        root = plan.matrix() * np.sqrt(plan.relative)
        views: Sequence[Surface] = [plan.blocks] if plan.blocks else self._job.density.views

        def of_trial(psi: np.ndarray) -> np.ndarray:
            curvatures = np.empty(len(psi))
            for k, view in enumerate(views):
                part, phi = slice(k, None, len(views)), plan.phi(psi[k :: len(views)])
                curvatures[part] = largest_curvatures(view, phi, root, self._job.rng)
            return curvatures

        return of_trial

    # ------------------------------------------------------------------ the end

    def _finish(self, runner: Runner, plan: Plan, *, trials: bool) -> None:
        """Let the chain begin, and log what tuning chose."""
        job, settings = self._job, runner.settings
        job.state.updates = job.state.next_refresh = self._updates
        settings.warnings = settings.warnings + self._of_model
        if settings.warnings and (text := improper(job.engine.model)):
            settings.warnings.append(("improper", {"text": text}))
        settings.noise = plan.noise_of_each([x.size for x in settings.centre])
        _log.debug(
            "Tuned in %.1f s: step size %.3g, %s, gradient noise up to %.2g.",
            job.report.seconds,
            settings.step_size or float("nan"),
            type(plan.gradient).__name__,
            float(plan.variance.max()),
        )
        if not trials:
            return  # a tuning that will be repeated is of no interest to the user
        each = updates_of_draw(job.options.step_size, settings.thin)
        if job.report.seconds + job.draws * each * job.seconds > _LONG:
            for warning in settings.warnings:
                # Logged before the draws, and again at the end of the chain
                _log.warning("Tuning: %s.", text_of(warning))
        blocks = job.density.views[0].n_blocks
        cost = cost_of_draws(
            job.draws,
            each,
            settings.batches,
            anchored=bool(settings.anchor) and not settings.anchor_blocks,
            blocks=blocks,
            all_rows=plan.takes_all_rows(blocks),
            dimension=len(plan.centre),
            refresh=settings.refresh,
        )
        job.report.end(cost, job.draws * each * job.seconds)
