"""Whitened coordinates ψ, in which every posterior has about unit scale: φ = m + Lψ."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from itertools import compress
from typing import Any

import numpy as np
import pytensor.tensor as pt

from pytensor.tensor.variable import TensorVariable

from pymc_sgmcmc.kernel.ravel import Ravel

type Parts = Sequence[Any]
"""Arrays or symbols of a position, one for each block."""


class Whitening:
    """A fixed linear map from ψ to φ, here the identity.

    ``symbols`` stand for ``arrays`` in graphs, so that one compiled function serves any
    centre and scale. The maps take both, and return lists with one entry for each block.
    """

    kind: Hashable = "unwhitened"
    """What two maps share if one compiled function serves both."""

    def __init__(self) -> None:
        self.arrays: list[np.ndarray] = []
        self.symbols: list[TensorVariable] = []

    def _add(self, names: Sequence[str], arrays: Sequence[np.ndarray]) -> None:
        """Add arrays, and symbols of these names."""
        self.arrays = [*self.arrays, *arrays]
        self.symbols = self.symbols + [
            pt.tensor(name, dtype=str(x.dtype), shape=x.shape)
            for name, x in zip(names, arrays, strict=True)
        ]

    def to_phi(self, psi: Parts, symbols: Parts) -> list[Any]:
        """Return φ = m + Lψ, shaped as the variables, of symbols or of arrays."""
        return list(psi)

    def pull_back(self, gradient: Parts, symbols: Parts) -> list[Any]:
        """Return the gradient with respect to ψ, L'∇."""
        return list(gradient)

    def to_psi(self, phi: Parts, symbols: Parts) -> list[Any]:
        """Return ψ of φ, of arrays."""
        return list(phi)

    def diagonal(self, psi: Parts, symbols: Parts) -> list[Any]:
        """Return the diagonal of L, one entry for each block of ψ."""
        return [1.0 for _ in psi]


class Diagonal(Whitening):
    """A centre m and a scale, L's diagonal, shaped as the variables; ψ has one vector for each.

    A compiled loop over the rows of a matrix would be short and not vectorised.
    """

    kind: Hashable = "diagonal"

    def __init__(self, centre: Sequence[np.ndarray], scale: Sequence[np.ndarray]) -> None:
        super().__init__()
        self.shapes = [x.shape for x in centre]
        names = [f"{name}_{i}" for name in ("centre", "scale") for i in range(len(centre))]
        self._add(names, _flat([*centre, *scale]))

    def to_phi(self, psi: Parts, symbols: Parts) -> list[Any]:
        """Return m + s ψ, shaped as the variables."""
        centre, scale = symbols[: len(psi)], symbols[len(psi) :]
        return [
            (m + s * x).reshape(shape)
            for m, s, x, shape in zip(centre, scale, psi, self.shapes, strict=True)
        ]

    def pull_back(self, gradient: Parts, symbols: Parts) -> list[Any]:
        """Return s ∇."""
        return [s * g for s, g in zip(symbols[len(gradient) :], _flat(gradient), strict=True)]

    def to_psi(self, phi: Parts, symbols: Parts) -> list[Any]:
        """Return (φ − m) / s."""
        centre, scale = symbols[: len(phi)], symbols[len(phi) :]
        return [(x - m) / s for m, s, x in zip(centre, scale, _flat(phi), strict=True)]

    def diagonal(self, psi: Parts, symbols: Parts) -> list[Any]:
        """Return s."""
        return list(symbols[len(psi) :])


class Turned(Diagonal):
    """A diagonal after a turn defined by r directions: L = s (I − V M V') Λ.

    The rows of V' have shape (r, size) for each variable, (0, size) for one that is not turned;
    M is (r, r). Each direction that shifts thousands of parameters becomes a coordinate.
    """

    def __init__(
        self,
        centre: Sequence[np.ndarray],
        scale: Sequence[np.ndarray],
        directions: Sequence[np.ndarray],
        middle: np.ndarray,
        lengths: Sequence[np.ndarray],
    ) -> None:
        self._turned = [len(part) > 0 for part in directions]
        # Lengths of a variable that is not turned are a part of its scale
        own = zip(scale, lengths, self._turned, strict=True)
        scale = [s if turned else (s * length).astype(s.dtype) for s, length, turned in own]
        super().__init__(centre, scale)
        self.kind = "turned", len(middle), *self._turned
        dtypes = [x.dtype for x in compress(centre, self._turned)]
        self._own, self._count = len(self.arrays), len(dtypes)
        turn = [*compress(directions, self._turned), *compress(_flat(lengths), self._turned)]
        turn = [x.astype(dtype) for x, dtype in zip(turn, [*dtypes, *dtypes], strict=True)]
        turn.append(middle.astype(np.result_type(*dtypes)))
        self._add([f"turn_{i}" for i in range(len(turn))], turn)

    def to_phi(self, psi: Parts, symbols: Parts) -> list[Any]:
        """Return m + Lψ, shaped as the variables."""
        directions, lengths, middle = self._split(symbols)
        stretched = self._each(lambda x, length: x * length, psi, lengths)
        return super().to_phi(self._turn(stretched, directions, middle), symbols[: self._own])

    def pull_back(self, gradient: Parts, symbols: Parts) -> list[Any]:
        """Return L'∇."""
        directions, lengths, middle = self._split(symbols)
        pulled = super().pull_back(gradient, symbols[: self._own])
        back = self._turn(pulled, directions, middle.T)
        return self._each(lambda g, length: g * length, back, lengths)

    def to_psi(self, phi: Parts, symbols: Parts) -> list[Any]:
        """Return L⁻¹(φ − m)."""
        directions, lengths, middle = self._split(symbols)
        back = self._turn(super().to_psi(phi, symbols[: self._own]), directions, middle.T)
        return self._each(lambda x, length: x / length, back, lengths)

    def diagonal(self, psi: Parts, symbols: Parts) -> list[Any]:
        """Return the diagonal of L."""
        directions, lengths, middle = self._split(symbols)
        turned = self._each(
            lambda s, v: s - (s * ((middle @ v) * v).sum(axis=0)).reshape(s.shape),
            super().diagonal(psi, symbols[: self._own]),
            directions,
        )
        return self._each(lambda s, length: s * length, turned, lengths)

    def _split(self, symbols: Parts) -> tuple[Parts, Parts, Any]:
        *parts, middle = symbols[self._own :]
        return parts[: self._count], parts[self._count :], middle

    def _turn(self, parts: Parts, directions: Parts, middle: Any) -> list[Any]:
        """Return (I − V M V') x."""
        own = compress(parts, self._turned)
        along: Any = sum(v @ x.reshape((-1,)) for v, x in zip(directions, own, strict=True))
        along = middle @ along
        return self._each(
            lambda x, v: (x - (along @ v).reshape(x.shape)).astype(x.dtype), parts, directions
        )

    def _each(self, change: Callable[[Any, Any], Any], parts: Parts, by: Parts) -> list[Any]:
        """Change the parts of the variables that are turned, each by its own."""
        own = iter(by)
        return [
            change(x, next(own)) if turned else x
            for x, turned in zip(parts, self._turned, strict=True)
        ]


class Shear:
    """Unit lower triangular maps I + N of the elements of several variables that share an index.

    A family lists its variables as (number, axis of the index, -1 or -2, columns along the other
    axis or 0 for a vector). Parts may be arrays or symbols, with leading dimensions.
    """

    def __init__(self, families: Sequence[tuple[tuple[int, int, int], ...]]) -> None:
        self.families = tuple(families)

    def columns(self, parts: Parts, family: int) -> list[Any]:
        """Return the vectors of a family in turn."""
        return [
            parts[k] if not count else parts[k][..., j] if axis == -2 else parts[k][..., j, :]
            for k, axis, count in self.families[family]
            for j in range(max(1, count))
        ]

    def __call__(self, x: Parts, v: Parts, below: Parts, *, transposed: bool = False) -> list[Any]:
        """Return x + Nv or x + N'v; ``below`` has N's elements below its diagonal, row by row."""
        moved = list(x)
        for of, family in enumerate(self.families):
            new, old = self.columns(x, of), self.columns(v, of)
            for k, (i, j) in enumerate(zip(*np.tril_indices(len(new), -1), strict=True)):
                into, source = (j, i) if transposed else (i, j)
                new[into] = (new[into] + below[of][k] * old[source]).astype(new[into].dtype)
            columns = iter(new)
            stack = np.stack if isinstance(new[0], np.ndarray) else pt.stack
            for k, axis, count in family:
                own = [next(columns) for _ in range(max(1, count))]
                moved[k] = stack(own, axis=-1 if axis == -2 else -2) if count else own[0]
        return moved

    def inverse(self, x: Parts, m: Parts, below: Parts) -> list[Any]:
        """Return m + (I + N)⁻¹(x − m), of arrays."""
        inverse, away = list(x), [-c for c in below]
        # Each round makes one more column right
        for _ in range(max(len(self.columns(x, k)) for k in range(len(self.families)))):
            inverse = self(x, [y - at for y, at in zip(inverse, m, strict=True)], away)
        return inverse


class InShear(Whitening):
    """A shear alone, φ = (I + N) ψ, with N of each family in a dtype."""

    def __init__(self, shear: Shear, below: Sequence[np.ndarray], dtype: str) -> None:
        super().__init__()
        self._shear = shear
        self.kind = "shear", shear.families
        self._add([f"shear_{i}" for i in range(len(below))], [c.astype(dtype) for c in below])

    def to_phi(self, psi: Parts, symbols: Parts) -> list[Any]:
        """Return (I + N) ψ."""
        return self._shear(psi, psi, symbols)

    def pull_back(self, gradient: Parts, symbols: Parts) -> list[Any]:
        """Return (I + N') ∇."""
        return self._shear(gradient, gradient, symbols, transposed=True)


class Sheared(Whitening):
    """Another whitening followed by a shear: L is (I + N) times its L, an N for each family."""

    def __init__(self, inner: Diagonal, shear: Shear, below: Sequence[np.ndarray]) -> None:
        self._inner, self._shear = inner, shear
        self.kind = "sheared", shear.families, inner.kind
        self.arrays, self.symbols = inner.arrays, inner.symbols
        own = [c.astype(np.result_type(*inner.arrays)) for c in below]
        self._add([f"shear_{i}" for i in range(len(own))], own)

    def to_phi(self, psi: Parts, symbols: Parts) -> list[Any]:
        """Return m + Lψ, shaped as the variables."""
        own, centre, below = self._split(symbols)
        x = self._inner.to_phi(psi, own)
        return self._shear(x, [y - m for y, m in zip(x, centre, strict=True)], below)

    def pull_back(self, gradient: Parts, symbols: Parts) -> list[Any]:
        """Return L'∇."""
        own, _, below = self._split(symbols)
        pulled = self._shear(gradient, gradient, below, transposed=True)
        return self._inner.pull_back(pulled, own)

    def to_psi(self, phi: Parts, symbols: Parts) -> list[Any]:
        """Return L⁻¹(φ − m), of arrays."""
        own, centre, below = self._split(symbols)
        return self._inner.to_psi(self._shear.inverse(phi, centre, below), own)

    def diagonal(self, psi: Parts, symbols: Parts) -> list[Any]:
        """Return the inner map's diagonal."""
        return self._inner.diagonal(psi, self._split(symbols)[0])

    def _split(self, symbols: Parts) -> tuple[Parts, list[Any], Parts]:
        """Return the inner map's symbols, the centre shaped as the variables, and N."""
        count = len(self._inner.arrays)
        # The inner map's symbols begin with its centre
        centre = [m.reshape(shape) for m, shape in zip(symbols, self._inner.shapes, strict=False)]
        return symbols[:count], centre, symbols[count:]


class Dense(Whitening):
    """A centre m and a matrix L over all elements of all variables; ψ is one vector."""

    kind = "dense"

    def __init__(self, centre: Sequence[np.ndarray], matrix: np.ndarray) -> None:
        super().__init__()
        self._ravel = Ravel.of(centre)
        flat = _joined(centre).astype(np.result_type(*self._ravel.dtypes))
        self._add(["centre", "scale"], [flat, np.ascontiguousarray(matrix, dtype=flat.dtype)])

    def to_phi(self, psi: Parts, symbols: Parts) -> list[Any]:
        """Return m + Lψ, split into the variables."""
        centre, matrix = symbols
        return self._ravel.split(centre + matrix @ psi[0])

    def pull_back(self, gradient: Parts, symbols: Parts) -> list[Any]:
        """Return L'∇, one vector."""
        # Not L.T @ g: XLA on CPUs would copy the transpose
        return [_joined(gradient) @ symbols[1]]

    def to_psi(self, phi: Parts, symbols: Parts) -> list[Any]:
        """Return L⁻¹(φ − m), one vector."""
        centre, matrix = symbols
        solved = np.linalg.solve(matrix.astype(float), _joined(phi) - centre)
        return [solved.astype(centre.dtype)]

    def diagonal(self, psi: Parts, symbols: Parts) -> list[Any]:
        """Return the diagonal of L, one vector."""
        return [pt.diagonal(symbols[1])]


def parts_of_variances(root: np.ndarray) -> np.ndarray:
    """Return the shares of each element's variance that lie along each ψ, shape (d, d)."""
    squares = root.astype(float) ** 2
    return squares / squares.sum(axis=1, keepdims=True)


def _flat(parts: Parts) -> list[Any]:
    """Return matrices as vectors; vectors and numbers stay as they are."""
    return [x.reshape((-1,)) if x.ndim > 1 else x for x in parts]


def _joined(parts: Parts) -> Any:
    join = np.concatenate if isinstance(parts[0], np.ndarray) else pt.concatenate
    return join([part.reshape((-1,)) for part in parts])
