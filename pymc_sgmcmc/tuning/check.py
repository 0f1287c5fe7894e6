"""The burn-in, and the trials that set step size and thinning."""

from __future__ import annotations

import math

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from pymc_sgmcmc.chain.monitor import MOST_TAMED
from pymc_sgmcmc.kernel.policy import Policy
from pymc_sgmcmc.schedules import USUAL_THIN
from pymc_sgmcmc.tuning.bounds import not_too_stiff
from pymc_sgmcmc.tuning.failure import diverged, named_step
from pymc_sgmcmc.tuning.messages import Warned
from pymc_sgmcmc.tuning.surface import FEW, NoGaussianError
from pymc_sgmcmc.tuning.trial_chain import SLOW, Trial, TrialChain

# Least draws of a burn-in: the mean of half of them has an error of half an sd
_LEAST_DRAWS, _MOST_HALVINGS = 10, 12

# Most trials, and the effective draws below which thinning is not extrapolated
_MOST_TRIALS, _LEAST_TO_EXTRAPOLATE = 14, 30

# Divisor of the step size below which trials do not lower it, and most factor of a trial's thinning
_MOST_LOWERED, _MOST_THINNED = 16, 8

# Share of clipped gradients above which a chain has left the Gaussian: in a neural network they are
# nearly all, mostly far beyond the bound. Otherwise the bound is too low for the noise, and is
# raised, at most so many times
_LEFT, _MOST_RAISED = 0.25, 2

# Draws of a trial between two at which the curvature is measured
_EACH = 10

# Largest sd without a warning, in units of the whitening's, less where the search ended in a
# funnel; and largest mean
_WIDEST, _WIDEST_OF_FUNNEL, _FARTHEST_MEAN = 3.0, 2.2, 4.0

# Temperature that only absurd gradients have, and the least error of one that is reported
_ABSURD, _REPORTED = 1e6, 0.1


@dataclass(frozen=True)
class Rules:
    """What trials may change, and what they ask for."""

    policy: Policy
    thin: int  # to begin with
    fixed_step: bool
    fixed_thin: bool
    most_thin: int
    draws: int  # of a trial
    most_updates: int  # of all trials
    about_mean: bool  # temperatures are: other step methods move the bulk
    collapses: bool  # the search for the centre does: wide coordinates warn sooner
    exchangeable: bool  # units can be exchanged: the chain may leave the Gaussian
    all_seen: bool  # trials have all coordinates: a wrong temperature shows that it left


@dataclass(frozen=True)
class Verdict:
    """What follows from a trial: the next step size and thinning, and whether there is a next."""

    step_size: float
    thin: int
    needed: int  # thinning that would be needed
    next: Literal["another trial", "a restart", "passed", "failed"]
    warnings: list[Warned] = field(default_factory=list)  # of the last trial


@named_step("the trials of the step size")
def settle(
    chain: TrialChain,
    step_size: float,
    rules: Rules,
    curvatures: Callable[[np.ndarray], np.ndarray] | None = None,  # of positions
) -> Verdict:
    r"""Halve the step or thin more until trials look right.

    All (of many, most) temperatures :math:`T_i = E\,\psi_i \hat g_i` have to be 1 within 0.05 and
    their errors. Raises NoGaussianError if a chain of exchangeable units leaves the Gaussian.
    """
    judge = _Judge(chain, rules, step_size / _MOST_LOWERED, curvatures)
    verdict, updates = Verdict(step_size, rules.thin, rules.thin, "another trial"), 0
    for _ in range(_MOST_TRIALS):
        cost = verdict.thin * rules.draws
        if updates and updates + cost > rules.most_updates:
            break
        updates += cost
        trial = chain.run(verdict.step_size, verdict.thin, rules.draws)
        verdict = judge(trial, verdict)
        if verdict.next == "a restart":
            chain.restart()
        elif verdict.next != "another trial":
            break
    judged = judge.trial
    passed = verdict.next == "passed" and verdict.needed <= verdict.thin
    # Sds of thousands are those with all others held: a chain that mixes may be wider
    may_be_wide = passed and trial.variables is not None
    not_judged = judged.diverged() or may_be_wide
    warnings = [] if not_judged else judge.far(judged if rules.about_mean else trial)
    if warnings and rules.exchangeable and rules.all_seen:
        # A Gaussian that a chain which does not mix has left is no Gaussian of the posterior
        raise NoGaussianError
    if verdict.next != "passed":
        warnings += _why_not(judged, rules.policy, slow=verdict.needed > verdict.thin)
    return replace(verdict, warnings=warnings)


class _Judge:
    """Judges trials; ``trial`` is the last one as it was judged."""

    def __init__(
        self,
        chain: TrialChain,
        rules: Rules,
        least: float,  # step size
        curvatures: Callable[[np.ndarray], np.ndarray] | None,
    ) -> None:
        self._chain, self._rules, self._least, self._curvatures = chain, rules, least, curvatures
        self._raised = 0

    def __call__(self, trial: Trial, was: Verdict) -> Verdict:
        """Return what follows from a trial with the step size and thinning of a verdict."""
        rules, self.trial = self._rules, trial
        h, thin = was.step_size, was.thin
        if rules.exchangeable and self._is_clipped(trial):
            return Verdict(h, thin, was.needed, "another trial")
        diverged, positions = trial.diverged(), trial.psi
        if (rules.about_mean or trial.variables is not None) and not diverged:
            trial = self.trial = trial.about_mean()
        if diverged or (rules.policy.second_moments and self._is_hot(trial)):
            if rules.fixed_step or h / 2 < self._least:
                return Verdict(h, thin, was.needed, "failed")
            slower = thin if rules.fixed_thin else max(thin, min(2 * thin, rules.most_thin))
            return Verdict(h / 2, slower, 2 * thin, "a restart")
        if self._curvatures is not None and not rules.fixed_step:
            of_some = self._curvatures(positions[::_EACH])
            allowed = max(self._least, not_too_stiff(h, of_some, rules.policy))
            if allowed < h:
                return Verdict(allowed, thin, was.needed, "another trial")
        return self._thinned(trial, h, thin)

    def _thinned(self, trial: Trial, h: float, thin: int) -> Verdict:
        """Return what follows from the effective draws of a trial whose step size is right."""
        rules = self._rules
        # Draws that cost much have fewer updates each
        share = 1.0 if trial.variables is not None else min(1.0, thin / USUAL_THIN)
        effective, enough = trial.effective_draws(), share * _enough(*trial.psi.shape)
        needed = math.ceil(thin * max(1.0, enough / max(effective, 1.0)))
        if not rules.fixed_thin and thin < min(needed, rules.most_thin):
            factor = 2 ** math.ceil(math.log2(needed / thin))
            thin = min(thin * min(factor, _MOST_THINNED), rules.most_thin)
            # Whatever another trial finds, thinning goes no further than it may cost
            unsure = effective < _LEAST_TO_EXTRAPOLATE or factor > _MOST_THINNED
            if thin < rules.most_thin and unsure:
                return Verdict(h, thin, needed, "another trial")
        return Verdict(
            h, thin, needed, "passed" if rules.fixed_thin or needed <= thin else "failed"
        )

    def _is_clipped(self, trial: Trial) -> bool:
        """Return whether too many gradients were clipped; raise if the chain left the Gaussian.

        A bound that is too low for the noise is raised.
        """
        clipped, spent = trial.clipped > _LEFT, self._raised == _MOST_RAISED
        far = trial.variables is None and bool(self.far(trial))
        if far or (clipped and (spent or trial.escaped > _LEFT)):
            raise NoGaussianError
        if trial.clipped > MOST_TAMED and not spent:
            self._chain.raise_bound()
            self._raised += 1
        return clipped

    def _is_hot(self, trial: Trial) -> bool:
        """Return whether smaller steps are needed; raise if that reveals a neural network."""
        rules, hot = self._rules, trial.is_off_temperature()
        if hot and rules.exchangeable and rules.all_seen and trial.variables is not None:
            raise NoGaussianError
        return hot

    def far(self, trial: Trial) -> list[Warned]:
        """Return a warning if the chain is far from what the whitening promised."""
        sd, mean = trial.widths(moments=self._rules.policy.second_moments)
        widest = _WIDEST_OF_FUNNEL if self._rules.collapses else _WIDEST
        if sd > widest or mean > _FARTHEST_MEAN:
            code = "far" if trial.variables is None else "far, of many"
            return [(code, {"sd": sd, "mean": mean})]
        return []


@named_step("the burn-in")
def burn_in(
    chain: TrialChain, h: float, thin: int, *, fixed_step: bool, updates: int
) -> tuple[float, np.ndarray]:
    """Return step size and positions watched, (draws, n), of a burn-in's later half from m + Le.

    The step is halved where the chain diverges.
    """
    for halvings in range(1 if fixed_step else _MOST_HALVINGS + 1):
        tried = h / 2**halvings
        chain.restart()
        trial = chain.run(tried, thin, max(_LEAST_DRAWS, updates // thin))
        if not trial.diverged():
            return tried, trial.psi[len(trial.psi) // 2 :]
    raise diverged("the burn-in", tried, fixed=fixed_step)


def _enough(draws: int, dimension: int) -> float:
    """Return how many draws must be effective: the worst of many coordinates always seems slow."""
    return draws * max(0.25, 0.5 - 0.15 * math.log10(max(dimension / 10, 1.0)))


def _why_not(trial: Trial, policy: Policy, *, slow: bool) -> list[Warned]:
    """Return why a trial does not pass; the last reason is that its draws are ``slow``."""
    if trial.diverged():
        return [("diverging", {})]
    if trial.variables is not None:
        draws = len(trial.psi)
        variables = [
            f"{name} ({share:.0%} of its elements; in the slowest {FEW:.0%} at most "
            f"{quantile:.0f} effective draws in {draws})"
            for name, share, quantile in trial.slow_variables()
            if quantile < SLOW * draws
        ]
        if variables:
            return [("slow variables", {"variables": ", ".join(variables)})]
        if not (policy.second_moments and trial.is_off_temperature()):
            return []
    if policy.second_moments:
        mean, off = trial.off_temperature()
        if not abs(_farthest_from_1(mean)) < _ABSURD:
            return [("absurd gradients", {})]
        worst = _farthest_from_1(np.where(off, mean, 1.0))
        if abs(worst - 1) > _REPORTED:
            wrong = abs(worst**0.5 - 1) if worst > 0 else 1
            return [("temperature", {"worst": worst, "wrong": wrong})]
    effective = trial.least_effective_draws()
    return [("slow", {"effective": effective, "draws": len(trial.psi)})] if slow else []


def _farthest_from_1(values: np.ndarray) -> float:
    return float(values[np.argmax(np.abs(values - 1))]) if values.size else 1.0
