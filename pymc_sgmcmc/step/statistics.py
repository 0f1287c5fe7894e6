"""The statistics of a draw, and what is counted over the draws of a chain."""

from __future__ import annotations

import logging

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from pymc.exceptions import SamplingError
from pymc.model import Model
from pymc.stats.convergence import SamplerWarning

from pymc_sgmcmc.chain.by_variable import CENTRING, NOISE, TEMPERATURE, statistic_of
from pymc_sgmcmc.chain.monitor import final_warning, watched
from pymc_sgmcmc.chain.runner import Draw, Runner
from pymc_sgmcmc.kernel.policy import Policy
from pymc_sgmcmc.model.graphs import depends_on
from pymc_sgmcmc.tuning.messages import text_of
from pymc_sgmcmc.tuning.no_gaussian import lower_step

_log = logging.getLogger("pymc.sgmcmc")

Declared = dict[str, tuple[Any, Any]]

STATISTICS: Declared = {
    "step_size": (np.float64, []),
    "weight": (np.float64, []),
    "thin": (np.int64, []),
    "batches": (np.int64, []),
    "batch_size": (np.int64, []),
    "batch_logp": (np.float64, []),
    "grad_norm": (np.float64, []),
    "config_temperature": (np.float64, []),
    "noise_ratio": (np.float64, []),
    "diverging": (bool, []),
    "rejected_updates": (np.int64, []),
    "tamed_updates": (np.int64, []),
    "warning": (SamplerWarning, None),  # the type that NUTS declares: PyMC wants the same
}

_UNKNOWN: dict[Any, Any] = {np.float64: np.nan, np.int64: 0, bool: False, SamplerWarning: None}

# A chain whose every update is rejected for so many draws will not recover
_LARGEST_STUCK = 10


def declared_by(method: str, own: Sequence[str]) -> Declared:
    """Return the statistics of a step method with its own ones, whose names must be others."""
    if taken := [name for name in own if name in STATISTICS]:
        raise TypeError(
            f"{method}.own_statistics has {', '.join(map(repr, taken))}, which all step methods "
            "have. Choose other names."
        )
    return {**STATISTICS, **dict.fromkeys(own, (np.float64, []))}


def nothing_measured(declared: Declared) -> dict[str, Any]:
    """Return the statistics of a draw without updates."""
    return {name: _UNKNOWN[dtype] for name, (dtype, _) in declared.items()}


def of_variables(
    model: Model, names: Sequence[str], *, temperature: bool, noise: bool, centring: bool
) -> list[str]:
    """Return the names of each variable's statistics.

    Weights are those of variables whose law depends on another one that is sampled.
    """
    sampled = {model[name] for name in names}

    def below(name: str) -> bool:
        return depends_on(model[name].owner.inputs, sampled)

    kinds: list[tuple[str, Iterable[str]]] = [
        (TEMPERATURE, names if temperature else ()),
        (NOISE, names if noise else ()),
        (CENTRING, filter(below, names) if centring else ()),
    ]
    return [statistic_of(kind, name) for kind, of in kinds for name in of]


@dataclass
class Recorder:
    """The record of one chain: it counts draws in the state and returns their statistics."""

    policy: Policy
    tunes_step_size: bool
    batch_size: int
    of_variables: Sequence[str]

    def record(
        self,
        runner: Runner,
        draw: Draw,
        others: Sequence[np.ndarray],
        explored: np.ndarray,  # updates rejected and tamed that a schedule left out before it
    ) -> dict[str, Any]:
        """Return all statistics of a draw, whose other step methods' values are given."""
        state = runner.state
        rejected, tamed = (explored + np.array([draw.rejected, draw.tamed])).tolist()
        state.values = [np.array(value) for value in draw.values]
        state.draw += 1
        of_variables = runner.by_variable.constant | self._count(runner, draw)
        if state.draw > state.tuning_draws:
            state.rejected += rejected
            state.tamed += tamed
        self._count_outside(runner, draw, others)
        return {
            **draw.statistics,
            "thin": runner.settings.thin,
            "batches": runner.settings.batches,
            "batch_size": self.batch_size,
            "weight": draw.weight,
            "diverging": rejected > 0,
            "rejected_updates": rejected,
            "tamed_updates": tamed,
            "warning": self._warning(runner) if state.draw == state.last_draw else None,
            **{name: of_variables.get(name, np.nan) for name in self.of_variables},
        }

    def interrupted(self, runner: Runner) -> None:
        """Log what the chain would say if the last draw had been its last."""
        said = self._warning(runner) if runner.state.draw > runner.state.tuning_draws else None
        if said is not None:
            _log.warning("%s", said.message)

    def _count(self, runner: Runner, draw: Draw) -> dict[str, float]:
        """Count a draw, and return the temperature of each variable after the burn-in."""
        state, temperatures = runner.state, {}
        assert state.psi is not None
        # A start by hand knows no centre, whatever its scales
        starts = state.draw == max(state.tuning_draws, 1) and runner.settings.step_size is None
        if starts:
            runner.set_origin([np.asarray(x) for x in state.psi])
        if (starts and not state.tuning_draws) or not self.policy.has_temperature:
            # It was measured about another centre, or has another mean than 1
            draw.statistics["config_temperature"] = np.nan
        if state.draw <= state.tuning_draws:
            if self.tunes_step_size and runner.settings.adapts:
                lower_step(runner, draw.tamed / runner.settings.thin)
        else:
            away = runner.away()
            gradient = watched(runner.engine.posterior.on_line(draw.gradient))
            noise_ratio = draw.statistics["noise_ratio"]
            if state.monitor.add(away, gradient, noise_ratio, draw.weight):
                temperatures = runner.by_variable.temperatures(away, gradient)
        state.stuck = state.stuck + 1 if draw.rejected == runner.settings.thin else 0
        if state.stuck == _LARGEST_STUCK:
            sizes = [float(np.max(np.abs(x), initial=0.0)) for x in runner.phi()]
            furthest = runner.engine.posterior.coordinates[int(np.argmax(sizes))].name
            raise SamplingError(
                f"The chain is stuck at draw {state.draw}: all updates of the last "
                f"{_LARGEST_STUCK} draws gave non-finite values, with the variable '{furthest}' "
                f"furthest out, at step size {draw.statistics['step_size']:g}. Pass a smaller "
                "step_size, or tighter priors."
            )
        return temperatures

    def _count_outside(self, runner: Runner, draw: Draw, others: Sequence[np.ndarray]) -> None:
        """Count a draw without density of a prior or potential; the first names rows, too."""
        state, engine = runner.state, runner.engine
        if draw.statistics["batch_logp"] != -np.inf:
            return
        place = [*runner.phi(), *state.scales, *others]
        terms, is_first = engine.impossible_terms(place), state.zero_terms is None
        state.zero_terms = state.zero_terms or terms
        # To look at all rows takes a pass over the data
        if is_first and not terms:
            rows = engine.impossible_rows(engine.posterior.entries, place)
            if rows:
                _log.warning("Some rows have no effect on the draws: %s", rows)
        if terms and state.draw > state.tuning_draws:
            state.outside += 1

    def _warning(self, runner: Runner) -> SamplerWarning | None:
        state, policy, of_monitor, outside = runner.state, self.policy, [], ""
        # Under heavy tails the noise of anchored gradients has no mean
        if policy.second_moments or not runner.settings.anchor:
            of_monitor = state.monitor.warnings(
                widening=partial(_widening, runner), temperature=policy.has_temperature
            )
        # An interrupted chain ends before its last draw
        draws = max(state.draw - state.tuning_draws, 1)
        if state.outside:
            names = " and ".join(f"'{name}'" for name in state.zero_terms or ())
            of = f" of {names}" if names else ""
            outside = f"{state.outside} of {draws} draws lie where the density{of} is zero"
        return final_warning(
            [text_of(warning) for warning in runner.settings.warnings],
            of_monitor,
            state.rejected,
            state.tamed if policy.second_moments else 0,
            max(draws * runner.settings.thin, state.updates * draws // max(state.draw, 1)),
            dimension=max(1, sum(x.size for x in state.psi or ())),
            outside=outside,
        )


def _widening(runner: Runner, noise_ratio: float) -> float:
    """Return by how much noise of a mean ratio widens the variances of a chain's draws."""
    if not runner.engine.scheme.independent:
        # The batches of a sweep cancel each other's noise: the temperature shows what is left
        return 0.0
    monitor = runner.state.monitor
    step_size = monitor.masses.sum() / monitor.counts.sum() / runner.settings.thin
    return runner.engine.sampler.remaining(noise_ratio, step_size)
