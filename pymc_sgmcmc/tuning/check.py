"""Steps 6 and 7 of tuning: burn-in, then trials that set step size and thinning."""

from __future__ import annotations

import math

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from scipy.special import stdtrit

from pymc_sgmcmc.tuning.policy import Policy
from pymc_sgmcmc.tuning.stiffness import not_too_stiff
from pymc_sgmcmc.tuning.surface import TuningError

__all__ = ["Chain", "Found", "Trial", "burn_in", "settle"]

_BURN_IN = 1000
_TRIAL_DRAWS = 500
# Fewer effective draws say too little to extrapolate from
_LEAST_TO_EXTRAPOLATE = 30
_MOST_TRIALS = 14
_MOST_HALVINGS = 12
_LARGEST_THIN = 2560
_FARTHEST = 1e3
_SLACK = 0.05

# One of how many draws of a trial at which the curvature is looked at
_EACH = 10

# Largest sd in units of the whitening's; where there is a funnel, its neck is missed sooner
_WIDEST, _WIDEST_OF_FUNNEL = 3.0, 2.2
_BATCH_MEANS = 20


@dataclass(frozen=True)
class Trial:
    """Draws of a chain, of all or of some coordinates.

    Attributes
    ----------
    psi : ndarray
        Whitened positions, shape (draws, d).
    gradient : ndarray
        Estimates of ∇U there, shape (draws, d).
    rejected : int
        Updates that were not finite.
    """

    psi: np.ndarray
    gradient: np.ndarray
    rejected: int

    def is_wild(self) -> bool:
        """Whether the chain left the region where the posterior can be."""
        return self.rejected > 0 or not np.max(np.abs(self.psi), initial=0.0) < _FARTHEST


class Chain(Protocol):
    """A chain that can be started anew and run."""

    def restart(self) -> None:
        """Start from m + Le, e standard normal."""

    def run(self, step_size: float, thin: int, draws: int) -> Trial:
        """Run on from where the chain is."""


@dataclass
class Found:
    """Step size and thinning that passed, and what looked wrong."""

    step_size: float
    thin: int
    warnings: list[str]


def settle(
    chain: Chain,
    policy: Policy,
    step_size: float,
    *,
    thin: int,
    fixed_step: bool,
    fixed_thin: bool,
    report: Callable[[str], None],
    collapses: bool = False,
    curvatures: Callable[[np.ndarray], np.ndarray] | None = None,
) -> Found:
    r"""Halve the step or thin more until trials look right.

    A trial passes if every configurational temperature :math:`T_i = E\,\psi_i \hat g_i`
    is 1 within 0.05 and its error, if the step size is small enough for the ``curvatures`` at its
    positions, and if every coordinate has enough effective draws. Where the
    density ``collapses`` into a funnel, a coordinate much wider than its whitening is told sooner.
    """
    h, least, passed = step_size, step_size / 16, False
    report("check")
    for _ in range(_MOST_TRIALS):
        trial = chain.run(h, thin, _TRIAL_DRAWS)
        wild = trial.is_wild()
        hot = not wild and policy.second_moments and _off_temperature(trial)
        if wild or hot:
            if fixed_step or h / 2 < least:
                break
            h /= 2
            thin = thin if fixed_thin else min(2 * thin, _LARGEST_THIN)
            chain.restart()
            continue
        if curvatures is not None and not fixed_step:
            allowed = max(least, not_too_stiff(h, curvatures(trial.psi[::_EACH]), policy))
            if allowed < h:
                h = allowed
                continue
        ess, enough = effective_draws(trial.psi), _enough(trial.psi.shape[1])
        if fixed_thin or ess >= enough or thin >= _LARGEST_THIN:
            passed = ess >= enough or fixed_thin
            break
        factor = 2 ** math.ceil(math.log2(enough / max(ess, 1.0)))
        thin = min(thin * min(factor, 8), _LARGEST_THIN)
        if ess >= _LEAST_TO_EXTRAPOLATE and factor <= 8:
            passed = True
            break
    widest = _WIDEST_OF_FUNNEL if collapses else _WIDEST
    warnings = [] if trial.is_wild() else _looks(trial.psi, widest)
    if not passed:
        warnings.append(_why_not(trial, policy))
    return Found(h, thin, warnings)


def burn_in(chain: Chain, h: float, thin: int, *, fixed_step: bool) -> tuple[float, np.ndarray]:
    """Run from m + Le until the chain has forgotten it, with half the step where it runs away.

    Returns
    -------
    step_size : float
    psi : ndarray
        Positions of the second half, shape (draws, d).

    Raises
    ------
    TuningError
        If no step size gives finite updates.
    """
    for _ in range(_MOST_HALVINGS):
        chain.restart()
        trial = chain.run(h, thin, max(1, _BURN_IN // thin))
        if not trial.is_wild():
            return h, trial.psi[len(trial.psi) // 2 :]
        if fixed_step:
            break
        h /= 2
    raise TuningError(
        f"the burn-in diverged at every step size down to {h:.2g}. Pass a smaller step_size, "
        "initvals= near the posterior, or tighter priors"
    )


def temperatures(trial: Trial) -> tuple[np.ndarray, np.ndarray]:
    """T_i of each coordinate and their standard errors, from batch means."""
    products = trial.psi * trial.gradient
    usable = len(products) // _BATCH_MEANS * _BATCH_MEANS
    means = products[:usable].reshape(_BATCH_MEANS, -1, products.shape[1]).mean(axis=1)
    return means.mean(axis=0), means.std(axis=0, ddof=1) / np.sqrt(_BATCH_MEANS)


def _off_temperature(trial: Trial) -> bool:
    mean, error = temperatures(trial)
    # As many coordinates as are compared, one in a hundred such trials is off by chance
    allowed = stdtrit(_BATCH_MEANS - 1, 1 - 0.005 / len(mean))
    return bool(np.any(np.abs(mean - 1) > _SLACK + allowed * error))


def effective_draws(psi: np.ndarray) -> float:
    """Least effective number of draws over coordinates, of the mean."""
    # Here, for ArviZ imports JAX, which the process that only constructs must not
    from arviz_stats.base.array import array_stats

    with np.errstate(all="ignore"):
        ess: Any = array_stats.ess(  # type: ignore[no-untyped-call]
            psi[None], chain_axis=0, draw_axis=1, method="bulk"
        )
    return float(np.nanmin(ess)) if np.any(np.isfinite(ess)) else 0.0


def _enough(dimension: int) -> float:
    """Least effective draws of 500: of many independent coordinates one always seems slow."""
    return max(125.0, 250 - 75 * math.log10(max(dimension / 10, 1.0)))


def _looks(psi: np.ndarray, widest: float) -> list[str]:
    """Warn where the chain is far from what the whitening promised."""
    sd, mean = psi.std(axis=0).max(), np.abs(psi.mean(axis=0)).max()
    if sd > widest or mean > 4:
        return [
            f"the posterior is far from the Gaussian that whitening fitted to it (largest sd "
            f"{sd:.1f} and mean {mean:.1f} in units of its sds): heavy tails, a funnel or "
            "several modes. Check the result against NUTS, or on another parametrisation"
        ]
    return []


def _why_not(trial: Trial, policy: Policy) -> str:
    if trial.is_wild():
        return (
            f"after {_MOST_TRIALS} trials updates still diverge. The draws cannot be trusted: "
            "write the model non-centred, take tighter priors, or use NUTS"
        )
    mean, _ = temperatures(trial)
    worst = float(mean[np.argmax(np.abs(mean - 1))])
    if policy.second_moments and abs(worst - 1) > 0.1:
        return (
            f"the worst configurational temperature is {worst:.2f}, not 1: some sds are wrong by "
            f"about {abs(worst**0.5 - 1) if worst > 0 else 1:.0%}. Take a larger batch_size, write "
            "the model non-centred, or use NUTS"
        )
    return (
        f"the chain mixes slowly: {effective_draws(trial.psi):.0f} effective draws in "
        f"{_TRIAL_DRAWS}. Raise thin, or write the model non-centred"
    )
