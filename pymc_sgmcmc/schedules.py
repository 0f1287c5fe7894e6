"""Step sizes that change with the number of updates."""

from __future__ import annotations

import math

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from pymc_sgmcmc.checks import positive, positive_int, share

__all__ = [
    "USUAL_THIN",
    "Schedule",
    "as_schedule",
    "constant",
    "cyclical",
    "polynomial",
    "records",
    "step_sizes",
    "thin_of",
]

# Updates for each draw unless something else is asked for
USUAL_THIN = 20

Schedule = Callable[[np.ndarray], np.ndarray]
"""Maps the numbers of updates t = 0, 1, ... of a chain to their step sizes."""


@dataclass(frozen=True)
class constant:
    """The step size ``h`` at every update.

    Parameters
    ----------
    h : float
        Step size; positive. Its unit is that of the method's ``step_size``.

    Raises
    ------
    ValueError
        If ``h`` is not a positive, finite number.

    Examples
    --------
    >>> constant(0.1)(np.arange(3))
    array([0.1, 0.1, 0.1])
    """

    h: float

    def __post_init__(self) -> None:
        positive("step_size", self.h, usual=1e-3)

    def __call__(self, t: np.ndarray) -> np.ndarray:
        """Step sizes of the updates number ``t``."""
        return np.full(len(t), float(self.h))


@dataclass(frozen=True)
class polynomial:
    r"""The decreasing step size :math:`h_t = a (b + t)^{-\gamma}`.

    With ½ < γ ≤ 1 the steps sum to infinity and their squares do not, the condition under
    which the bias of Langevin updates vanishes [1]_. Draws then count with their ``weight``.

    Parameters
    ----------
    a : float
        Positive; the first step is ``a * b ** -gamma``.
    b : float, default 1.0
        Updates over which the step stays about constant; positive.
    gamma : float, default 0.55
        Exponent, 0 < γ ≤ 1.

    Raises
    ------
    ValueError
        If an argument is outside its range.

    References
    ----------
    .. [1] Welling, Teh (2011). Bayesian learning via stochastic gradient Langevin
       dynamics. ICML.

    Examples
    --------
    >>> polynomial(a=1.0, b=1.0, gamma=1.0)(np.arange(2))
    array([1. , 0.5])
    """

    a: float
    b: float = 1.0
    gamma: float = 0.55

    def __post_init__(self) -> None:
        positive("polynomial's a", self.a, usual=1e-3)
        positive("polynomial's b", self.b, usual=1.0)
        positive("polynomial's gamma", self.gamma, usual=0.55)
        if self.gamma > 1:
            raise ValueError(
                f"polynomial's gamma must be at most 1, got {self.gamma}: with a larger one the "
                "steps have a finite sum and the chain stops; 0.55 is usual."
            )

    def __call__(self, t: np.ndarray) -> np.ndarray:
        """Step sizes of the updates number ``t``."""
        return np.asarray(self.a * (self.b + t) ** -float(self.gamma))


@dataclass(frozen=True)
class cyclical:
    r"""The step size :math:`h_t = h_0 (1 + \cos \pi r) / 2`, r = (t mod P) / P.

    Each cycle begins with long steps, which may but need not leave a mode, and ends with short
    ones that sample where it is [1]_. Draws are recorded in the second part of a cycle only; they
    count with their ``weight``.

    Parameters
    ----------
    h0 : float
        Largest step size; positive.
    period : int
        P, updates in a cycle.
    exploration : float, default 0.8
        Share of a cycle that is not recorded, 0 ≤ exploration < 1. All updates of a recorded
        draw lie in what is left: ``thin`` divides the period and is at most that long.

    Raises
    ------
    ValueError
        If an argument is outside its range.

    References
    ----------
    .. [1] Zhang, Li, Zhang, Chen, Wilson (2020). Cyclical stochastic gradient MCMC for
       Bayesian deep learning. ICLR.

    Examples
    --------
    >>> cyclical(h0=0.5, period=4, exploration=0.5)(np.arange(5)).round(3)
    array([0.5  , 0.427, 0.25 , 0.073, 0.5  ])
    """

    h0: float
    period: int
    exploration: float = 0.8

    def __post_init__(self) -> None:
        positive("cyclical's h0", self.h0, usual=0.5)
        positive_int("cyclical's period", self.period, usual=2000)
        share("cyclical's exploration", self.exploration, usual=0.8)
        if self.recording < 1:
            raise ValueError(
                f"cyclical's period={self.period} leaves no update of a cycle to record after an "
                f"exploration of {self.exploration}: take a longer period or less exploration."
            )

    @property
    def recording(self) -> int:
        """Updates at the end of a cycle of which draws are recorded."""
        return self.period - math.ceil(self.exploration * self.period - 1e-9)

    def __call__(self, t: np.ndarray) -> np.ndarray:
        """Step sizes of the updates number ``t``."""
        return np.asarray(self.h0 * (1 + np.cos(np.pi * (t % self.period) / self.period)) / 2)


def records(schedule: Schedule | None, t: int, thin: int) -> bool:
    """Whether a schedule has the draw of the updates ``t`` to ``t + thin - 1`` recorded."""
    if not isinstance(schedule, cyclical):
        return True
    return schedule.period - schedule.recording <= t % schedule.period <= schedule.period - thin


def thin_of(schedule: Schedule | None, thin: int | None) -> int:
    """Return the updates of a draw: as wished, else 20.

    A cyclical schedule takes divisors of its period, so that each cycle has the same draws: as
    wished, else the largest up to 20.
    """
    if not isinstance(schedule, cyclical):
        return thin or USUAL_THIN
    divisors = [k for k in range(1, schedule.recording + 1) if schedule.period % k == 0]
    if thin is None:
        return max(k for k in divisors if k <= USUAL_THIN)
    if thin not in divisors:
        raise ValueError(
            f"thin={thin} must divide the period of {schedule!r}, and be at most the "
            f"{schedule.recording} updates at the end of each cycle that are recorded. Take "
            f"thin={divisors[-1]}, or another period."
        )
    return thin


def updates_of_draw(schedule: Schedule | None, thin: int) -> int:
    """Return the updates from one draw to the next, with a cycle's that are not recorded."""
    if not isinstance(schedule, cyclical):
        return thin
    return round(schedule.period / (schedule.recording // thin))


def as_schedule(step_size: float | str | Schedule) -> Schedule:
    """Return a schedule for what the user passed as ``step_size``; refuse what is none."""
    if callable(step_size):
        return step_size
    if isinstance(step_size, str):
        raise ValueError(
            f"step_size must be 'auto', a number or a schedule, got {step_size!r}. Pass a "
            "positive number such as 0.1, or leave it out."
        )
    return constant(step_size)


def step_sizes(schedule: Schedule, t: np.ndarray) -> np.ndarray:
    """Return the step sizes of the updates ``t``; refuse a schedule that does not give them."""
    try:
        returned: Any = schedule(t)
    except Exception as error:
        raise ValueError(
            f"The step_size schedule raised {type(error).__name__} for the update numbers {t[0]} "
            f"to {t[-1]}, which it is given as one array: {error}. It must return a positive, "
            "finite number for each of them, however many there are. polynomial(a=1e-3) is such a "
            "schedule."
        ) from error
    try:
        h = np.asarray(returned)
    except (TypeError, ValueError):
        h = np.empty(0)
    # What a mask hides is no number, and neither is the mask
    if h.shape == t.shape and h.dtype.kind in "fiu" and not np.ma.is_masked(returned):
        h = h.astype(np.float64)
        wrong = ~(np.isfinite(h) & (h > 0))
        if not wrong.any():
            return h
        first = int(np.argmax(wrong))
        fault = f"for update {t[first]} it returned {h[first]}"
    else:
        fault = f"from update {t[0]} on it returned {returned!r:.80}"
    raise ValueError(
        "The step_size schedule must return a positive, finite number for each of the "
        f"{len(t)} update numbers that it is given; {fault}. polynomial(a=1e-3) is such a schedule."
    )
