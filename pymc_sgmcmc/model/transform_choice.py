"""Which map takes the place of a transform that PyMC chose."""

from __future__ import annotations

from collections.abc import Callable
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

from pymc_sgmcmc.transforms import EntropicMirror, Exp, Sigmoid, Softplus, infinite_elements, mixed

__all__ = ["lipschitz", "mirror"]


def lipschitz(
    transform: Transform | None, rv: TensorVariable | None = None, scale: Any = 1.0
) -> Transform | None:
    r"""Return the Lipschitz map that takes the place of a transform of PyMC.

    ============================= ==========================================================
    PyMC                          here
    ============================= ==========================================================
    ``log``, ``log_exp_m1``       ``Softplus(scale)``
    ``Interval`` with one bound   ``Softplus(scale)``, shifted (and mirrored below an upper)
    ``Interval`` with two bounds  `Sigmoid`
    ``logodds``                   `Sigmoid`
    anything else, None           kept
    ============================= ==========================================================

    Kept too is an ``Interval`` of which only some elements have an infinite bound.

    Parameters
    ----------
    transform : Transform or None
        The transform of a random variable, ``model.rvs_to_transforms[rv]``.
    rv : TensorVariable, optional
        The random variable; an ``Interval`` reads its bounds from the variable's inputs.
    scale : float, array_like or tensor, default 1
        Scale of `Softplus`, in units of the distance from the bound.

    Returns
    -------
    Transform or None
        The same kind of coordinate; `transform` itself where there is nothing to replace.

    See Also
    --------
    mirror : the choice of mirrored Langevin dynamics.

    Examples
    --------
    >>> import pymc as pm
    >>> print(lipschitz(pm.distributions.transforms.log, scale=10.0))
    Softplus
    """

    def softplus(**bounds: Any) -> Transform:
        return Softplus(scale, **bounds)

    return _replace(transform, rv, softplus, transform)


def mirror(transform: Transform | None, rv: TensorVariable | None = None) -> Transform | None:
    """Return the mirror map that takes the place of a transform of PyMC.

    `EntropicMirror` for the simplex, `Sigmoid` (the logit) for two bounds, `Exp` (the logarithm)
    for one; anything else is kept, None (unbounded) included.

    Parameters
    ----------
    transform : Transform or None
        The transform of a random variable, ``model.rvs_to_transforms[rv]``.
    rv : TensorVariable, optional
        The random variable; an ``Interval`` reads its bounds from the variable's inputs.

    Returns
    -------
    Transform or None
        The mirror map; `transform` itself where there is none.

    References
    ----------
    .. [1] Hsieh, Kavis, Rolland, Cevher (2018). Mirrored Langevin Dynamics. NeurIPS 31.

    Examples
    --------
    >>> import pymc as pm
    >>> print(mirror(pm.distributions.transforms.simplex))
    EntropicMirror
    """
    return _replace(transform, rv, Exp, EntropicMirror())


def _replace(
    transform: Transform | None,
    rv: TensorVariable | None,
    one_sided: Callable[..., Transform],
    simplex: Transform | None,
) -> Transform | None:
    kind = type(transform)  # not isinstance: a subclass may be another map
    if kind in (LogTransform, LogExpM1):
        return one_sided()
    if kind is LogOddsTransform:
        return Sigmoid()
    if kind is SimplexTransform:
        return simplex
    if isinstance(transform, IntervalTransform) and kind in (Interval, IntervalTransform):
        bounds = transform.args_fn(*(() if rv is None else rv.owner.inputs))
        n_bounds = sum(not infinite_elements(bound).all() for bound in bounds)
        if n_bounds and not mixed(bounds):
            return (one_sided if n_bounds == 1 else Sigmoid)(bounds_fn=transform.args_fn)
    return transform
