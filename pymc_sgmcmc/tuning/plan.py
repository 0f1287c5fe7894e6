"""Steps 2 to 6 of tuning: all that is decided before the chain runs."""

from __future__ import annotations

import math

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from pymc_sgmcmc.gradients import SVRG, ControlVariates, Plain
from pymc_sgmcmc.tuning.gradient_noise import measured_noise
from pymc_sgmcmc.tuning.newton import newton
from pymc_sgmcmc.tuning.policy import Policy
from pymc_sgmcmc.tuning.surface import Surface
from pymc_sgmcmc.tuning.variational import diagonal_gaussian
from pymc_sgmcmc.tuning.whiten import bulk_of_full_data, bulk_of_minibatches, inverse_root

__all__ = ["Plan", "Wishes", "make_plan"]

LARGEST_DENSE = 512
_LARGEST_NEWTON = 128
_MOST_ROWS = 20_000

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
    warnings : list of str
        What looked wrong.
    """

    centre: np.ndarray
    root: np.ndarray | None
    gradient: Estimator
    batches: int
    variance: np.ndarray
    step_size: float
    relative: np.ndarray
    unit: float
    warnings: list[str]


def make_plan(
    surface: Surface,
    start: np.ndarray,
    rescale: Callable[[np.ndarray], np.ndarray],
    policy: Policy,
    wishes: Wishes,
    rng: np.random.Generator,
    report: Callable[[str], None],
) -> Plan:
    """Find centre, whitening, estimator, number of batches and step size.

    Parameters
    ----------
    surface : Surface
        The potential.
    start : ndarray
        φ, shape (d,).
    rescale : callable
        Maps positions (P, d) to the coordinates whose scales fit the first of them, in which
        the surface is from then on.
    policy : Policy
        Of the algorithm.
    wishes : Wishes
        Of the user.
    rng : numpy.random.Generator
        The chain's.
    report : callable
        Is told the name of each step.
    """
    warnings: list[str] = []
    batch_size = surface.batch_size
    centre, root = _bulk(surface, start, rescale, wishes.scale, rng, report, warnings)
    unit = 1.0
    if wishes.scale is None:
        # Coordinates stay as they are, and steps are those that the narrowest direction needs
        largest = np.linalg.norm(np.linalg.pinv(root), 2) if root.ndim == 2 else 1 / root.min()
        unit, root = float(1 / largest), np.ones(len(centre))
    elif isinstance(wishes.scale, np.ndarray):
        root = wishes.scale
    d = len(centre)
    gradient: Estimator = Plain()
    batches, variance = 1, np.zeros(d)
    if batch_size:
        report("gradient noise")
        noise = measured_noise(surface, centre, root, rng)
        if noise.rotation is not None:
            root = root @ noise.rotation
        gradient, variance = _estimator(wishes.gradient, noise.plain, noise.controlled)
        batches = wishes.batches if isinstance(wishes.batches, int) else _enough(
            variance.max() * unit**2 / policy.noise, surface.n_blocks, batch_size
        )  # fmt: skip
        variance = variance / batches
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
        warnings=warnings,
    )


def _bulk(
    surface: Surface,
    start: np.ndarray,
    rescale: Callable[[np.ndarray], np.ndarray],
    scale: str | np.ndarray | None,
    rng: np.random.Generator,
    report: Callable[[str], None],
    warnings: list[str],
) -> tuple[np.ndarray, np.ndarray]:
    """Centre and whitening of the bulk, the latter a matrix or a diagonal."""
    d, batch_size = len(start), surface.batch_size
    dense = d <= LARGEST_DENSE
    report("rough centre")
    if d <= _LARGEST_NEWTON or (dense and not batch_size):
        rows = None
        count = max(8, -(-30 * d // batch_size)) if batch_size else 0
        if batch_size and count < surface.n_blocks:
            rows = surface.draw_rows(rng, count)
        centre, _ = newton(surface, start, rows)
        centre = rescale(centre[None])[0]
        _, hessian = newton(surface, centre, rows, most_steps=0)
        root = inverse_root(hessian)
    else:
        centre, sd, last = diagonal_gaussian(surface, start, rng)
        if last > 1:
            warnings.append(
                "the search for a centre did not settle (last step "
                f"{last:.1f} squared sds): the posterior may have no centre, as centred "
                "hierarchies and funnels have none. Write them non-centred, or use NUTS"
            )
        centre, above, below = rescale(np.stack([centre, centre + sd, centre - sd]))
        root = np.abs(above - below) / 2
        if not dense:
            return centre, root
        root = np.diag(root)
    report("whitening")
    if batch_size:
        centre, root = bulk_of_minibatches(surface, centre, root, rng)
    else:
        centre, root = bulk_of_full_data(surface, centre, root, rng)
    if isinstance(scale, str) and scale == "diagonal":
        root = np.sqrt(np.sum(root**2, axis=1))
    return centre, root


def _estimator(
    wish: str | Estimator, plain: np.ndarray, controlled: np.ndarray
) -> tuple[Estimator, np.ndarray]:
    if isinstance(wish, Plain):
        return wish, plain
    if isinstance(wish, ControlVariates):
        return wish, controlled
    if isinstance(wish, SVRG):
        # The anchor is a draw itself: two independent distances in place of one
        return wish, 2 * controlled
    if controlled.max() < plain.max() / 2:
        return ControlVariates(), controlled
    return Plain(), plain


def _enough(ratio: float, n_blocks: int, batch_size: int) -> int:
    """K batches for a variance that is ``ratio`` times too large."""
    most = max(1, min(n_blocks // 4, _MOST_ROWS // batch_size))
    return int(min(max(1, math.ceil(ratio)), most)) if math.isfinite(ratio) else most
