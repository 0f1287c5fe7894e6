"""The full-data twin of a model with minibatches."""

from __future__ import annotations

import warnings

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt

from pymc.data import MinibatchOp
from pymc.model import Model, modelcontext
from pymc.variational.minibatch_rv import MinibatchRandomVariable
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors

from pymc_sgmcmc.backends.compiling import compiled
from pymc_sgmcmc.model.batch_dim import resized
from pymc_sgmcmc.model.graphs import rebuilt, substitute
from pymc_sgmcmc.model.initial_point import at_values, points_near_start
from pymc_sgmcmc.model.minibatch import (
    axis_of_rows,
    check_minibatches,
    evaluate,
    find_minibatches,
)
from pymc_sgmcmc.model.own_gradient import has_own_gradient

__all__ = ["full_data"]

# Sizes of two sets of rows, and of both
_SIZES = 2, 3, 5


def full_data(model: Model | None = None) -> Model:
    """Return a model with all rows in the place of ``pm.Minibatch``.

    Whatever needs the density of all data works on it with the result of sampling the
    minibatched model: :func:`pymc.compute_log_likelihood`, leave-one-out cross-validation,
    posterior predictive draws, NUTS.

    Parameters
    ----------
    model : pymc.Model, optional
        A model with ``pm.Minibatch``; taken from the context by default.

    Returns
    -------
    pymc.Model
        A model of its own with the same names, dims, coords, transforms and initial values, and
        without ``total_size``. An observed variable has the dims of the ``pm.Data`` whose rows it
        observes. The arrays are not copied; ``pm.set_data`` on one of the models leaves the other
        as it is.

    Raises
    ------
    ValueError
        If the model has no ``pm.Minibatch``, if an observed variable lacks ``total_size``, or if a
        potential is neither a sum over the rows of a batch, multiplied by rows of the data / rows
        of the batch, nor their mean.
    NotImplementedError
        If the model has a :func:`GradientPotential`, which has no value.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> with pm.Model() as model:
    ...     y = pm.Minibatch(np.arange(100.0), batch_size=10)
    ...     mu = pm.Normal("mu", 50, 10)
    ...     observed = pm.Normal("y", mu, 30, observed=y, total_size=100)
    >>> full_data(model)["y"].eval().shape
    (100,)
    """
    model = modelcontext(model)
    if has_own_gradient(model.potentials):
        raise NotImplementedError(
            "The model has a GradientPotential, of which no density is known: there is none of the "
            "full data either."
        )
    with warnings.catch_warnings():
        # The step method has warned of these already
        warnings.simplefilter("ignore", UserWarning)
        minibatches = check_minibatches(model)
    if not minibatches:
        raise ValueError(
            "The model has no pm.Minibatch: it is its own full-data model. Pass it as it is."
        )
    return _Twin(model).full


class _Twin:
    """Builds the full-data model.

    Attributes
    ----------
    full : pymc.Model
    """

    def __init__(self, model: Model) -> None:
        self._model = model
        self.full = Model(model=None)
        copies = _copies_of_shared(model)
        self.full._coords = dict(model._coords)
        self.full._dim_lengths = {}

        values = [model.rvs_to_values[rv] for rv in model.observed_RVs]
        lengths = list(model.dim_lengths.values())
        rvs = [*model.free_RVs, *model.observed_RVs]
        named = [*model.deterministics, *model.data_vars]
        graphs = [*rvs, *values, *lengths, *model.potentials, *named]
        graphs = substitute(graphs, _unscaled(model.observed_RVs))
        found = iter(_replaced(graphs, _full_arrays(graphs), copies))
        of_rvs = {rv: next(found) for rv in rvs}
        of_values = {rv: next(found) for rv in model.observed_RVs}
        for dim in model.dim_lengths:
            self.full._dim_lengths[dim] = next(found)
        of_potentials = {potential: next(found) for potential in model.potentials}
        of_named = {variable: next(found) for variable in named}

        for rv in model.free_RVs:
            self._add_free(rv, of_rvs[rv])
        for rv in model.observed_RVs:
            self._add_observed(rv, of_rvs[rv], of_values[rv])
        for potential, found_potential in of_potentials.items():
            factor = self._factor(potential)
            new = found_potential * np.asarray(factor, dtype=potential.dtype)
            self.full.potentials.append(self._named(potential, new if factor != 1 else new.copy()))
        for variable in model.deterministics:
            self.full.deterministics.append(self._named(variable, of_named[variable]))
        for variable in model.data_vars:
            self.full.data_vars.append(self._named(variable, of_named[variable]))
        at = {rv: of_rvs[rv] for rv in rvs}
        for rv, start in model.rvs_to_initial_values.items():
            symbolic = isinstance(start, Variable)
            self.full.set_initval(at[rv], substitute([start], at)[0] if symbolic else start)

    def _named(self, old: Any, new: Any, dims: Any = None) -> Any:
        new.name = old.name
        self.full.add_named_variable(new, self._model.named_vars_to_dims.get(old.name) or dims)
        return new

    def _add_free(self, rv: Any, new: Any) -> None:
        self.full.free_RVs.append(self._named(rv, new))
        self.full.create_value_var(
            new,
            transform=self._model.rvs_to_transforms[rv],
            default_transform=None,
            value_var=self._model.rvs_to_values[rv].clone(),
        )

    def _add_observed(self, rv: Any, new: Any, value: Any) -> None:
        axis = axis_of_rows(rv)
        found = find_minibatches([rv, self._model.rvs_to_values[rv]])
        if axis is not None and found and new.type.shape[axis] == found[0].batch_size:
            new = resized(new, axis, value.shape[axis])
        data = next((d for d in self._model.data_vars if d.name == value.name), None)
        dims = self._model.named_vars_to_dims.get(data.name) if data is not None else None
        new.tag.observations = value
        self.full.observed_RVs.append(self._named(rv, new, dims))
        self.full.create_value_var(new, transform=None, default_transform=None, value_var=value)

    def _factor(self, potential: Any) -> float:
        """Return by what a potential of all rows has to be multiplied."""
        found = find_minibatches([potential])
        if not found:
            return 1.0
        count, size = len(evaluate(found[0].sources[0])), found[0].batch_size
        two, three, five = _sums_over_rows(self._model, potential, count)
        if np.isclose(five, two + three, rtol=1e-6):
            return size / count  # it is multiplied by N / B, in numbers
        if np.isclose(_SIZES[2] * five, _SIZES[0] * two + _SIZES[1] * three, rtol=1e-6):
            return 1.0  # by N / (length of the batch), which is 1 for all rows
        raise ValueError(
            f"The potential '{potential.name}' is no sum over the rows of a pm.Minibatch, so that "
            "its value for the full data is unknown. Write it as a vector with one entry for each "
            "row, each multiplied by rows of the data / rows of the batch, or as an observed "
            "pm.CustomDist with total_size=."
        )


def _copies_of_shared(model: Model) -> dict[Variable, Variable]:
    """Return shared variables that hold the same arrays, and can be set apart."""
    return {
        variable: pytensor.shared(
            variable.get_value(borrow=True), variable.name, borrow=True, shape=variable.type.shape
        )
        for variable in [*model.data_vars, *model.dim_lengths.values()]
        if isinstance(variable, SharedVariable)
    }


def _unscaled(observed: Sequence[Any]) -> dict[Variable, Variable]:
    """Map each observed variable with total_size to the one without."""
    return {
        rv: rv.owner.inputs[0]
        for rv in observed
        if isinstance(rv.owner.op, MinibatchRandomVariable)
    }


def _full_arrays(graphs: Sequence[Any]) -> dict[Variable, Variable]:
    """Map each batch to the array that it is drawn from."""
    return {
        output: source
        for variable in ancestors(list(graphs))
        if variable.owner is not None and isinstance(variable.owner.op, MinibatchOp)
        for output, source in zip(variable.owner.outputs, variable.owner.inputs[:-1], strict=False)
    }


def _replaced(graphs: Sequence[Any], batches: dict[Any, Any], shared: dict[Any, Any]) -> list[Any]:
    """Return clones with arrays in place of batches, and copies in place of shared variables."""
    # What takes the place of a batch is itself left as it is by a replacement
    sources = [substitute([source], shared)[0] for source in batches.values()]
    return rebuilt(graphs, {**dict(zip(batches, sources, strict=True)), **shared})


def _sums_over_rows(model: Model, potential: Any, count: int) -> list[float]:
    """Return a potential for batches of two rows, of three others, and of these five."""
    batches = _full_arrays([potential])
    rows = {
        output: pt.tensor(dtype=source.type.dtype, shape=(None, *source.type.shape[1:]))
        for output, source in batches.items()
    }
    [graph] = at_values(model, rebuilt([potential], rows, keep=model.free_RVs))
    function = compiled([*model.value_vars, *rows.values()], [pt.sum(graph)], "interpreter")
    rng = np.random.default_rng(0)
    chosen = rng.choice(count, _SIZES[2], replace=count < _SIZES[2])
    sets = [*np.split(chosen, [_SIZES[0]]), chosen]
    arrays = [evaluate(source) for source in batches.values()]
    found: list[float] = []
    for point in points_near_start(model, rng):
        found = [float(function(*point, *(a[part] for a in arrays))[0]) for part in sets]
        if np.isfinite(found).all():
            break
    return found
