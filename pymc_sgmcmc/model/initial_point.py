"""Points of a model at which its density is tried out, without compiling."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

import numpy as np

from pymc.initial_point import make_initial_point_fn
from pymc.model import Model
from pytensor.tensor.variable import TensorVariable

from pymc_sgmcmc.backends.workarounds import interpreted
from pymc_sgmcmc.model.properties import widths_of

# Distances from the initial point, in unconstrained coordinates: from 0.3 sds of the priors to the
# least, beside which rounding hides a change. At the initial point itself slopes are often zero,
# which hides what depends on what
_FARTHEST, _NEAREST, _DISTANCES = 0.3, 3e-8, 8

# Draws from the priors among which a discrete variable has another value than at the start
_DRAWS = 64


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
    """Yield values of the model's value variables, ever closer to the initial point.

    Every other point has other values of discrete variables: an effect that is off at the start
    would hide what it has in it.
    """
    start = initial_point(model)
    at = [np.asarray(start[str(value.name)]) for value in model.value_vars]
    real = [
        rv if x.dtype.kind == "f" and model.rvs_to_transforms[rv] is None else None
        for x, rv in zip(at, model.free_RVs, strict=True)
    ]
    farthest = _FARTHEST * np.maximum(widths_of(real, 0), 1.0)
    both = at, _with_others(model, at)
    for k, away in enumerate([*np.geomspace(farthest, _NEAREST, _DISTANCES), 0 * farthest]):
        yield [
            (x + by * rng.normal(size=x.shape)).astype(x.dtype) if x.dtype.kind == "f" else x
            for x, by in zip(both[k % 2], away, strict=True)
        ]


def _with_others(model: Model, start: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return a point with other values of discrete variables, where their priors give any."""
    others = list(start)
    discrete = {k: model.free_RVs[k] for k, x in enumerate(start) if x.dtype.kind != "f"}
    # A density of the user's own may have no draws
    with suppress(NotImplementedError), interpreted():
        if discrete:
            priors = dict.fromkeys(discrete.values(), "prior")
            draw = make_initial_point_fn(model=model, overrides=priors)
            for seed in range(_DRAWS):
                point = draw(seed)
                for k in discrete:
                    new = point[str(model.value_vars[k].name)]
                    others[k] = np.where(others[k] == start[k], new, others[k]).astype(new.dtype)
                if not any(np.any(others[k] == start[k]) for k in discrete):
                    break
    return others
