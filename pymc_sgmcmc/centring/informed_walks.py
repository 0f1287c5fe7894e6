r"""Long random walks, standardised by prior and data together.

Approximate the likelihood of each value θ_t of a walk with innovations N(μ, σ²) by a normal one
with information I_t and score h_t at 0. Given μ and σ the walk is then normal with a tridiagonal
precision P, and φ is the walk standardised by it: θ = m + R⁻¹φ, where R is bidiagonal and P = RᵀR.
With the same I everywhere, q = Iσ² and κ = (q + 2 + √(q (q + 4))) / 2 its elements are

.. math:: R_{tt} = \sqrt\kappa / \sigma, \quad R_{t, t - 1} = -R_{tt} / \kappa,

the steady state of a Kalman filter [1]_. Where I differs from step to step, tuning finds R for one
σ by a recurrence, and replaces each I_t by the one with that steady state: R is then exact at that
σ, and nearly so at others. This removes the funnel and the ridge between σ and the walk, and the
coupling of neighbours, which makes thousands of values move far more slowly together than each of
them alone. The recurrences of the map itself are log₂ T products.

.. [1] Durbin, Koopman (2012). Time Series Analysis by State Space Methods. Oxford, section 4.3.4.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pytensor.tensor as pt

from pytensor.compile.builders import OpFromGraph
from pytensor.graph.basic import Variable
from pytensor.tensor.variable import TensorVariable

from pymc_sgmcmc.centring.weighted import Weighted

__all__ = ["InformedWalk"]

# 1 stands for a walk that is centred
_LARGEST_SHARE = 0.999


class InformedWalk(Weighted):
    """Map to a long ``pm.GaussianRandomWalk`` and to other location-scale walks.

    The weight is λ, the I of a steady state, h and I along the first dimension. A walk with λ = 1
    is centred, φ = θ; without information φ is its first value and its standardised innovations.
    """

    name: ClassVar[str] = "informed_walk"
    as_written: ClassVar[float] = 1.0
    numbers: ClassVar[tuple[int, ...]] = (4,)
    refines: ClassVar[bool] = True
    by_shift: ClassVar[bool] = True
    shares_noise: ClassVar[bool] = True
    ndim_supp = 1

    def __init__(self, weight: Any = None) -> None:
        self.weight = weight

    # ------------------------------------------------------------------ the map

    def backward(self, value: Any, *inputs: Variable) -> TensorVariable:
        """Map coordinates to the walk."""
        trend, diagonal, kept, shift = self._parts(value, *inputs)
        walk = trend + _forwards((value + shift) / diagonal, kept)
        theta: TensorVariable = pt.switch(self.is_centred, value, walk)
        return theta

    def forward(self, value: Any, *inputs: Variable) -> TensorVariable:
        """Map the walk to its coordinates."""
        trend, diagonal, kept, shift = self._parts(value, *inputs)
        x = value - trend
        phi = diagonal * (x - kept * _later(x, 1)) - shift
        found: TensorVariable = pt.switch(self.is_centred, value, phi)
        return found

    def log_jac_det(self, value: Any, *inputs: Variable) -> TensorVariable:
        """Return −log det R of each walk that is not centred."""
        diagonal = self._parts(value, *inputs)[1]
        logs = pt.sum(pt.log(diagonal) + pt.zeros_like(value), axis=-1)
        slope: TensorVariable = pt.switch(self.is_centred[..., 0], pt.zeros_like(logs), -logs)
        return slope

    @property
    def is_centred(self) -> TensorVariable:
        """Mask of elements that are their own coordinates."""
        found: TensorVariable = pt.eq(self.weight[0], 1)
        return found

    def parents(self, *inputs: Variable) -> list[TensorVariable]:
        """Return μ and σ of the innovations."""
        innovations: Any = inputs[1].owner
        return [pt.as_tensor(x) for x in innovations.inputs[-2:]]

    def spread(self, *inputs: Variable) -> TensorVariable:
        """Return σ of each step; before the first value it is 1."""
        return self._at_values(self.parents(*inputs)[1], 1.0)

    def location(self, *inputs: Variable) -> TensorVariable:
        """Return μ of each step, and 0 of the first value."""
        return self._at_values(self.parents(*inputs)[0], 0.0)

    def _at_values(self, of_steps: TensorVariable, first: float) -> TensorVariable:
        """Return a quantity of steps, shaped as the values."""
        like = pt.zeros_like(self.weight[0])
        steps = of_steps + like[..., 1:]
        found: TensorVariable = pt.concatenate([like[..., :1] + first, steps], axis=-1)
        return found

    def _parts(self, value: Any, *inputs: Variable) -> tuple[Any, Any, Any, Any]:
        """Return μt, the diagonal of R, the factors −R_{t, t − 1} / R_tt, and the shift of φ."""
        steady, score, information = self.weight[1], self.weight[2], self.weight[3]
        trend = pt.cumsum(self.location(*inputs), axis=-1)
        diagonal, kept = _factor(steady, self.spread(*inputs), pt)
        said = _backwards(score - information * trend, kept)
        return trend, diagonal, kept, said / diagonal

    # ------------------------------------------------------------------ the choice

    def shift(self, location: np.ndarray, spread: np.ndarray) -> np.ndarray:
        """Return by how much φ moves where all values of the walk move by 1.

        The prior changes only by the first value, so that the change shows the likelihood.
        """
        diagonal, kept = _factor(np.asarray(self.weight[1], dtype=float), spread, np)
        return diagonal * (1 - kept)

    def told(
        self,
        phi: np.ndarray,
        gradient: np.ndarray,
        change: np.ndarray,
        location: np.ndarray,
        spread: np.ndarray,
    ) -> np.ndarray:
        """Return weights from the gradient of U along φ and its change where all values move by 1.

        None of the walks is centred; φ, μ and σ are in the middle of the bulk.
        """
        _, steady, score, old = np.asarray(self.weight, dtype=float)
        diagonal, kept = _factor(steady, spread, np)
        trend = np.cumsum(location, axis=-1)
        shift = _backwards(score - old * trend, kept, np) / diagonal
        theta = trend + _forwards((phi + shift) / diagonal, kept, np)

        def of_values(g: np.ndarray) -> np.ndarray:
            """Return Rᵀg: the gradient with respect to θ."""
            own = diagonal * g
            found: np.ndarray = own - _earlier(kept * own, 1, np)
            return found

        information = np.maximum(of_values(change), 0)
        innovations = (theta - _later(theta, 1, np) - location) / spread**2
        innovations[..., 0] = 0
        prior = innovations - _earlier(innovations, 1, np)
        new = information * theta - (of_values(gradient) - prior)
        # Half the prior's precision of a value given its neighbours
        said = information * spread**2 / 2
        share = np.minimum(said / (1 + said), _LARGEST_SHARE)
        return np.stack([share, _steady(information, spread), new, information])


def _factor(information: Any, spread: Any, lib: Any) -> tuple[Any, Any]:
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


def _steady(information: np.ndarray, spread: np.ndarray) -> np.ndarray:
    """Return the I of steady states that have this R at this σ."""
    precision = spread[..., 1:] ** -2.0
    found = information.copy()
    # R_{tt}² from the last value backwards
    square = information[..., -1] + precision[..., -1]
    for t in range(information.shape[-1] - 2, 0, -1):
        after = precision[..., t]
        square = information[..., t] + precision[..., t - 1] + after - after**2 / square
        ratio = square / precision[..., t - 1]
        # q of which κ is this ratio
        found[..., t] = np.maximum(ratio + 1 / ratio - 2, 0) * precision[..., t - 1]
        found[..., t] = np.where(ratio > 1, found[..., t], 0)
    return found


def _later(x: Any, by: int, lib: Any = pt) -> Any:
    """Move elements to later places, with zeros before them."""
    return lib.concatenate([lib.zeros_like(x[..., :by]), x[..., :-by]], axis=-1)


def _earlier(x: Any, by: int, lib: Any = pt) -> Any:
    return lib.concatenate([x[..., by:], lib.zeros_like(x[..., :by])], axis=-1)


def _forwards(x: Any, kept: Any, lib: Any = pt) -> Any:
    """Return y with y_t = x_t + r_t y_{t − 1}, of which r_0 is 0."""
    return _recurrence(x, kept, lib, ahead=True)


def _backwards(x: Any, kept: Any, lib: Any = pt) -> Any:
    """Return z with z_t = x_t + r_{t + 1} z_{t + 1}, the transpose."""
    return _recurrence(x, kept, lib, ahead=False)


def _recurrence(x: Any, kept: Any, lib: Any, *, ahead: bool) -> Any:
    if lib is np:
        return _doubled(x, kept, np, ahead=ahead)
    inner = [x.type(), kept.type()]

    def pull_back(inputs: list[Any], outputs: list[Any], cotangents: list[Any]) -> list[Any]:
        # That of all the products would be several times as long
        _, kept = inputs
        [y], [g] = outputs, cotangents
        moved = _recurrence(g, kept, pt, ahead=not ahead)
        return [moved, moved * _later(y, 1) if ahead else _later(moved, 1) * y]

    op = OpFromGraph(
        inner, [_doubled(inner[0], inner[1], pt, ahead=ahead)], inline=True, pullback=pull_back
    )
    return op(x, kept)


def _doubled(x: Any, kept: Any, lib: Any, *, ahead: bool) -> Any:
    """Return the recurrence as a product of I + (rN)ᵏ, k = 1, 2, 4, ..., N a move by one place."""
    length = x.shape[-1] if lib is np else int(x.type.shape[-1])
    by = 1
    while by < length:
        x = x + (kept * _later(x, by, lib) if ahead else _earlier(kept * x, by, lib))
        kept = kept * _later(kept, by, lib)
        by *= 2
    return x
