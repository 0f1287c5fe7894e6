"""Steps 4 and 5 of tuning: estimator, batches and step size, decided before the chain runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from pymc_sgmcmc.kernel.estimators import SVRG, GradientChoice, Plain
from pymc_sgmcmc.kernel.options import Options
from pymc_sgmcmc.kernel.policy import Policy
from pymc_sgmcmc.model.minibatch import BATCH_SCHEMES, BatchScheme
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

# Numbers in the gradients of an update: where there are more, too few updates are left for a chain
_LARGEST_UPDATE = 2**25

# Of thousands of coordinates the fit may be far narrower than the law, as along rotations of
# factors: away from the anchor its gradients then help less than they seem to. Without rotations
# that is noise alone, for which a method makes up that measures it where the chain passes
_DOUBT = 4.0

# Of L with rows of length 1: beyond it L cannot be inverted in double precision
_LARGEST_CONDITION = 1e15


@dataclass
class Plan:
    """What tuning decided before the chain runs.

    Attributes
    ----------
    centre : ndarray
        m, flat φ, shape (d,).
    root : ndarray or None
        L, shape (d, d), its diagonal, shape (d,), or None for coordinates left as they are.
    gradient : Plain, ControlVariates or SVRG
        The estimator.
    batches : int
        K.
    variance : ndarray
        Of the estimate in each whitened coordinate, shape (d,).
    step_size : float
        The largest of the coordinates' step sizes.
    relative : ndarray
        The coordinates' step sizes over the largest, shape (d,).
    unit : float
        Scale of the narrowest direction in the chain's coordinates, 1 where they are whitened.
    many : bool
        Whether only independent normals were fitted, as to thousands of parameters or to a net:
        not the worst of all coordinates is then judged, but a quantile.
    endless : bool
        Whether no thinning is enough for all coordinates, as where factors or units can be
        exchanged: the cost of a draw is then bounded, and trials judge the step alone.
    ratio : float
        Variance of the mean of K batches over that of one.
    turn : Turn or None
        The turn before a diagonal L is applied.
    turned : TurnedNoise or None
        What that makes of the variances of gradients.
    blocks : InBlocks or None
        The coordinates φ is in, where elements that share an index are whitened together.
    """

    centre: np.ndarray
    root: np.ndarray | None
    gradient: GradientChoice
    batches: int
    variance: np.ndarray
    step_size: float
    relative: np.ndarray
    unit: float
    many: bool
    endless: bool = False
    ratio: float = 1.0
    turn: Turn | None = None
    turned: TurnedNoise | None = None
    blocks: InBlocks | None = None

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

    def takes_all_rows(self, n_blocks: int) -> bool:
        """Whether the batches of an update are all rows, each once."""
        return self.batches >= n_blocks > 1 and self.ratio * n_blocks < 1

    def noise_on_the_way(self, surface: Surface, rng: np.random.Generator) -> NoiseOnTheWay | None:
        """Return what measures the noise where a chain of many parameters passes."""
        if not self.many or isinstance(self.gradient, SVRG):
            return None
        anchor = None if isinstance(self.gradient, Plain) else self.centre
        return NoiseOnTheWay(surface, anchor, rng)

    def heed(self, variance: np.ndarray, step_size: float, policy: Policy) -> None:
        """Take the variance of one batch's gradient with respect to φ, shape (d,), for known.

        Coordinates for which it is too large take shorter steps than with ``step_size``.
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
    remembered: bool = False,
    compiled: int | None = None,
    many: bool = False,
    permutable: bool = False,
    coupled: bool = False,
    grows: bool = False,
    met: float = 0.0,
    turn: Turn | None = None,
    sizes: Sequence[int] = (),
) -> Plan:
    """Choose estimator, number of batches and step size.

    Parameters
    ----------
    surface : Surface
        The potential.
    centre, root : ndarray
        m and L of the bulk; of L the diagonal where that is all.
    policy : Policy
        Of the algorithm.
    options : Options
        Of the user.
    scale : str, ndarray or None
        The user's, as a scale for each element of φ where it is one.
    rng : numpy.random.Generator
        The chain's.
    report : callable
        Is told the name of each step.
    scheme : BatchScheme
        By which batches are drawn.
    remembered : bool
        Whether gradients at an anchor are kept for blocks of the data, and cost nothing.
    compiled : int, optional
        K of an earlier plan of this chain, kept where another would be little better.
    many : bool
        Whether of the bulk only independent normals are known.
    permutable : bool
        Whether the posterior has modes by permutation, as of a factorisation.
    coupled : bool
        Whether noise is shared by many coordinates, as of a walk, or grows along them, as of rates.
    grows : bool
        Whether noise grows along some coordinates.
    met : float
        Least that the largest variance of one anchored batch is taken to be.
    turn : Turn, optional
        The turn before L is applied.
    sizes : sequence of int
        Elements of each variable, of whose noise each has to be low; none where all together are
        looked at.
    """
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
        report("gradient noise")
        root, noise, both = _noise(surface, centre, root, bulk, turn, policy, rng, many=many)
        if many and policy.noise_of_many and not (permutable or coupled or scale is None):
            coupled = noise_in_common(
                surface, centre, root, turn, noise.plain, bound, policy, sizes, rng
            )
        if many and (permutable or coupled):
            # Noise that many coordinates share, as of products, a thermostat of each cannot undo
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
        if many and scale is not None and not policy.per_coordinate:
            # What the whole step allows costs a coordinate nothing
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
    """Raise where whitened coordinates would not be coordinates."""
    widths = root if root.ndim == 1 else np.sqrt(np.sum(root**2, axis=1))
    sound = bool(np.all((widths > 0) & np.isfinite(widths)))
    if sound and root.ndim == 2:
        sound = bool(np.linalg.cond(root / widths[:, None]) < _LARGEST_CONDITION)
    if not sound:
        raise TuningError(
            "the whitening found some direction without any width beside the others: a density "
            f"that is unbounded there, or an improper one. {NEARER}"
        )
