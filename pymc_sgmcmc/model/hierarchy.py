"""Which variables have a location or a scale that is itself sampled."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from pymc.distributions.continuous import HalfCauchyRV, HalfStudentTRV, WeibullBetaRV
from pymc.distributions.multivariate import ZeroSumNormalRV
from pymc.distributions.timeseries import RandomWalkRV
from pymc.distributions.transforms import ZeroSumTransform
from pymc.logprob.transforms import LogOddsTransform, LogTransform, Transform
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.traversal import ancestors
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.random.basic import (
    BetaRV,
    CauchyRV,
    ExponentialRV,
    GammaRV,
    GumbelRV,
    HalfNormalRV,
    InvGammaRV,
    LaplaceRV,
    LogisticRV,
    LogNormalRV,
    MvNormalRV,
    NormalRV,
    StudentTRV,
)
from pytensor.tensor.variable import TensorVariable

from pymc_sgmcmc.centring import (
    InformedCentring,
    InformedLog,
    InformedLogit,
    InformedRoot,
    InformedWalk,
    InformedZeroSum,
    VectorCentring,
    WalkCentring,
    Weighted,
    log_odds_of_beta,
    logarithm_of,
    lower_factor,
)

__all__ = [
    "LOCATION_SCALE",
    "centring_of",
    "constant_of",
    "depends_on",
    "shape_priors",
    "values_of",
]

# Families whose last two inputs are location and scale
LOCATION_SCALE = (NormalRV, StudentTRV, LaplaceRV, CauchyRV, LogisticRV, GumbelRV)
# With more parameters whitening is diagonal: it disentangles neither the steps of a walk nor
# probabilities from the parameters of their law, which a matrix does as well as coordinates
_MANY = 512
# Positive ones whose last input is the scale
_SCALES = (
    HalfNormalRV, InvGammaRV, WeibullBetaRV, HalfCauchyRV, HalfStudentTRV,
)  # fmt: skip


def centring_of(
    rv: TensorVariable,
    own: Transform | None,
    sampled: Collection[Variable],
    shape: tuple[int, ...] = (),
) -> Weighted | None:
    """Return the map, without its weight, of a variable with sampled parents, or None.

    None is for other families, for transforms that are not PyMC's default, and for fixed location
    and scale, except of long walks or many.
    """
    found = _of_family(rv, own, shape)
    if found is None or isinstance(found, InformedWalk):
        return found
    return found if depends_on(found.parents(*rv.owner.inputs), sampled) else None


def _of_family(
    rv: TensorVariable, own: Transform | None, shape: tuple[int, ...]
) -> Weighted | None:
    op, inputs = rv.owner.op, rv.owner.inputs
    found: Weighted | None = None
    if own is None and isinstance(op, LOCATION_SCALE):
        found = InformedCentring()
    elif own is None and isinstance(op, MvNormalRV):
        found = VectorCentring() if lower_factor(inputs[-1]) is not None else None
    elif own is None and isinstance(op, RandomWalkRV):
        innovations = inputs[1].owner
        univariate = innovations is not None and isinstance(innovations.op, LOCATION_SCALE)
        if univariate:
            found = InformedWalk() if np.prod(shape) > _MANY else WalkCentring()
    elif type(own) is LogTransform and isinstance(op, LogNormalRV):
        found = InformedLog(logarithm_of(op))
    elif type(own) is LogTransform and isinstance(op, GammaRV | ExponentialRV):
        found = InformedRoot()
    elif type(own) is LogTransform and isinstance(op, _SCALES):
        bounded = not isinstance(op, HalfNormalRV) or constant_of(inputs[-2]) == 0
        found = InformedLog(logarithm_of(op)) if bounded else None
    elif type(own) is LogOddsTransform and isinstance(op, BetaRV) and np.prod(shape) > _MANY:
        found = InformedLogit(log_odds_of_beta)
    elif type(own) is ZeroSumTransform and isinstance(op, ZeroSumNormalRV):
        found = InformedZeroSum(own)
    return found


def constant_of(x: Variable) -> float | None:
    """Return the common value of a constant's elements, or None."""
    values = values_of(x)
    return float(values[0]) if values.size and (values == values[0]).all() else None


def values_of(x: Variable) -> np.ndarray:
    """Return the elements of a constant as a vector, empty for other graphs."""
    while x.owner is not None and isinstance(x.owner.op, DimShuffle):
        x = x.owner.inputs[0]
    return np.ravel(x.data) if isinstance(x, Constant) else np.empty(0)


def depends_on(graphs: Sequence[Variable], variables: Collection[Variable]) -> bool:
    """Return whether one of the variables is in the graphs."""
    return any(found in variables for found in ancestors(list(graphs)))


def shape_priors(variables: Sequence[TensorVariable]) -> list[bool]:
    """Return for each variable whether another one's prior depends on it."""
    return [
        any(depends_on(other.owner.inputs, {rv}) for other in variables if other is not rv)
        for rv in variables
    ]
