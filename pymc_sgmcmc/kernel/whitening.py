"""Whitened coordinates ψ, in which every posterior has about unit scale: φ = m + Lψ."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import pytensor.tensor as pt

from pytensor.tensor.variable import TensorVariable

__all__ = ["Dense", "Diagonal", "Unwhitened", "Whitening"]


class Whitening(Protocol):
    """A fixed linear map from ψ to φ.

    ``symbols`` stand for ``arrays`` in graphs, so that one compiled function serves any
    centre and scale. The maps take and return lists, one entry for each block.
    """

    symbols: list[TensorVariable]
    arrays: list[np.ndarray]
    elementwise: bool

    def to_phi(self, psi: Sequence[Any], symbols: Sequence[Any]) -> list[Any]:
        """Return φ = m + Lψ, of symbols or of arrays."""

    def pull_back(self, gradient: Sequence[Any], symbols: Sequence[Any]) -> list[Any]:
        """Return the gradient with respect to ψ, L'∇."""

    def to_psi(self, phi: Sequence[Any], symbols: Sequence[Any]) -> list[Any]:
        """Return ψ of φ; of symbols only where L is diagonal."""

    def diagonal(self, psi: Sequence[Any], symbols: Sequence[Any]) -> list[Any]:
        """Return the diagonal of L, one entry for each block of ψ."""


class Unwhitened:
    """ψ = φ."""

    elementwise = True

    def __init__(self) -> None:
        self.symbols: list[TensorVariable] = []
        self.arrays: list[np.ndarray] = []

    def to_phi(self, psi: Sequence[Any], symbols: Sequence[Any]) -> list[Any]:
        """Return ψ."""
        return list(psi)

    def pull_back(self, gradient: Sequence[Any], symbols: Sequence[Any]) -> list[Any]:
        """Return the gradient."""
        return list(gradient)

    def to_psi(self, phi: Sequence[Any], symbols: Sequence[Any]) -> list[Any]:
        """Return φ."""
        return list(phi)

    def diagonal(self, psi: Sequence[Any], symbols: Sequence[Any]) -> list[Any]:
        """Return ones."""
        return [1.0 for _ in psi]


class Diagonal:
    """A centre and a scale for every element.

    Parameters
    ----------
    centre : list of ndarray
        m, one array for each variable.
    scale : list of ndarray
        The diagonal of L, shaped alike.
    """

    elementwise = True

    def __init__(self, centre: Sequence[np.ndarray], scale: Sequence[np.ndarray]) -> None:
        self.arrays = [*centre, *scale]
        self.symbols = [
            pt.tensor(f"{name}_{i}", dtype=str(x.dtype), shape=x.shape)
            for name, group in (("centre", centre), ("scale", scale))
            for i, x in enumerate(group)
        ]

    def to_phi(self, psi: Sequence[Any], symbols: Sequence[Any]) -> list[Any]:
        """Return m + s ψ."""
        centre, scale = symbols[: len(psi)], symbols[len(psi) :]
        return [m + s * x for m, s, x in zip(centre, scale, psi, strict=True)]

    def pull_back(self, gradient: Sequence[Any], symbols: Sequence[Any]) -> list[Any]:
        """Return s ∇."""
        return [s * g for s, g in zip(symbols[len(gradient) :], gradient, strict=True)]

    def to_psi(self, phi: Sequence[Any], symbols: Sequence[Any]) -> list[Any]:
        """Return (φ − m) / s."""
        centre, scale = symbols[: len(phi)], symbols[len(phi) :]
        return [(x - m) / s for m, s, x in zip(centre, scale, phi, strict=True)]

    def diagonal(self, psi: Sequence[Any], symbols: Sequence[Any]) -> list[Any]:
        """Return s."""
        return list(symbols[len(psi) :])


class Dense:
    """A centre and a matrix; ψ is one vector.

    Parameters
    ----------
    centre : list of ndarray
        m, one array for each variable.
    matrix : ndarray
        L, over all elements of all variables in turn.
    """

    elementwise = False

    def __init__(self, centre: Sequence[np.ndarray], matrix: np.ndarray) -> None:
        self._shapes = [x.shape for x in centre]
        self._dtypes = [x.dtype for x in centre]
        flat = _joined(centre).astype(np.result_type(*self._dtypes))
        self.arrays = [flat, np.ascontiguousarray(matrix, dtype=flat.dtype)]
        self.symbols = [
            pt.tensor(name, dtype=str(x.dtype), shape=x.shape)
            for name, x in zip(("centre", "scale"), self.arrays, strict=True)
        ]

    def to_phi(self, psi: Sequence[Any], symbols: Sequence[Any]) -> list[Any]:
        """Return m + Lψ, split into the variables."""
        flat = symbols[0] + symbols[1] @ psi[0]
        ends = np.cumsum([int(np.prod(shape)) for shape in self._shapes]).tolist()
        starts = [0, *ends[:-1]]
        return [
            flat[start:end].reshape(shape).astype(dtype)
            for start, end, shape, dtype in zip(
                starts, ends, self._shapes, self._dtypes, strict=True
            )
        ]

    def pull_back(self, gradient: Sequence[Any], symbols: Sequence[Any]) -> list[Any]:
        """Return L'∇, one vector."""
        # Not L.T @ g: XLA on CPUs would copy the transpose
        return [_joined(gradient) @ symbols[1]]

    def to_psi(self, phi: Sequence[Any], symbols: Sequence[Any]) -> list[Any]:
        """Return L⁻¹(φ − m), one vector."""
        centre, matrix = symbols
        solved = np.linalg.solve(matrix.astype(float), _joined(phi) - centre)
        return [solved.astype(centre.dtype)]

    def diagonal(self, psi: Sequence[Any], symbols: Sequence[Any]) -> list[Any]:
        """Return that of L, one vector."""
        return [pt.diagonal(symbols[1])]


def _joined(parts: Sequence[Any]) -> Any:
    join = np.concatenate if isinstance(parts[0], np.ndarray) else pt.concatenate
    flat: Any = join([part.reshape((-1,)) for part in parts])
    return flat
