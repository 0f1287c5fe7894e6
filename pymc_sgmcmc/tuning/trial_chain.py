"""A chain as observed by the trials of tuning."""

from __future__ import annotations

import time

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pymc_sgmcmc.chain.runner import Runner
from pymc_sgmcmc.kernel.potential import Potential
from pymc_sgmcmc.tuning.noise_of_many import NoiseOnTheWay
from pymc_sgmcmc.tuning.plan import Plan
from pymc_sgmcmc.tuning.trial import Trial

__all__ = ["MOST_WATCHED", "TrialChain"]

# Most coordinates whose every draw the trials keep
MOST_WATCHED = 1024

# Factor of the bound above which a gradient is not the Gaussian's, and the factor that raises a
# bound which batch noise exceeds
_FAR, _HIGHER = 2.0, 4.0


class TrialChain:
    """Runs a plan's chain for a while, in units of its whitened coordinates.

    ``others`` are the values of the variables that other steps sample; ``report`` gets the draws,
    updates and seconds of an update before each run.
    """

    def __init__(
        self,
        runner: Runner,
        plan: Plan,
        rng: np.random.Generator,
        others: Sequence[np.ndarray],
        report: Callable[[int, int, float], None] = lambda draws, thin, seconds: None,
        shared: np.ndarray | None = None,  # indices of directions that variables share
    ) -> None:
        self._runner, self._unit, self._rng = runner, plan.unit, rng
        self._others, self._report = others, report
        self.seconds = 0.0  # an update's in the latest run, for messages alone
        self.noise: NoiseOnTheWay | None = None  # at positions of the latest run
        assert runner.state.psi is not None
        self._centre = [np.asarray(x) for x in runner.state.psi]
        sizes = [x.size for x in self._centre]
        self.middle = np.zeros(sum(sizes))  # mean of the latest run's later half, shape (d,)
        self._watched = _spread_over(sizes)
        if shared is not None:
            self._watched = np.union1d(self._watched, shared)
        self._shared = None if shared is None else np.isin(self._watched, shared)
        self._variables: np.ndarray | None = None
        if plan.regime.by_quantile:
            names = [c.name for c in runner.engine.posterior.coordinates]
            self._variables = np.repeat(names, sizes)[self._watched]

    def restart(self) -> None:
        """Start from m + Le, e standard normal."""
        self._runner.settle()
        self._runner.restart(
            [
                (x + self._unit * self._rng.standard_normal(x.shape)).astype(x.dtype)
                for x in self._centre
            ]
        )

    def run(self, step_size: float, thin: int, draws: int) -> Trial:
        """Run on from the present position."""
        runner, unit, noise = self._runner, self._unit, self.noise
        centre, whole = self._flat(self._centre), Potential.join(self._centre)
        total, later = np.zeros(len(whole)), draws // 2
        psi, gradient, rejected, clipped = [], [], 0, 0
        if noise is not None:
            noise.forget()
        self._report(draws, thin, self.seconds)
        began = time.perf_counter()
        for k in range(draws):
            if k == 1:
                # The first call may have compiled
                began = time.perf_counter()
            draw = runner.advance(step_size, thin, self._others)
            assert runner.state.psi is not None
            psi.append((self._flat(runner.state.psi) - centre) / unit)
            gradient.append(self._flat(draw.gradient) * unit)
            rejected += draw.rejected
            clipped += draw.tamed
            if rejected:
                break
            if k >= later:
                total += Potential.join(runner.state.psi)
            if noise is not None and k % max(1, draws // noise.positions) == 0:
                noise.add(Potential.join(runner.phi()))
        self.seconds = (time.perf_counter() - began) / (max(1, len(psi) - 1) * thin)
        self.middle = (total / max(1, len(psi) - later) - whole) / unit
        bound, escaped = runner.settings.largest_gradient, 0.0
        if bound is not None and not rejected:
            escaped = float(np.mean(np.abs(gradient).max(axis=1) > _FAR * bound * unit))
        return Trial(
            np.array(psi),
            np.array(gradient),
            rejected,
            circular=runner.engine.posterior.circular[self._watched],
            variables=self._variables,
            clipped=clipped / (len(psi) * thin),
            shared=self._shared,
            escaped=escaped,
        )

    def raise_bound(self) -> None:
        """Raise the bound beyond which gradients are clipped."""
        settings = self._runner.settings
        if settings.largest_gradient is not None:
            settings.largest_gradient *= _HIGHER

    def _flat(self, parts: Sequence[Any]) -> np.ndarray:
        flat = np.concatenate([np.asarray(part, dtype=float).reshape(-1) for part in parts])
        return flat[self._watched]


def _spread_over(sizes: Sequence[int]) -> np.ndarray:
    """Choose coordinates evenly over each variable, small variables whole."""
    if sum(sizes) <= MOST_WATCHED:
        return np.arange(sum(sizes))
    most, left = {}, MOST_WATCHED
    for rank, k in enumerate(np.argsort(sizes, kind="stable")):
        most[k] = max(1, min(sizes[k], left // (len(sizes) - rank)))
        left -= most[k]
    starts = np.cumsum([0, *sizes[:-1]])
    return np.concatenate(
        [
            start + np.linspace(0, size - 1, most[k]).astype(int)
            for k, (start, size) in enumerate(zip(starts, sizes, strict=True))
        ]
    )
