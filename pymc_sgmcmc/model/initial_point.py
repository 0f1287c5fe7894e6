"""Points of a model at which its density is tried out, without compiling."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from pymc.model import Model
from pytensor.tensor.variable import TensorVariable

from pymc_sgmcmc.backends.workarounds import interpreted

__all__ = ["initial_point", "is_given", "points_near_start"]

# Distances from the initial point, in unconstrained coordinates. At the initial point itself
# slopes are often zero, which hides what depends on what
_AWAY = (*(0.3 * 0.1**k for k in range(8)), 0.0)


def initial_point(model: Model, seed: int = 0) -> dict[str, np.ndarray]:
    """Return PyMC's initial point, interpreted; what it draws from priors follows the seed."""
    with interpreted():
        point: Any = model.initial_point(random_seed=seed)
    return dict(point)


def is_given(
    model: Model, point: Mapping[str, np.ndarray], values: Sequence[TensorVariable]
) -> bool:
    """Return whether ``initvals`` moved any of these values from the model's own start."""
    usual = initial_point(model)
    names = [str(value.name) for value in values]
    return not all(np.array_equal(point[name], usual[name]) for name in names)


def points_near_start(model: Model, rng: np.random.Generator) -> Iterator[list[np.ndarray]]:
    """Yield values of the model's value variables, ever closer to the initial point."""
    start = initial_point(model)
    at = [np.asarray(start[str(value.name)]) for value in model.value_vars]
    for away in _AWAY:
        yield [
            (x + away * rng.normal(size=x.shape)).astype(x.dtype) if x.dtype.kind == "f" else x
            for x in at
        ]
