r"""Effects of the areas of a map, standardised by prior and data together.

Let the effects be θ = μ + sz, where z has the precision Q(α) = A − αW of a conditional
autoregression. The data depend on l + cz; approximate the likelihood of each of its elements by a
normal one with information J and score g at 0. Then z is normal, with precision
:math:`Q(\alpha) + c^2 J` and linear term :math:`c (g - J l)`.

Tuning finds a basis B in which, at one α, Q and J are both diagonal. There the precision is
:math:`p = u - (\alpha - \alpha_0) v + c^2 d`, exact at that α and nearly so at others, and

.. math:: z = B \bigl(p^{-1} c\,B^\top (g - J l) + p^{-1/2} \varphi\bigr).

This removes the funnel and the ridge between c and z, and the coupling of neighbours, which makes
whole regions move far more slowly together than each area alone. It costs a product with a matrix.

With normal effects of the same areas with an sd of τ beside the field, as in the model of Besag,
York and Mollié, the data determine the sum, and the field's part of their information D is
J = D / (1 + τ²D). So d and the linear term change with τ, by
:math:`(1 + \tau_0^2 t) / (1 + \tau^2 t)`, where t is the mean D that belongs to d.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import pytensor.tensor as pt

from pytensor.graph.basic import Variable
from pytensor.tensor.variable import TensorVariable

from pymc_sgmcmc.centring.weighted import Weighted

__all__ = ["FieldPrior", "InformedField"]

# Added to a precision besides its mean, as islands have none of their own
_LEAST = 1e-8

# Information, beside the prior's precision, of data that determine a field at any scale
_LEADS = 1e4

# Share of its limit 1 / τ² at which information beside other effects counts as infinite
_MOST_LEFT = 0.999

# Of a place where nothing is known yet
_SHARE_AT_FIRST = 0.5

# Rows of the weight before those of the basis
_ROWS = 12


@dataclass(frozen=True, eq=False)
class FieldPrior:
    """The prior of a field θ = μ + sz, where z has the precision A − αW."""

    base: np.ndarray  # A, shape (n, n)
    neighbours: np.ndarray  # W, shape (n, n)
    common: float  # further precision of the sum of all θ
    location: TensorVariable  # μ
    scale: TensorVariable  # s
    share: TensorVariable  # α
    has_location: bool  # whether μ may be other than 0

    def precision(self, share: float, scale: float) -> np.ndarray:
        """Return Q of z."""
        return self.base - share * self.neighbours + self.common * scale**2


class InformedField(Weighted):
    """Map to effects of areas, ``pm.ICAR`` and ``pm.CAR``, which a model multiplies by ``factor``.

    The weight is λ, J, Bᵀg, d, u, v and t, then c, α, s and τ at the place of the basis,
    log|det B| / n, and B, along the first dimension. ``beside`` is τ, sds of normal effects added.
    """

    name: ClassVar[str] = "informed_field"
    as_written: ClassVar[float] = 0.0
    refines: ClassVar[bool] = True
    by_shift: ClassVar[bool] = True
    shares_noise: ClassVar[bool] = True
    ndim_supp = 1

    def __init__(
        self, prior: FieldPrior, factor: TensorVariable, weight: Any = None, beside: Any = 0.0
    ) -> None:
        self.prior = prior
        self.factor = factor
        self.weight = weight
        self.beside = pt.as_tensor(beside)

    def with_beside(self, beside: TensorVariable) -> InformedField:
        """Return the same map for a field beside normal effects of these sds."""
        return InformedField(self.prior, self.factor, self.weight, beside)

    @property
    def numbers(self) -> tuple[int, ...]:  # type: ignore[override]
        """The number of rows of the weight."""
        return (_ROWS + len(self.prior.base),)

    def uniform(self, weight: float, shape: tuple[int, ...]) -> np.ndarray:
        """Return the weight for uninformative data, or for data that determine the field."""
        found = self._of_prior.copy()
        found[0] = weight
        found[1] = found[3] = weight * _LEADS
        return found

    @cached_property
    def _of_prior(self) -> np.ndarray:
        nothing = np.zeros(len(self.prior.base))
        return self._weight(nothing, nothing, 0.0, _SHARE_AT_FIRST, 1.0, 0.0)

    # ------------------------------------------------------------------ the map

    def backward(self, value: Any, *inputs: Variable) -> TensorVariable:
        """Map coordinates to the field."""
        precision, mean = self._conditional()
        z = pt.dot(self.weight[_ROWS:], mean + value * precision**-0.5)
        theta: TensorVariable = self.prior.location + self.prior.scale * z
        return theta

    def forward(self, value: Any, *inputs: Variable) -> TensorVariable:
        """Map the field to its coordinates."""
        precision, mean = self._conditional()
        z = (value - self.prior.location) / self.prior.scale
        phi: TensorVariable = (pt.dot(self._weighed(z), self.weight[_ROWS:]) - mean) * pt.sqrt(
            precision
        )
        return phi

    def log_jac_det(self, value: Any, *inputs: Variable) -> TensorVariable:
        """Return log|det dθ/dφ|."""
        precision, _ = self._conditional()
        slope: TensorVariable = (
            pt.sum(self.weight[11])
            + len(self.prior.base) * pt.log(self.prior.scale)
            - pt.sum(pt.log(precision)) / 2
        )
        return slope

    def parents(self, *inputs: Variable) -> list[TensorVariable]:
        """Return μ, s, α, the model's factor on the field, and τ."""
        prior = self.prior
        return [prior.location, prior.scale, prior.share, self.factor, self.beside]

    def spread(self, *inputs: Variable) -> TensorVariable:
        """Return c."""
        found: TensorVariable = self.factor * self.prior.scale
        return found

    def location(self, *inputs: Variable) -> TensorVariable:
        """Return l, α, s and τ."""
        like = pt.zeros_like(self.weight[0])
        prior = self.prior
        rows = [self.factor * prior.location, prior.share, prior.scale, self.beside]
        found: TensorVariable = pt.stack([row + like for row in rows])
        return found

    def _conditional(self) -> tuple[TensorVariable, TensorVariable]:
        """Return precision and mean of z in the basis."""
        weight, c = self.weight, self.spread()
        left = _left(weight, self.beside)
        precision = _precision(weight, self.prior.share, c, left)
        score = weight[2]
        if self.prior.has_location:
            score = score - pt.dot(weight[1] * self.factor * self.prior.location, weight[_ROWS:])
        return precision, c * left * score / precision

    def _weighed(self, z: Any) -> TensorVariable:
        """Return Q + c²J at the place of the basis, times z: B⁻¹ is Bᵀ of that."""
        prior, (c, share, scale) = self.prior, self.weight[7:10, 0]
        base, neighbours = (pt.constant(x.astype(z.dtype)) for x in (prior.base, prior.neighbours))
        own = c**2 * self.weight[1] + _LEAST * np.diag(prior.base).mean()
        found: TensorVariable = (
            pt.dot(base - share * neighbours, z) + prior.common * scale**2 * pt.sum(z) + own * z
        )
        return found

    # ------------------------------------------------------------------ the choice

    def shift(self, location: np.ndarray, spread: np.ndarray) -> np.ndarray:
        """Return by how much φ moves where all elements of l + cz move by 1."""
        weight = np.asarray(self.weight, dtype=float)
        precision = _precision(weight, location[1], spread, _left(weight, location[3]))
        moved: np.ndarray = np.linalg.solve(weight[_ROWS:], 1 / spread) * np.sqrt(precision)
        return moved

    def told(
        self,
        phi: np.ndarray,
        gradient: np.ndarray,
        change: np.ndarray,
        location: np.ndarray,
        spread: np.ndarray,
    ) -> np.ndarray:
        """Return the weight from U's gradient along φ and its change where all l + cz move by 1.

        φ, and what :meth:`location` and :meth:`spread` return, are in the middle of the bulk.
        """
        weight = np.asarray(self.weight, dtype=float)
        basis, c, at = weight[_ROWS:], spread[0], location[0]
        share, scale, beside = location[1:, 0]
        left = _left(weight, beside)
        precision = _precision(weight, share, c, left)
        mean = c * left * (weight[2] - (weight[1] * at) @ basis) / precision
        z = basis @ (mean + phi / np.sqrt(precision))
        prior = self.prior.precision(share, scale)

        def of_data(slope: np.ndarray, of_prior: np.ndarray) -> np.ndarray:
            """Return a gradient with respect to l + cz from one with respect to φ."""
            found: np.ndarray = np.linalg.solve(basis.T, slope * np.sqrt(precision)) - of_prior
            return found / c

        information = np.maximum(of_data(change, prior.sum(axis=1) / c), 0)
        score = information * (at + c * z) - of_data(gradient, prior @ z)
        return self._weight(information, score, c, share, scale, beside)

    def _weight(
        self,
        information: np.ndarray,
        score: np.ndarray,
        c: float,
        share: float,
        scale: float,
        beside: float,
    ) -> np.ndarray:
        """Return the weight with the basis that suits a place."""
        prior = self.prior
        precision, own = prior.precision(share, scale), np.diag(prior.base)
        least, said = _LEAST * own.mean(), c**2 * information
        values, vectors = np.linalg.eigh(precision + np.diag(said + least))
        values = np.maximum(values, least)
        root = vectors * values**-0.5
        basis = root @ np.linalg.eigh((root.T * information) @ root)[1]
        told = information @ basis**2
        with np.errstate(all="ignore"):
            mean = np.nan_to_num((information**2 @ basis**2) / told)
        whole = mean / (1 - np.minimum(beside**2 * mean, _MOST_LEFT))
        return np.vstack(
            [
                said / (own + said + least),
                information,
                score @ basis,
                told,
                np.maximum(np.sum(basis * (precision @ basis), axis=0), _LEAST),
                np.sum(basis * (prior.neighbours @ basis), axis=0),
                whole,
                np.tile([[c], [share], [scale], [beside]], len(own)),
                np.full(len(own), -np.log(values).mean() / 2),
                basis,
            ]
        )


def _left(weight: Any, beside: Any) -> Any:
    """Return the information left by other effects, relative to that at the place of the basis."""
    return (1 + weight[10] ** 2 * weight[6]) / (1 + beside**2 * weight[6])


def _precision(weight: Any, share: Any, c: Any, left: Any) -> Any:
    """Return p."""
    return weight[4] - (share - weight[8]) * weight[5] + c**2 * left * weight[3]
