"""A model of other variables that are to each other as those of a given one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pymc.logprob.transforms import Transform
from pymc.model import Model
from pytensor.graph.basic import Variable

__all__ = ["twin"]


def twin(
    model: Model,
    found: Mapping[Any, Any],
    *,
    transforms: Mapping[Any, Transform | None] | None = None,
    dims: Mapping[str, Any] | None = None,
) -> Model:
    """Return a model with the names, dims, coords and initial values of another one.

    ``found`` replaces named variables, observed values, dim lengths and symbolic initial values.
    Transforms, with value variables, and dims default to those of the model.
    """
    made = Model(model.name, model=None, check_bounds=model.check_bounds)
    made._coords = dict(model._coords)
    made._dim_lengths = {dim: found[length] for dim, length in model._dim_lengths.items()}
    # Value variables are named after their variables
    for name, variable in model.named_vars.items():
        found[variable].name = name
    for rv in model.free_RVs:
        made.free_RVs.append(found[rv])
        made.create_value_var(
            found[rv],
            transform=(transforms or model.rvs_to_transforms)[rv],
            default_transform=None,
            value_var=None if transforms else model.rvs_to_values[rv].clone(),
        )
    for rv in model.observed_RVs:
        made.observed_RVs.append(found[rv])
        value = found[model.rvs_to_values[rv]]
        made.create_value_var(found[rv], transform=None, default_transform=None, value_var=value)
    made.potentials.extend(found[potential] for potential in model.potentials)
    made.deterministics.extend(found[deterministic] for deterministic in model.deterministics)
    made.data_vars.extend(found[data] for data in model.data_vars)
    for rv, start in model.rvs_to_initial_values.items():
        made.set_initval(found[rv], found.get(start) if isinstance(start, Variable) else start)
    all_dims = {**(dims or {}), **model.named_vars_to_dims}
    for name, variable in model.named_vars.items():
        made.add_named_variable(found[variable], all_dims.get(name))
    return made
