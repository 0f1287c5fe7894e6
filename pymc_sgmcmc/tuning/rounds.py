"""Rounds of a plan and a burn-in, until the chain stays where it was planned to be."""

from __future__ import annotations

import copy

from dataclasses import dataclass, replace

import numpy as np

from pymc_sgmcmc.chain.runner import Runner
from pymc_sgmcmc.checks import is_auto
from pymc_sgmcmc.kernel.estimators import ControlVariates
from pymc_sgmcmc.kernel.potential import Potential
from pymc_sgmcmc.model.recognise import LARGEST_DENSE
from pymc_sgmcmc.tuning.bounds import anchored_bound
from pymc_sgmcmc.tuning.bulk import find_bulk
from pymc_sgmcmc.tuning.check import burn_in
from pymc_sgmcmc.tuning.directions import shared_directions
from pymc_sgmcmc.tuning.exchangeable import refuse_stiff
from pymc_sgmcmc.tuning.job import Job
from pymc_sgmcmc.tuning.noise import most_of_each, noise_along_burn_in
from pymc_sgmcmc.tuning.plan import Fit, Plan, make_plan
from pymc_sgmcmc.tuning.regimes import Regime, regime_of
from pymc_sgmcmc.tuning.shared_index import in_blocks
from pymc_sgmcmc.tuning.start import Beginning
from pymc_sgmcmc.tuning.surface import FEW, Surface
from pymc_sgmcmc.tuning.trial_chain import TrialChain
from pymc_sgmcmc.tuning.whiten import rewhitened

# Sds from the burn-in's mean beyond which a centre is wrong, and most centres
_OFF_CENTRE, _MOST_CENTRES = 2.5, 4

# Most parameters for which the space of shared directions fits in memory
_MOST_MIXED = 2**19

# For most posteriors E vψ² / E ψ² is twice E v. A plan is repeated if the noise, of a burn-in after
# division by that 2, is more than twice its bound
_OF_SQUARES, _NOISIER = 2.0, 2.0


@dataclass(frozen=True)
class Round:
    """A plan, and the chain that has been burnt in with it."""

    surface: Surface
    plan: Plan
    runner: Runner
    chain: TrialChain
    step_size: float
    positions: np.ndarray  # ψ of the burn-in's later half, shape (draws, coordinates watched)


class Rounds:
    """Changes the Gaussian that is planned for by what the last plan's burn-in has shown."""

    def __init__(self, job: Job, surface: Surface, fit: Fit, regime: Regime) -> None:
        self._job, self._surface, self._fit, self._regime = job, surface, fit, regime
        self._centres = 1  # that were tried
        # Least variance of one anchored batch: a number from a burn-in, or one for each coordinate
        self._least_noise: float | np.ndarray = 0.0
        before = job.state.settings
        # K of the last plan
        self._compiled = before.batches if job.again and before is not None else None

    def run(self) -> Round:
        """Plan and burn in, repeatedly if the chain finds a better centre or more noise."""
        self._whiten_in_blocks()
        self._look_for_directions()
        return self._repeated()

    def _repeated(self) -> Round:
        job = self._job
        while True:
            last = self._burnt_in()
            # At one place of a schedule no step size that changes can be checked
            if job.step_changes or not (self._replans_for_noise(last) or self._moves(last)):
                return last
            self._look_for_directions()

    def _whiten_in_blocks(self) -> None:
        """Whiten correlated elements of one index jointly, where thousands of parameters have some.

        The surface's coordinates are then those in which they are independent.
        """
        centre = self._fit.centre
        if not self._mixes():
            return
        inside = in_blocks(self._surface, centre, self._fit.root, self._job.rng)
        if inside is not None:
            self._surface = inside
            self._fit = Fit(inside.inward(centre[None])[0], inside.sd)

    def _look_for_directions(self) -> None:
        """Make coordinates of directions that thousands of parameters share."""
        if self._mixes():
            job, fit = self._job, self._fit
            job.report("looking for directions that variables share")
            centre, turn = shared_directions(
                self._surface, fit.centre, fit.root, job.problem.sizes, job.rng
            )
            self._fit = Fit(centre, fit.root, turn)

    def _mixes(self) -> bool:
        """Return whether coordinates that a diagonal L keeps apart may be mixed."""
        # A sum of jumps with heavy tails is wider than each
        problem, d = self._job.problem, len(self._fit.centre)
        automatic = is_auto(problem.scale) and problem.policy.isotropic
        return automatic and not self._regime.exchangeable and LARGEST_DENSE < d <= _MOST_MIXED

    def _burnt_in(self) -> Round:
        """Make a plan and a chain that follows it, and burn the chain in."""
        job = self._job
        plan = make_plan(
            self._surface, self._fit, self._regime, job.problem, job.rng, job.report,
            least_noise=self._least_noise, compiled=self._compiled,
        )  # fmt: skip
        self._compiled = plan.batches
        runner = job.begin(plan)
        chain = TrialChain(job, runner, plan)
        settings, fixed, h = runner.settings, job.fixed_step, plan.step_size
        if job.step_changes:
            chain.restart()
            return Round(self._surface, plan, runner, chain, h, np.zeros((0, len(plan.centre))))
        job.report("running the burn-in")
        h, positions = burn_in(
            chain, h if fixed is None else fixed, settings.each or settings.thin,
            fixed_step=fixed is not None, updates=job.bounds(plan).updates_of_a_burn_in(),
        )  # fmt: skip
        return Round(self._surface, plan, runner, chain, h, positions)

    def replanned(self, last: Round, tried: Plan) -> Round | None:
        """Return another round if trials were far noisier than planned, None if they were not.

        ``tried`` is the plan with the noise along them. Where effects share a scale, each batch
        pulls those that it touches, and the next ones differ in what they say of the scale.
        """
        variance, plan = last.chain.variance, last.plan
        if variance is None or plan.regime.exchangeable or not self._is_anchored(plan):
            return None
        assert plan.bound is not None
        found, planned = (most_of_each(p.variance, self._job.problem.sizes) for p in (tried, plan))
        if found <= _NOISIER * max(plan.bound / plan.unit**2, planned):
            return None
        self._least_noise, self._compiled = variance, None
        return self._repeated()

    def _is_anchored(self, plan: Plan) -> bool:
        """Return whether a plan has anchored gradients, and a number of batches of its own."""
        return isinstance(plan.gradient, ControlVariates) and self._job.options.batches == "auto"

    def _replans_for_noise(self, last: Round) -> bool:
        """Return whether the chain is far noisier than planned: the plan is repeated, once."""
        if np.any(self._least_noise) or _is_off(self._offset(last.positions)).any():
            return False
        self._least_noise = least = self._noise_of_burn_in(last.plan, last.positions)
        if least:
            self._compiled = None
        return least > 0

    def _noise_of_burn_in(self, plan: Plan, positions: np.ndarray) -> float:
        """Return the noise of an anchored batch in a burn-in if it is far too large, else 0."""
        job, policy = self._job, self._job.policy
        if not self._is_anchored(plan) or plan.root is None or plan.regime.diagonal:
            return 0.0
        # Squares of heavy-tailed draws have no mean
        if len(job.density.places) > 1 or not policy.second_moments:
            return 0.0
        # A copy, so that nothing changes where nothing is wrong
        rng, phi = copy.deepcopy(job.rng), plan.phi(positions)
        noise = (
            noise_along_burn_in(self._surface, plan.centre, plan.root, positions, phi, rng)
            / _OF_SQUARES
        )
        largest, ratio = noise.max(), job.engine.scheme.variance_ratio
        share = max(ratio(n, size, plan.batches) for n, size in self._surface.sizes)
        too_noisy = largest * share * plan.unit**2 > _NOISIER * anchored_bound(policy)
        return float(largest) if too_noisy else 0.0

    def _moves(self, last: Round) -> bool:
        """Return whether the next round is about another centre."""
        if self._centres == _MOST_CENTRES:
            return False
        if self._regime.thinned_by_cost:
            moved = self._refitted_below(Potential.join(last.runner.phi()))
        else:
            moved = self._recentred(last)
        if moved is not None:
            self._fit = moved
            self._centres += 1
        return moved is not None

    def _refitted_below(self, phi: np.ndarray) -> Fit | None:
        """Return another fit if the chain has left the present one, None to keep it.

        Along products' ridges a chain has no mean: U shows whether it has left.
        """
        job, fit = self._job, self._fit
        there, at_centre = self._surface.full(np.stack([phi, fit.centre]))[0]
        # Draws of correct normals lie above their mean by about d / 2: a chain below it has left a
        # place that is no mode, where the fit had stopped
        if not there < at_centre:
            return None
        job.report("correcting the posterior's centre")
        begin = Beginning(self._surface, job.density, phi, exchangeable=True)
        centre, root, _ = find_bulk(begin, job.rng, job.report)
        refuse_stiff(self._surface, centre, root, job.rng)
        self._regime = regime_of(root, exchangeable=True)
        return Fit(centre, root)

    def _recentred(self, last: Round) -> Fit | None:
        """Return the Gaussian at the burn-in's mean, None if the centre is near it."""
        job, offset = self._job, self._offset(last.positions)
        if not _is_off(offset).any() or last.plan.root is None or len(job.density.places) > 1:
            return None
        if len(offset) < self._surface.dimension:
            if not job.policy.second_moments:
                return None
            offset = last.chain.middle
        if self._centres > 1 and self._regime.diagonal and np.mean(_is_off(offset)) <= FEW:
            return None
        job.report("correcting the posterior's centre")
        centre, root = last.plan.phi(offset), self._fit.root
        if root.ndim == 2:
            centre, root = rewhitened(self._surface, centre, root, job.rng)
        return replace(self._fit, centre=centre, root=root)

    def _offset(self, positions: np.ndarray) -> np.ndarray:
        """Return the burn-in's mean in each whitened coordinate, for heavy tails its median."""
        # A single jump of heavy-tailed noise can move a mean by many sds
        middle = np.mean if self._job.policy.second_moments else np.median
        return middle(positions, axis=0)


def _is_off(offset: np.ndarray) -> np.ndarray:
    return np.abs(offset) >= _OFF_CENTRE
