"""A chain as observed by the trials of tuning, and what its draws tell."""

from __future__ import annotations

import time

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from scipy.special import stdtrit

from pymc_sgmcmc.chain.monitor import MOST_WATCHED
from pymc_sgmcmc.chain.runner import Runner
from pymc_sgmcmc.convergence import effective_draws
from pymc_sgmcmc.kernel.potential import Potential
from pymc_sgmcmc.tuning.job import Job
from pymc_sgmcmc.tuning.noise import NoiseOnTheWay
from pymc_sgmcmc.tuning.plan import Plan
from pymc_sgmcmc.tuning.surface import FEW, MOST_OF_MANY, parts_of

# Factor of the bound above which a gradient is not the Gaussian's, and the factor that raises a
# bound which batch noise exceeds
_FAR, _HIGHER = 2.0, 4.0

# Size of a coordinate that no posterior reaches in units of its sds
DIVERGED = 1e3

# Error of a temperature that is allowed, and the batches of draws whose means tell the rest
_SLACK, _BATCH_MEANS = 0.05, 20

# Share of draws effective in a slow coordinate
SLOW = 0.1

_IQR_OF_NORMAL = 1.349


@dataclass(frozen=True)
class Trial:
    """Draws of a chain, of all or of some coordinates."""

    psi: np.ndarray  # whitened positions, shape (draws, d)
    gradient: np.ndarray  # estimates of ∇U there, shape (draws, d)
    rejected: int  # non-finite updates
    circular: np.ndarray  # which coordinates lie on a circle: these have no temperature
    # Variable of each of thousands of coordinates, judged by its low quantile; None if each counts
    variables: np.ndarray | None = None
    clipped: float = 0.0  # share of updates whose gradient was scaled down
    # Which of many coordinates are directions that several variables share: each counts
    shared: np.ndarray | None = None
    escaped: float = 0.0  # share of draws with a gradient far beyond the bound

    def diverged(self) -> bool:
        """Return whether the chain left the region where the posterior can be."""
        return self.rejected > 0 or not np.max(np.abs(self.psi), initial=0.0) < DIVERGED

    def about_mean(self) -> Trial:
        """Return the trial with positions about their mean."""
        return replace(self, psi=self.psi - self.psi.mean(axis=0))

    def temperatures(self) -> tuple[np.ndarray, np.ndarray]:
        """Return T_i of each non-circular coordinate and its standard error, from batch means."""
        products = (self.psi * self.gradient)[:, ~self.circular]
        each = len(products) // _BATCH_MEANS
        usable = products[: each * _BATCH_MEANS]
        means = usable.reshape(_BATCH_MEANS, each, products.shape[1]).mean(axis=1)
        return means.mean(axis=0), means.std(axis=0, ddof=1) / np.sqrt(_BATCH_MEANS)

    def off_temperature(self) -> tuple[np.ndarray, np.ndarray]:
        """Return T_i of each non-circular coordinate, and whether it is not 1."""
        mean, error = self.temperatures()
        # However many coordinates are compared, one in a hundred right trials is off by chance
        allowed = stdtrit(_BATCH_MEANS - 1, 1 - 0.005 / max(1, len(mean)))
        # A mean or error that is not finite counts as off
        near = (np.abs(mean - 1) <= _SLACK + allowed * error) & np.isfinite(error)
        return mean, ~near

    def is_off_temperature(self) -> bool:
        """Return whether some temperature, of many coordinates more than a few, is not 1."""
        _, off = self.off_temperature()
        if not off.size:
            return False
        if self.shared is not None and np.any(off[self.shared[~self.circular]]):
            return True
        return bool(np.mean(off) > (0.0 if self.variables is None else FEW))

    def widths(self, *, moments: bool) -> tuple[float, float]:
        """Return the largest sd and distance from 0, of many coordinates a high quantile.

        Without second ``moments`` they are those of quartiles.
        """
        if moments:
            sds, means = self.psi.std(axis=0), np.abs(self.psi.mean(axis=0))
        else:
            low, middle, high = np.quantile(self.psi, [0.25, 0.5, 0.75], axis=0)
            sds, means = (high - low) / _IQR_OF_NORMAL, np.abs(middle)
        share = 1.0 if self.variables is None else MOST_OF_MANY
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


class TrialChain:
    """Runs a plan's chain for a while; positions are in units of the plan's widths."""

    def __init__(self, job: Job, runner: Runner, plan: Plan) -> None:
        self._job, self._runner = job, runner
        self.seconds = 0.0  # an update's in the latest run, for messages alone
        self.noise: NoiseOnTheWay | None = None  # at positions of the latest run
        assert runner.state.psi is not None
        self._centre = [np.asarray(x) for x in runner.state.psi]
        sizes = [x.size for x in self._centre]
        self._width = np.broadcast_to(plan.width, sum(sizes))
        self.middle = np.zeros(sum(sizes))  # mean of the latest run's later half, shape (d,)
        self._watched = _spread_over(sizes)
        self._shared: np.ndarray | None = None
        if plan.turn is not None:
            shared = plan.turn.coordinates  # directions that variables share
            self._watched = np.union1d(self._watched, shared)
            self._shared = np.isin(self._watched, shared)
        self._variables: np.ndarray | None = None
        if plan.regime.diagonal:
            names = [c.name for c in runner.engine.posterior.coordinates]
            self._variables = np.repeat(names, sizes)[self._watched]

    @property
    def variance(self) -> np.ndarray | None:
        """One batch's variance in the latest run, (d,), None where it is not measured."""
        return None if self.noise is None else self.noise.variance()

    def restart(self) -> None:
        """Start from m + Le, e standard normal."""
        centre = self._centre
        widths = parts_of(self._width, [x.size for x in centre])
        rng = self._job.rng
        self._runner.restart(
            [
                (x + width.reshape(x.shape) * rng.standard_normal(x.shape)).astype(x.dtype)
                for x, width in zip(centre, widths, strict=True)
            ]
        )

    def run(self, step_size: float, thin: int, draws: int) -> Trial:
        """Run on from the present position."""
        runner, noise, width = self._runner, self.noise, self._width[self._watched]
        centre, whole = self._flat(self._centre), Potential.join(self._centre)
        total, later = np.zeros(len(whole)), draws // 2
        psi, gradient, rejected, clipped = [], [], 0, 0
        if noise is not None:
            noise.forget()
        self._job.report.trial(draws, thin, self.seconds)
        began = time.perf_counter()
        for k in range(draws):
            if k == 1:
                # The first call may have compiled
                began = time.perf_counter()
            draw = runner.advance(step_size, thin, self._job.density.others)
            assert runner.state.psi is not None
            psi.append((self._flat(runner.state.psi) - centre) / width)
            gradient.append(self._flat(draw.gradient) * width)
            rejected += draw.rejected
            clipped += draw.tamed
            if rejected:
                break
            if k >= later:
                total += Potential.join(runner.state.psi)
            if noise is not None and k % max(1, draws // noise.positions) == 0:
                added = time.perf_counter()
                noise.add(Potential.join(runner.phi()))
                began += time.perf_counter() - added
        self.seconds = (time.perf_counter() - began) / (max(1, len(psi) - 1) * thin)
        self.middle = (total / max(1, len(psi) - later) - whole) / self._width
        bound, escaped = runner.settings.largest_gradient, 0.0
        if bound is not None and not rejected:
            escaped = float(np.mean(np.abs(np.array(gradient) / width).max(axis=1) > _FAR * bound))
        trial = Trial(
            np.array(psi),
            np.array(gradient),
            rejected,
            runner.engine.posterior.circular[self._watched],
            variables=self._variables,
            clipped=clipped / (len(psi) * thin),
            shared=self._shared,
            escaped=escaped,
        )
        if noise is not None and trial.diverged():
            noise.forget()
        return trial

    def raise_bound(self) -> None:
        """Raise the bound beyond which gradients are clipped."""
        settings = self._runner.settings
        if settings.largest_gradient is not None:
            settings.largest_gradient *= _HIGHER

    def _flat(self, parts: Sequence[Any]) -> np.ndarray:
        return Potential.join(parts)[self._watched]


def _spread_over(sizes: Sequence[int]) -> np.ndarray:
    """Choose coordinates evenly over each variable, small variables whole."""
    if sum(sizes) <= MOST_WATCHED:
        return np.arange(sum(sizes))
    most, left = {}, MOST_WATCHED
    for rank, k in enumerate(np.argsort(sizes, kind="stable")):
        most[k] = min(sizes[k], max(1, left // (len(sizes) - rank)))
        left -= most[k]
    starts = np.cumsum([0, *sizes[:-1]])
    return np.concatenate(
        [
            start + np.linspace(0, size - 1, most[k]).astype(int)
            for k, (start, size) in enumerate(zip(starts, sizes, strict=True))
        ]
    )
