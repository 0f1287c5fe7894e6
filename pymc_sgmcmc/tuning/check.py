"""Steps 6 and 7 of tuning: burn-in, then trials that set step size and thinning."""

from __future__ import annotations

import math

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from scipy.special import stdtrit

from pymc_sgmcmc.convergence import effective_draws
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

# Share of scaled-down gradients above which a chain has left the Gaussian: in a neural network they
# are nearly all, mostly far beyond the bound. Otherwise the bound is too low for the noise, and is
# raised above the second share, at most so many times
_LEFT, _OFTEN, _MOST_LOOSENED = 0.25, 0.05, 2

# Draws of a trial between two at which the curvature is measured
_EACH = 10

# Largest sd without a warning, in units of the whitening's; less where a funnel was seen
_WIDEST, _WIDEST_OF_FUNNEL = 3.0, 2.2
_BATCH_MEANS = 20
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
    tamed: float = 0.0  # share of updates whose gradient was scaled down
    # Which of many coordinates are directions that several variables share: each counts
    shared: np.ndarray | None = None
    escaped: float = 0.0  # share of draws with a gradient far beyond the bound

    def is_wild(self) -> bool:
        """Return whether the chain left the region where the posterior can be."""
        return self.rejected > 0 or not np.max(np.abs(self.psi), initial=0.0) < _FARTHEST


class Chain(Protocol):
    """A chain that can be restarted and run."""

    def restart(self) -> None:
        """Start from m + Le, e standard normal."""

    def run(self, step_size: float, thin: int, draws: int) -> Trial:
        """Run on from the present position."""

    def loosen(self) -> None:
        """Raise the bound beyond which gradients are scaled down."""


@dataclass
class Found:
    """Step size and thinning that passed, warnings, and the thinning that would be needed."""

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
    collapses: bool = False,  # into a funnel: coordinates wider than the whitening warn sooner
    curvatures: Callable[[np.ndarray], np.ndarray] | None = None,  # of positions, bound the step
    moves: bool = False,  # with other step methods: temperatures are taken about the mean
    permutable: bool = False,  # units can be exchanged, and a chain may leave the Gaussian
    whole: bool = False,  # trials have all coordinates: a wrong temperature shows that it left
    draws: int = TRIAL_DRAWS,  # of a trial
    most_updates: int = 2**62,  # of all trials
) -> Found:
    r"""Halve the step or thin more until trials look right.

    All (of many, most) temperatures :math:`T_i = E\,\psi_i \hat g_i` have to be 1 within 0.05 and
    their errors. Raises NoGaussianError if a ``permutable`` chain leaves the Gaussian.
    """
    h, least, passed, needed, updates = step_size, step_size / 16, False, thin, 0
    departure = _Departure(chain, whole=whole) if permutable else None
    widest = _WIDEST_OF_FUNNEL if collapses else _WIDEST
    report("trial of the step size")
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
    """Distinguishes a chain that left the Gaussian of exchangeable units from too low a bound.

    A bound that is too low is raised; ``whole`` says whether all coordinates are observed.
    """

    def __init__(self, chain: Chain, *, whole: bool) -> None:
        self._chain = chain
        self.whole = whole
        self._loosened = 0

    def again(self, trial: Trial, *, far: bool) -> bool:
        """Return whether too many gradients were scaled down; raise if the chain has left."""
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
    """Return the step size and positions, (draws, d), of a burn-in's later half from m + Le.

    The step is halved where the chain diverges.
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
    """Return T_i of each non-circular coordinate and its standard error, from batch means."""
    products = (trial.psi * trial.gradient)[:, _on_line(trial)]
    each = len(products) // _BATCH_MEANS
    usable = products[: each * _BATCH_MEANS]
    means = usable.reshape(_BATCH_MEANS, each, products.shape[1]).mean(axis=1)
    return means.mean(axis=0), means.std(axis=0, ddof=1) / np.sqrt(_BATCH_MEANS)


def _on_line(trial: Trial) -> np.ndarray:
    """Return which coordinates are not circular, shape (d,)."""
    if trial.circular is None:
        return np.ones(trial.psi.shape[1], dtype=bool)
    return ~trial.circular


def _is_hot(trial: Trial, departure: _Departure | None) -> bool:
    """Return whether smaller steps are needed; raise if that reveals a neural network."""
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
    """Return the least ESS of all coordinates, or of many a low quantile's least."""
    if trial.variables is None:
        return _least_effective_draws(trial.psi)
    return min(quantile for _, _, quantile in _slow_variables(trial))


def _slow_variables(trial: Trial) -> list[tuple[str, float, float]]:
    """Return each variable's name, share of slow coordinates and low quantile of ESS."""
    assert trial.variables is not None
    ess = np.nan_to_num(effective_draws(trial.psi.T[:, None]))
    found = []
    for name in dict.fromkeys(trial.variables.tolist()):
        own = ess[trial.variables == name]
        slow = own < _SLOW * len(trial.psi)
        found.append((name, float(np.mean(slow)), float(np.quantile(own, _FEW))))
    return found


def _enough(draws: int, dimension: int) -> float:
    """Return how many draws must be effective: the worst of many coordinates always seems slow."""
    return draws * max(0.25, 0.5 - 0.15 * math.log10(max(dimension / 10, 1.0)))


def _looks(trial: Trial, widest: float, policy: Policy) -> list[str]:
    """Return a warning if the chain is far from what the whitening promised."""
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
    # In a chain that mixes slowly they are chance
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
