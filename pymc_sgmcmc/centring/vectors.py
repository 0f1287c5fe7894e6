"""Vectors with a common covariance, in either parametrization.

With Σ = LLᵀ, a vector is θ = φ (centred, λ = 1) or θ = μ + Lφ (non-centred, λ = 0). Its elements
have one weight in common.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pytensor.tensor as pt

from pytensor.graph.basic import Variable
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.linalg.solvers.triangular import solve_triangular
from pytensor.tensor.math import Dot
from pytensor.tensor.variable import TensorVariable

from pymc_sgmcmc.centring.weighted import Weighted

__all__ = ["VectorCentring", "VectorRecentring", "is_product", "lower_factor", "transposed"]


class _OfVectors(Weighted):
    """The common part of both parametrizations; vectors lie along the last dimension of φ."""

    ndim_supp = 1

    def pooled(self, gain: np.ndarray) -> np.ndarray:
        """Return the sum over each vector."""
        return np.broadcast_to(gain.sum(axis=-1, keepdims=True), gain.shape)

    def _slope(self, factor: TensorVariable, sign: TensorVariable) -> TensorVariable:
        """Return the weight times log|det L| of each vector."""
        log_det = pt.sum(pt.log(pt.abs(pt.diagonal(factor))))
        slope: TensorVariable = sign[..., 0] * log_det
        return slope


class VectorCentring(_OfVectors):
    """Map to a ``pm.MvNormal``, with a λ of 0 or 1, the same for all elements of a vector."""

    name: ClassVar[str] = "vector_centring"
    as_written: ClassVar[float] = 1.0

    def __init__(self, weight: Any = None) -> None:
        self.weight = weight

    def backward(self, value: Any, *inputs: Variable) -> TensorVariable:
        """Map coordinates to the variable."""
        location, factor = self._parts(inputs)
        theta: TensorVariable = self.weight * value + (1 - self.weight) * (
            location + _times(factor, value)
        )
        return theta

    def forward(self, value: Any, *inputs: Variable) -> TensorVariable:
        """Map the variable to its coordinates."""
        location, factor = self._parts(inputs)
        phi: TensorVariable = self.weight * value + (1 - self.weight) * _solved(
            factor, value - location
        )
        return phi

    def log_jac_det(self, value: Any, *inputs: Variable) -> TensorVariable:
        """Return (1 − λ) log|det L| for each vector."""
        return self._slope(self._parts(inputs)[1], 1 - self.weight)

    def parents(self, *inputs: Variable) -> list[TensorVariable]:
        """Return μ and Σ."""
        return [pt.as_tensor(x) for x in inputs[-2:]]

    def spread(self, *inputs: Variable) -> TensorVariable:
        """Return the roots of the diagonal of Σ."""
        return _lengths(self._parts(inputs)[1])

    def _parts(self, inputs: tuple[Variable, ...]) -> tuple[Any, Any]:
        location, covariance = self.parents(*inputs)
        return location, lower_factor(covariance)


class VectorRecentring(_OfVectors):
    """Map to standard variables z that the model uses only as μ + Lz.

    μ is shaped as z or less; λ is 0 or 1, the same for all elements of a vector.
    """

    name: ClassVar[str] = "vector_recentring"
    as_written: ClassVar[float] = 0.0

    def __init__(
        self, location: TensorVariable, factor: TensorVariable, weight: Any = None
    ) -> None:
        self.weight = weight
        self._location = location
        self.factor = factor

    def backward(self, value: Any, *inputs: Variable) -> TensorVariable:
        """Map coordinates to the variable."""
        z: TensorVariable = (1 - self.weight) * value + self.weight * _solved(
            self.factor, value - self._location
        )
        return z

    def forward(self, value: Any, *inputs: Variable) -> TensorVariable:
        """Map the variable to its coordinates."""
        phi: TensorVariable = (1 - self.weight) * value + self.weight * (
            self._location + _times(self.factor, value)
        )
        return phi

    def log_jac_det(self, value: Any, *inputs: Variable) -> TensorVariable:
        """Return −λ log|det L| for each vector."""
        return self._slope(self.factor, -self.weight)

    def parents(self, *inputs: Variable) -> list[TensorVariable]:
        """Return μ and L."""
        return [self._location, self.factor]

    def spread(self, *inputs: Variable) -> TensorVariable:
        """Return the roots of the diagonal of LLᵀ."""
        return _lengths(self.factor)


def lower_factor(covariance: TensorVariable) -> TensorVariable | None:
    """Return the L of a covariance LLᵀ, None where vectors have different covariances."""
    node: Any = covariance.owner
    while node is not None and isinstance(node.op, DimShuffle) and covariance.ndim > 2:
        if tuple(node.op.new_order) != ("x", 0, 1):
            return None
        covariance = node.inputs[0]
        node = covariance.owner
    if covariance.ndim != 2:
        return None
    if is_product(node) and transposed(node.inputs[1]) is node.inputs[0]:
        factor: TensorVariable = node.inputs[0]
        return factor
    found: TensorVariable = pt.linalg.cholesky(covariance)
    return found


def is_product(node: Any) -> bool:
    """Return whether a node multiplies matrices."""
    return node is not None and isinstance(getattr(node.op, "core_op", node.op), Dot)


def transposed(x: Any) -> Any:
    """Return the matrix whose transpose is x, or None."""
    node = x.owner
    swaps = node is not None and isinstance(node.op, DimShuffle)
    return node.inputs[0] if swaps and tuple(node.op.new_order) == (1, 0) else None


def _lengths(factor: TensorVariable) -> TensorVariable:
    lengths: TensorVariable = pt.sqrt(pt.sum(factor**2, axis=-1))
    return lengths


def _times(factor: TensorVariable, vectors: Any) -> TensorVariable:
    """Return L times vectors along the last dimension."""
    product: TensorVariable = pt.dot(vectors, factor.T)
    return product


def _solved(factor: TensorVariable, vectors: Any) -> TensorVariable:
    """Return L⁻¹ times vectors along the last dimension."""
    flat = vectors.reshape((-1, factor.shape[0]))
    solved: TensorVariable = solve_triangular(factor, flat.T, lower=True).T
    return solved.reshape(vectors.shape)
