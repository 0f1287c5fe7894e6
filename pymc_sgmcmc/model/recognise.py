"""Which coordinates a variable gets: passes over a model, of which the first claim counts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytensor.scalar as ps
import pytensor.tensor as pt

from pymc.distributions.continuous import HalfCauchyRV, HalfStudentTRV, WeibullBetaRV
from pymc.distributions.custom import CustomSymbolicDistRV
from pymc.distributions.multivariate import CARRV, ICARRV, ZeroSumNormalRV
from pymc.distributions.timeseries import RandomWalkRV
from pymc.distributions.transforms import ZeroSumTransform
from pymc.logprob.transforms import LogOddsTransform, LogTransform
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.replace import graph_replace
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random.basic import (
    BetaRV,
    ExponentialRV,
    GammaRV,
    HalfNormalRV,
    InvGammaRV,
    LogNormalRV,
    MvNormalRV,
    NormalRV,
)
from pytensor.tensor.variable import TensorVariable

from pymc_sgmcmc.backends.interpreting import INTERPRETER
from pymc_sgmcmc.centring.elements import Elements, Residuals
from pymc_sgmcmc.centring.fields import Field, FieldPrior
from pymc_sgmcmc.centring.gaussian_map import GaussianMap
from pymc_sgmcmc.centring.links import (
    LOG,
    LOGIT,
    ROOT,
    log_odds_of_beta,
    logarithm_of,
    root_of_gamma,
    scale_of_zero_sum,
    zero_sum,
)
from pymc_sgmcmc.centring.vectors import Vectors, lower_factor
from pymc_sgmcmc.centring.walks import Walk
from pymc_sgmcmc.floats import as_float
from pymc_sgmcmc.model.affine_use import LOCATION_SCALE, ModelView, as_number
from pymc_sgmcmc.model.basis import basis_coefficients
from pymc_sgmcmc.model.graphs import depends_on
from pymc_sgmcmc.model.support import constant_of, scalar_op

# With more areas an update's product with a matrix dominates its cost
_MOST_AREAS = 2048

# Parameters up to which a matrix whitens them. It disentangles the steps of a walk whose laws are
# given as well as coordinates would
LARGEST_DENSE = 512

# Positive families whose last input is the scale
_SCALES = (
    HalfNormalRV, InvGammaRV, WeibullBetaRV, HalfCauchyRV, HalfStudentTRV,
)  # fmt: skip

Maps = dict[TensorVariable, GaussianMap]


def recognised(view: ModelView) -> Maps:
    """Return the maps, without information, of the sampled variables that a pass claims."""
    view.fields = _fields(view)
    maps: Maps = {}
    for claims in PASSES:
        maps = {**claims(view), **maps}
    return maps


# ---------------------------------------------------------------------- areas of a map


def areas(view: ModelView) -> Maps:
    """Claim each ``pm.ICAR`` and ``pm.CAR`` that is one vector.

    A field takes the sd of the normal effects that a model adds to it, where there are such.
    """
    maps: Maps = dict(view.fields)
    for rv, of_rv in residuals(view).items():
        if isinstance(of_rv, Vectors):
            continue
        inputs = rv.owner.inputs
        added = [field for field in view.fields if depends_on([of_rv.location(*inputs)], {field})]
        spread = of_rv.spread(*inputs)
        one = all(spread.type.broadcastable) and not depends_on([spread], set(view.fields))
        if len(added) == 1 and one:
            field = view.fields[added[0]]
            maps[added[0]] = Field(field.of_prior, field.factor, as_number(spread))
    return maps


def _fields(view: ModelView) -> dict[TensorVariable, Field]:
    fields = {}
    for rv in view.sampled_of(ICARRV, CARRV):
        prior = _prior(rv) if rv.ndim == 1 else None
        if prior is not None and 1 < len(prior.base) <= _MOST_AREAS:
            fields[rv] = Field(prior, _factor(rv, view))
    return fields


def _prior(rv: TensorVariable) -> FieldPrior | None:
    inputs: Any = rv.owner.inputs
    zero: Any = pt.zeros((), dtype=rv.dtype)
    if isinstance(rv.owner.op, ICARRV):
        matrix, scale, common = inputs[-3:]
        neighbours, width = _constants(matrix), constant_of(common)
        if neighbours is None or width is None or not all(scale.type.broadcastable):
            return None
        base = np.diag(neighbours.sum(axis=0)) - neighbours
        precision = (width * len(base)) ** -2.0
        scale = as_number(scale)
        return FieldPrior(base, 0 * base, precision, zero, scale, zero, has_location=False)
    location, matrix, alpha, precision, _ = inputs[-5:]
    neighbours = _constants(matrix)
    if neighbours is None:
        return None
    return FieldPrior(
        np.diag(neighbours.sum(axis=0)),
        neighbours,
        0.0,
        location,
        as_number(precision) ** -0.5,
        as_number(alpha),
        has_location=constant_of(location) != 0,
    )


def _constants(matrix: Any) -> np.ndarray | None:
    """Return a matrix of constants, dense and symmetric."""
    if not all(isinstance(x, Constant) for x in ancestors([matrix]) if x.owner is None):
        return None
    values = matrix.data if isinstance(matrix, Constant) else matrix.eval(mode=INTERPRETER)
    dense = np.asarray(values.todense() if hasattr(values, "todense") else values, dtype=float)
    return dense if dense.ndim == 2 and (dense == dense.T).all() else None


def _factor(rv: TensorVariable, view: ModelView) -> Any:
    """Return the number by which a model multiplies a field in all its uses."""
    use = view.scaled_use_of(rv)
    one: Any = pt.ones((), dtype=rv.dtype)
    factor: Any = one if use is None or use.scale is None else use.scale
    # A batch of one row is no number
    is_number = all(factor.type.broadcastable) and not view.draws([factor])
    return as_number(factor) if is_number and not depends_on([factor], {rv}) else one


# ---------------------------------------------------------------------- standard variables


def residuals(view: ModelView) -> Maps:
    """Claim standard variables that a model uses only as μ + σz, and effects beside a field."""
    maps: Maps = {}
    for rv, parents in view.parents.items():
        if parents.scale is None:
            maps[rv] = Elements(beside=parents.location)
        elif parents.vectors:
            maps[rv] = Vectors(parents.location, parents.scale)
        else:
            maps[rv] = Residuals(parents.location, parents.scale)
    return maps


# ---------------------------------------------------------------------- families


def families(view: ModelView) -> Maps:
    """Claim variables of known families whose location or scale is sampled, and long walks."""
    maps: Maps = {}
    for rv in view.model.free_RVs:
        map_ = _of_family(rv, view) if rv in view.sampled else None
        if map_ is None:
            continue
        is_long = isinstance(map_, Walk) and np.prod(view.shapes[rv]) > LARGEST_DENSE
        if is_long or depends_on(map_.depends_on(*rv.owner.inputs), view.sampled):
            maps[rv] = map_
    return maps


def _of_family(rv: TensorVariable, view: ModelView) -> GaussianMap | None:
    """Return the map of a variable that has no transform but PyMC's default."""
    op, inputs = rv.owner.op, rv.owner.inputs
    own = view.model.rvs_to_transforms[rv]
    map_: GaussianMap | None = None
    if own is None and isinstance(op, LOCATION_SCALE):
        map_ = Elements()
    elif own is None and isinstance(op, CustomSymbolicDistRV):
        map_ = _of_graph(rv)
    elif own is None and isinstance(op, MvNormalRV):
        map_ = Vectors() if lower_factor(inputs[-1]) is not None else None
    elif own is None and isinstance(op, RandomWalkRV):
        steps = inputs[1].owner
        if steps is not None and isinstance(steps.op, LOCATION_SCALE):
            noise = view.noise_of(rv)
            map_ = Walk(1.0 if noise is None else noise)
    elif type(own) is LogTransform and isinstance(op, GammaRV | ExponentialRV):
        map_ = Elements(root_of_gamma, ROOT)
    elif type(own) is LogTransform and isinstance(op, (LogNormalRV, *_SCALES)):
        map_ = Elements(logarithm_of(op), LOG)
    elif type(own) is LogOddsTransform and isinstance(op, BetaRV):
        map_ = Elements(log_odds_of_beta, LOGIT)
    elif type(own) is ZeroSumTransform and isinstance(op, ZeroSumNormalRV):
        map_ = Elements(scale_of_zero_sum, zero_sum(own))
    return map_


def _of_graph(rv: TensorVariable) -> GaussianMap | None:
    """Return the map of a sigmoid or an exponential of a normal variable, as ``pm.LogitNormal``."""
    node: Any = rv.owner
    inner = node.op.fgraph.unfreeze()
    last = inner.outputs[node.outputs.index(rv)].owner
    link = None if last is None else {ps.Sigmoid: LOGIT, ps.Exp: LOG}.get(type(scalar_op(last)))
    normal = None if link is None else last.inputs[0].owner
    if link is None or normal is None or not isinstance(normal.op, NormalRV):
        return None

    def law(*inputs: Variable) -> list[Any]:
        outer: list[Any] = graph_replace(
            normal.inputs[-2:], dict(zip(inner.inputs, inputs, strict=True)), strict=False
        )
        return [as_float(x) for x in outer]

    return Elements(law, link)


PASSES: tuple[Callable[[ModelView], Maps], ...] = (basis_coefficients, areas, residuals, families)
"""In this order: of several maps for one variable the first one counts."""
