"""A chain as observed by the trials of tuning."""

from __future__ import annotations

import time

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pymc_sgmcmc.chain.runner import Runner
from pymc_sgmcmc.kernel.potential import Potential
from pymc_sgmcmc.tuning.check import Trial
from pymc_sgmcmc.tuning.noise import NoiseOnTheWay

__all__ = ["MOST_WATCHED", "TrialChain"]

# Most coordinates whose every draw the trials keep
MOST_WATCHED = 1024

# Factor of the bound above which a gradient is not the Gaussian's, and the factor that raises a
# bound which batch noise exceeds
_FAR, _LOOSER = 2.0, 4.0


class TrialChain:
    """Runs a chain for a while, in units of its whitened coordinates.

    ``unit`` is the scale of the narrowest direction. Of ``many`` coordinates the quantiles of each
    variable are judged, and each ``shared`` one.
    """

    def __init__(
        self,
        runner: Runner,
        unit: float,
        rng: np.random.Generator,
        others: Sequence[np.ndarray],
        *,
        many: bool = False,
        shared: np.ndarray | None = None,
        report: Callable[[int, int, float], None] = lambda draws, thin, seconds: None,
    ) -> None:
        self._runner = runner
        self._unit = unit
        self._rng = rng
        self._others = others
        self._report = report
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
        if many:
            names = [c.name for c in runner.engine.posterior.coordinates]
            self._variables = np.repeat(names, sizes)[self._watched]

    def restart(self) -> None:
        """Start from m + Le, e standard normal."""
        runner = self._runner
        runner.settle()
        runner.restart(
            [
                (x + self._unit * self._rng.standard_normal(x.shape)).astype(x.dtype)
                for x in self._centre
            ]
        )

    def run(self, step_size: float, thin: int, draws: int) -> Trial:
        """Run on from the present position."""
        runner, unit = self._runner, self._unit
        centre, whole = self._flat(self._centre), Potential.join(self._centre)
        total, later = np.zeros(len(whole)), draws // 2
        psi, gradient, rejected, tamed = [], [], 0, 0
        noise = self.noise
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
            tamed += draw.tamed
            if rejected:
                break
            if k >= later:
                total += Potential.join(runner.state.psi)
            if noise is not None and k % max(1, draws // noise.positions) == 0:
                noise.add(Potential.join(runner.phi()))
        self.seconds = (time.perf_counter() - began) / (max(1, len(psi) - 1) * thin)
        self.middle = (total / max(1, len(psi) - later) - whole) / unit
        circular = runner.engine.posterior.circular[self._watched]
        bound = runner.settings.largest_gradient
        escaped = 0.0
        if bound is not None and not rejected:
            escaped = float(np.mean(np.abs(gradient).max(axis=1) > _FAR * bound * unit))
        return Trial(
            np.array(psi),
            np.array(gradient),
            rejected,
            circular,
            self._variables,
            tamed / (len(psi) * thin),
            self._shared,
            escaped,
        )

    def loosen(self) -> None:
        """Raise the bound beyond which gradients are scaled down."""
        settings = self._runner.settings
        if settings.largest_gradient is not None:
            settings.largest_gradient *= _LOOSER

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
