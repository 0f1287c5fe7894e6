r"""Coefficients with one learned scale, standardised by prior and data together.

As in ``informed_coefficients.py``, but s is one number for the last vector of the block, and known
for all others, such as an intercept. Their precision given that vector is then known, so that the
data's information on the vector alone is a known matrix :math:`\tilde J = Q \Lambda Q^\top` with a
score :math:`\tilde g`. Its decomposition is made once, and an update needs no other:

.. math::
    x = Q \frac{s Q^\top \tilde g}{1 + s^2 \Lambda}
        + Q (1 + s^2 \Lambda)^{-1/2} Q^\top \varphi.

All others are standardised given :math:`s x`, linearly and by known matrices.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pytensor.tensor as pt

from pytensor.graph.basic import Variable
from pytensor.tensor.linalg import cholesky, eigh, solve_triangular
from pytensor.tensor.variable import TensorVariable

from pymc_sgmcmc.centring.informed_coefficients import (
    ROWS,
    Coefficients,
    InformedCoefficients,
)
from pymc_sgmcmc.centring.weighted import logarithm

__all__ = ["CoefficientsOfOneScale"]


class CoefficientsOfOneScale(InformedCoefficients):
    """Map to one of some vectors of coefficients, the last of which has a sampled scale."""

    name: ClassVar[str] = "coefficients_of_one_scale"

    def factorised(self, precision: np.ndarray) -> np.ndarray:
        """Return F with F Fᵀ = P, whose last part is symmetric."""
        factor = np.linalg.cholesky(precision)
        last = self.parts[-1]
        values, vectors = np.linalg.eigh(factor[last, last] @ factor[last, last].T)
        factor[last, last] = (vectors * np.sqrt(np.maximum(values, 0))) @ vectors.T
        return factor

    # ------------------------------------------------------------------ the map

    def backward(self, value: Any, *inputs: Variable) -> TensorVariable:
        """Map coordinates to the variable."""
        if self._given:
            factor, mean, own = self._conditional()
            one = pt.eye(self.own.size, dtype=factor.dtype)
            # A product for each update, and the inverse once
            inverse: Any = solve_triangular(factor[own, own].T, one, lower=False)
            x = mean[own] + inverse @ (self._flat(value) - self._of_later(factor, mean))
            given: TensorVariable = self.own.offset + self.own.unit * self._shaped(x)
            return given
        precision, vectors, mean = self._of_last()
        x = vectors @ (mean + (vectors.T @ self._flat(value)) / pt.sqrt(precision))
        theta: TensorVariable = self.own.offset + self.own.unit * self._shaped(x)
        return theta

    def forward(self, value: Any, *inputs: Variable) -> TensorVariable:
        """Map the variable to its coordinates."""
        if self._given:
            return super().forward(value, *inputs)
        precision, vectors, mean = self._of_last()
        x = self._flat((value - self.own.offset) / self.own.unit)
        return self._shaped(vectors @ (pt.sqrt(precision) * (vectors.T @ x - mean)))

    def log_jac_det(self, value: Any, *inputs: Variable) -> TensorVariable:
        """Return log|det dθ/dφ|, given the vectors that come later."""
        if self._given:
            return super().log_jac_det(value, *inputs)
        precision, _, _ = self._of_last()
        units = pt.broadcast_to(logarithm(self.own.unit), (self.own.size,))
        slope: TensorVariable = pt.sum(units) - pt.sum(pt.log(precision)) / 2
        return slope

    @property
    def _given(self) -> bool:
        """Whether the vector is standardised given the last one."""
        return self.index < len(self.block) - 1

    @property
    def _jointly(self) -> tuple[Coefficients, ...]:
        return self.block[:-1]

    def _conditional(self) -> tuple[Any, Any, slice]:
        """Return L and the mean of x of all but the last vector, and the slice of this one."""
        (factor, cross, half), last = self._of_others(), self.block[-1]
        moved = last.scale * ((last.rv - last.offset) / last.unit)
        known, of_last = (solve_triangular(factor.T, x, lower=False) for x in (half, cross))
        return factor, known - of_last @ moved, self.parts[self.index]

    def _of_others(self) -> tuple[Any, Any, Any]:
        """Return L of all but the last, and its solutions for J's other columns and the score."""
        weight, scale, end = self._weights(), self._scales(self.block[:-1]), self.parts[-1].start
        said = scale[:, None] * weight[ROWS : ROWS + end, :end] * scale
        factor: Any = cholesky(pt.eye(end, dtype=said.dtype) + said)
        cross = scale[:, None] * weight[ROWS : ROWS + end, end:]
        return (
            factor,
            solve_triangular(factor, cross, lower=True),
            solve_triangular(factor, scale * weight[2, :end], lower=True),
        )

    def _of_last(self) -> tuple[Any, Any, Any]:
        """Return the precisions of x of the last vector, their directions, and the mean there."""
        weight, end = self._weights(), self.parts[-1].start
        information, score = weight[ROWS + end :, end:], weight[2, end:]
        if end:
            _, cross, half = self._of_others()
            information, score = information - cross.T @ cross, score - cross.T @ half
        found: Any = eigh((information + information.T) / 2)
        (values, vectors), scale = found, self.block[-1].scale.squeeze()
        precision: Any = 1 + scale**2 * pt.maximum(values, 0)
        return precision, vectors, scale * (vectors.T @ score) / precision
