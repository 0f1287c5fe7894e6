r"""Tuning of a chain that no Gaussian is near, as of a neural network, along its own trajectory.

A network's posterior has as many modes as its units have permutations, and none is Gaussian: the
curvature at one place does not hold at the next. So nothing is centred or whitened. The chain
begins where training from its own random start ends, in units of the priors, and the largest
curvature :math:`\lambda` along it sets the step size.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from pymc_sgmcmc.chain.runner import Runner
from pymc_sgmcmc.kernel.estimators import SVRG, ControlVariates, Plain
from pymc_sgmcmc.kernel.options import Options
from pymc_sgmcmc.kernel.policy import Policy
from pymc_sgmcmc.model.coordinates import Coordinate
from pymc_sgmcmc.model.properties import prior_widths
from pymc_sgmcmc.tuning.bounds import friction_bound
from pymc_sgmcmc.tuning.failure import BY_HAND, named_step
from pymc_sgmcmc.tuning.plan import Plan
from pymc_sgmcmc.tuning.stiffness import largest_curvature_of_batches
from pymc_sgmcmc.tuning.surface import Surface, TuningError

__all__ = [
    "NO_GAUSSIAN",
    "Found",
    "heed",
    "units_of",
    "wandering_plan",
    "warm_up",
]

NO_GAUSSIAN = (
    "no Gaussian is near the posterior, which has modes by permutation, as of a net's units: each "
    "chain was tuned along its own way. Predictions may be trusted where chains agree on them; "
    "marginals of single parameters, and their R-hat, say little"
)

# Curvature estimates in the warm-up, updates between them, and how many there are per noise
# estimate
_WINDOWS, _UPDATES = 24, 500
_NOISE_EACH = 4
_BATCHES, _NOISE_BATCHES = 8, 64
_MOST_HALVINGS = 20

# h²λ (hλ where a step size is a squared length): stable up to 4
_AIM = 0.75

# Largest rise of U above its start, per parameter: in the bulk it is 1/2 above a mode
_MOST_RISE = 10.0

# Friction of a step, and the draws in which a weight informed only by its prior is forgotten
_DAMPING, _DRAWS_TO_FORGET = 0.2, 25

# Share of a draw's gradients beyond the bound above which the next draw has a smaller step size and
# a higher bound, and their factors
_TAMED, _SMALLER, _HIGHER = 0.05, 0.95, 1.1

# Largest gradient in units of the root of the largest curvature
_FARTHEST = 10.0
_NO_BOUND = 1e12


@dataclass(frozen=True)
class Found:
    """What the warm-up of a chain found."""

    step_size: float  # h, in units ``damping`` times smaller than the warm-up's
    damping: float  # divisor of the units
    largest_gradient: float | None  # bound of gradients, in the smaller units


def units_of(
    coordinates: Sequence[Coordinate],
    blocks: Sequence[np.ndarray],
    scale: str | np.ndarray | None,
    rng: np.random.Generator,
) -> np.ndarray:
    """Return the unit of each coordinate, shape (d,): the user's scale, or the prior's sd."""
    if isinstance(scale, str):
        widths = prior_widths(coordinates, int(rng.integers(2**31)))
        return np.repeat(np.array(widths), [x.size for x in blocks])
    return np.ones(sum(x.size for x in blocks)) if scale is None else scale


def wandering_plan(start: np.ndarray, widths: np.ndarray, options: Options) -> Plan:
    """Return the plan of a chain from its own start, in units of the priors."""
    if isinstance(options.gradient, ControlVariates):
        raise TuningError(
            "no Gaussian is near the posterior, and gradient=ControlVariates() needs a centre that "
            "the chain stays near. Pass gradient='plain', or SVRG(refresh=...), whose anchor moves "
            "with the chain"
        )
    dimension = len(start)
    return Plan(
        centre=start,
        root=widths,
        gradient=options.gradient if isinstance(options.gradient, SVRG) else Plain(),
        batches=options.batches if isinstance(options.batches, int) else 1,
        variance=np.zeros(dimension),
        step_size=1.0,
        relative=np.ones(dimension),
        unit=1.0,
        many=True,
        endless=True,
    )


@named_step("the warm-up")
def warm_up(
    runner: Runner,
    surface: Surface,
    plan: Plan,
    policy: Policy,
    others: list[np.ndarray],
    rng: np.random.Generator,
    report: Callable[[str], None],
    *,
    thin: int,
    fixed: float | None,
) -> Found:
    """Run from the start until the curvature is known, and return what was found.

    Batch noise that coordinates share heats stiff directions; smaller units add injected noise
    against that, but chains then forget weights later that only the prior holds.
    """
    report("warm-up")
    assert plan.root is not None and runner.state.psi is not None
    root, settings = plan.root, runner.settings
    if policy.gradients_bounded:
        settings.largest_gradient = _NO_BOUND
    updates = settings.each or settings.thin
    draws = max(1, _UPDATES // updates)
    batches = _BATCHES if surface.batch_size else 1
    rows = surface.draw_rows(rng, batches)

    def position() -> np.ndarray:
        return np.concatenate([x.reshape(-1) for x in runner.phi()])

    def potential() -> float:
        points = np.repeat(position()[None], batches, axis=0)
        return float(surface.batch(points, rows)[0].mean())

    def allowed(stiff: float) -> float:
        return min((_AIM / stiff) ** (policy.power / 2), friction_bound(policy, noise))

    seen: list[float] = []
    noise, h, halvings, highest = 0.0, fixed or np.inf, 0, potential() + _MOST_RISE * len(root)
    while len(seen) < _WINDOWS:
        phi = position()
        seen.append(largest_curvature_of_batches(surface, phi, root, batches, rng))
        if surface.batch_size and len(seen) % _NOISE_EACH == 1:
            some = surface.draw_rows(rng, _NOISE_BATCHES)
            g = surface.batch_gradient(np.repeat(phi[None], len(some), axis=0), some) * root
            noise = float(np.quantile(np.var(g, axis=0), 0.95)) / settings.batches
        if not fixed:
            h = min(h, allowed(float(np.median(seen))))
        before = [np.array(x) for x in runner.state.psi]
        rejected = sum(runner.advance(h, updates, others).rejected for _ in range(draws))
        if not rejected and potential() <= highest:
            continue
        halvings += 1
        if fixed or halvings > _MOST_HALVINGS:
            raise TuningError(
                f"updates diverged at every step size down to {h:.2g}. Take tighter priors, "
                f"or {BY_HAND}"
            )
        h /= 2
        seen.pop()
        runner.restart(before)
    if not fixed:
        # Not the last alone: the smaller the step, the sharper the regions it falls into
        h = min(h, allowed(float(np.median(seen[_WINDOWS // 2 :]))))
    damping = 1.0
    if policy.absorbs_noise and noise > 0 and not fixed:
        damping = max(1.0, min(_DAMPING / h, _DRAWS_TO_FORGET * thin * h))
    largest = _FARTHEST * float(np.sqrt(max(seen) + noise)) / damping
    return Found(float(h) * damping, damping, largest if policy.gradients_bounded else None)


def heed(runner: Runner, tamed: float) -> None:
    """Lower the step size after a burn-in draw with a share ``tamed`` of large gradients.

    With batches the bound rises too, as these may be noisier there, whatever the step size.
    """
    if tamed > _TAMED:
        settings = runner.settings
        assert settings.step_size is not None
        settings.step_size *= _SMALLER
        if settings.largest_gradient is not None and runner.engine.posterior.minibatches:
            settings.largest_gradient *= _HIGHER
