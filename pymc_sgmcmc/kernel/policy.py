"""What an algorithm says of itself: how it is to be run, tuned and judged."""

from __future__ import annotations

from dataclasses import dataclass, fields

from pymc_sgmcmc.checks import one_of, positive

# Coordinates in which tuning works; in θ itself, "identity", it does not
TRANSFORM_CHOICES = ("lipschitz", "model", "mirror")


@dataclass(frozen=True)
class Policy:
    """How an algorithm is run; its step size is that in coordinates of unit scale.

    Attributes
    ----------
    step_size : float
        Step size with exact gradients.
    coordinates : {"lipschitz", "mirror", "model", "identity"}
        Coordinates of bounded variables: Lipschitz maps, mirror maps, the model's own, or θ
        itself. In θ nothing can be tuned: the user sets the step size.
    tuned : bool
        Whether step size, thinning and batches may be left to tuning; never in θ.
    reflects : bool
        Whether a position in θ is reflected at its bounds. Where the density is unbounded at one
        that samples another law, whatever the step size: such a model is refused.
    whitened : bool
        Whether coordinates may be whitened. Where not, each block of the position is a variable.
    order : int
        Order of the stationary law's error in the step size, with exact gradients.
    power : int
        2 where the step size is a squared length, 1 where it is a length.
    noise : float
        Largest variance of a gradient estimate that costs nothing; tuning averages more batches
        where a larger one would cost more time than they do.
    noise_of_many : float or None
        The same with more than 512 parameters, where averaging batches is the main cost: up to
        this variance the draws are right at a step size that friction allows. None: as ``noise``.
    widening : float or None
        Bound on h times the variance of a gradient estimate; None for no bound.
    absorbs_noise : bool
        Whether the method's own variables take gradient noise up, so that it widens the law far
        less than :meth:`~pymc_sgmcmc.SGMCMCStep.widening` says. Without ``widening``, friction then
        bounds the step size: h²σ² is at most 0.4.
    per_coordinate : bool
        Whether each coordinate has a step size of its own.
    compensates : bool
        Whether the update injects less noise in return for the gradient's own, which
        ``gradient.variance`` is.
    second_moments : bool
        Whether the stationary law has second moments, so that temperatures can be checked.
    isotropic : bool
        Whether the injected noise has the same law along any axes, as normal noise has. Heavy
        tails have not: sums of coordinates are wider than each, so that whitening then mixes
        the model's coordinates as little as it can.
    gradients_bounded : bool
        Whether estimates of ∇U that are far larger than any in the bulk are scaled down. A method
        whose own noise reaches that far sets bounds of its own instead.
    """

    step_size: float
    coordinates: str = "lipschitz"
    tuned: bool = True
    reflects: bool = False
    whitened: bool = True
    order: int = 1
    power: int = 2
    noise: float = 1.5
    noise_of_many: float | None = None
    widening: float | None = 0.15
    absorbs_noise: bool = False
    per_coordinate: bool = False
    compensates: bool = False
    second_moments: bool = True
    isotropic: bool = True
    gradients_bounded: bool = True

    @property
    def has_temperature(self) -> bool:
        """Whether the mean of position times gradient is 1: in θ it has terms at the bounds."""
        return self.second_moments and self.coordinates != "identity"

    @property
    def is_bounded_by_friction(self) -> bool:
        """Whether friction alone, which takes noise up, bounds the step size."""
        return self.absorbs_noise and self.widening is None

    def __post_init__(self) -> None:
        one_of("Policy's coordinates", self.coordinates, (*TRANSFORM_CHOICES, "identity"))
        for field in fields(self):
            name, value = f"Policy's {field.name}", getattr(self, field.name)
            if field.type == "bool" and not isinstance(value, bool):
                raise TypeError(f"{name} must be True or False, got {value!r:.80}.")
            if field.type == "int" and not (isinstance(value, int) and value in (1, 2)):
                raise ValueError(f"{name} must be 1 or 2, got {value!r:.80}.")
            if field.type == "float" or (field.type == "float | None" and value is not None):
                positive(name, value, usual=0.04)
