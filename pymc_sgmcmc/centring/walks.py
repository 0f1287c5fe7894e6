r"""Random walks, standardised by prior and data together: all matrices are tridiagonal.

Given the innovations' N(μ, σ²) and the information J_t and score g_t of each value, a walk is
normal with a tridiagonal precision :math:`P = R^\top R`, where R is bidiagonal. With the same J
everywhere, q = Jσ² and κ = (q + 2 + √(q (q + 4))) / 2 its elements are

.. math:: R_{tt} = \sqrt\kappa / \sigma, \quad R_{t, t - 1} = -R_{tt} / \kappa,

the steady state of a Kalman filter [1]_. Where J differs from step to step, tuning finds R for one
σ by a recurrence, and replaces each J_t by the one with that steady state: R is then exact at that
σ, and nearly so at others. This removes the funnel and the ridge between σ and the walk, and the
coupling of neighbours, which makes thousands of values move far more slowly together than each of
them alone. All values are in units of the likelihood's sd where that is sampled: J is then the same
whatever it is, and g is over it.

.. [1] Durbin, Koopman (2012). Time Series Analysis by State Space Methods. Oxford, section 4.3.4.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor.tensor as pt

from pytensor.graph.basic import Variable

from pymc_sgmcmc.centring.gaussian_map import Affine, GaussianMap, Middle, Probe
from pymc_sgmcmc.centring.information import WalkInformation
from pymc_sgmcmc.centring.recurrence import Recurrence, earlier, later, solved
from pymc_sgmcmc.floats import as_float

# 1 stands for a walk that is centred
_LARGEST_SHARE = 0.999


class Walk(GaussianMap):
    """Map to a ``pm.GaussianRandomWalk`` and to other location-scale walks.

    Without information φ is the first value and the standardised innovations. ``unit`` is the sd of
    the normal likelihood, a graph of other variables, or 1.
    """

    kind = WalkInformation
    probe = Probe.COMMON
    shares_noise = True

    def __init__(self, unit: Any = 1.0) -> None:
        self._unit_of_values = as_float(unit)

    @property
    def is_centred(self) -> Any:
        """Mask of elements that are their own coordinates."""
        return pt.eq(self.information.share, 1)

    def parents(self, *inputs: Variable) -> list[Any]:
        """Return μ and σ of the innovations."""
        node: Any = inputs[1].owner
        # Steps are the first axis of PyMC's innovations, and the last one of several walks
        return [pt.moveaxis(as_float(x), 0, -1) for x in node.inputs[-2:]]

    def depends_on(self, *inputs: Variable) -> list[Any]:
        """Return μ, σ and the unit."""
        return [*self.parents(*inputs), self._unit_of_values]

    def spread(self, *inputs: Variable) -> Any:
        """Return σ of each step in units; before the first value it is the unit."""
        unit = self._unit_of_values
        return self._at_values(self.parents(*inputs)[1] / unit, unit)

    def location(self, *inputs: Variable) -> Any:
        """Return μ of each step in units, and 0 of the first value."""
        return self._at_values(self.parents(*inputs)[0] / self._unit_of_values, 0.0)

    def _at_values(self, of_steps: Any, first: Any) -> Any:
        """Return a quantity of steps, shaped as the values."""
        like = pt.zeros_like(self.information.share)
        return pt.concatenate([like[..., :1] + first, of_steps + like[..., 1:]], axis=-1)

    def prior(self, *inputs: Variable) -> Affine:
        """Return the walk from its distance to the trend μt, in units."""
        unit, location = self._unit_of_values, self.location(*inputs)
        trend = pt.cumsum(location, axis=-1)
        return Affine(
            lambda z: unit * (trend + z),
            lambda x: x / unit - trend,
            pt.sum(pt.log(unit) + pt.zeros_like(location), axis=-1),
        )

    def given_data(self, *inputs: Variable) -> Affine:
        """Return the distance to the trend, given the data."""
        known = self.information
        trend = pt.cumsum(self.location(*inputs), axis=-1)
        diagonal, kept = _root(known.precision, self.spread(*inputs), pt)
        of_data = known.score / self._unit_of_values - known.of_values * trend
        shift = Recurrence(ahead=False)(of_data, kept) / diagonal
        return Affine(
            lambda phi: Recurrence(ahead=True)((phi + shift) / diagonal, kept),
            lambda z: diagonal * (z - kept * later(z)) - shift,
            -pt.sum(pt.log(diagonal), axis=-1),
        )

    # ------------------------------------------------------------------ what tuning learns

    def shift(self, middle: Middle) -> np.ndarray:
        """Return by how much φ moves where all values of the walk move by 1.

        The prior changes only by the first value, so that the change shows the likelihood.
        """
        diagonal, kept = _root(self.information.precision, middle.spread, np)
        return diagonal * (1 - kept)

    def from_shift(self, gradient: np.ndarray, change: np.ndarray, middle: Middle) -> np.ndarray:
        """Return the information of walks of which none is centred."""
        known, location, spread = self.information, middle.location, middle.spread
        diagonal, kept = _root(known.precision, spread, np)
        trend, unit = np.cumsum(location, axis=-1), spread[..., :1]
        shift = solved(known.score / unit - known.of_values * trend, kept, ahead=False) / diagonal
        theta = trend + solved((middle.phi + shift) / diagonal, kept, ahead=True)

        def of_values(g: np.ndarray) -> np.ndarray:
            """Return Rᵀg: the gradient with respect to θ."""
            own = diagonal * g
            return own - earlier(kept * own, np)

        information = np.maximum(of_values(change), 0)
        steps = (theta - later(theta, np) - location) / spread**2
        steps[..., 0] = 0
        of_prior = steps - earlier(steps, np)
        score = information * theta - (of_values(gradient) - of_prior)
        # Half the prior's precision of a value given its neighbours
        ratio = information * spread**2 / 2
        share = np.minimum(ratio / (1 + ratio), _LARGEST_SHARE)
        return np.stack([share, steady(information, spread), unit * score, information])


def _root(information: Any, spread: Any, lib: Any) -> tuple[Any, Any]:
    """Return the diagonal of R and the factors −R_{t, t − 1} / R_tt, 0 of the first value."""
    q = information[..., 1:] * spread[..., 1:] ** 2
    # Written so that it can be differentiated with respect to σ where I is 0
    root = lib.sqrt(information[..., 1:]) * spread[..., 1:] * lib.sqrt(q + 4)
    inner = (q[..., :-1] + 2 + root[..., :-1]) / 2
    ratio = lib.concatenate([inner, 1 + q[..., -1:]], axis=-1)
    first = information[..., :1] + (1 - 1 / ratio[..., :1]) / spread[..., 1:2] ** 2
    first = lib.where(first > 0, first, 1.0)
    diagonal = lib.concatenate([lib.sqrt(first), lib.sqrt(ratio) / spread[..., 1:]], axis=-1)
    kept = lib.concatenate([0 * first, 1 / ratio], axis=-1)
    return diagonal, kept


def steady(information: np.ndarray, spread: np.ndarray) -> np.ndarray:
    """Return the J of steady states that have this R at this σ."""
    precision = spread[..., 1:] ** -2.0
    of_steady = information.copy()
    # R_{tt}² from the last value backwards
    square = information[..., -1] + precision[..., -1]
    for t in range(information.shape[-1] - 2, 0, -1):
        after = precision[..., t]
        square = information[..., t] + precision[..., t - 1] + after - after**2 / square
        ratio = square / precision[..., t - 1]
        # q of which κ is this ratio
        of_steady[..., t] = np.maximum(ratio + 1 / ratio - 2, 0) * precision[..., t - 1]
        of_steady[..., t] = np.where(ratio > 1, of_steady[..., t], 0)
    return of_steady
