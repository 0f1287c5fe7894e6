"""Vectors with a common covariance: centred or non-centred as a whole.

With Σ = LLᵀ a vector is μ + Lz. Its elements have λ in common, 0 or 1: the data determine nothing
of it, or all.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor.tensor as pt

from pytensor.graph.basic import Variable
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.linalg.solvers.triangular import solve_triangular
from pytensor.tensor.math import Dot

from pymc_sgmcmc.centring.gaussian_map import Affine, GaussianMap, Middle
from pymc_sgmcmc.centring.information import Share
from pymc_sgmcmc.floats import as_float

# Quantiles of the scale between which it is the bulk's
_LOW, _HIGH = 0.05, 0.95

# Logarithm of a ratio of precisions that makes no difference
_SAME = 1e-3


class Vectors(GaussianMap):
    """Map to a ``pm.MvNormal``, or to standard variables that the model uses only as μ + Lz.

    Of the latter μ and L are given. One λ, 0 or 1, is of each vector along the last dimension.
    """

    kind = Share
    refines = False

    def __init__(self, location: Any = None, factor: Any = None) -> None:
        self._location, self._factor = location, factor
        self.of_residual = factor is not None
        self.as_written = 0.0 if self.of_residual else 1.0

    def parents(self, *inputs: Variable) -> list[Any]:
        """Return μ and Σ, or μ and L."""
        if self.of_residual:
            return [self._location, self._factor]
        return [as_float(x) for x in inputs[-2:]]

    def spread(self, *inputs: Variable) -> Any:
        """Return the roots of the diagonal of Σ."""
        return pt.sqrt(pt.sum(self._parts(inputs)[1] ** 2, axis=-1))

    def prior(self, *inputs: Variable) -> Affine:
        """Return x = μ + Lz."""
        location, factor = self._parts(inputs)
        return Affine(
            lambda z: location + pt.dot(z, factor.T),
            lambda x: _solved(factor, x - location),
            pt.sum(pt.log(pt.abs(pt.diagonal(factor)))),
        )

    @property
    def is_centred(self) -> Any:
        """Mask of centred elements."""
        return self.information.share > 0

    def given_data(self, *inputs: Variable) -> Affine:
        """Return φ: without information it is z."""
        return Affine(lambda phi: phi, lambda z: z, pt.constant(0.0, dtype=self.array.dtype))

    def from_curvature(
        self, curvature: np.ndarray, spreads: np.ndarray, middle: Middle
    ) -> np.ndarray:
        """Return λ: 1 where the conditional precision then varies less over the bulk."""
        variances = spreads**2
        gain = _gain(variances, (curvature - 1) / variances.mean(axis=0))
        of_vectors = np.broadcast_to(gain.sum(axis=-1, keepdims=True), gain.shape)
        return (of_vectors > 0).astype(float)[None]

    def _parts(self, inputs: tuple[Variable, ...]) -> tuple[Any, Any]:
        location, matrix = self.parents(*inputs)
        return location, matrix if self.of_residual else lower_factor(matrix)


def lower_factor(covariance: Any) -> Any:
    """Return the lower triangular L of a covariance LLᵀ, None where vectors have several."""
    node: Any = covariance.owner
    while node is not None and isinstance(node.op, DimShuffle) and covariance.ndim > 2:
        if tuple(node.op.new_order) != ("x", 0, 1):
            return None
        covariance = node.inputs[0]
        node = covariance.owner
    if covariance.ndim != 2:
        return None
    if is_product(node) and transposed(node.inputs[1]) is node.inputs[0]:
        # PyMC marks the roots that it is given; another one need not be triangular
        if getattr(node.inputs[0].tag, "lower_triangular", False):
            return node.inputs[0]
    return pt.linalg.cholesky(covariance)


def is_product(node: Any) -> bool:
    """Return whether a node multiplies matrices."""
    return node is not None and isinstance(getattr(node.op, "core_op", node.op), Dot)


def transposed(x: Any) -> Any:
    """Return the matrix whose transpose is x, or None."""
    node = x.owner
    swaps = node is not None and isinstance(node.op, DimShuffle)
    return node.inputs[0] if swaps and tuple(node.op.new_order) == (1, 0) else None


def _solved(factor: Any, vectors: Any) -> Any:
    """Return L⁻¹ times vectors along the last dimension."""
    flat = vectors.reshape((-1, factor.shape[0]))
    return solve_triangular(factor, flat.T, lower=True).T.reshape(vectors.shape)


def _gain(variances: np.ndarray, information: np.ndarray) -> np.ndarray:
    """Return the logarithm of how much less an element's precision varies if it is centred.

    With scale σ and likelihood information J the precision is 1 / σ² + J in centred coordinates,
    which grows from the middle of the bulk to low σ, and 1 + J σ² in others, which grows to high σ.
    """
    low, middle, high = np.quantile(variances, [_LOW, 0.5, _HIGH], axis=0)
    known = np.maximum(information, 0)
    centred = np.log1p(known * low) - np.log(low) - np.log1p(known * middle) + np.log(middle)
    non_centred = np.log1p(known * high) - np.log1p(known * middle)
    # Where the scale is known, only a location is common: the data's share decides
    same = (centred < _SAME) & (non_centred < _SAME)
    return np.where(same, known * middle - 1, non_centred - centred)
