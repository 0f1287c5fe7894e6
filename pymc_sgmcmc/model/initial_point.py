"""Points of a model at which its density is tried out, without compiling."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from pymc.model import Model
from pytensor.tensor.variable import TensorVariable

from pymc_sgmcmc.backends.workarounds import interpreted
from pymc_sgmcmc.model.properties import widths_of

__all__ = ["initial_point", "is_given", "points_near_start"]

# Distances from the initial point, in unconstrained coordinates: from 0.3 sds of the priors to the
# least, beside which rounding hides a change. At the initial point itself slopes are often zero,
# which hides what depends on what
_FARTHEST, _NEAREST, _DISTANCES = 0.3, 3e-8, 8


def initial_point(model: Model, seed: int = 0) -> dict[str, np.ndarray]:
    """Return PyMC's initial point, interpreted; what it draws from priors follows the seed."""
    with interpreted():
        return dict(model.initial_point(random_seed=seed))


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
    real = [
        rv if x.dtype.kind == "f" and model.rvs_to_transforms[rv] is None else None
        for x, rv in zip(at, model.free_RVs, strict=True)
    ]
    farthest = _FARTHEST * np.maximum(widths_of(real, 0), 1.0)
    for away in [*np.geomspace(farthest, _NEAREST, _DISTANCES), 0 * farthest]:
        yield [
            (x + by * rng.normal(size=x.shape)).astype(x.dtype) if x.dtype.kind == "f" else x
            for x, by in zip(at, away, strict=True)
        ]
