r"""Coefficients of basis functions, standardised by prior and data together.

Let the elements of one or more vectors, perhaps with an intercept and slopes, be
:math:`\theta = o + v z` with independent standard normal z, and let them enter the mean of the data
only as :math:`x = u z`, where u, and perhaps v, are graphs of other variables: the roots of
spectral densities of Gaussian processes with sampled lengths and heights. The information J is a
matrix, :math:`P = 1 + u J u = L L^\top`, and :math:`z = P^{-1} u g + L^{-\top} \varphi`. Basis
functions overlap over the data, and two processes and an intercept have a level in common: with the
diagonal of J alone ridges are left, which turn as the scales change.

L is lower triangular, so that the last vector is standardised by itself, and each other one given
those after it.

Where u is one number for the last vector, and known for all others, such as an intercept, the
precision of these given that vector is known. So the data's information on the vector alone is a
known matrix :math:`\tilde J = Q \Lambda Q^\top` with a score :math:`\tilde g`, which is decomposed
once for all updates:

.. math::
    z = Q \frac{u Q^\top \tilde g}{1 + u^2 \Lambda}
        + Q (1 + u^2 \Lambda)^{-1/2} Q^\top \varphi.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pytensor.tensor as pt

from pytensor.graph.basic import Variable
from pytensor.tensor.linalg import cholesky, eigh, solve_triangular

from pymc_sgmcmc.centring.gaussian_map import (
    LEADS,
    LEAST_SHARE,
    Affine,
    GaussianMap,
    Probe,
    logarithm,
)
from pymc_sgmcmc.centring.information import BlockInformation, read

# Rows of the array before those of J
_ROWS = len(BlockInformation._fields) - 1


@dataclass(frozen=True, eq=False)
class Member:
    """A vector of coefficients, or one, θ = o + v z, that enters the model only by u z in a sum."""

    rv: Any  # θ
    shape: tuple[int, ...]
    offset: Any  # o, the prior's mean
    unit: Any  # v, the prior's sd
    scale: Any  # u
    array: Any = None  # the symbol of its information in a block

    @property
    def size(self) -> int:
        """The number of elements."""
        return int(np.prod(self.shape))

    @property
    def has_one_scale(self) -> bool:
        """Whether u is a number."""
        return all(self.scale.type.broadcastable)

    @property
    def z(self) -> Any:
        """The standard normal variable, shaped as θ."""
        return (self.rv - self.offset) / self.unit

    def of_block(self, count: int) -> Member:
        """Return the same as one of a block of ``count`` elements."""
        shape = (_ROWS + count, *self.shape)
        return replace(self, array=pt.TensorType(self.rv.dtype, shape)(f"{self.rv.name}_weight"))


class Coefficients(GaussianMap):
    """Map to one of the vectors of a block, number ``index``."""

    kind = BlockInformation
    probe = Probe.UNIT
    as_written = 0.0
    _jointly: ClassVar[slice] = slice(None)  # vectors that are standardised by one factor

    def __init__(self, block: Sequence[Member], index: int) -> None:
        self.block = tuple(block)
        self.index = index
        self.array = self.own.array

    @property
    def own(self) -> Member:
        """The vector of this map."""
        return self.block[self.index]

    @property
    def parts(self) -> list[slice]:
        """The slice of each vector in the block."""
        ends = np.cumsum([member.size for member in self.block]).tolist()
        return [slice(end - x.size, end) for end, x in zip(ends, self.block, strict=True)]

    @property
    def rows(self) -> int:
        """The number of rows of the array, with those of J."""
        return _ROWS + self.parts[-1].stop

    def uniform(self, share: float, shape: tuple[int, ...]) -> np.ndarray:
        """Return the information of uninformative data, or of data that determine the vector."""
        array = np.zeros((self.rows, self.own.size))
        known = read(self.kind, array)
        known.share[:] = share
        known.precision[:] = share * LEADS
        known.matrix[self.parts[self.index]] = share * LEADS * np.eye(self.own.size)
        return array.reshape(self.rows, *shape)

    def factorised(self, precision: np.ndarray) -> np.ndarray:
        """Return F with F Fᵀ = P, as the map has it."""
        return np.linalg.cholesky(precision)

    def parents(self, *inputs: Variable) -> list[Any]:
        """Return the priors' means and sds, and the scales."""
        return [x for member in self.block for x in (member.offset, member.unit, member.scale)]

    def depends_on(self, *inputs: Variable) -> list[Any]:
        """Return these and the vectors that come later."""
        return [*self.parents(), *(member.rv for member in self.block[self.index + 1 :])]

    def spread(self, *inputs: Variable) -> Any:
        """Return u."""
        return pt.as_tensor(self.own.scale)

    def prior(self, *inputs: Variable) -> Affine:
        """Return θ = o + vz."""
        offset, unit, size = self.own.offset, self.own.unit, self.own.size
        log_units = pt.broadcast_to(logarithm(unit), (size,))
        return Affine(
            lambda z: offset + unit * z, lambda theta: (theta - offset) / unit, pt.sum(log_units)
        )

    def given_data(self, *inputs: Variable) -> Affine:
        """Return z, given the data and the vectors that come later."""
        factor, mean = self._conditional()
        own = self.parts[self.index]
        later = self._of_later(factor, mean)
        return Affine(
            lambda phi: self._shaped(mean[own] + self._solved(factor, self._flat(phi) - later)),
            lambda z: self._shaped(pt.dot(self._flat(z) - mean[own], factor[own, own]) + later),
            -pt.sum(pt.log(pt.diagonal(factor[own, own]))),
        )

    def _conditional(self) -> tuple[Any, Any]:
        """Return L and the mean of z of all vectors."""
        known, scale = self._of_block(), self._scales(self.block)
        of_data = scale[:, None] * known.matrix * scale
        factor: Any = cholesky(pt.eye(self.parts[-1].stop, dtype=of_data.dtype) + of_data)
        half = solve_triangular(factor, scale * known.score, lower=True)
        return factor, solve_triangular(factor.T, half, lower=False)

    def _solved(self, factor: Any, x: Any) -> Any:
        """Return L⁻ᵀ x of this vector's part of L."""
        own = self.parts[self.index]
        return solve_triangular(factor[own, own].T, x, lower=False)

    def _of_block(self) -> Any:
        """Return the information of all vectors."""
        arrays = [member.array.reshape((self.rows, member.size)) for member in self.block]
        return read(self.kind, pt.concatenate(arrays, axis=1))

    def _scales(self, members: Sequence[Member]) -> Any:
        return pt.concatenate([pt.broadcast_to(x.scale, (x.size,)) for x in members])

    def _of_later(self, factor: Any, mean: Any) -> Any:
        """Return the contribution to φ of the vectors that come later."""
        parts, total = self.parts, 0.0
        for member, part in list(zip(self.block[self._jointly], parts, strict=False))[
            self.index + 1 :
        ]:
            z = member.z.reshape((member.size,))
            total = total + pt.dot(z - mean[part], factor[part, parts[self.index]])
        return total

    def _flat(self, x: Any) -> Any:
        return pt.as_tensor(x).reshape((self.own.size,))

    def _shaped(self, x: Any) -> Any:
        return x.reshape(()) if self.own.rv.ndim == 0 else x


class CoefficientsOfOneScale(Coefficients):
    """Map to one of some vectors of coefficients, the last of which has a sampled scale."""

    _jointly = slice(-1)

    def factorised(self, precision: np.ndarray) -> np.ndarray:
        """Return F with F Fᵀ = P, whose last part is symmetric."""
        factor = np.linalg.cholesky(precision)
        last = self.parts[-1]
        values, vectors = np.linalg.eigh(factor[last, last] @ factor[last, last].T)
        factor[last, last] = (vectors * np.sqrt(np.maximum(values, 0))) @ vectors.T
        return factor

    def given_data(self, *inputs: Variable) -> Affine:
        """Return z of the last vector, or of another one given that."""
        if self.index < len(self.block) - 1:
            return super().given_data(*inputs)
        precision, vectors, mean = self._of_last()
        return Affine(
            lambda phi: self._shaped(
                vectors @ (mean + (vectors.T @ self._flat(phi)) / pt.sqrt(precision))
            ),
            lambda z: self._shaped(
                vectors @ (pt.sqrt(precision) * (vectors.T @ self._flat(z) - mean))
            ),
            -pt.sum(pt.log(precision)) / 2,
        )

    def _conditional(self) -> tuple[Any, Any]:
        """Return L and the mean of z of all but the last vector."""
        (factor, cross, half), last = self._of_others(), self.block[-1]
        moved = last.scale * last.z
        known, of_last = (solve_triangular(factor.T, x, lower=False) for x in (half, cross))
        return factor, known - of_last @ moved

    def _solved(self, factor: Any, x: Any) -> Any:
        """Return L⁻ᵀ x by a product for each update, and the inverse once."""
        return super()._solved(factor, pt.eye(self.own.size, dtype=factor.dtype)) @ x

    def _of_others(self) -> tuple[Any, Any, Any]:
        """Return L of all but the last, and its solutions for J's other columns and the score."""
        known, scale = self._of_block(), self._scales(self.block[:-1])
        end = self.parts[-1].start
        of_data = scale[:, None] * known.matrix[:end, :end] * scale
        factor: Any = cholesky(pt.eye(end, dtype=of_data.dtype) + of_data)
        cross = scale[:, None] * known.matrix[:end, end:]
        return (
            factor,
            solve_triangular(factor, cross, lower=True),
            solve_triangular(factor, scale * known.score[:end], lower=True),
        )

    def _of_last(self) -> tuple[Any, Any, Any]:
        """Return the precisions of z of the last vector, their directions, and the mean there."""
        known, end = self._of_block(), self.parts[-1].start
        information, score = known.matrix[end:, end:], known.score[end:]
        if end:
            _, cross, half = self._of_others()
            information, score = information - cross.T @ cross, score - cross.T @ half
        decomposed: Any = eigh((information + information.T) / 2)
        (values, vectors), scale = decomposed, self.block[-1].scale.squeeze()
        precision: Any = 1 + scale**2 * pt.maximum(values, 0)
        return precision, vectors, scale * (vectors.T @ score) / precision


def information_of_block(
    arrays: Sequence[np.ndarray],
    scale: np.ndarray,
    phi: np.ndarray,
    gradient: np.ndarray,
    curvature: np.ndarray,
    factorised: Callable[[np.ndarray], np.ndarray] = np.linalg.cholesky,
) -> list[np.ndarray]:
    """Return the information of each member from gradient and curvature matrix of U along φ.

    ``arrays`` are those of the coordinates so far; ``scale`` and ``phi`` are u and φ of all
    elements where U was differentiated. ``factorised`` is the map's.
    """
    flat = [np.reshape(x, (len(x), -1)).astype(float) for x in arrays]
    old = read(BlockInformation, np.concatenate(flat, axis=1))
    one = np.eye(len(scale))
    factor = factorised(one + scale[:, None] * old.matrix * scale)
    z = np.linalg.solve(factor.T, np.linalg.solve(factor, scale * old.score) + phi)
    of_z = factor @ curvature @ factor.T - one
    is_known = np.diag(of_z) > LEAST_SHARE
    of_z = np.where(is_known[:, None] & is_known, of_z, 0)
    values, vectors = np.linalg.eigh((of_z + of_z.T) / 2)
    of_z = (vectors * np.maximum(values, 0)) @ vectors.T
    score = z - factor @ gradient + of_z @ z
    with np.errstate(all="ignore"):
        matrix = np.where(is_known[:, None] & is_known, of_z / scale / scale[:, None], 0)
        score = np.where(is_known, score / scale, 0)
    share = np.diag(of_z) / (1 + np.diag(of_z))
    new = np.vstack(BlockInformation(share, np.diag(matrix), score, matrix))
    ends = np.cumsum([x.shape[1] for x in flat])[:-1]
    return [
        part.reshape(np.shape(x))
        for part, x in zip(np.split(new, ends, axis=1), arrays, strict=True)
    ]
