r"""Whether gradient noise is of a kind that a thermostat of each coordinate cannot undo.

Each thermostat sees its own coordinate's noise, on average. With friction ξ a share
r = hσ²/2ξ of what balances it is noise, and the covariance of normal coordinates is wrong by

.. math:: \sqrt{r_i r_j} \,\mathrm{corr}(\text{noise}_i, \text{noise}_j), \quad i \neq j.

Variances of single coordinates are right all the same, where the posterior has no correlations.
The error shows in four places: in a variable of few elements, as a mean, that is a sum of
coordinates; in a scale that depends on all coordinates, which batches have moved in few directions,
their own; where noise grows along a coordinate, as it does towards small scales; and where it is
strongest along directions in which the posterior is narrow.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pymc_sgmcmc.kernel.policy import Policy
from pymc_sgmcmc.tuning.bounds import FRICTION
from pymc_sgmcmc.tuning.chain_gradients import LARGEST, ChainGradients, ranges_of
from pymc_sgmcmc.tuning.noise_along_curvature import misfits
from pymc_sgmcmc.tuning.noise_of_few import most_of_each
from pymc_sgmcmc.tuning.surface import Surface
from pymc_sgmcmc.tuning.turn import Turn

__all__ = ["noise_in_common"]

# Variables of so many elements at most are looked at one by one, those of so many at least together
_SMALL, _LARGE = 16, 100

# Batches of which covariances, responses and slopes are found
_BATCHES, _RESPONSES, _EACH = 256, 16, 64
_PATTERNS = 2

# Move along a batch's gradient, in sds of the coordinates
_MOVE = 0.1

# Most by which a small variable's variance may be wrong, most heat in units of a scale's own noise,
# and the largest slope of a temperature over an sd
_WRONG, _HEATED, _STEEPEST = 0.2, 1.0, 0.2


def noise_in_common(
    surface: Surface,
    centre: np.ndarray,
    root: np.ndarray,
    turn: Turn | None,
    variance: np.ndarray,
    bound: float,
    policy: Policy,
    sizes: Sequence[int],
    rng: np.random.Generator,
) -> bool:
    """Return whether some variable would be wrong with as much noise as thermostats take up.

    Parameters
    ----------
    surface : Surface
        The potential.
    centre, root : ndarray
        m and the diagonal of L, shape (d,).
    turn : Turn or None
        The turn before L is applied.
    variance : ndarray
        Of one batch's gradient in each coordinate, shape (d,).
    bound : float
        Least variance for which batches would be averaged.
    policy : Policy
        Of the algorithm.
    sizes : sequence of int
        Elements of each variable.
    rng : numpy.random.Generator
        The chain's; its numbers stay what they are.
    """
    [rng] = rng.spawn(1)
    seen = ChainGradients(surface, centre, root, turn)
    batches = max(1.0, most_of_each(variance, sizes) / bound)
    averaged = np.minimum(variance / batches, bound)
    h = min(policy.step_size, (FRICTION / max(averaged.max(), 1e-300)) ** 0.5)
    share = h * averaged / (2 + h * averaged)
    few = np.concatenate(
        [np.arange(a, b) for a, b in ranges_of(sizes) if b - a <= _SMALL] or [np.zeros(0, int)]
    )
    large = [(a, b) for a, b in ranges_of(sizes) if b - a >= _LARGE]
    return (
        bool(turn is not None and np.any(_wrong(seen, rng, variance, share, few) > _WRONG))
        or bool(np.any(_heat(seen, rng, variance, share, batches, few) * share[few] > _HEATED))
        or bool(np.any(_slopes(seen, rng, share, large) > _STEEPEST))
        or misfits(seen, rng, variance, share, large, few)
    )


def _wrong(
    seen: ChainGradients,
    rng: np.random.Generator,
    variance: np.ndarray,
    share: np.ndarray,
    few: np.ndarray,
) -> np.ndarray:
    """Return by how much the variances of small variables would be wrong."""
    noise = seen.gradients(np.zeros(len(variance)), seen.surface.draw_rows(rng, _BATCHES))
    weight = np.sqrt(np.divide(share, variance, out=np.zeros_like(share), where=variance > 0))
    found = []
    for k in few:
        one = np.zeros((1, noise.shape[1]))
        one[0, k] = 1
        parts = seen.pulled(one)[0]
        together = np.var(noise @ (parts * weight), ddof=1)
        found.append(abs(together - parts**2 @ share) / (parts @ parts))
    return np.array(found)


def _heat(
    seen: ChainGradients,
    rng: np.random.Generator,
    variance: np.ndarray,
    share: np.ndarray,
    batches: float,
    few: np.ndarray,
) -> np.ndarray:
    """Return the noise that small variables have where batches have moved all others.

    A chain has a share r of its variance along the noise of batches, of which there are as many as
    the data have. What a batch's gradient changes along its own noise comes back as often.
    """
    surface, d = seen.surface, len(variance)
    rows = surface.draw_rows(rng, _RESPONSES)
    at_centre = seen.gradients(np.zeros(d), rows)
    away = at_centre - at_centre.mean(axis=0)
    scale = np.sqrt(np.divide(share, variance, out=np.zeros_like(share), where=variance > 0))
    moved = _MOVE * away * scale
    own = (seen.gradients(moved, rows) - at_centre)[:, few]
    others = np.roll(rows, 1, axis=0)
    control = (seen.gradients(moved, others) - np.roll(at_centre, 1, axis=0))[:, few]
    # What other batches' gradients change by is the change of the mean, and noise
    change = np.mean(own * (own - control), axis=0) / _MOVE**2
    own_noise = np.maximum(variance[few], 1e-300)
    found: np.ndarray = change * batches / surface.n_blocks / own_noise
    return np.where(np.isfinite(found), found, 0.0)


def _slopes(
    seen: ChainGradients,
    rng: np.random.Generator,
    share: np.ndarray,
    large: Sequence[tuple[int, int]],
) -> np.ndarray:
    """Return by how much temperatures change over an sd of large variables' coordinates."""
    d, surface = len(share), seen.surface
    each = int(np.clip(LARGEST // d, _RESPONSES, _EACH))
    rise, total = np.zeros(d), np.zeros(d)
    for _ in range(_PATTERNS):
        signs, rows = rng.choice([-1.0, 1.0], size=d), surface.draw_rows(rng, each)
        for side in (1.0, -1.0):
            variance = seen.gradients(side * signs, rows).var(axis=0)
            rise += side * signs * variance
            total += variance
    found = [
        share[a:b].mean() * np.arctanh(np.clip(rise[a:b].sum() / total[a:b].sum(), -0.99, 0.99))
        for a, b in large
        if total[a:b].sum() > 0
    ]
    return np.abs(np.nan_to_num(np.array(found)))
