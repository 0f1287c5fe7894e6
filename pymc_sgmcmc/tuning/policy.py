"""What tuning must know of an algorithm."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Policy"]


@dataclass(frozen=True)
class Policy:
    """How an algorithm's step size is chosen, in coordinates where the posterior has unit scale.

    Attributes
    ----------
    step_size : float
        With exact gradients.
    noise : float
        Largest variance of a gradient estimate; more batches are averaged until it is met.
    widening : float or None
        Bound on h times that variance, for each coordinate; None where noise is absorbed.
    adapted : bool
        Whether each coordinate has a step size of its own, and the injected noise is lowered
        by what the gradient brings.
    power : int
        2 where the step size is a squared length, 1 where it is a length.
    second_moments : bool
        Whether the stationary law has them, so that temperatures can be checked.
    isotropic : bool
        Whether the injected noise is the same along any axes. Where it is not, sums of it are
        wider than each: whitened coordinates then mix the model's own no more than they must.
    """

    step_size: float
    noise: float = 1.5
    widening: float | None = 0.15
    adapted: bool = True
    power: int = 2
    second_moments: bool = True
    isotropic: bool = True
