r"""Coefficients of basis functions, standardised by prior and data together.

Let the elements of one or more vectors, perhaps with an intercept and slopes, be
:math:`\theta = c + u x` with independent standard normal x, and let them enter the mean of the data
only as :math:`s x`, where s, and perhaps u, are graphs of other variables: the roots of spectral
densities of Gaussian processes with sampled lengths and heights. Approximate the likelihood of sx
by a normal one with information J, a matrix, and score g at 0. Given s, x is then normal, with
precision and linear term

.. math:: P = 1 + s J s = L L^\top, \qquad s g,

and φ is x standardised by that, :math:`x = P^{-1} s g + L^{-\top} \varphi`. Basis functions overlap
over the data, and two processes and an intercept have a level in common: with the diagonal of J
alone ridges are left, which turn as the scales change.

L is lower triangular, so that the last vector is standardised by itself, and each other one given
those after it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytensor.tensor as pt

from pytensor.graph.basic import Variable
from pytensor.tensor.linalg import cholesky, solve_triangular
from pytensor.tensor.variable import TensorVariable

from pymc_sgmcmc.centring.weighted import Weighted, logarithm

__all__ = ["ROWS", "Coefficients", "InformedCoefficients", "told_of_block"]

# Information, beside the prior's precision, of data that determine coefficients at any scale
_LEADS = 1e4

# A smaller share cannot be distinguished from the rounding of curvatures
_LEAST_TOLD = 1e-3

# Rows of the weight before those of J
ROWS = 3


@dataclass(frozen=True, eq=False)
class Coefficients:
    """A vector of coefficients, or one coefficient, that the data determine only through a sum."""

    rv: TensorVariable  # θ
    size: int  # number of elements
    offset: TensorVariable  # c, the prior's mean
    unit: TensorVariable  # u, the prior's sd
    scale: TensorVariable  # s
    # λ, diagonal of J, g, these elements' columns of J, along the first dimension
    weight: TensorVariable

    @classmethod
    def of(
        cls, rv: Any, offset: Any, unit: Any, scale: Any, shape: tuple[int, ...], count: int
    ) -> Coefficients:
        """Return a variable of some shape as a member of a block of ``count`` elements."""
        weight = pt.TensorType(rv.dtype, (ROWS + count, *shape))(f"{rv.name}_weight")
        return cls(rv, int(np.prod(shape)), offset, unit, scale, weight)


class InformedCoefficients(Weighted):
    """Map to one of the vectors of a block, number ``index``; its weight defaults to its symbol."""

    name: ClassVar[str] = "informed_coefficients"
    as_written: ClassVar[float] = 0.0
    refines: ClassVar[bool] = True
    ndim_supp = 1

    def __init__(self, block: Sequence[Coefficients], index: int, weight: Any = None) -> None:
        self.block = tuple(block)
        self.index = index
        self.weight = self.own.weight if weight is None else weight

    @property
    def own(self) -> Coefficients:
        """The vector of this map."""
        return self.block[self.index]

    @property
    def parts(self) -> list[slice]:
        """The slice of each vector in the block."""
        ends = np.cumsum([member.size for member in self.block]).tolist()
        return [slice(end - x.size, end) for end, x in zip(ends, self.block, strict=True)]

    @property
    def numbers(self) -> tuple[int, ...]:  # type: ignore[override]
        """The number of rows of the weight."""
        return (ROWS + sum(member.size for member in self.block),)

    def uniform(self, weight: float, shape: tuple[int, ...]) -> np.ndarray:
        """Return the weight for uninformative data, or for data that determine the vector."""
        found = np.zeros((*self.numbers, self.own.size))
        found[0] = weight
        found[1] = weight * _LEADS
        part = self.parts[self.index]
        found[ROWS + part.start : ROWS + part.stop] = weight * _LEADS * np.eye(self.own.size)
        return found.reshape(*self.numbers, *shape)

    def factorised(self, precision: np.ndarray) -> np.ndarray:
        """Return F with F Fᵀ = P, as the map has it."""
        return np.linalg.cholesky(precision)

    # ------------------------------------------------------------------ the map

    def backward(self, value: Any, *inputs: Variable) -> TensorVariable:
        """Map coordinates to the variable."""
        factor, mean, own = self._conditional()
        x = mean[own] + solve_triangular(
            factor[own, own].T, self._flat(value) - self._of_later(factor, mean), lower=False
        )
        theta: TensorVariable = self.own.offset + self.own.unit * self._shaped(x)
        return theta

    def forward(self, value: Any, *inputs: Variable) -> TensorVariable:
        """Map the variable to its coordinates."""
        factor, mean, own = self._conditional()
        x = self._flat((value - self.own.offset) / self.own.unit)
        phi = pt.dot(x - mean[own], factor[own, own]) + self._of_later(factor, mean)
        return self._shaped(phi)

    def log_jac_det(self, value: Any, *inputs: Variable) -> TensorVariable:
        """Return log|det dθ/dφ|, given the vectors that come later."""
        factor, _, own = self._conditional()
        units = pt.broadcast_to(logarithm(self.own.unit), (self.own.size,))
        slope: TensorVariable = pt.sum(units) - pt.sum(pt.log(pt.diagonal(factor[own, own])))
        return slope

    def parents(self, *inputs: Variable) -> list[TensorVariable]:
        """Return the priors' means and sds, and the scales."""
        return [x for member in self.block for x in (member.offset, member.unit, member.scale)]

    def depends_on(self, *inputs: Variable) -> list[TensorVariable]:
        """Return these and the vectors that come later."""
        return [*self.parents(), *(member.rv for member in self.block[self.index + 1 :])]

    def spread(self, *inputs: Variable) -> TensorVariable:
        """Return s."""
        found: TensorVariable = pt.as_tensor(self.own.scale)
        return found

    def _conditional(self) -> tuple[Any, Any, slice]:
        """Return L and the mean of x of all vectors, and the slice of this one."""
        weight, scale = self._weights(), self._scales(self.block)
        size = self.numbers[0] - ROWS
        said = scale[:, None] * weight[ROWS:] * scale
        factor: Any = cholesky(pt.eye(size, dtype=said.dtype) + said)
        half = solve_triangular(factor, scale * weight[2], lower=True)
        return factor, solve_triangular(factor.T, half, lower=False), self.parts[self.index]

    @property
    def _jointly(self) -> tuple[Coefficients, ...]:
        """Vectors that are standardised by one factor."""
        return self.block

    def _weights(self) -> Any:
        weights = [member.weight.reshape((*self.numbers, member.size)) for member in self.block]
        return pt.concatenate(weights, axis=1)

    def _scales(self, members: Sequence[Coefficients]) -> Any:
        return pt.concatenate([pt.broadcast_to(x.scale, (x.size,)) for x in members])

    def _of_later(self, factor: Any, mean: Any) -> Any:
        """Return the contribution to φ of the vectors that come later."""
        parts, found = self.parts, 0.0
        for member, part in list(zip(self._jointly, parts, strict=False))[self.index + 1 :]:
            x = ((member.rv - member.offset) / member.unit).reshape((member.size,))
            found = found + pt.dot(x - mean[part], factor[part, parts[self.index]])
        return found

    def _flat(self, x: Any) -> Any:
        return pt.as_tensor(x).reshape((self.own.size,))

    def _shaped(self, x: Any) -> Any:
        return x.reshape(()) if self.own.rv.ndim == 0 else x


def told_of_block(
    weights: Sequence[np.ndarray],
    scale: np.ndarray,
    phi: np.ndarray,
    gradient: np.ndarray,
    curvature: np.ndarray,
    factorised: Callable[[np.ndarray], np.ndarray] = np.linalg.cholesky,
) -> list[np.ndarray]:
    """Return the weights of a block from the gradient and the curvature matrix of U along φ.

    ``weights`` are those of the coordinates so far; ``scale`` and ``phi`` are s and φ of all
    elements where U was differentiated. ``factorised`` is the map's.
    """
    flat = [np.reshape(w, (len(w), -1)).astype(float) for w in weights]
    old = np.concatenate(flat, axis=1)
    factor = factorised(np.eye(len(scale)) + scale[:, None] * old[ROWS:] * scale)
    x = np.linalg.solve(factor.T, np.linalg.solve(factor, scale * old[2]) + phi)
    said = factor @ curvature @ factor.T - np.eye(len(scale))
    told = np.diag(said) > _LEAST_TOLD
    said = np.where(told[:, None] & told, said, 0)
    values, vectors = np.linalg.eigh((said + said.T) / 2)
    said = (vectors * np.maximum(values, 0)) @ vectors.T
    score = x - factor @ gradient + said @ x
    with np.errstate(all="ignore"):
        information = np.where(told[:, None] & told, said / scale / scale[:, None], 0)
        score = np.where(told, score / scale, 0)
    share = np.diag(said) / (1 + np.diag(said))
    found = np.vstack([share, np.diag(information), score, information])
    ends = np.cumsum([w.shape[1] for w in flat])[:-1]
    return [
        part.reshape(np.shape(w))
        for part, w in zip(np.split(found, ends, axis=1), weights, strict=True)
    ]
