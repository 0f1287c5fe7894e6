"""Steps 4 and 5 of tuning: estimator, batches and step size, decided before the chain runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from pymc_sgmcmc.kernel.estimators import SVRG, GradientChoice, Plain
from pymc_sgmcmc.kernel.options import Options
from pymc_sgmcmc.kernel.policy import Policy
from pymc_sgmcmc.kernel.whitening import parts_of_variances
from pymc_sgmcmc.model.batch_schemes import BATCH_SCHEMES, BatchScheme
from pymc_sgmcmc.tuning.bounds import FRICTION, anchored_bound, shared_bound
from pymc_sgmcmc.tuning.choice_of_estimator import Terms, chosen_estimator, variance_ratios
from pymc_sgmcmc.tuning.failure import NEARER, named_step
from pymc_sgmcmc.tuning.noise import GradientNoise, TurnedNoise, measured_noise, turned_noise
from pymc_sgmcmc.tuning.noise_in_common import noise_in_common
from pymc_sgmcmc.tuning.noise_of_few import most_of_each, shorter
from pymc_sgmcmc.tuning.noise_of_many import NoiseOnTheWay
from pymc_sgmcmc.tuning.shared_index import InBlocks
from pymc_sgmcmc.tuning.surface import Surface, TuningError
from pymc_sgmcmc.tuning.turn import Turn
from pymc_sgmcmc.tuning.whiten import measured_diagonal, upright

__all__ = ["Plan", "make_plan"]

# Most numbers in an update's gradients: more would leave too few updates for a chain
_LARGEST_UPDATE = 2**25

# The fit to thousands of coordinates may be far narrower than the posterior, as along rotations of
# factors: an anchor then helps less than it seems to. Without rotations only noise is misjudged,
# and a method that measures it along the chain corrects that
_DOUBT = 4.0

# Largest condition number of L, with rows of length 1, that double precision can invert
_LARGEST_CONDITION = 1e15


@dataclass
class Plan:
    """What tuning decided before the chain runs."""

    centre: np.ndarray  # m, flat φ, shape (d,)
    root: np.ndarray | None  # L, shape (d, d), or its diagonal; None keeps the coordinates
    gradient: GradientChoice
    batches: int  # K
    variance: np.ndarray  # of the estimate in each whitened coordinate, shape (d,)
    step_size: float  # the largest of the coordinates' step sizes
    relative: np.ndarray  # the coordinates' step sizes over the largest, shape (d,)
    unit: float  # scale of the narrowest direction in the chain's coordinates, 1 if whitened
    # Only independent normals were fitted: a quantile of the coordinates is judged, not the worst
    many: bool
    # No thinning suffices for all coordinates, as with exchangeable units: the cost of a draw is
    # bounded, and trials judge the step alone
    endless: bool = False
    bound: float | None = None  # on the variance; None if unknown
    ratio: float = 1.0  # variance of the mean of K batches over that of one
    turn: Turn | None = None  # applied before a diagonal L
    turned: TurnedNoise | None = None  # the turn's effect on variances of gradients
    blocks: InBlocks | None = None  # coordinates of φ with elements of one index whitened jointly

    def phi(self, psi: np.ndarray) -> np.ndarray:
        """Return φ of whitened coordinates, shape (..., d)."""
        if self.root is None:
            return psi
        if self.turn is not None:
            psi = self.turn(psi)
        moved = psi * self.root if self.root.ndim == 1 else psi @ self.root.T
        return self.centre + moved

    def matrix(self) -> np.ndarray:
        """Return L, shape (d, d)."""
        return self.phi(np.eye(len(self.centre))).T - self.centre[:, None]

    def noise_of_each(self, sizes: Sequence[int]) -> list[float]:
        """Return each variable's largest variance over the bound, if that is known."""
        if self.bound is None:
            return []
        relative = self.variance * self.unit**2 / self.bound
        if self.root is not None and self.root.ndim == 2:
            relative = parts_of_variances(self.root) @ relative
        parts = np.split(relative, np.cumsum(sizes)[:-1])
        return [float(part.max(initial=0.0)) for part in parts]

    def takes_all_rows(self, n_blocks: int) -> bool:
        """Return whether an update's batches are all rows, each once."""
        return self.batches >= n_blocks > 1 and self.ratio * n_blocks < 1

    def noise_on_the_way(self, surface: Surface, rng: np.random.Generator) -> NoiseOnTheWay | None:
        """Return what measures the noise along a chain of many parameters, or None."""
        if not self.many or isinstance(self.gradient, SVRG):
            return None
        anchor = None if isinstance(self.gradient, Plain) else self.centre
        return NoiseOnTheWay(surface, anchor, rng)

    def heed(self, variance: np.ndarray, step_size: float, policy: Policy) -> None:
        """Set the variance to that of one batch's gradient with respect to φ, shape (d,).

        Coordinates for which it is too large take shorter steps than ``step_size``.
        """
        scale = 1.0 if self.root is None else self.root
        variance = variance * scale**2
        self.variance = (variance if self.turned is None else self.turned(variance)) * self.ratio
        if policy.per_coordinate and policy.widening is not None:
            most = policy.widening / np.maximum(self.variance * self.unit**2, 1e-300)
            self.relative = np.minimum(self.relative, most * self.unit**policy.power / step_size)


@named_step("the choice of step size and batches")
def make_plan(
    surface: Surface,
    centre: np.ndarray,
    root: np.ndarray,
    policy: Policy,
    options: Options,
    scale: str | np.ndarray | None,
    rng: np.random.Generator,
    report: Callable[[str], None],
    *,
    scheme: BatchScheme = BATCH_SCHEMES["shuffled"],
    remembered: bool = False,  # gradients at an anchor are kept for blocks, and cost nothing
    compiled: int | None = None,  # K of an earlier plan, kept where another is little better
    many: bool = False,  # only independent normals are known of the bulk
    permutable: bool = False,  # there are modes by permutation, as of a factorisation
    coupled: bool = False,  # many coordinates share noise, as of a walk, or it grows along them
    grows: bool = False,  # noise grows along some coordinates, as of rates
    met: float = 0.0,  # least value of one anchored batch's largest variance
    turn: Turn | None = None,  # applied before L
    sizes: Sequence[int] = (),  # of variables whose noise must each be low; none: all together
) -> Plan:
    """Choose estimator, number of batches and step size for a bulk with centre m and root L."""
    unit, bulk = 1.0, root
    d = len(centre)
    if scale is None:
        # Coordinates stay as they are, and steps are those that the narrowest direction needs
        largest = np.linalg.norm(np.linalg.pinv(root), 2) if root.ndim == 2 else 1 / root.min()
        unit, root = float(1 / largest), np.ones(len(centre))
    elif isinstance(scale, np.ndarray):
        root = scale
    elif not policy.isotropic:
        if root.ndim == 2:
            root = upright(root)
        elif not many:
            root = measured_diagonal(surface, centre, root, rng)
    _refuse_degenerate(root)
    bound = policy.noise_of_many if many and policy.noise_of_many else policy.noise
    gradient: GradientChoice = Plain()
    batches, variance, ratio = 1, np.zeros(d), 1.0
    turned = TurnedNoise.none(d)
    step_size = policy.step_size
    if surface.batch_size:
        report("noise of batches")
        root, noise, both = _noise(surface, centre, root, bulk, turn, policy, rng, many=many)
        if many and policy.noise_of_many and not (permutable or coupled or scale is None):
            coupled = noise_in_common(
                surface, centre, root, turn, noise.plain, bound, policy, sizes, rng
            )
        if many and (permutable or coupled):
            # A thermostat of each coordinate cannot undo noise that many share, as of products
            half = coupled and not permutable
            bound, shorter_by = shared_bound(policy, half=half, grows=grows)
            step_size *= shorter_by
        terms = Terms(
            bound=bound,
            anchored_bound=min(anchored_bound(policy), bound),
            most_of=partial(most_of_each, sizes=sizes) if many else np.max,
            most_of_all=partial(most_of_each, sizes=[]) if many else np.max,
            doubt=_DOUBT if many and (permutable or not (coupled or policy.compensates)) else 1.0,
            rate=step_size,
            unit=unit,
            ratios=partial(variance_ratios, surface, scheme),
            n_blocks=surface.n_blocks,
            most_batches=max(1, _LARGEST_UPDATE // d),
            remembered=remembered,
            compiled=compiled,
        )
        gradient, batches, variance, ratio = chosen_estimator(options, noise.at_least(met), terms)
        turned = both[not isinstance(gradient, Plain)]
        bound = terms.bound if isinstance(gradient, Plain) else terms.anchored_bound
        if many and scale is not None and not policy.per_coordinate:
            # Noise that the whole step allows costs a coordinate nothing
            free = FRICTION / (step_size * unit) ** 2 if policy.noise_of_many else 0.0
            root, turn, turned, variance = shorter(root, turn, turned, variance, free)
    h = np.full(d, step_size)
    if many and policy.noise_of_many:
        # A thermostat's friction is hσ²/2, and its error grows with the friction of a step
        h = np.minimum(h, np.sqrt(FRICTION / np.maximum(variance * unit**2, 1e-300)))
    if policy.widening is not None:
        h = np.minimum(h, policy.widening / np.maximum(variance * unit**2, 1e-300))
    if not policy.per_coordinate:
        h = np.full(d, h.min())
    h = h * unit**policy.power
    return Plan(
        centre=centre,
        root=None if scale is None else root,
        gradient=gradient,
        batches=batches,
        variance=variance,
        step_size=float(h.max()),
        relative=h / h.max(),
        unit=unit,
        many=many,
        endless=many and permutable,
        bound=bound,
        ratio=ratio,
        turn=turn,
        turned=turned,
        blocks=surface if isinstance(surface, InBlocks) else None,
    )


def _noise(
    surface: Surface,
    centre: np.ndarray,
    root: np.ndarray,
    bulk: np.ndarray,
    turn: Turn | None,
    policy: Policy,
    rng: np.random.Generator,
    *,
    many: bool,
) -> tuple[np.ndarray, GradientNoise, tuple[TurnedNoise, TurnedNoise]]:
    """Return L in the axes of the noise, the noise in them, and how a turn changes it."""
    noise = measured_noise(surface, centre, root, rng, bulk, rotated=policy.isotropic, many=many)
    turned = TurnedNoise.none(len(centre)), TurnedNoise.none(len(centre))
    if noise.rotation is not None:
        root = root @ noise.rotation
    if turn is not None:
        turned = turned_noise(surface, centre, root, turn, rng)
    return root, noise.turned(*turned), turned


def _refuse_degenerate(root: np.ndarray) -> None:
    """Raise TuningError if L is not invertible."""
    widths = root if root.ndim == 1 else np.sqrt(np.sum(root**2, axis=1))
    sound = bool(np.all((widths > 0) & np.isfinite(widths)))
    if sound and root.ndim == 2:
        sound = bool(np.linalg.cond(root / widths[:, None]) < _LARGEST_CONDITION)
    if not sound:
        raise TuningError(
            "the whitening found some direction without any width beside the others: a density "
            f"that is unbounded there, or an improper one. {NEARER}"
        )
