"""Coordinates ψ in which the draws of a result have mean 0 and covariance I."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scipy.linalg import cholesky, solve_triangular

__all__ = ["Standard"]

_LARGEST_DENSE = 512
# A covariance from fewer draws would say more of them than of the posterior
_DRAWS_A_DIMENSION = 5


@dataclass(frozen=True)
class Standard:
    """The map φ = m + Lψ.

    Attributes
    ----------
    centre : ndarray
        m, shape (d,).
    root : ndarray
        L, lower triangular of shape (d, d), or a diagonal of shape (d,).
    """

    centre: np.ndarray
    root: np.ndarray

    @classmethod
    def of(cls, positions: np.ndarray) -> Standard:
        """Fit to positions of shape (n, d): dense where they are enough for it."""
        n, d = positions.shape
        centre = positions.mean(axis=0)
        sd = positions.std(axis=0, ddof=1)
        # A coordinate in which all draws agree is left in its own unit
        sd = np.where(sd > 0, sd, 1.0)
        if d > _LARGEST_DENSE or n < _DRAWS_A_DIMENSION * d:
            return cls(centre, sd)
        correlation = np.cov((positions - centre) / sd, rowvar=False).reshape(d, d)
        try:
            root = cholesky(correlation + 1e-10 * np.eye(d), lower=True)
        except np.linalg.LinAlgError:
            return cls(centre, sd)
        return cls(centre, sd[:, None] * root)

    def positions(self, phi: np.ndarray) -> np.ndarray:
        """Return ψ of φ, both of shape (n, d)."""
        away = phi - self.centre
        if self.root.ndim == 1:
            return away / self.root
        solved: np.ndarray = solve_triangular(self.root, away.T, lower=True).T
        return solved

    def gradients(self, gradients: np.ndarray) -> np.ndarray:
        """Return gradients with respect to ψ, ∇L, of those with respect to φ, shape (n, d)."""
        return gradients * self.root if self.root.ndim == 1 else gradients @ self.root
