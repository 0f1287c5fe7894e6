"""What all steps of one chain's tuning share, and how a plan becomes the chain's settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pymc_sgmcmc.chain.runner import Runner
from pymc_sgmcmc.chain.state import ChainState
from pymc_sgmcmc.kernel.engine import Engine
from pymc_sgmcmc.kernel.estimators import SVRG, Plain
from pymc_sgmcmc.kernel.options import Options
from pymc_sgmcmc.kernel.policy import Policy
from pymc_sgmcmc.kernel.potential import Potential, gradient_at_anchor
from pymc_sgmcmc.kernel.settings import Settings, in_parts
from pymc_sgmcmc.schedules import constant, thin_of
from pymc_sgmcmc.tuning.cost_bounds import CostBounds
from pymc_sgmcmc.tuning.density import Density
from pymc_sgmcmc.tuning.plan import Plan, Problem
from pymc_sgmcmc.tuning.report import Report

# Factor of a gradient's usual size, noise included, that no plausible position exceeds
LARGEST_GRADIENT = 10.0


@dataclass
class Job:
    """One tuning of one chain; ``again`` goes on from the chain's position."""

    engine: Engine
    options: Options
    state: ChainState
    density: Density
    report: Report
    again: bool = False
    seconds: float = 0.0  # an update's, for messages alone

    @property
    def rng(self) -> np.random.Generator:
        """The generator of starts and tuning."""
        return self.state.tuning_rng

    @cached_property
    def policy(self) -> Policy:
        """What the method says of itself."""
        return self.engine.sampler.policy()

    @property
    def fixed_step(self) -> float | None:
        """The step size that the user set, None for "auto" and for steps that change."""
        schedule = self.options.step_size
        return schedule.h if isinstance(schedule, constant) else None

    @property
    def step_changes(self) -> bool:
        """Whether the user's step size changes from update to update."""
        return self.options.step_size is not None and self.fixed_step is None

    @property
    def draws(self) -> int:
        """Draws of the chain that are left."""
        return self.state.last_draw - self.state.draw

    @cached_property
    def problem(self) -> Problem:
        """What user, method and model ask of a plan; the density has to be compiled."""
        engine, scale = self.engine, self.options.scale
        phi = self.density.places[-1].phi
        return Problem(
            self.policy,
            self.options,
            Potential.join(engine.scale_arrays(scale, phi))
            if isinstance(scale, Mapping)
            else scale,
            [x.size for x in phi],
            engine.scheme,
            engine.remembers_blocks,
            engine.shares_noise,
            engine.noise_grows,
        )

    def bounds(self, plan: Plan) -> CostBounds:
        """Return the bounds on the cost of a plan's chain."""
        return CostBounds(plan, self.density.views[0], self.engine.remembers_blocks)

    def largest_gradient(self, plan: Plan) -> float | None:
        """Return the bound on the elements of a plan's gradient estimates, None for no bound."""
        if plan.root is None or not self.policy.gradients_bounded:
            return None
        # A larger gradient occurs only ten sds from the centre, or where the density falls
        # steeply. A coordinate may be informed by one of M batches, but for those of a small
        # net. The gradient of that batch is up to √M sds from the mean
        apart = plan.regime.diagonal or not plan.regime.exchangeable
        of_few = max(1.0, self.density.views[0].n_blocks / plan.batches) if apart else 1.0
        return float(LARGEST_GRADIENT * np.sqrt(plan.unit**-2 + of_few * plan.variance.max()))

    def begin(self, plan: Plan) -> Runner:
        """Set the chain's state to a plan, at its centre, and return what moves the chain."""
        state, noise = self.state, self.state.noise_rng.bit_generator
        before = noise.state

        def begun() -> Runner:
            # Again from here, where numba takes over
            noise.state = before
            state.scales = list(self.density.scales)
            state.settings, state.psi = self._settings(plan)
            state.origin, state.next_refresh, state.batches_left = [], 0, []
            state.extra = self.engine.sampler.initial_extra(state.psi, state.noise_rng)
            return Runner(self.engine, state)

        return self.engine.attempt(begun)

    def _settings(self, plan: Plan) -> tuple[Settings, list[np.ndarray]]:
        """Return a plan's settings in the blocks of the model's variables, and ψ = 0."""
        view, blocks, turn, before = self.density.views[-1], plan.blocks, plan.turn, None
        split, root = self.density.views[0].split, plan.root
        centre = split(plan.centre if blocks is None else blocks.whole(plan.centre[None])[0])
        thin = thin_of(self.options.step_size, self.options.thin)
        if self.options.thin is None and not self.step_changes:
            thin = self.bounds(plan).first_thin(thin)
        if self.again:
            before = self.state.settings
        settings = Settings(
            centre=centre,
            root=split(root) if root is not None and root.ndim == 1 else root,
            directions=[] if turn is None else turn.parts([x.size for x in centre]),
            middle=None if turn is None else turn.middle,
            lengths=[] if turn is None else split(turn.lengths),
            families=[] if blocks is None else list(blocks.shear.families),
            below=[] if blocks is None else blocks.below,
            step_size=plan.step_size,
            batches=plan.batches,
            thin=thin if before is None else before.thin,
            each=thin if before is None else before.each,
            refresh=plan.gradient.refresh if isinstance(plan.gradient, SVRG) else None,
            row_order=self.state.row_order,
        )
        whitening = settings.whitening()
        psi: list[np.ndarray] = whitening.to_psi(centre, whitening.arrays)
        if self.options.step_size is None and self.policy.per_coordinate:
            settings.relative = in_parts(psi, plan.relative)
        # The errors of a sweep cancel by themselves
        if self.policy.compensates and self.engine.scheme.independent:
            settings.variance = in_parts(psi, plan.variance)
        settings.largest_gradient = self.largest_gradient(plan)
        if not isinstance(plan.gradient, Plain):
            settings.anchor = centre
            settings.anchor_others = self.density.others
            settings.anchor_gradient, settings.anchor_blocks = gradient_at_anchor(
                view, whitening, centre, blocks=self.engine.remembers_blocks
            )
        return settings, psi
