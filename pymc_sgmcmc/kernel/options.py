"""What the user asked of a step method."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pymc.logprob.transforms import Transform

from pymc_sgmcmc.kernel.estimators import GradientChoice, Plain
from pymc_sgmcmc.schedules import Schedule

__all__ = ["LARGEST_DENSE", "Options"]

# Parameters up to which a matrix whitens them
LARGEST_DENSE = 512


@dataclass(frozen=True)
class Options:
    """The checked arguments of a step method; "auto", or None, where tuning shall choose.

    Attributes
    ----------
    step_size : callable or None
        The user's schedule.
    thin : int or None
        Updates for each draw.
    scale : str, dict or None
        "auto", "dense", "diagonal", None for coordinates as they are, or arrays for some variables.
    gradient : str or estimator
        "auto" or an estimator.
    batches : int or str
        "auto" or K.
    batch : str
        Name of the batch scheme.
    batch_size : int or None
        Rows in a batch, B, where batches are of the rows of a dim.
    batch_dim : str or None
        That dim.
    transforms : str
        Choice of coordinates.
    named_transforms : dict
        Transforms of some variables, by their names.
    centring : bool
        Whether hierarchies are partially centred.
    temperature : float
        T.
    backend : {"auto", "jax", "numba"}
    compile_kwargs : dict
        For :func:`pymc.compile`.
    """

    step_size: Schedule | None = None
    thin: int | None = None
    scale: str | Mapping[str, np.ndarray] | None = "auto"
    gradient: str | GradientChoice = "auto"
    batches: int | str = "auto"
    batch: str = "shuffled"
    batch_size: int | None = None
    batch_dim: str | None = None
    transforms: str = "lipschitz"
    named_transforms: Mapping[str, Transform | None] = field(default_factory=dict)
    centring: bool = False
    temperature: float = 1.0
    backend: str = "auto"
    compile_kwargs: Mapping[str, Any] = field(default_factory=dict)

    def bend(self, dimension: int) -> int | None:
        """Return the bend of masses: 1 where a matrix whitens. None where there are none.

        Scales by hand are those of coordinates as they are written.
        """
        chosen = self.transforms in ("lipschitz", "mirror") and isinstance(self.scale, str)
        return int(dimension <= LARGEST_DENSE) if chosen else None

    def is_complete(self) -> bool:
        """Whether nothing is left to tuning."""
        return (
            self.step_size is not None
            and self.thin is not None
            and not isinstance(self.scale, str)
            and isinstance(self.gradient, Plain)
            and self.batches != "auto"
        )
