"""Steps 6 and 7 of tuning: burn-in, then trials that set step size and thinning."""

from __future__ import annotations

import math

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from scipy.special import stdtrit

from pymc_sgmcmc.convergence.effective import effective_draws
from pymc_sgmcmc.kernel.policy import Policy
from pymc_sgmcmc.tuning.failure import BY_HAND, named_step
from pymc_sgmcmc.tuning.stiffness import not_too_stiff
from pymc_sgmcmc.tuning.surface import NoGaussianError, TuningError

__all__ = ["BURN_IN", "LARGEST_THIN", "TRIAL_DRAWS", "Chain", "Found", "Trial", "burn_in", "settle"]

# Updates of a burn-in, and its least draws: the mean of half of them has an error of half an sd
BURN_IN, _LEAST_SEEN = 1000, 10
TRIAL_DRAWS = 500
# Fewer effective draws say too little to extrapolate from
_LEAST_TO_EXTRAPOLATE = 30
_MOST_TRIALS = 14
_MOST_HALVINGS = 12
_USUAL_THIN, LARGEST_THIN = 20, 2560
_FARTHEST = 1e3
_ABSURD = 1e6
_SLACK = 0.05

# Share of many coordinates that may be slow or off, and the share of draws effective in a slow one
_FEW, _SLOW = 0.05, 0.1

# Share of updates whose gradient is scaled down, of a chain that has left the Gaussian: nearly all
# are, of nets, and most are far larger than the bound. Where they are not, the bound is too low for
# the noise: it is raised from the second share on, so many times at most
_LEFT, _OFTEN, _MOST_LOOSENED = 0.25, 0.05, 2

# One in so many draws of a trial has its curvature looked at
_EACH = 10

# Largest sd in units of the whitening's that is no reason to warn; less where a funnel was seen
_WIDEST, _WIDEST_OF_FUNNEL = 3.0, 2.2
_BATCH_MEANS = 20
_IQR_OF_NORMAL = 1.349


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
    circular : ndarray or None
        Which coordinates lie on a circle, and so have no temperature; None for none of them.
    variables : ndarray or None
        The name of each coordinate's variable where there are thousands: then not the worst of
        all coordinates is judged, but a low quantile of each variable's. None where each counts.
    tamed : float
        Share of the updates whose gradient was scaled down.
    escaped : float
        Share of the draws at which a gradient is far larger than the bound.
    shared : ndarray or None
        Which of many coordinates are directions that several variables share: each counts.
    """

    psi: np.ndarray
    gradient: np.ndarray
    rejected: int
    circular: np.ndarray | None = None
    variables: np.ndarray | None = None
    tamed: float = 0.0
    shared: np.ndarray | None = None
    escaped: float = 0.0

    def is_wild(self) -> bool:
        """Whether the chain left the region where the posterior can be."""
        return self.rejected > 0 or not np.max(np.abs(self.psi), initial=0.0) < _FARTHEST


class Chain(Protocol):
    """A chain that can be started anew and run."""

    def restart(self) -> None:
        """Start from m + Le, e standard normal."""

    def run(self, step_size: float, thin: int, draws: int) -> Trial:
        """Run on from where the chain is."""

    def loosen(self) -> None:
        """Raise the bound beyond which gradients are scaled down."""


@dataclass
class Found:
    """Step size and thinning that passed, what looked wrong, and the thinning that would do."""

    step_size: float
    thin: int
    warnings: list[str]
    needed: int


@named_step("the check of the step size")
def settle(
    chain: Chain,
    policy: Policy,
    step_size: float,
    *,
    thin: int,
    fixed_step: bool,
    fixed_thin: bool,
    report: Callable[[str], None],
    most_thin: int = LARGEST_THIN,
    collapses: bool = False,
    curvatures: Callable[[np.ndarray], np.ndarray] | None = None,
    moves: bool = False,
    permutable: bool = False,
    whole: bool = False,
    draws: int = TRIAL_DRAWS,
    most_updates: int = 2**62,
) -> Found:
    r"""Halve the step or thin more until trials look right.

    A trial passes if every configurational temperature :math:`T_i = E\,\psi_i \hat g_i`
    is 1 within 0.05 and its error, if the step size is small enough for the ``curvatures`` at its
    positions, and if every coordinate has enough effective draws, or ``most_thin`` is reached. Of
    thousands of coordinates a few may fail: some may have no law of their own, as permuted units
    of a net have none. Where the density ``collapses``
    into a funnel, the warning of a coordinate much wider than its whitening comes sooner. Where
    the law ``moves`` with what other step methods sample, temperatures are taken about its mean. A
    trial has so many ``draws``; no further one begins that would end after ``most_updates``.

    Raises
    ------
    NoGaussianError
        If units can be exchanged (``permutable``) and the chain has left the Gaussian: for where
        gradients are far larger, or, of a whole L, for where few of its draws would be. Where
        trials see the ``whole`` chain, also if its temperature is off: a net's is, and a
        factorisation's is right however far it goes along its ridges.
    """
    h, least, passed, needed, updates = step_size, step_size / 16, False, thin, 0
    departure = _Departure(chain, whole=whole) if permutable else None
    widest = _WIDEST_OF_FUNNEL if collapses else _WIDEST
    report("check")
    for _ in range(_MOST_TRIALS):
        if updates and updates + thin * draws > most_updates:
            break
        updates += thin * draws
        raw = trial = chain.run(h, thin, draws)
        far = trial.variables is None and bool(_looks(trial, widest, policy))
        if departure is not None and departure.again(trial, far=far):
            continue
        wild = trial.is_wild()
        if (moves or trial.variables is not None) and not wild:
            trial = replace(trial, psi=trial.psi - trial.psi.mean(axis=0))
        hot = not wild and policy.second_moments and _is_hot(trial, departure)
        if wild or hot:
            if fixed_step or h / 2 < least:
                break
            h, needed = h / 2, 2 * thin
            thin = thin if fixed_thin else max(thin, min(2 * thin, most_thin))
            chain.restart()
            continue
        if curvatures is not None and not fixed_step:
            allowed = max(least, not_too_stiff(h, curvatures(raw.psi[::_EACH]), policy))
            if allowed < h:
                h = allowed
                continue
        # Draws that cost much have fewer updates each
        share = 1.0 if trial.variables is not None else min(1.0, thin / _USUAL_THIN)
        ess, enough = _effective_draws_of(trial), share * _enough(*trial.psi.shape)
        needed = math.ceil(thin * max(1.0, enough / max(ess, 1.0)))
        if not fixed_thin and thin < min(needed, most_thin):
            factor = 2 ** math.ceil(math.log2(needed / thin))
            thin = min(thin * min(factor, 8), most_thin)
            # Whatever another trial finds, thinning goes no further than it may cost
            if thin < most_thin and (ess < _LEAST_TO_EXTRAPOLATE or factor > 8):
                continue
        passed = fixed_thin or needed <= thin
        break
    warnings = [] if trial.is_wild() else _looks(trial if moves else raw, widest, policy)
    if not passed and (why := _why_not(trial, policy)):
        warnings.append(why)
    return Found(h, thin, warnings, needed)


class _Departure:
    """Tells a chain that has left the Gaussian of exchangeable units from a bound that is too low.

    Then the chain's bound is raised; ``whole`` says whether all of its coordinates are seen.
    """

    def __init__(self, chain: Chain, *, whole: bool) -> None:
        self._chain = chain
        self.whole = whole
        self._loosened = 0

    def again(self, trial: Trial, *, far: bool) -> bool:
        """Return whether the trial says nothing, as too many gradients were scaled down.

        Raises NoGaussianError if the chain has left.
        """
        tamed = trial.tamed > _LEFT
        spent = self._loosened == _MOST_LOOSENED
        if far or (tamed and (spent or trial.escaped > _LEFT)):
            raise NoGaussianError
        if trial.tamed > _OFTEN and not spent:
            self._chain.loosen()
            self._loosened += 1
        return tamed


@named_step("the burn-in")
def burn_in(
    chain: Chain, h: float, thin: int, *, fixed_step: bool, updates: int = BURN_IN
) -> tuple[float, np.ndarray]:
    """Run from m + Le until the chain has forgotten it, with half the step where it runs away.

    Return the step size and positions of the second half, shape (draws, d).
    """
    for _ in range(_MOST_HALVINGS):
        chain.restart()
        trial = chain.run(h, thin, max(_LEAST_SEEN, updates // thin))
        if not trial.is_wild():
            return h, trial.psi[len(trial.psi) // 2 :]
        if fixed_step:
            break
        h /= 2
    raise TuningError(
        f"the burn-in diverged at every step size down to {h:.2g}. Pass a smaller step_size, "
        f"initvals= near the posterior, tighter priors, or {BY_HAND}"
    )


def temperatures(trial: Trial) -> tuple[np.ndarray, np.ndarray]:
    """Return T_i of each coordinate on the line, and its standard error, from batch means."""
    products = (trial.psi * trial.gradient)[:, _on_line(trial)]
    each = len(products) // _BATCH_MEANS
    usable = products[: each * _BATCH_MEANS]
    means = usable.reshape(_BATCH_MEANS, each, products.shape[1]).mean(axis=1)
    return means.mean(axis=0), means.std(axis=0, ddof=1) / np.sqrt(_BATCH_MEANS)


def _on_line(trial: Trial) -> np.ndarray:
    """Return which coordinates are not on a circle."""
    if trial.circular is None:
        return np.ones(trial.psi.shape[1], dtype=bool)
    return ~trial.circular


def _is_hot(trial: Trial, departure: _Departure | None) -> bool:
    """Return whether smaller steps are needed; raise where that tells a net."""
    hot = _off_temperature(trial)
    if hot and departure is not None and departure.whole and trial.variables is not None:
        raise NoGaussianError
    return hot


def _off_temperature(trial: Trial) -> bool:
    mean, error = temperatures(trial)
    if not mean.size:
        return False
    # However many coordinates are compared, one in a hundred right trials is off by chance
    allowed = stdtrit(_BATCH_MEANS - 1, 1 - 0.005 / len(mean))
    # A mean or error that is not finite counts as off
    near = (np.abs(mean - 1) <= _SLACK + allowed * error) & np.isfinite(error)
    if trial.shared is not None and not np.all(near[trial.shared[_on_line(trial)]]):
        return True
    return bool(np.mean(~near) > (0.0 if trial.variables is None else _FEW))


def _least_effective_draws(psi: np.ndarray) -> float:
    ess = effective_draws(psi.T[:, None])
    return float(np.nanmin(ess)) if np.any(np.isfinite(ess)) else 0.0


def _effective_draws_of(trial: Trial) -> float:
    """Return the least number of any coordinate, or of many the least of a low quantile."""
    if trial.variables is None:
        return _least_effective_draws(trial.psi)
    return min(quantile for _, _, quantile in _slow_variables(trial))


def _slow_variables(trial: Trial) -> list[tuple[str, float, float]]:
    """Return of each variable its name, the share of slow coordinates and their low quantile."""
    assert trial.variables is not None
    ess = np.nan_to_num(effective_draws(trial.psi.T[:, None]))
    found = []
    for name in dict.fromkeys(trial.variables.tolist()):
        own = ess[trial.variables == name]
        slow = own < _SLOW * len(trial.psi)
        found.append((name, float(np.mean(slow)), float(np.quantile(own, _FEW))))
    return found


def _enough(draws: int, dimension: int) -> float:
    """Return how many draws must be effective: one of many coordinates always seems slow."""
    return draws * max(0.25, 0.5 - 0.15 * math.log10(max(dimension / 10, 1.0)))


def _looks(trial: Trial, widest: float, policy: Policy) -> list[str]:
    """Warn where the chain is far from what the whitening promised."""
    psi, share = trial.psi, 1.0 if trial.variables is None else 1 - _FEW
    if policy.second_moments:
        sds, means = psi.std(axis=0), np.abs(psi.mean(axis=0))
    else:
        low, middle, high = np.quantile(psi, [0.25, 0.5, 0.75], axis=0)
        sds, means = (high - low) / _IQR_OF_NORMAL, np.abs(middle)
    sd, mean = np.quantile(sds, share), np.quantile(means, share)
    if sd > widest or mean > 4:
        cure = "Check the result against NUTS, or on another parametrisation"
        if trial.variables is not None:
            cure = "Compare what chains predict, on which they may agree, before single parameters"
        return [
            f"the posterior is far from the Gaussian that whitening fitted to it (largest sd "
            f"{sd:.1f} and mean {mean:.1f} in units of its sds): heavy tails, a funnel or "
            f"several modes. {cure}"
        ]
    return []


def _why_not(trial: Trial, policy: Policy) -> str:
    if trial.is_wild():
        return (
            "after all trials updates still diverge. The draws cannot be trusted: "
            "write the model non-centred, take tighter priors, or use NUTS"
        )
    if trial.variables is not None:
        slow = [
            f"{name} ({share:.0%} of its coordinates, {quantile:.0f} effective draws in "
            f"{len(trial.psi)} of a trial at the quantile of {_FEW:.0%})"
            for name, share, quantile in _slow_variables(trial)
            if quantile < _SLOW * len(trial.psi)
        ]
        if not slow and not (policy.second_moments and _off_temperature(trial)):
            return ""
    if trial.variables is not None and slow:
        return (
            f"some variables mix slowly: {', '.join(slow)}. Marginals of these coordinates are not "
            "to be trusted, predictions that average over them may be. Raise thin, write an "
            "intercept as the mean of its effects, or give them tighter priors"
        )
    mean, error = temperatures(trial)
    worst = float(mean[np.argmax(np.abs(mean - 1))]) if mean.size else 1.0
    if policy.second_moments and not abs(worst) < _ABSURD:
        return (
            "gradients are not finite, or of absurd size, at some of the chain's positions. The "
            "draws cannot be trusted: leave out rows of the data that no parameter can explain, "
            "take tighter priors, or use NUTS"
        )
    # Those of a chain that mixes slowly are chance
    off = np.where(np.abs(mean - 1) > 3 * error, mean, 1.0)
    worst = float(off[np.argmax(np.abs(off - 1))]) if off.size else 1.0
    if policy.second_moments and abs(worst - 1) > 0.1:
        return (
            f"the worst configurational temperature is {worst:.2f}, not 1: some sds are wrong by "
            f"about {abs(worst**0.5 - 1) if worst > 0 else 1:.0%}. Take a larger batch_size, write "
            "the model non-centred, or use NUTS"
        )
    return (
        f"the chain mixes slowly: {_least_effective_draws(trial.psi):.0f} effective draws in "
        f"{len(trial.psi)}. Raise thin, or write the model non-centred"
    )
