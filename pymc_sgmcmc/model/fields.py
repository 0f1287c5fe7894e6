"""Which variables are effects of the areas of a map, with the map as a constant."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import pytensor.tensor as pt

from pymc.distributions.multivariate import CARRV, ICARRV
from pymc.model import Model
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.traversal import ancestors
from pytensor.tensor.variable import TensorVariable

from pymc_sgmcmc.backends.compiling import INTERPRETER
from pymc_sgmcmc.centring import (
    FieldPrior,
    InformedCentring,
    InformedField,
    InformedResidual,
    Weighted,
)
from pymc_sgmcmc.model.hierarchy import constant_of, depends_on
from pymc_sgmcmc.model.uses import Clients, clients_of, common_factor, use_of

__all__ = ["beside_effects", "fields_of"]

# With more areas an update's product with a matrix dominates its cost
_LARGEST = 2048


def fields_of(model: Model, sampled: Collection[Variable]) -> dict[TensorVariable, InformedField]:
    """Return the map, without its weight, of each ``pm.ICAR`` and ``pm.CAR`` that is one vector."""
    rvs = [rv for rv in model.free_RVs if rv in sampled and isinstance(rv.owner.op, ICARRV | CARRV)]
    if not rvs:
        return {}
    clients = clients_of(model)
    found = {}
    for rv in rvs:
        prior = _prior(rv) if rv.ndim == 1 and model.rvs_to_transforms[rv] is None else None
        if prior is not None and 1 < len(prior.base) <= _LARGEST:
            found[rv] = InformedField(prior, _factor(rv, clients))
    return found


def beside_effects(
    fields: Mapping[TensorVariable, InformedField], maps: Mapping[TensorVariable, Weighted]
) -> dict[TensorVariable, InformedField]:
    """Return the field maps that take the sds of normal effects that a model adds to each field."""
    found = dict(fields)
    for rv, of_rv in maps.items():
        inputs = rv.owner.inputs
        added = [
            field
            for field in fields
            if isinstance(of_rv, InformedCentring | InformedResidual)
            and depends_on([of_rv.location(*inputs)], {field})
        ]
        spread = of_rv.spread(*inputs)
        if len(added) == 1 and all(spread.type.broadcastable):
            found[added[0]] = fields[added[0]].with_beside(_number(spread))
    return found


def _prior(rv: TensorVariable) -> FieldPrior | None:
    inputs: Any = rv.owner.inputs
    zero: Any = pt.zeros((), dtype=rv.dtype)
    if isinstance(rv.owner.op, ICARRV):
        matrix, scale, common = inputs[-3:]
        neighbours, width = _known(matrix), constant_of(common)
        if neighbours is None or width is None or not all(scale.type.broadcastable):
            return None
        base = np.diag(neighbours.sum(axis=0)) - neighbours
        precision = (width * len(base)) ** -2.0
        return FieldPrior(base, 0 * base, precision, zero, _number(scale), zero, has_location=False)
    location, matrix, share, precision, _ = inputs[-5:]
    neighbours = _known(matrix)
    if neighbours is None:
        return None
    base = np.diag(neighbours.sum(axis=0))
    return FieldPrior(
        base,
        neighbours,
        0.0,
        location,
        _number(precision) ** -0.5,
        _number(share),
        has_location=constant_of(location) != 0,
    )


def _known(matrix: Any) -> np.ndarray | None:
    """Return a matrix of constants, dense and symmetric."""
    if not all(isinstance(x, Constant) for x in ancestors([matrix]) if x.owner is None):
        return None
    found = matrix.data if isinstance(matrix, Constant) else matrix.eval(mode=INTERPRETER)
    dense = np.asarray(found.todense() if hasattr(found, "todense") else found, dtype=float)
    return dense if dense.ndim == 2 and (dense == dense.T).all() else None


def _number(x: Any) -> Any:
    return x.squeeze() if x.ndim else x


def _factor(rv: TensorVariable, clients: Clients) -> Any:
    """Return the number by which a model multiplies a field in all its uses."""
    found = use_of(rv, clients).scale
    if found is None:
        common = common_factor(rv, clients)
        found = None if common is None else common[0]
    one: Any = pt.ones((), dtype=rv.dtype)
    if found is None or not all(found.type.broadcastable) or rv in ancestors([found]):
        return one
    return _number(found)
