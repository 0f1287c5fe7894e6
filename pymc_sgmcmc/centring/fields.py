r"""Effects of the areas of a map, standardised by prior and data together, in a joint basis.

Let the effects be :math:`\theta = \mu + sz`, where z has the precision Q(α) = A − αW of a
conditional autoregression, and let the data depend on :math:`x = l + cz`, with information J and
score g of each element. Tuning finds a basis B in which, at one α, Q and J are both diagonal. There
the precision is :math:`p = u - (\alpha - \alpha_0) v + c^2 d`, exact at that α and nearly so at
others, and

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
from typing import Any

import numpy as np
import pytensor.tensor as pt

from pytensor.graph.basic import Variable

from pymc_sgmcmc.centring.gaussian_map import LEADS, Affine, GaussianMap, Middle, Probe
from pymc_sgmcmc.centring.information import FieldInformation
from pymc_sgmcmc.floats import as_float

# Added to a precision besides its mean, as islands have none of their own
_LEAST = 1e-8

# Share of its limit 1 / τ² at which information beside other effects counts as infinite
_MOST_LEFT = 0.999

# α, in a CAR between 0 and 1, of the basis before anything is known
_ALPHA_AT_FIRST = 0.5


@dataclass(frozen=True, eq=False)
class FieldPrior:
    """The prior of a field θ = μ + sz, where z has the precision A − αW."""

    base: np.ndarray  # A, shape (n, n)
    neighbours: np.ndarray  # W, shape (n, n)
    common: float  # further precision of the sum of all θ
    location: Any  # μ
    scale: Any  # s
    alpha: Any  # α
    has_location: bool  # whether μ may be other than 0

    def precision(self, alpha: float, scale: float) -> np.ndarray:
        """Return Q of z."""
        return self.base - alpha * self.neighbours + self.common * scale**2


class Field(GaussianMap):
    """Map to effects of areas, ``pm.ICAR`` and ``pm.CAR``, which a model multiplies by ``factor``.

    ``beside`` is τ, the sd of normal effects added to the field.
    """

    kind = FieldInformation
    probe = Probe.COMMON
    as_written = 0.0
    shares_noise = True

    def __init__(self, prior: FieldPrior, factor: Any, beside: Any = 0.0) -> None:
        self.of_prior = prior
        self.factor = factor
        self.beside = as_float(beside)

    @property
    def rows(self) -> int:
        """The number of rows of the array, with those of the basis."""
        return super().rows - 1 + len(self.of_prior.base)

    def uniform(self, share: float, shape: tuple[int, ...]) -> np.ndarray:
        """Return the information of uninformative data, or of data that determine the field."""
        array = self._of_no_data.copy()
        known = self.kind._fields.index
        array[0] = share
        array[known("precision")] = array[known("of_data")] = share * LEADS
        return array

    @cached_property
    def _of_no_data(self) -> np.ndarray:
        nothing = np.zeros(len(self.of_prior.base))
        return self.at_place(nothing, nothing, 0.0, (_ALPHA_AT_FIRST, 1.0, 0.0))

    def parents(self, *inputs: Variable) -> list[Any]:
        """Return μ, s, α, the model's factor on the field, and τ."""
        prior = self.of_prior
        return [prior.location, prior.scale, prior.alpha, self.factor, self.beside]

    def spread(self, *inputs: Variable) -> Any:
        """Return c."""
        return self.factor * self.of_prior.scale

    def location(self, *inputs: Variable) -> Any:
        """Return l, α, s and τ."""
        like = pt.zeros_like(self.information.share)
        prior = self.of_prior
        rows = [self.factor * prior.location, prior.alpha, prior.scale, self.beside]
        return pt.stack([row + like for row in rows])

    def prior(self, *inputs: Variable) -> Affine:
        """Return θ = μ + sz."""
        location, scale = self.of_prior.location, self.of_prior.scale
        return Affine(
            lambda z: location + scale * z,
            lambda theta: (theta - location) / scale,
            len(self.of_prior.base) * pt.log(scale),
        )

    def given_data(self, *inputs: Variable) -> Affine:
        """Return z, given the data."""
        prior, known, c = self.of_prior, self.information, self.spread()
        left = _left(known, self.beside)
        precision = _precision(known, prior.alpha, c, left)
        score = known.score
        if prior.has_location:
            at = self.factor * prior.location
            score = score - pt.dot(known.precision * at, known.basis)
        mean = c * left * score / precision
        return Affine(
            lambda phi: pt.dot(known.basis, mean + phi * precision**-0.5),
            lambda z: (pt.dot(self._weighed(z), known.basis) - mean) * pt.sqrt(precision),
            pt.sum(known.log_det) - pt.sum(pt.log(precision)) / 2,
        )

    def _weighed(self, z: Any) -> Any:
        """Return Q + c²J at the place of the basis, times z: B⁻¹ is Bᵀ of that."""
        prior, known = self.of_prior, self.information
        base, neighbours = (pt.constant(x.astype(z.dtype)) for x in (prior.base, prior.neighbours))
        own = known.unit[0] ** 2 * known.precision + _LEAST * np.diag(prior.base).mean()
        of_neighbours = pt.dot(base - known.alpha[0] * neighbours, z)
        return of_neighbours + prior.common * known.scale[0] ** 2 * pt.sum(z) + own * z

    # ------------------------------------------------------------------ what tuning learns

    def shift(self, middle: Middle) -> np.ndarray:
        """Return by how much φ moves where all elements of l + cz move by 1."""
        known, (_, alpha, _, beside) = self.information, middle.location
        precision = _precision(known, alpha, middle.spread, _left(known, beside))
        return np.linalg.solve(known.basis, 1 / middle.spread) * np.sqrt(precision)

    def from_shift(self, gradient: np.ndarray, change: np.ndarray, middle: Middle) -> np.ndarray:
        """Return the information, with the basis that suits the middle of the bulk."""
        known, c, at = self.information, middle.spread[0], middle.location[0]
        alpha, scale, beside = middle.location[1:, 0]
        basis, left = known.basis, _left(known, beside)
        precision = _precision(known, alpha, c, left)
        mean = c * left * (known.score - (known.precision * at) @ basis) / precision
        z = basis @ (mean + middle.phi / np.sqrt(precision))
        prior = self.of_prior.precision(alpha, scale)

        def of_data(slope: np.ndarray, of_prior: np.ndarray) -> np.ndarray:
            """Return a gradient with respect to l + cz from one with respect to φ."""
            return (np.linalg.solve(basis.T, slope * np.sqrt(precision)) - of_prior) / c

        information = np.maximum(of_data(change, prior.sum(axis=1) / c), 0)
        score = information * (at + c * z) - of_data(gradient, prior @ z)
        return self.at_place(information, score, c, (alpha, scale, beside))

    def at_place(
        self,
        information: np.ndarray,
        score: np.ndarray,
        c: float,
        place: tuple[float, float, float],
    ) -> np.ndarray:
        """Return J and g with the basis that suits c and a place of α, s and τ."""
        alpha, scale, beside = place
        prior = self.of_prior
        precision, own = prior.precision(alpha, scale), np.diag(prior.base)
        least, of_data = _LEAST * own.mean(), c**2 * information
        values, vectors = np.linalg.eigh(precision + np.diag(of_data + least))
        values = np.maximum(values, least)
        root = vectors * values**-0.5
        basis = root @ np.linalg.eigh((root.T * information) @ root)[1]
        diagonal = information @ basis**2
        with np.errstate(all="ignore"):
            mean = np.nan_to_num((information**2 @ basis**2) / diagonal)
        rows = FieldInformation(
            share=of_data / (own + of_data + least),
            precision=information,
            score=score @ basis,
            of_data=diagonal,
            of_prior=np.maximum(np.sum(basis * (precision @ basis), axis=0), _LEAST),
            of_neighbours=np.sum(basis * (prior.neighbours @ basis), axis=0),
            known=mean / (1 - np.minimum(beside**2 * mean, _MOST_LEFT)),
            unit=np.full(len(own), c),
            alpha=np.full(len(own), alpha),
            scale=np.full(len(own), scale),
            beside=np.full(len(own), beside),
            log_det=np.full(len(own), -np.log(values).mean() / 2),
            basis=basis,
        )
        return np.vstack(rows)


def _left(known: FieldInformation, beside: Any) -> Any:
    """Return the information left by other effects, relative to that at the place of the basis."""
    return (1 + known.beside**2 * known.known) / (1 + beside**2 * known.known)


def _precision(known: FieldInformation, alpha: Any, c: Any, left: Any) -> Any:
    """Return p."""
    moved = known.of_prior - (alpha - known.alpha) * known.of_neighbours
    return moved + c**2 * left * known.of_data
