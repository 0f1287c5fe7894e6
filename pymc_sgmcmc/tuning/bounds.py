"""Bounds on the gradient noise, and on the step size."""

from __future__ import annotations

import numpy as np

from pymc_sgmcmc.kernel.policy import Policy
from pymc_sgmcmc.tuning.surface import TINY

# Largest variance of an anchored gradient. Where it grows with the squared distance from the
# anchor, a thermostat, which measures its mean, leaves the tails too hot: the sds of 5,000 normal
# groups are up to 13 % too wide at 4.3, and right at 2.1
_HEAT = 2.0

# The same for rates and probabilities, along which it grows to one side: at 2 the parameters of the
# distribution of 5,000 are a quarter of an sd off. At this bound an update has about four rows for
# each of them, hardly more work than their joint density
_HEAT_OF_RATES = 0.25

# Twice the largest friction of a step, h²σ²
FRICTION = 0.4

# Largest accepted h λ (h²λ where a step size is a length), the value that a smaller step aims at,
# and the share of the positions at which it must hold
_STIFFEST, _AIM, _SHARE = 1.0, 0.75, 0.9


def anchored_bound(policy: Policy) -> float:
    """Return the largest variance of an anchored gradient that costs nothing."""
    return min(policy.noise, _HEAT)


def shared_bound(policy: Policy, *, half: bool, grows: bool) -> tuple[float, float]:
    """Return the bound of noise that coordinates share, and a factor of the step size.

    A thermostat's heat and the error of its steps fall with the step size: ``half`` of it costs
    some effective draws, and allows rates twice the noise.
    """
    factor = 0.5 if half and policy.noise_of_many else 1.0
    return min(policy.noise, _HEAT_OF_RATES / factor if grows else _HEAT), factor


def within_noise(policy: Policy, variance: np.ndarray) -> np.ndarray:
    """Return each coordinate's largest step size, for gradients of this variance, shape (d,).

    A thermostat takes noise up by a friction of hσ²/2, and its error grows with h²σ²/2.
    """
    variance = np.maximum(variance, TINY)
    if policy.is_bounded_by_friction:
        return np.sqrt(FRICTION / variance)
    return np.full(len(variance), np.inf) if policy.widening is None else policy.widening / variance


def stable_step(policy: Policy, curvature: float) -> float:
    """Return the step size that a largest curvature λ allows, with which hλ or h²λ is 0.75."""
    return float((_AIM / curvature) ** (policy.power / 2))


def not_too_stiff(h: float, curvatures: np.ndarray, policy: Policy) -> float:
    """Return the step size, lowered where the curvature is far above its mean of 1.

    Splittings are exact on Gaussians and stable up to hλ = 2. Where λ varies, as towards the neck
    of a hierarchy, draws are wrong long before they diverge.
    """
    known = curvatures[np.isfinite(curvatures)]
    if not known.size:
        return h
    stiff = float(np.quantile(known, _SHARE))
    return stable_step(policy, stiff) if h ** (2 / policy.power) * stiff > _STIFFEST else h
