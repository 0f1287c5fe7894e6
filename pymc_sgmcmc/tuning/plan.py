"""Steps 2 to 5 of tuning: all that is decided before the chain runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from pymc_sgmcmc.gradients import SVRG, ControlVariates, Plain
from pymc_sgmcmc.tuning.conditional import Conditional
from pymc_sgmcmc.tuning.gradient_noise import GradientNoise, measured_noise
from pymc_sgmcmc.tuning.newton import newton
from pymc_sgmcmc.tuning.policy import Policy
from pymc_sgmcmc.tuning.surface import Surface
from pymc_sgmcmc.tuning.variational import diagonal_gaussian
from pymc_sgmcmc.tuning.whiten import bulk_of_full_data, bulk_of_minibatches, inverse_root, upright

__all__ = ["Plan", "Wishes", "find_bulk", "make_plan"]

LARGEST_DENSE = 512

# Times the least cost of an effective draw: less than to compile for another K
_LITTLE = 1.6

_LARGEST_NEWTON = 128

Estimator = Plain | ControlVariates | SVRG


@dataclass(frozen=True)
class Wishes:
    """What the user set by hand; "auto" elsewhere.

    Attributes
    ----------
    scale : str, ndarray or None
        "auto", "dense", "diagonal", None, or a scale for each element of φ.
    gradient : str or estimator
        "auto" or an estimator.
    batches : str or int
        "auto" or K.
    """

    scale: str | np.ndarray | None = "auto"
    gradient: str | Estimator = "auto"
    batches: str | int = "auto"


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
    """

    centre: np.ndarray
    root: np.ndarray | None
    gradient: Estimator
    batches: int
    variance: np.ndarray
    step_size: float
    relative: np.ndarray
    unit: float

    def phi(self, psi: np.ndarray) -> np.ndarray:
        """Return φ of whitened coordinates, shape (..., d)."""
        if self.root is None:
            return psi
        moved = psi * self.root if self.root.ndim == 1 else psi @ self.root.T
        return self.centre + moved


def make_plan(
    surface: Surface,
    centre: np.ndarray,
    root: np.ndarray,
    policy: Policy,
    wishes: Wishes,
    rng: np.random.Generator,
    report: Callable[[str], None],
    *,
    without_replacement: bool = True,
    remembered: bool = False,
    compiled: int | None = None,
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
    wishes : Wishes
        Of the user.
    rng : numpy.random.Generator
        The chain's.
    report : callable
        Is told the name of each step.
    without_replacement : bool
        Whether the batches that are averaged share no rows.
    remembered : bool
        Whether gradients at an anchor cost nothing.
    compiled : int, optional
        K of an earlier plan of this chain, kept where another would be little better.
    """
    unit, bulk = 1.0, root
    if wishes.scale is None:
        # Coordinates stay as they are, and steps are those that the narrowest direction needs
        largest = np.linalg.norm(np.linalg.pinv(root), 2) if root.ndim == 2 else 1 / root.min()
        unit, root = float(1 / largest), np.ones(len(centre))
    elif isinstance(wishes.scale, np.ndarray):
        root = wishes.scale
    elif root.ndim == 2 and not policy.isotropic:
        root = upright(root)
    d = len(centre)
    gradient: Estimator = Plain()
    batches, variance = 1, np.zeros(d)
    if surface.batch_size:
        report("gradient noise")
        noise = measured_noise(surface, centre, root, rng, bulk, rotated=policy.isotropic)
        if noise.rotation is not None:
            root = root @ noise.rotation
        gradient, batches, variance = _estimator(
            wishes,
            noise,
            policy,
            unit,
            surface.n_blocks,
            without_replacement,
            1 if remembered else 2,
            compiled,
        )
    h = np.full(d, policy.step_size)
    if policy.widening is not None:
        h = np.minimum(h, policy.widening / np.maximum(variance * unit**2, 1e-300))
    if not policy.adapted:
        h = np.full(d, h.min())
    h = h * unit**policy.power
    return Plan(
        centre=centre,
        root=None if wishes.scale is None else root,
        gradient=gradient,
        batches=batches,
        variance=variance,
        step_size=float(h.max()),
        relative=h / h.max(),
        unit=unit,
    )


def find_bulk(
    surface: Surface,
    start: np.ndarray,
    rescale: Callable[[np.ndarray], np.ndarray],
    scale: str | np.ndarray | None,
    rng: np.random.Generator,
    report: Callable[[str], None],
) -> tuple[np.ndarray, np.ndarray, bool]:
    """Find centre and whitening of the bulk.

    Parameters
    ----------
    surface : Surface
        The potential.
    start : ndarray
        φ, shape (d,).
    rescale : callable
        Maps positions (P, d) to the coordinates whose scales fit the first of them, in which
        the surface is from then on.
    scale : str, ndarray or None
        The user's wish.
    rng : numpy.random.Generator
        The chain's.
    report : callable
        Is told the name of each step.

    Returns
    -------
    centre : ndarray
        m, shape (d,).
    root : ndarray
        L, shape (d, d), or its diagonal, shape (d,).
    collapses : bool
        Whether the density was seen to rise from the bulk towards a funnel's neck.
    """
    d, batch_size = len(start), surface.batch_size
    collapses, dense = False, d <= LARGEST_DENSE
    report("rough centre")
    if d <= _LARGEST_NEWTON or (dense and not batch_size):
        rows = None
        count = max(8, -(-30 * d // batch_size)) if batch_size else 0
        if batch_size and count < surface.n_blocks:
            rows = surface.draw_rows(rng, count)
        free = surface.unbounded
        if 0 < free.sum() < d:
            # First all but scales: at a start far from the data they would fall to nothing
            along = Conditional(surface, start, free)
            start = along.whole(newton(along, start[free], rows, rough=True)[0][None])[0]
        centre, _, collapses = newton(surface, start, rows)
        centre, start = rescale(np.stack([centre, start]))
        _, hessian, _ = newton(surface, centre, rows, most_steps=0)
        root = inverse_root(hessian)
    else:
        centre, sd = _independent(surface, start, rescale, rng)
        if not dense:
            return centre, sd, collapses
        root = np.diag(sd)
    report("whitening")
    if batch_size:
        centre, root = bulk_of_minibatches(surface, centre, root, rng)
    else:
        centre, root, astray = bulk_of_full_data(surface, centre, root, rng)
        if astray:
            # Newton's way ended in a neck or at a saddle, whose curvature says nothing of widths
            report("rough centre")
            centre, sd = _independent(surface, start, rescale, rng)
            report("whitening")
            centre, root, _ = bulk_of_full_data(surface, centre, np.diag(sd), rng)
    if isinstance(scale, str) and scale == "diagonal":
        root = np.sqrt(np.sum(root**2, axis=1))
    return centre, root, collapses


def _independent(
    surface: Surface,
    start: np.ndarray,
    rescale: Callable[[np.ndarray], np.ndarray],
    rng: np.random.Generator,
) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and sds of a diagonal Gaussian, in coordinates of scales that fit its mean."""
    centre, sd = diagonal_gaussian(surface, start, rng)
    centre, above, below = rescale(np.stack([centre, centre + sd, centre - sd]))
    return centre, np.abs(above - below) / 2


def _estimator(
    wishes: Wishes,
    noise: GradientNoise,
    policy: Policy,
    unit: float,
    n_blocks: int,
    without_replacement: bool,
    anchored_cost: int,
    compiled: int | None,
) -> tuple[Estimator, int, np.ndarray]:
    """Return the estimator and the K for which an effective draw costs least.

    At the same cost, the quieter one.
    """
    wish = wishes.gradient
    # An anchor of SVRG is a draw itself: two independent distances in place of one
    choices: list[tuple[Estimator, np.ndarray, int]] = []
    if wish == "auto" or isinstance(wish, Plain):
        choices.append((Plain(), noise.plain, 1))
    if wish == "auto" or isinstance(wish, ControlVariates):
        choices.append((ControlVariates(), noise.controlled, anchored_cost))
    if isinstance(wish, SVRG):
        choices.append((wish, 2 * noise.controlled, anchored_cost))
    # Coarse, so that another centre and other chains mostly take the same compiled function
    counts = np.unique([*(c << k for k in range(30) for c in (2, 3) if c << k < n_blocks), 1])
    counts = np.union1d(counts, [max(1, n_blocks)])
    if isinstance(wishes.batches, int):
        counts = np.array([wishes.batches])
    # K blocks without common rows are quieter than K independent ones, all of them exact
    left = np.maximum(1 - counts / n_blocks, 0) / (1 - 1 / n_blocks) if n_blocks > 1 else 0.0
    factor = (left if without_replacement else 1.0) / counts
    best: tuple[tuple[float, float], Estimator, int, np.ndarray] | None = None
    for estimator, variance, gradients in choices:
        largest = variance.max() * unit**2 * factor
        slowest = np.minimum(1.0, policy.noise / np.maximum(largest, 1e-300))
        # Noise above the bound costs time, where it lowers the step size, and accuracy
        cost = gradients * counts / slowest**2
        k = int(np.argmin(cost))
        kept = np.flatnonzero((counts == compiled) & (cost < _LITTLE * cost[k]))
        k = int(kept[0]) if kept.size else k
        rank = float(cost[k]), float(largest[k])
        if best is None or rank < best[0]:
            best = rank, estimator, int(counts[k]), variance * factor[k]
    assert best is not None
    return best[1:]
