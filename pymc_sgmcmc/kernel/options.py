"""What the user asked of a step method."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pymc.logprob.transforms import Transform

from pymc_sgmcmc.kernel.estimators import GradientChoice, Plain
from pymc_sgmcmc.model.recognise import LARGEST_DENSE
from pymc_sgmcmc.schedules import Schedule

type OwnWhitening = Callable[[np.ndarray], np.ndarray]
"""A user's function of the root L of tuning's Gaussian, (d, d) or (d,), to the whitening's root."""


@dataclass(frozen=True)
class Options:
    """The checked arguments of a step method; "auto" or None where tuning chooses."""

    step_size: Schedule | None = None  # the user's schedule
    thin: int | None = None  # updates for each draw
    # "auto", "dense", "diagonal", None for no whitening, arrays for some variables, or a function
    scale: str | Mapping[str, np.ndarray] | OwnWhitening | None = "auto"
    gradient: str | GradientChoice = "auto"
    batches: int | str = "auto"  # K
    batch: str = "shuffled"  # name of the batch scheme
    batch_size: int | None = None  # B, where batches are of the rows of a dim
    batch_dim: str | None = None  # that dim
    transforms: str = "lipschitz"  # choice of coordinates
    # By the names of variables
    named_transforms: Mapping[str, Transform | None] = field(default_factory=dict)
    centring: bool = False  # whether hierarchies are partially centred
    temperature: float = 1.0  # T
    backend: str = "auto"  # "auto", "jax" or "numba"
    compile_kwargs: Mapping[str, Any] = field(default_factory=dict)

    def bend(self, dimension: int) -> int | None:
        """Return the bend of masses: 1 where a matrix whitens. None where there are none.

        Scales by hand are those of coordinates as they are written.
        """
        chosen = self.transforms in ("lipschitz", "mirror") and self.whitens_by_tuning()
        return int(dimension <= LARGEST_DENSE) if chosen else None

    def whitens_by_tuning(self) -> bool:
        """Whether the whitening follows from tuning's Gaussian."""
        return isinstance(self.scale, str) or callable(self.scale)

    def is_complete(self) -> bool:
        """Whether nothing is left to tuning."""
        return (
            self.step_size is not None
            and self.thin is not None
            and not self.whitens_by_tuning()
            and isinstance(self.gradient, Plain)
            and self.batches != "auto"
        )
