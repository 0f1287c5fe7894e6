"""The draws of a trial, and what they tell: temperatures, widths and effective draws."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from scipy.special import stdtrit

from pymc_sgmcmc.convergence.effective import effective_draws

__all__ = ["FEW", "SLOW", "Trial"]

# Size of a coordinate that no posterior reaches in units of its sds
_FARTHEST = 1e3

# Error of a temperature that is allowed, and the batches of draws whose means tell the rest
_SLACK, _BATCH_MEANS = 0.05, 20

# Share of many coordinates that may be slow or off, and the share of draws effective in a slow one
FEW, SLOW = 0.05, 0.1

_IQR_OF_NORMAL = 1.349


@dataclass(frozen=True)
class Trial:
    """Draws of a chain, of all or of some coordinates."""

    psi: np.ndarray  # whitened positions, shape (draws, d)
    gradient: np.ndarray  # estimates of ∇U there, shape (draws, d)
    rejected: int  # non-finite updates
    circular: np.ndarray | None = None  # which coordinates lie on a circle: without temperature
    # Variable of each of thousands of coordinates, judged by its low quantile; None if each counts
    variables: np.ndarray | None = None
    clipped: float = 0.0  # share of updates whose gradient was scaled down
    # Which of many coordinates are directions that several variables share: each counts
    shared: np.ndarray | None = None
    escaped: float = 0.0  # share of draws with a gradient far beyond the bound

    def diverged(self) -> bool:
        """Return whether the chain left the region where the posterior can be."""
        return self.rejected > 0 or not np.max(np.abs(self.psi), initial=0.0) < _FARTHEST

    def about_mean(self) -> Trial:
        """Return the trial with positions about their mean."""
        return replace(self, psi=self.psi - self.psi.mean(axis=0))

    def temperatures(self) -> tuple[np.ndarray, np.ndarray]:
        """Return T_i of each non-circular coordinate and its standard error, from batch means."""
        products = (self.psi * self.gradient)[:, self._on_line()]
        each = len(products) // _BATCH_MEANS
        usable = products[: each * _BATCH_MEANS]
        means = usable.reshape(_BATCH_MEANS, each, products.shape[1]).mean(axis=1)
        return means.mean(axis=0), means.std(axis=0, ddof=1) / np.sqrt(_BATCH_MEANS)

    def is_off_temperature(self) -> bool:
        """Return whether some temperature, of many coordinates more than a few, is not 1."""
        mean, error = self.temperatures()
        if not mean.size:
            return False
        # However many coordinates are compared, one in a hundred right trials is off by chance
        allowed = stdtrit(_BATCH_MEANS - 1, 1 - 0.005 / len(mean))
        # A mean or error that is not finite counts as off
        near = (np.abs(mean - 1) <= _SLACK + allowed * error) & np.isfinite(error)
        if self.shared is not None and not np.all(near[self.shared[self._on_line()]]):
            return True
        return bool(np.mean(~near) > (0.0 if self.variables is None else FEW))

    def widths(self, *, moments: bool) -> tuple[float, float]:
        """Return the largest sd and distance from 0, of many coordinates a high quantile.

        Without second ``moments`` they are those of quartiles.
        """
        if moments:
            sds, means = self.psi.std(axis=0), np.abs(self.psi.mean(axis=0))
        else:
            low, middle, high = np.quantile(self.psi, [0.25, 0.5, 0.75], axis=0)
            sds, means = (high - low) / _IQR_OF_NORMAL, np.abs(middle)
        share = 1.0 if self.variables is None else 1 - FEW
        return float(np.quantile(sds, share)), float(np.quantile(means, share))

    def effective_draws(self) -> float:
        """Return the least number of effective draws, of many coordinates a low quantile."""
        if self.variables is None:
            return self.least_effective_draws()
        return min(quantile for _, _, quantile in self.slow_variables())

    def least_effective_draws(self) -> float:
        """Return the least number of effective draws of all coordinates."""
        ess = effective_draws(self.psi.T[:, None])
        return float(np.nanmin(ess)) if np.any(np.isfinite(ess)) else 0.0

    def slow_variables(self) -> list[tuple[str, float, float]]:
        """Return each variable's name, share of slow coordinates and low quantile of ESS."""
        assert self.variables is not None
        ess, slow = np.nan_to_num(effective_draws(self.psi.T[:, None])), SLOW * len(self.psi)
        of_each = [(name, ess[self.variables == name]) for name in dict.fromkeys(self.variables)]
        return [
            (str(name), float(np.mean(own < slow)), float(np.quantile(own, FEW)))
            for name, own in of_each
        ]

    def _on_line(self) -> np.ndarray:
        """Return which coordinates are not circular, shape (d,)."""
        if self.circular is None:
            return np.ones(self.psi.shape[1], dtype=bool)
        return ~self.circular
