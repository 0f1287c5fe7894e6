"""The Stein kernel of the inverse multiquadric."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

__all__ = ["SteinKernel"]

# Numbers in one block of the kernel matrix: a processor's cache holds it
_BLOCK = 2**15


class SteinKernel:
    r"""Langevin Stein kernel of :math:`k(x, y) = q^{-1/2}`, :math:`q = 1 + |x - y|^2 / \ell^2`.

    With :math:`r = x - y` and scores :math:`s = -\nabla U`,

    .. math:: k_p(x, y) = \frac{d}{\ell^2} q^{-3/2} - \frac{3 |r|^2}{\ell^4} q^{-5/2}
       - \frac{r \cdot (s(y) - s(x))}{\ell^2} q^{-3/2} + s(x) \cdot s(y)\, q^{-1/2},

    whose mean over :math:`x, y \sim Q` independent is the squared discrepancy of Q and
    :math:`e^{-U}` (Gorham and Mackey, 2017 [1]_).

    Parameters
    ----------
    positions : ndarray
        Shape (n, d).
    scores : ndarray
        s at the positions, shape (n, d).
    squared_length : float
        :math:`\ell^2`.

    References
    ----------
    .. [1] Gorham, Mackey (2017). Measuring sample quality with kernels. ICML.
    """

    def __init__(
        self, positions: np.ndarray, scores: np.ndarray, squared_length: float = 1.0
    ) -> None:
        # In units of the length
        length = np.sqrt(squared_length)
        self._x = positions / length
        self._s = scores * length
        self._unit = 1 / squared_length
        self._xx = np.sum(self._x**2, axis=1)
        self._xs = np.sum(self._x * self._s, axis=1)

    def __len__(self) -> int:
        return len(self._x)

    def diagonal(self) -> np.ndarray:
        """Return k_p(x, x) of every position, shape (n,)."""
        diagonal: np.ndarray = self._unit * (self._x.shape[1] + np.sum(self._s**2, axis=1))
        return diagonal

    def rows(self, which: slice | np.ndarray) -> np.ndarray:
        """Return k_p of these positions with all, shape (rows, n)."""
        x, s = self._x[which], self._s[which]
        q = x @ (-2 * self._x.T)
        q += self._xx[which, None] + 1
        q += self._xx
        root = 1 / np.sqrt(np.maximum(q, 1.0, out=q), out=q)
        squared = root**2
        # r · (s(x) − s(y)), and (q − 1) / q = 1 − 1 / q
        kernel = x @ -self._s.T
        kernel -= s @ self._x.T
        kernel += self._xs[which, None] + (x.shape[1] - 3)
        kernel += self._xs
        kernel += 3 * squared
        kernel *= squared
        kernel += s @ self._s.T
        kernel *= root
        kernel *= self._unit
        return np.asarray(kernel)

    def blocks(self) -> Iterator[tuple[slice, np.ndarray]]:
        """Yield the matrix in blocks of rows, each with the rows that it has."""
        n = len(self)
        size = max(1, _BLOCK // n)
        for start in range(0, n, size):
            which = slice(start, min(start + size, n))
            yield which, self.rows(which)
