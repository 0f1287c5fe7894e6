"""How much gradient noise is too much."""

from __future__ import annotations

from pymc_sgmcmc.kernel.policy import Policy

__all__ = ["FRICTION", "HEAT", "anchored_bound", "friction_bound", "shared_bound"]

# Most of an anchored gradient's variance. Where it grows with the squared distance from the anchor
# a thermostat, which sees its mean, leaves the tails too hot: of 5,000 normal groups sds are up to
# 13 % too wide at 4.3, and right at 2.1
HEAT = 2.0

# The same of rates and probabilities, along which it grows to one side: at 2 the parameters of the
# law of 5,000 are a quarter of an sd off. At this bound an update has about four rows for each of
# them, which beside the law of all of them are hardly more work
_HEAT_OF_RATES = 0.25

# Twice the largest friction of a step, h²σ²
FRICTION = 0.4


def anchored_bound(policy: Policy) -> float:
    """Return the largest variance of an anchored gradient that costs nothing."""
    return min(policy.noise, HEAT)


def shared_bound(policy: Policy, *, half: bool, grows: bool) -> tuple[float, float]:
    """Return the largest variance of noise that coordinates share, and a factor of the step size.

    A thermostat's heat and the error of its steps fall with the step size: ``half`` of it costs
    some effective draws, and leaves rates room for twice the noise.
    """
    factor = 0.5 if half and policy.noise_of_many else 1.0
    return min(policy.noise, _HEAT_OF_RATES / factor if grows else HEAT), factor


def friction_bound(policy: Policy, variance: float) -> float:
    """Return the largest step size with gradients of this variance in units of the coordinates."""
    largest = policy.widening if policy.widening is not None else FRICTION
    return float((largest / max(variance, 1e-300)) ** (policy.power / 2))
