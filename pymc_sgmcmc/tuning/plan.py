"""The plan of a chain: estimator, batches and step size, decided before the chain runs."""

from __future__ import annotations

import copy

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from pymc_sgmcmc.checks import name_of
from pymc_sgmcmc.kernel.estimators import SVRG, GradientChoice, Plain
from pymc_sgmcmc.kernel.options import Options, OwnWhitening
from pymc_sgmcmc.kernel.policy import Policy
from pymc_sgmcmc.kernel.whitening import parts_of_variances
from pymc_sgmcmc.model.batch_schemes import BATCH_SCHEMES, BatchScheme
from pymc_sgmcmc.model.recognise import LARGEST_DENSE
from pymc_sgmcmc.tuning.batches import Terms, chosen_estimator
from pymc_sgmcmc.tuning.bounds import FRICTION, within_noise
from pymc_sgmcmc.tuning.curvature import measured_diagonal
from pymc_sgmcmc.tuning.directions import Turn
from pymc_sgmcmc.tuning.failure import failed_step, named_step
from pymc_sgmcmc.tuning.noise import NoiseOnTheWay, TurnedNoise, measured_noise, turned_noise
from pymc_sgmcmc.tuning.regimes import Regime
from pymc_sgmcmc.tuning.shared_index import InBlocks
from pymc_sgmcmc.tuning.shared_noise import WhitenedGradients, noise_in_common, noise_together
from pymc_sgmcmc.tuning.surface import MOST_OF_MANY, Surface, TuningError, parts_of
from pymc_sgmcmc.tuning.whiten import apart, sds_of, upright

# Most numbers in an update's gradients: more would leave too few updates for a chain
_LARGEST_UPDATE = 2**25

# Largest condition number of L, with rows of length 1, that double precision can invert
_LARGEST_CONDITION = 1e15


@dataclass(frozen=True)
class Fit:
    """The Gaussian fitted to the bulk, N(m, LL')."""

    centre: np.ndarray  # m, flat φ, shape (d,)
    root: np.ndarray  # L, shape (d, d), or its diagonal
    turn: Turn | None = None  # applied before a diagonal L


@dataclass(frozen=True)
class Problem:
    """What the user asks, and what method and model say of themselves."""

    policy: Policy
    options: Options = field(default_factory=Options)
    scale: str | np.ndarray | OwnWhitening | None = "auto"  # the user's, by hand of shape (d,)
    sizes: Sequence[int] = ()  # of the variables
    scheme: BatchScheme = BATCH_SCHEMES["shuffled"]
    remembers_blocks: bool = False  # gradients at an anchor are kept for blocks, and cost nothing
    shares_noise: bool = False  # many coordinates share noise, as of a walk, or it grows along them
    noise_grows: bool = False  # noise grows along some coordinates, as of rates


@dataclass(frozen=True)
class Plan:
    """What tuning decided before the chain runs."""

    centre: np.ndarray  # m, flat φ, shape (d,)
    root: np.ndarray | None  # L, shape (d, d), or its diagonal; None keeps the coordinates
    variance: np.ndarray  # of the estimate in each whitened coordinate, shape (d,)
    relative: np.ndarray  # the coordinates' step sizes over the largest, shape (d,)
    step_size: float  # the largest of the coordinates' step sizes
    regime: Regime = field(default_factory=Regime)
    gradient: GradientChoice = field(default_factory=Plain)
    batches: int = 1  # K
    unit: float = 1.0  # the fit's narrowest sd in the chain's coordinates, 1 if whitened by it
    together: float = 0.0  # variance along the noisiest sum of coordinates, 0 if it is one's
    width: float | np.ndarray = 1.0  # the fit's sds along these, in which trials have positions
    bound: float | None = None  # on the variance; None if unknown
    ratio: float = 1.0  # variance of the mean of K batches over that of one
    turn: Turn | None = None  # applied before a diagonal L
    turned: TurnedNoise = field(default_factory=TurnedNoise)  # variances after the turn
    blocks: InBlocks | None = None  # coordinates of φ with elements of one index whitened jointly

    def phi(self, psi: np.ndarray) -> np.ndarray:
        """Return φ of positions of trials, which are in units of the widths, shape (..., d)."""
        psi = psi * self.width
        if self.root is None:
            return self.centre + psi
        if self.turn is not None:
            psi = self.turn(psi)
        moved = psi * self.root if self.root.ndim == 1 else psi @ self.root.T
        return self.centre + moved

    def matrix(self) -> np.ndarray:
        """Return L, shape (d, d)."""
        return (self.phi(np.eye(len(self.centre))).T - self.centre[:, None]) / self.width

    def noise_of_each(self, sizes: Sequence[int]) -> list[float]:
        """Return each variable's largest variance over the bound, if that is known."""
        if self.bound is None:
            return []
        relative = self.variance * self.unit**2 / self.bound
        if self.root is not None and self.root.ndim == 2:
            relative = parts_of_variances(self.root) @ relative
        return [float(part.max(initial=0.0)) for part in parts_of(relative, sizes)]

    def takes_all_rows(self, n_blocks: int) -> bool:
        """Return whether an update's batches are all rows, each once."""
        return self.batches >= n_blocks > 1 and self.ratio * n_blocks < 1

    def noise_on_the_way(self, surface: Surface, rng: np.random.Generator) -> NoiseOnTheWay | None:
        """Return what measures the noise along a chain of many parameters, or None."""
        noisy = surface.batch_size and not self.takes_all_rows(surface.n_blocks)
        if not self.regime.diagonal or not noisy or isinstance(self.gradient, SVRG):
            return None
        anchor = None if isinstance(self.gradient, Plain) else self.centre
        return NoiseOnTheWay(surface, anchor, rng, self.batches)

    def with_noise(self, variance: np.ndarray, step_size: float, policy: Policy) -> Plan:
        """Return the plan for the measured variance of one batch's gradient for φ, shape (d,).

        In blocks it is that for C⁻¹φ. Coordinates for which it is too large take shorter steps
        than ``step_size``.
        """
        scale = 1.0 if self.root is None else self.root
        variance = self.turned(variance * scale**2) * self.ratio
        relative = self.relative
        if policy.per_coordinate and policy.widening is not None:
            most = within_noise(policy, variance * self.unit**2)
            relative = np.minimum(relative, most * self.unit**policy.power / step_size)
        return replace(self, variance=variance, relative=relative)


@named_step("the choice of step size and batches")
def make_plan(
    surface: Surface,
    bulk: Fit,
    regime: Regime,
    problem: Problem,
    rng: np.random.Generator,
    report: Callable[[str], None],
    *,
    # Least value of one anchored batch's largest variance, or of each coordinate's, shape (d,)
    least_noise: float | np.ndarray = 0.0,
    compiled: int | None = None,  # K of an earlier plan, kept where another is little better
) -> Plan:
    """Choose estimator, number of batches and step size for a bulk."""
    policy, d = problem.policy, len(bulk.centre)
    unit, root = _unit_and_root(surface, bulk, regime, problem, rng)
    if not _is_invertible(root):
        raise failed_step(
            "the measurement of widths and correlations",
            "beside the others a direction has no width. The density is unbounded there, or "
            "improper",
        )
    plan = Plan(
        bulk.centre, root, np.zeros(d), np.ones(d), policy.step_size, regime,
        unit=unit, bound=regime.noise_terms(policy).bound,
        turn=bulk.turn, blocks=surface if isinstance(surface, InBlocks) else None,
    )  # fmt: skip
    if surface.n_blocks > 1:
        report("measuring the noise of batches")
        plan = _with_batches(plan, surface, bulk.root, problem, rng, least_noise, compiled)
    # Friction bounds h²σ², other methods hσ²
    power = 2 if policy.is_bounded_by_friction else policy.power
    variance = np.maximum(plan.variance, plan.together)
    h = np.minimum(plan.step_size, within_noise(policy, variance * unit**power))
    if not policy.per_coordinate:
        h = np.full(d, h.min())
    # Friction and a thermostat's mass belong to a unit of time, which is a length there
    h = h * (unit**2 if policy.power == 2 else min(unit, 1.0))
    plan = replace(plan, step_size=float(h.max()), relative=h / h.max())
    if not isinstance(problem.scale, str):
        assert plan.root is not None
        # Batches may have turned or shortened its axes
        plan = replace(plan, width=_widths(bulk.root, plan.root))
    return replace(plan, root=None) if problem.scale is None else plan


def _unit_and_root(
    surface: Surface, bulk: Fit, regime: Regime, problem: Problem, rng: np.random.Generator
) -> tuple[float, np.ndarray]:
    """Return the scale of the narrowest direction in the chain's coordinates, and L."""
    root, scale = bulk.root, problem.scale
    if not isinstance(scale, str):
        # Steps are those that the narrowest direction needs
        own = np.ones(len(root)) if scale is None else scale
        if callable(own):
            own = _own_root(own, root)
        if own.ndim == 2:
            own = apart(own, surface.circular)
            own = own if problem.policy.isotropic else upright(own)
        return _narrowest(root, own), own
    if scale == "diagonal":
        root = sds_of(root)
    if not (problem.policy.isotropic or regime.diagonal):
        # Heavy tails: sums of coordinates are wider than each
        if root.ndim == 2:
            root = upright(root)
        else:
            root = measured_diagonal(surface, bulk.centre, root, rng)
    # Sds of independent normals have no narrower direction
    is_narrower = scale == "diagonal" and bulk.root.ndim == 2
    return _narrowest(bulk.root, root) if is_narrower else 1.0, root


def _own_root(function: OwnWhitening, root: np.ndarray) -> np.ndarray:
    """Return the root R that a user's function makes of L; raise TuningError for a useless one."""
    name, d = f"scale={name_of(function)}", len(root)
    of_root = f"the root of shape {root.shape}"
    try:
        own = np.asarray(function(root.copy()))
    except Exception as error:
        raise TuningError(
            f"{name} raised {type(error).__name__} for {of_root}: {error}. Above {LARGEST_DENSE} "
            "parameters, and where no matrix is found, a root is a vector of sds"
        ) from error
    shapes = [(d,)] if root.ndim == 1 else [(d, d), (d,)]
    if own.dtype.kind not in "fiu" or own.shape not in shapes:
        wanted = " or ".join(map(str, shapes))
        raise TuningError(
            f"{name} must return an array of real numbers of shape {wanted} for {of_root}, and "
            f"returned one of {own.dtype} and shape {own.shape}"
        )
    if not np.all(np.isfinite(own)):
        raise TuningError(f"{name} must return finite numbers, and some are not, for {of_root}")
    if not _is_invertible(own):
        needed = "positive numbers" if own.ndim == 1 else "an invertible matrix"
        raise TuningError(f"{name} must return {needed}, and does not, for {of_root}")
    return own.astype(float)


def _narrowest(fit: np.ndarray, own: np.ndarray) -> float:
    """Return the sd of the fit's narrowest direction in coordinates whitened by another root."""
    if fit.ndim == 1:
        return float(1 / np.max(1 / fit * own))
    inverse = np.linalg.pinv(fit)
    return float(1 / np.linalg.norm(inverse * own if own.ndim == 1 else inverse @ own, 2))


def _widths(fit: np.ndarray, own: np.ndarray) -> np.ndarray:
    """Return the fit's sds along coordinates whitened by another root, shape (d,)."""
    if own.ndim == 2:
        return sds_of(np.linalg.solve(own, fit))
    return sds_of(fit) / own


def _with_batches(
    plan: Plan,
    surface: Surface,
    spread: np.ndarray,  # L of the bulk
    problem: Problem,
    rng: np.random.Generator,
    least_noise: float | np.ndarray,
    compiled: int | None,
) -> Plan:
    """Return the plan with an estimator and its noise, in the axes of the noise."""
    policy, regime, turn = problem.policy, plan.regime, plan.turn
    d, root, many = len(plan.centre), plan.root, plan.regime.diagonal
    assert root is not None
    elsewhere = root.ndim == 1 or callable(problem.scale)
    noise = measured_noise(
        surface, plan.centre, root, rng, spread if elsewhere else root,
        rotated=policy.isotropic, many=many,
    )  # fmt: skip
    if noise.rotation is not None:
        root = root @ noise.rotation
    turned = TurnedNoise(), TurnedNoise()
    if turn is not None:
        turned = turned_noise(surface, plan.centre, root, turn, rng)
        noise = noise.turned(*turned)
    whitened, shared = problem.scale is not None, problem.shares_noise or regime.exchangeable
    gradients = WhitenedGradients(surface, plan.centre, root, turn)
    if root.ndim == 1 and policy.isotropic and not regime.exchangeable:
        # A copy, so that nothing changes where there is none
        together = noise_together(gradients, spread, noise, copy.deepcopy(rng))
        noise = replace(noise, together=together)
        shared = shared or max(together) > 0
    if many and whitened and not shared:
        shared = noise_in_common(gradients, noise.plain, policy, problem.sizes, rng)
    terms = Terms(
        regime.noise_terms(policy, problem.sizes, shared=shared, grows=problem.noise_grows),
        policy,
        unit=plan.unit,
        surface=surface,
        scheme=problem.scheme,
        most_batches=max(1, _LARGEST_UPDATE // d),
        remembered=problem.remembers_blocks,
        compiled=compiled,
    )
    if isinstance(least_noise, np.ndarray):
        least_noise = turned[1](least_noise * root**2)
    gradient, batches, variance, largest, ratio = chosen_estimator(
        problem.options, noise.at_least(least_noise), terms
    )
    plain = isinstance(gradient, Plain)
    effect = turned[not plain]
    if many and whitened and not policy.per_coordinate:
        # Noise that the whole step allows costs a coordinate nothing
        free = 0.0
        if policy.is_bounded_by_friction:
            free = FRICTION / (terms.step_size * plan.unit) ** 2
        root, turn, effect, variance = _shortened(root, turn, effect, variance, free)
    return replace(
        plan, root=root, gradient=gradient, batches=batches, variance=variance, ratio=ratio,
        step_size=terms.step_size, turn=turn, turned=effect, together=largest,
        bound=terms.noise.bound if plain else terms.anchored_bound,
    )  # fmt: skip


def _shortened(
    root: np.ndarray, turn: Turn | None, turned: TurnedNoise, variance: np.ndarray, free: float
) -> tuple[np.ndarray, Turn | None, TurnedNoise, np.ndarray]:
    """Shorten the steps of the few noisier coordinates, so that the others need not wait."""
    most = max(float(np.quantile(variance, MOST_OF_MANY)), free)
    by = np.sqrt(np.divide(most, variance, where=variance > most, out=np.ones(len(variance))))
    if turn is None:
        root = root * by
    else:
        turn = replace(turn, lengths=turn.lengths * by)
        turned = replace(turned, times=turned.times * by**2, plus=turned.plus * by**2)
    return root, turn, turned, np.minimum(variance, most)


def _is_invertible(root: np.ndarray) -> bool:
    """Return whether L, (d, d), is invertible, or sds are positive and finite."""
    widths = sds_of(root)
    sound = bool(np.all((widths > 0) & np.isfinite(widths)))
    if sound and root.ndim == 2:
        sound = bool(np.linalg.cond(root / widths[:, None]) < _LARGEST_CONDITION)
    return sound
