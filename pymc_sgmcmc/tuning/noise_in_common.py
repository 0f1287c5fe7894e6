r"""Whether gradient noise is of a kind that a thermostat of each coordinate cannot undo.

Each thermostat measures its own coordinate's noise, on average. With friction ξ a share r = hσ²/2ξ
of what balances it is noise, and the covariance of normal coordinates is wrong by

.. math:: \sqrt{r_i r_j} \,\mathrm{corr}(\text{noise}_i, \text{noise}_j), \quad i \neq j.

Variances of single coordinates stay right if the posterior has no correlations. The error shows in
a variable of few elements that is a sum of coordinates, such as a mean; in a scale of all
coordinates, which batches move in few directions, their own; where noise grows along a coordinate,
as towards small scales; and where it is strongest along directions in which the posterior is
narrow.
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

# Most elements of variables checked one by one, and least of those checked together
_SMALL, _LARGE = 16, 100

# Batches that measure covariances, responses and slopes
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
    """Return whether some variable would be wrong with as much noise as thermostats absorb.

    ``variance`` is one batch's in each coordinate, shape (d,), ``bound`` the least for which
    batches are averaged, and ``sizes`` are the variables'. The generator's own draws stay the same.
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
    """Return the errors of small variables' variances, relative to these."""
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
    """Return small variables' noise where batches have moved all others, relative to their own.

    A share r of the chain's variance is along the noise of the data's batches, and a batch's
    gradient change along its own noise recurs as often as the batch.
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
    # Changes of other batches' gradients are the change of the mean, and noise
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
    """Return changes of temperatures over an sd of large variables' coordinates."""
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
