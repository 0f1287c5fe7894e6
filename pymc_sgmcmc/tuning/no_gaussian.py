r"""Tuning of a chain that no Gaussian is near, as of a neural network, along its own trajectory.

A network's posterior has as many modes as its units have permutations, and none is Gaussian: the
curvature at one place does not hold at the next. So nothing is centred or whitened. The chain
begins where training from its own random start ends, in units of the priors, and the largest
curvature :math:`\lambda` along it sets the step size.
"""

from __future__ import annotations

import time

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from pytensor.tensor.variable import TensorVariable

from pymc_sgmcmc.chain.monitor import MOST_TAMED
from pymc_sgmcmc.chain.runner import Runner
from pymc_sgmcmc.kernel.estimators import SVRG, ControlVariates, Plain
from pymc_sgmcmc.kernel.options import Options
from pymc_sgmcmc.kernel.potential import Potential
from pymc_sgmcmc.model.graphs import depends_on
from pymc_sgmcmc.model.properties import prior_widths
from pymc_sgmcmc.tuning.bounds import stable_step, within_noise
from pymc_sgmcmc.tuning.curvature import largest_curvature_of_batches
from pymc_sgmcmc.tuning.failure import diverged, named_step
from pymc_sgmcmc.tuning.job import LARGEST_GRADIENT, Job
from pymc_sgmcmc.tuning.passes import PAIRS
from pymc_sgmcmc.tuning.plan import Plan
from pymc_sgmcmc.tuning.regimes import Regime
from pymc_sgmcmc.tuning.surface import MOST_OF_MANY, Surface, TuningError, gradients_of_batches

# Factor of the jitter, in units of the priors: networks are trained from weights as small
_NEAR = 0.3

# Passes over the data of a descent: far more reach regions sharper than the bulk. Least and most
# updates, and most numbers in their gradients
_PASSES, _LEAST, _MOST, _MOST_NUMBERS = 60, 60, 4_000, 2**26

# Adam's first rate in units of the priors, and the shares forgotten in an update
_RATE, _FORGET, _FORGET_SQUARES, _TINY = 0.01, 0.1, 0.01, 1e-8

# Curvature estimates in the warm-up, updates between them, how many there are per noise estimate,
# and its batches
_WINDOWS, _UPDATES, _NOISE_EACH, _NOISE_BATCHES = 24, 500, 4, 64
_MOST_HALVINGS = 20

# Largest rise of U above its start, per parameter: in the bulk it is 1/2 above a mode
_MOST_RISE = 10.0

# What noise may add to a thermostat, friction of a step, and the draws in which a weight informed
# only by its prior is forgotten
_HEATED, _DAMPING, _DRAWS_TO_FORGET = 0.05, 0.2, 25

# Factors of the step size and of the bound after a draw with many gradients beyond the bound
_SMALLER, _HIGHER = 0.95, 1.1

# A bound of gradients that is none
_NO_BOUND = 1e12


def tune_without_gaussian(
    job: Job, surface: Surface, begin: np.ndarray, jitter: np.ndarray
) -> tuple[Runner, Plan]:
    """Tune the chain along its own trajectory, from its own start."""
    coordinates, scale = job.engine.posterior.coordinates, job.problem.scale
    blocks = job.density.views[0].split(begin)
    units = np.ones(len(begin)) if scale is None else scale
    if not isinstance(units, np.ndarray):
        widths = prior_widths(coordinates, int(job.rng.integers(2**31)))
        units = np.repeat(np.array(widths), [x.size for x in blocks])
    job.report("descending to a mode")
    held = np.repeat(_shape_priors([c.rv for c in coordinates]), [x.size for x in blocks])
    start = descended(surface, begin, units, jitter, held, job.rng)
    plan = plan_of_priors(start, units, job.options)
    runner = job.begin(plan)
    if job.options.thin is None and not job.step_changes:
        runner.settings.thin = job.bounds(plan).largest_thin(runner.settings.thin)
    thin = runner.settings.thin
    step_size, damping, largest_gradient = _warm_up(job, runner, surface, units)
    if damping > 1:
        plan = replace(plan, centre=Potential.join(runner.phi()), root=units / damping)
        runner = job.begin(plan)
    settings = runner.settings
    settings.step_size, settings.thin = step_size, thin
    settings.largest_gradient, settings.adapts = largest_gradient, True
    settings.warnings = [("no Gaussian", {})]
    return runner, plan


def plan_of_priors(start: np.ndarray, units: np.ndarray, options: Options) -> Plan:
    """Return the plan of a chain from its own start, in units of the priors."""
    if isinstance(options.gradient, ControlVariates):
        raise TuningError(
            "no Gaussian is near the posterior, and gradient=ControlVariates() needs a centre that "
            "the chain stays near. Pass gradient='plain', or SVRG(refresh=...), whose anchor moves "
            "with the chain"
        )
    return Plan(
        start, units, np.zeros(len(start)), np.ones(len(start)), 1.0,
        Regime(diagonal=True, exchangeable=True),
        gradient=options.gradient if isinstance(options.gradient, SVRG) else Plain(),
        batches=options.batches if isinstance(options.batches, int) else 1,
    )  # fmt: skip


def descended(
    surface: Surface,
    begin: np.ndarray,
    units: np.ndarray,  # the priors' sds, shape (d,)
    jitter: np.ndarray,  # in units of these, or of φ where that is not finite
    held: np.ndarray,  # which coordinates don't move, shape (d,)
    rng: np.random.Generator,
) -> np.ndarray:
    """Return where Adam, with a rate annealed as a cosine, ends from a jittered start, shape (d,).

    Adam (Kingma and Ba, 2015, ICLR) moves equally far whatever the gradients are: a network's are
    small at random weights, and a step size found there would be too large in the bulk.
    """
    most = min(_MOST, _MOST_NUMBERS // len(begin))
    steps = int(np.clip(_PASSES * surface.n_blocks, _LEAST, most))
    moves = np.where(held, 0.0, units)
    start = begin + _NEAR * units * jitter
    values, gradients = surface.batch(start[None], surface.draw_rows(rng, 1))
    if not (np.isfinite(values[0]) and np.all(np.isfinite(gradients))):
        start = begin + jitter
    x, mean, square = start.copy(), np.zeros(start.shape), np.zeros(start.shape)
    for t in range(1, steps + 1):
        rows = surface.draw_rows(rng, 1)
        gradient = surface.batch_gradient(x[None], rows)[0] * units
        with np.errstate(over="ignore"):
            squared = gradient**2
        if not np.all(np.isfinite(squared)):
            return start
        mean += _FORGET * (gradient - mean)
        square += _FORGET_SQUARES * (squared - square)
        rate = _RATE * (1 + np.cos(np.pi * t / steps)) / 2
        m, s = mean / (1 - (1 - _FORGET) ** t), square / (1 - (1 - _FORGET_SQUARES) ** t)
        x -= rate * moves * m / (np.sqrt(s) + _TINY)
    return x


def _shape_priors(variables: Sequence[TensorVariable]) -> list[bool]:
    """Return for each variable whether another one's prior depends on it.

    The density may be infinite where a scale goes to 0 with all that it scales: a descent ends
    there, and no step size lets a chain with noise leave.
    """
    return [
        any(depends_on(other.owner.inputs, {rv}) for other in variables if other is not rv)
        for rv in variables
    ]


@named_step("the warm-up")
def _warm_up(
    job: Job, runner: Runner, surface: Surface, units: np.ndarray
) -> tuple[float, float, float | None]:
    """Return the step size, a divisor of the units, and the bound of gradients or None.

    The chain runs from the start until the curvature is known; step size and bound are in the
    smaller units. Batch noise that coordinates share heats stiff directions; smaller units add
    injected noise against that, but chains then forget weights later that only the prior holds.
    """
    job.report("running the warm-up")
    policy, rng, settings, fixed = job.policy, job.rng, runner.settings, job.fixed_step
    if policy.gradients_bounded:
        settings.largest_gradient = _NO_BOUND
    updates = settings.each or settings.thin
    draws, batches = max(1, _UPDATES // updates), PAIRS if surface.batch_size else 1
    rows = surface.draw_rows(rng, batches)

    def position() -> np.ndarray:
        return Potential.join(runner.phi())

    def potential() -> float:
        points = np.repeat(position()[None], batches, axis=0)
        return float(surface.batch(points, rows)[0].mean())

    def allowed(curvatures: list[float]) -> float:
        by_curvature = stable_step(policy, float(np.median(curvatures)))
        by_noise = within_noise(policy, np.array([noise]))
        return min(by_curvature, float(by_noise[0]))

    curvatures: list[float] = []
    highest = potential() + _MOST_RISE * len(units)
    noise, h, halvings = 0.0, fixed or np.inf, 0
    while len(curvatures) < _WINDOWS:
        phi = position()
        curvatures.append(largest_curvature_of_batches(surface, phi, units, batches, rng))
        if surface.batch_size and len(curvatures) % _NOISE_EACH == 1:
            some = surface.draw_rows(rng, _NOISE_BATCHES)
            g = gradients_of_batches(surface, phi[None], some)[0] * units
            noise = float(np.quantile(np.var(g, axis=0), MOST_OF_MANY)) / settings.batches
        if not fixed:
            h = min(h, allowed(curvatures))
        assert runner.state.psi is not None
        before, began = [np.array(x) for x in runner.state.psi], time.perf_counter()
        rejected = sum(
            runner.advance(h, updates, job.density.others).rejected for _ in range(draws)
        )
        # The latest, without what compiles
        job.seconds = (time.perf_counter() - began) / (draws * updates)
        if not rejected and potential() <= highest:
            continue
        halvings += 1
        if fixed or halvings > _MOST_HALVINGS:
            raise diverged("updates of the warm-up", h, fixed=fixed is not None)
        h /= 2
        curvatures.pop()
        runner.restart(before)
    damping = 1.0
    if not fixed:
        # Not the last alone: the smaller the step, the sharper the regions it falls into
        h = min(h, allowed(curvatures[_WINDOWS // 2 :]))
        if policy.absorbs_noise:
            heated = float(job.engine.sampler.widening(h, noise, 0.0)) / _HEATED
            damping = max(1.0, min(heated, _DAMPING / h, _DRAWS_TO_FORGET * settings.thin * h))
    largest = LARGEST_GRADIENT * float(np.sqrt(max(curvatures) + noise)) / damping
    return float(h) * damping, damping, largest if policy.gradients_bounded else None


def lower_step(runner: Runner, clipped: float) -> None:
    """Lower the step size after a burn-in draw with a share ``clipped`` of large gradients.

    With batches the bound rises too, as these may be noisier there, whatever the step size.
    """
    if clipped > MOST_TAMED:
        settings = runner.settings
        assert settings.step_size is not None
        settings.step_size *= _SMALLER
        if settings.largest_gradient is not None and runner.engine.posterior.minibatches:
            settings.largest_gradient *= _HIGHER
