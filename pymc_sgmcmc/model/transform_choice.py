"""Which map takes the place of a transform that PyMC chose."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from pymc.distributions.transforms import Interval, LogExpM1
from pymc.logprob.transforms import (
    IntervalTransform,
    LogOddsTransform,
    LogTransform,
    SimplexTransform,
    Transform,
)
from pytensor.tensor.variable import TensorVariable

from pymc_sgmcmc.model.support import usual_transform, within_truncated
from pymc_sgmcmc.transforms import EntropicMirror, Exp, Sigmoid, Softplus
from pymc_sgmcmc.transforms.bounded import infinite_elements, mixed


def lipschitz(
    transform: Transform | None, rv: TensorVariable, scale: Any = 1.0
) -> Transform | None:
    """Return the Lipschitz map that replaces a transform of PyMC, or the transform itself.

    ``log``, ``log_exp_m1`` and an ``Interval`` with one bound become ``Softplus(scale)``,
    ``logodds`` and one with two bounds `Sigmoid`; one with both kinds of elements is kept.
    """
    softplus = partial(Softplus, scale)
    return _replace(transform, rv, softplus, transform or usual_transform(rv))


def mirror(transform: Transform | None, rv: TensorVariable) -> Transform | None:
    """Return the mirror map that replaces a transform of PyMC, or the transform itself.

    `EntropicMirror` for the simplex, `Sigmoid` for two bounds, `Exp` for one: Hsieh, Kavis,
    Rolland, Cevher (2018). Mirrored Langevin Dynamics. NeurIPS 31.
    """
    return _replace(transform, rv, Exp, EntropicMirror())


def _replace(
    transform: Transform | None,
    rv: TensorVariable,
    one_sided: Callable[..., Transform],
    simplex: Transform | None,
) -> Transform | None:
    """Return the map in the place of a transform, or of the usual one where the model has none."""
    transform = transform or usual_transform(rv)
    kind = type(transform)  # not isinstance: a subclass may be another map
    if transform is not None and kind in (Interval, IntervalTransform):
        transform = within_truncated(transform, rv)
    if kind in (LogTransform, LogExpM1):
        return one_sided()
    if kind is LogOddsTransform:
        return Sigmoid()
    if kind is SimplexTransform:
        return simplex
    if isinstance(transform, IntervalTransform) and kind in (Interval, IntervalTransform):
        bounds = transform.args_fn(*rv.owner.inputs)
        n_bounds = sum(not infinite_elements(bound).all() for bound in bounds)
        if n_bounds and not mixed(bounds):
            return (one_sided if n_bounds == 1 else Sigmoid)(bounds_fn=transform.args_fn)
    return transform
