"""The full-data twin of a model with minibatches."""

from __future__ import annotations

import warnings

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt

from pymc.data import MinibatchOp
from pymc.logprob.basic import transformed_conditional_logp
from pymc.model import Model, modelcontext
from pymc.variational.minibatch_rv import MinibatchRandomVariable
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Variable
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import ancestors
from pytensor.tensor.elemwise import Elemwise

from pymc_sgmcmc.backends.compiling import compiled
from pymc_sgmcmc.disk.on_disk import source_of
from pymc_sgmcmc.model.graphs import masks_as_numbers, substitute
from pymc_sgmcmc.model.initial_point import at_values, points_near_start
from pymc_sgmcmc.model.minibatch import (
    Minibatch,
    axis_of_rows,
    check_minibatches,
    evaluate,
    find_minibatches,
    replace_minibatches,
)
from pymc_sgmcmc.model.more_rows import Resized, with_more_rows
from pymc_sgmcmc.model.own_gradient import has_own_gradient

__all__ = ["full_data"]

_BUILD_ERRORS = AssertionError, IndexError, NotImplementedError, TypeError, ValueError


def full_data(model: Model | None = None) -> Model:
    """Return a model with all rows in the place of ``pm.Minibatch``.

    Whatever needs the density of all data works on it with the draws of the minibatched model:
    :func:`pymc.compute_log_likelihood`, leave-one-out cross-validation, posterior predictive
    draws, NUTS.

    Parameters
    ----------
    model : pymc.Model, optional
        A model with ``pm.Minibatch``; taken from the context by default.

    Returns
    -------
    pymc.Model
        A model of its own with the same names, dims, coords, transforms and initial values, and
        without ``total_size``. An observed variable without dims has those of the ``pm.Data``
        whose rows it observes. The arrays are not copied; ``pm.set_data`` on one of the models
        leaves the other as it is.

    Raises
    ------
    ValueError
        If the model has no ``pm.Minibatch``, if an observed variable lacks ``total_size``, or if a
        potential is neither a sum over the rows of a batch, multiplied by rows of the data / rows
        of the batch, nor their mean.
    NotImplementedError
        If the density of a row depends on the batch it is in, if a variable holds the length of
        the batch as a number, if the rows are on disk, or if the model has a
        :func:`GradientPotential`, which has no value.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_sgmcmc as sg
    >>> with pm.Model() as model:
    ...     y = pm.Minibatch(np.arange(100.0), batch_size=10)
    ...     mu = pm.Normal("mu", 50, 10)
    ...     observed = pm.Normal("y", mu, 30, observed=y, total_size=100)
    >>> sg.full_data(model)["y"].eval().shape
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
    for minibatch in minibatches:
        for of_disk in map(source_of, minibatch.sources):
            if of_disk is not None:
                raise NotImplementedError(
                    f"The rows of {of_disk.name} are on disk, and a model of the full data would "
                    "read all of them at once. Build the model with arrays of as many rows as fit "
                    "into memory."
                )
    full = _Twin(model).full
    _check(model, full)
    return full


class _Twin:
    """Builds the full-data model.

    Attributes
    ----------
    full : pymc.Model
    """

    def __init__(self, model: Model) -> None:
        self._model = model
        lengths = dict(model.dim_lengths)
        observed = {rv: _unscaled(rv) for rv in model.observed_RVs}
        values = [model.rvs_to_values[rv] for rv in observed]
        rest = [*model.free_RVs, *model.deterministics, *model.data_vars, *model.potentials]
        graphs = [*lengths.values(), *rest, *values, *observed.values()]
        # Names stay where a clone is
        copies: Any = clone_replace(graphs, _copies_of_shared(model))
        self._copies = dict(zip(graphs, copies, strict=True))
        self._full_arrays = _full_arrays(copies)

        self.full = full = Model(model=None)
        full._coords = dict(model._coords)
        full._dim_lengths = {dim: self._copies[length] for dim, length in lengths.items()}
        self._new: dict[Any, Any] = {}
        self._new |= {x: self._rebuilt(x) for x in rest}
        of_values = {rv: self._rebuilt(model.rvs_to_values[rv], rv.name) for rv in observed}
        for rv, of_rv in observed.items():
            found = find_minibatches([rv, model.rvs_to_values[rv]])
            self._new[rv] = (
                self._observed(rv, of_rv, of_values[rv], found[0]) if found else self._copies[rv]
            )
        for name in model.named_vars:
            old = model.named_vars[name]
            self._add(old, self._new[old], of_values.get(old))
        for rv, start in model.rvs_to_initial_values.items():
            symbolic = isinstance(start, Variable)
            full.set_initval(
                self._new[rv], substitute([start], self._new)[0] if symbolic else start
            )

    def _rebuilt(self, old: Any, name: str | None = None) -> Any:
        return self._named_error(
            name or old.name, lambda: with_more_rows([self._copies[old]], self._full_arrays)[0]
        )

    def _observed(self, rv: Any, unscaled: Any, value: Any, minibatch: Minibatch) -> Any:
        """Return the observed variable of all rows."""
        axis = axis_of_rows(rv) or 0
        copy = self._copies[unscaled]
        shape = [value.shape[k] for k in range(value.ndim)]
        new = self._named_error(
            rv.name,
            lambda: with_more_rows([copy], self._full_arrays, [Resized(copy, shape)])[0],
        )
        if new.type.shape[axis] not in (None, len(evaluate(minibatch.sources[0]))):
            raise NotImplementedError(_fixed(rv.name, f"Its shape stays {new.type.shape}."))
        return new

    def _named_error(self, name: str, build: Callable[[], Any]) -> Any:
        try:
            return build()
        except _BUILD_ERRORS as error:
            said = (str(error).splitlines() or [type(error).__name__])[0][:300]
            raise NotImplementedError(_fixed(name, f"PyTensor says: {said}")) from error

    def _add(self, old: Any, new: Any, value: Any) -> None:
        model, full = self._model, self.full
        dims = model.named_vars_to_dims.get(old.name)
        if old in model.free_RVs:
            full.free_RVs.append(new)
            full.create_value_var(
                new,
                transform=model.rvs_to_transforms[old],
                default_transform=None,
                value_var=model.rvs_to_values[old].clone(),
            )
        elif old in model.observed_RVs:
            dims = dims or self._dims_of_data(value)
            new.tag.observations = value
            full.observed_RVs.append(new)
            full.create_value_var(new, transform=None, default_transform=None, value_var=value)
        elif old in model.potentials:
            factor = _factor(model, old)
            new = new * np.asarray(factor, dtype=old.dtype) if factor != 1 else new.copy()
            full.potentials.append(new)
        elif old in model.deterministics:
            full.deterministics.append(new)
        else:
            full.data_vars.append(new)
        new.name = old.name
        full.add_named_variable(new, dims)

    def _dims_of_data(self, value: Any) -> Any:
        while value.owner and isinstance(value.owner.op, Elemwise) and len(value.owner.inputs) == 1:
            value = value.owner.inputs[0]
        return next(
            (
                self._model.named_vars_to_dims.get(data.name)
                for data in self._model.data_vars
                if self._copies[data] is value
            ),
            None,
        )


def _fixed(name: str, said: str) -> str:
    return (
        f"'{name}' cannot be rebuilt for all rows: it holds the length of its batch as a number. "
        f"{said} Write the model for all rows, with pm.Data and dims, and let the step draw "
        "batches: batch_size=..., batch_dim=..."
    )


def _unscaled(rv: Any) -> Any:
    """Return an observed variable without its total_size."""
    return rv.owner.inputs[0] if isinstance(rv.owner.op, MinibatchRandomVariable) else rv


def _copies_of_shared(model: Model) -> dict[Variable, Variable]:
    """Return shared variables that hold the same arrays, and can be set apart."""
    return {
        variable: pytensor.shared(
            variable.get_value(borrow=True), variable.name, borrow=True, shape=variable.type.shape
        )
        for variable in [*model.data_vars, *model.dim_lengths.values()]
        if isinstance(variable, SharedVariable)
    }


def _full_arrays(graphs: Sequence[Any]) -> dict[Variable, Variable]:
    """Map each batch to the array that it is drawn from."""
    return {
        output: source
        for variable in ancestors(list(graphs))
        if variable.owner is not None and isinstance(variable.owner.op, MinibatchOp)
        for output, source in zip(variable.owner.outputs, variable.owner.inputs[:-1], strict=False)
    }


# ----------------------------------------------------------------------------- tried out


def _factor(model: Model, potential: Any) -> float:
    """Return by what a potential of all rows has to be multiplied."""
    found = find_minibatches([potential])
    if not found:
        return 1.0
    size, sources = found[0].batch_size, _full_arrays([potential])
    count = len(evaluate(found[0].sources[0]))
    rng = np.random.default_rng(0)
    chosen = rng.choice(count, 2 * size, replace=count < 2 * size)
    arrays = [evaluate(source) for source in sources.values()]
    of_one, of_two = (_potential(model, potential, sources, k * size) for k in (1, 2))
    tried = (of_one, chosen[:size]), (of_one, chosen[size:]), (of_two, chosen)
    for point in points_near_start(model, rng):
        one, other, joint = (
            float(function(*point, *(array[part] for array in arrays))[0])
            for function, part in tried
        )
        if np.isfinite([one, other, joint]).all():
            if np.isclose(joint, one + other, rtol=1e-6):
                return size / count  # it is multiplied by N / B, in numbers
            if np.isclose(2 * joint, one + other, rtol=1e-6):
                return 1.0  # by N / (length of the batch), which is 1 for all rows
            break
    raise ValueError(
        f"The potential '{potential.name}' is no sum over the rows of a pm.Minibatch, so that "
        "its value for the full data is unknown. Write it as a vector with one entry for each "
        "row, each multiplied by rows of the data / rows of the batch, or as an observed "
        "pm.CustomDist with total_size=."
    )


def _potential(
    model: Model, potential: Any, sources: dict[Variable, Variable], count: int
) -> Callable[..., Any]:
    """Return a potential as a function of the values and of so many rows."""
    rows = {
        output: pt.tensor(dtype=output.type.dtype, shape=(count, *output.type.shape[1:]))
        for output in sources
    }
    [graph] = at_values(model, with_more_rows([potential], rows))
    return compiled([*model.value_vars, *rows.values()], [pt.sum(graph)], "interpreter")


def _check(model: Model, full: Model) -> None:
    """Compare each row's log density in the full data with that in a batch."""
    names = [rv.name for rv in model.observed_RVs]
    of_batch = [find_minibatches([rv, model.rvs_to_values[rv]]) for rv in model.observed_RVs]
    axes = [axis_of_rows(rv) for rv in model.observed_RVs]
    minibatches = find_minibatches([*model.observed_RVs, *model.rvs_to_values.values()])
    inputs = [
        [pt.tensor(dtype=x.dtype, shape=(one.batch_size, *x.type.shape[1:])) for x in one.sources]
        for one in minibatches
    ]
    rows = {one.stream: _last_rows(one) for one in minibatches}
    arrays = [evaluate(x)[rows[one.stream]] for one in minibatches for x in one.sources]
    try:
        graphs = _log_densities(model)
        graphs = substitute(graphs, replace_minibatches(graphs, minibatches, inputs))
        given = [*model.value_vars, *(x for of_one in inputs for x in of_one)]
        batch = compiled(given, masks_as_numbers(graphs), "interpreter")
        whole = compiled(full.value_vars, masks_as_numbers(_log_densities(full)), "interpreter")
        for point in points_near_start(model, np.random.default_rng(0)):
            with np.errstate(all="ignore"):
                parts, wholes = batch(*point, *arrays), whole(*point)
            if all(np.isfinite(part).all() for part in parts):
                break
    except NotImplementedError:
        return  # an operation that the interpreter lacks
    for name, axis, found, part, all_rows in zip(names, axes, of_batch, parts, wholes, strict=True):
        if not found or axis is None:
            continue
        if np.ndim(all_rows) <= axis:
            raise NotImplementedError(_dependent(name))
        expected = np.take(all_rows, rows[found[0].stream], axis)
        precision = np.finfo(part.dtype).eps ** 0.5
        if expected.shape != part.shape or not np.allclose(
            part, expected, rtol=precision, atol=precision, equal_nan=True
        ):
            raise NotImplementedError(_dependent(name))


def _last_rows(minibatch: Minibatch) -> np.ndarray:
    """Return the numbers of a batch of rows, from the last one on."""
    return len(evaluate(minibatch.sources[0])) - 1 - np.arange(minibatch.batch_size)


def _log_densities(model: Model) -> list[Any]:
    """Return the log densities of the observed variables, entry by entry and without total_size."""
    free = {rv: model.rvs_to_values[rv] for rv in model.free_RVs}
    observed = {_unscaled(rv): model.rvs_to_values[rv] for rv in model.observed_RVs}
    found: list[Any] = transformed_conditional_logp(
        [*free, *observed],
        rvs_to_values={**free, **observed},
        rvs_to_transforms={rv: model.rvs_to_transforms[rv] for rv in model.free_RVs},
    )
    return found[len(free) :]


def _dependent(name: str) -> str:
    return (
        f"The log density of a row of '{name}' depends on the batch that the row is in, as through "
        "a mean over the batch: it has no value for the full data. Compute such means of all rows "
        "before the model is made."
    )
