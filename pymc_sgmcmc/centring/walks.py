"""Random walks, in either parametrization.

A walk is θ = φ (centred, λ = 1), or its first value and the standardised innovations (non-centred,
λ = 0): θ₀ = φ₀, θ_t = θ_{t − 1} + μ + σ φ_t. The steps of a walk have one weight in common.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pytensor.tensor as pt

from pytensor.graph.basic import Variable
from pytensor.tensor.variable import TensorVariable

from pymc_sgmcmc.centring.weighted import Weighted

__all__ = ["WalkCentring"]


class WalkCentring(Weighted):
    """Map to ``pm.GaussianRandomWalk`` and to other location-scale walks.

    λ is 0 or 1, the same for all elements of a walk.
    """

    name: ClassVar[str] = "walk_centring"
    as_written: ClassVar[float] = 1.0
    ndim_supp = 1

    def __init__(self, weight: Any = None) -> None:
        self.weight = weight

    def backward(self, value: Any, *inputs: Variable) -> TensorVariable:
        """Map coordinates to the walk."""
        location, scale = self.parents(*inputs)
        steps = pt.concatenate([value[..., :1], location + scale * value[..., 1:]], axis=-1)
        walk = pt.cumsum(steps, axis=-1)
        theta: TensorVariable = self.weight * value + (1 - self.weight) * walk
        return theta

    def forward(self, value: Any, *inputs: Variable) -> TensorVariable:
        """Map the walk to its coordinates."""
        location, scale = self.parents(*inputs)
        innovations = (pt.diff(value, axis=-1) - location) / scale
        standardised = pt.concatenate([value[..., :1], innovations], axis=-1)
        phi: TensorVariable = self.weight * value + (1 - self.weight) * standardised
        return phi

    def log_jac_det(self, value: Any, *inputs: Variable) -> TensorVariable:
        """Return (1 − λ) times the sum of log σ over the steps of each walk."""
        scale = self.parents(*inputs)[1]
        logs = pt.sum(pt.log(scale) + pt.zeros_like(value[..., 1:]), axis=-1)
        slope: TensorVariable = (1 - self.weight[..., 0]) * logs
        return slope

    def parents(self, *inputs: Variable) -> list[TensorVariable]:
        """Return μ and σ of the innovations."""
        innovations: Any = inputs[1].owner
        return [pt.as_tensor(x) for x in innovations.inputs[-2:]]

    def spread(self, *inputs: Variable) -> TensorVariable:
        """Return the largest σ of a walk."""
        largest: TensorVariable = pt.max(self.parents(*inputs)[1], axis=-1, keepdims=True)
        return largest

    def information(self, excess: np.ndarray) -> np.ndarray:
        """Return the mean of the likelihood's information on each value.

        An innovation moves all later values, so that its curvature is the sum of theirs.
        """
        later = np.arange(excess.shape[-1] - 1, 0, -1)
        mean = excess[..., 1:].sum(axis=-1, keepdims=True) / later.sum()
        return np.broadcast_to(mean, excess.shape)
