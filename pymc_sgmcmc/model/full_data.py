"""The full-data twin of a model with minibatches."""

from __future__ import annotations

import warnings

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt

from pymc.logprob.basic import transformed_conditional_logp
from pymc.model import Model
from pymc.model.fgraph import deepcopy_shared_variable
from pymc.pytensorf import find_rng_nodes
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import ancestors
from scipy.sparse import issparse

from pymc_sgmcmc.backends.errors import first_line
from pymc_sgmcmc.checks import a_model
from pymc_sgmcmc.disk.source import Source
from pymc_sgmcmc.model.graphs import rebuilt
from pymc_sgmcmc.model.independent_rows import (
    at_some_rows,
    check_independent_rows,
    some_rows,
    unlike_rows,
)
from pymc_sgmcmc.model.minibatch import (
    axis_of_rows,
    before_casts,
    evaluate,
    find_minibatches,
    full_arrays,
    minibatch_terms,
    unscaled,
)
from pymc_sgmcmc.model.minibatch_checks import check_minibatches
from pymc_sgmcmc.model.own_gradient import has_own_gradient
from pymc_sgmcmc.model.passes import masks_as_numbers
from pymc_sgmcmc.model.row_graphs import given_observed, resized
from pymc_sgmcmc.model.tensor_model import in_tensors, twin

# Sizes of two sets of rows, and of both; how many such sets are tried
_SIZES = 2, 3, 5
_TRIES = 64


def full_data(model: Model | None = None) -> Model:
    """Return a model with all rows in the place of ``pm.Minibatch``.

    Whatever needs the density of all data works on it, with the draws of the minibatched model:
    :func:`pymc.compute_log_likelihood`, leave-one-out cross-validation, posterior predictive
    draws, NUTS.

    Parameters
    ----------
    model : pymc.Model, optional
        A model with ``pm.Minibatch``; that of the context by default.

    Returns
    -------
    pymc.Model
        Another model with the same names, dims, coords, transforms and initial values, and
        without ``total_size``. An observed variable without dims has those of the ``pm.Data``
        whose rows it observes. The arrays are those of ``model`` and not copied; ``pm.set_data``
        on one of the models leaves the other as it is. Rows on disk are read when they are needed.

    Raises
    ------
    ValueError
        If the model has no ``pm.Minibatch``; if an observed variable lacks ``total_size``, or has
        one that is not the number of rows, or is not a sum over rows; if a potential is neither a
        sum nor a mean over the rows of a batch, times a number.
    NotImplementedError
        If the model has a :func:`GradientPotential`, which has no value; if a variable is written
        for batches of one size only.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_sgmcmc as sg
    >>> with pm.Model() as model:
    ...     y = pm.Minibatch(np.arange(100.0), batch_size=10)
    ...     mu = pm.Normal("mu", 50, 10)
    ...     observed = pm.Normal("y", mu, 30, observed=y, total_size=100)
    >>> sg.full_data(model)["y"].shape.eval()
    array([100])
    """
    model = in_tensors(a_model(model))
    _check(model)
    initial_values = [x for x in model.rvs_to_initial_values.values() if isinstance(x, Variable)]
    lengths = list(model.dim_lengths.values())
    values = [model.rvs_to_values[rv] for rv in model.observed_RVs]
    old = list(dict.fromkeys([*model.named_vars.values(), *values, *lengths, *initial_values]))
    factors = _factors(model)
    new: dict[Any, Any] = dict(zip(old, _with_all_rows(model, old), strict=True))
    for potential, factor in factors.items():
        if factor != 1:
            new[potential] = new[potential] * np.asarray(factor, dtype=potential.dtype)
    return twin(model, new, dims=_dims_of_observed(model))


def _check(model: Model) -> None:
    """Refuse models without a density of the full data."""
    if model.parent is not None:
        raise ValueError(f"The model '{model.name}' is a part of another one. Pass the whole.")
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
    check_independent_rows(model)
    for rv, minibatch in minibatch_terms(model).items():
        if rv not in model.observed_RVs:
            continue
        axis, rows = axis_of_rows(rv) or 0, minibatch.count
        total_size = rv.owner.inputs[1 + axis]
        if isinstance(total_size, Constant) and int(total_size.data) != rows:
            raise ValueError(
                f"The observed variable '{rv.name}' counts for total_size={int(total_size.data)} "
                f"rows, and its pm.Minibatch draws from {rows}: there is no full-data model with "
                "the same posterior. Pass total_size=<number of rows> to it."
            )
        dims = model.named_vars_to_dims.get(rv.name)
        dim = dims[axis] if dims else None
        if dim is not None and int(evaluate(model.dim_lengths[dim])) != rows:
            raise ValueError(
                f"The observed variable '{rv.name}' has the dim '{dim}', which has the length of a "
                f"batch and not that of its {rows} rows. Leave it out, or write the model with "
                f'rows of that dim and sample with batch_size=, batch_dim="{dim}".'
            )


def _with_all_rows(model: Model, graphs: Sequence[Variable]) -> list[Any]:
    """Return clones of graphs, independent of the model, with all rows for each batch."""
    now: list[Any] = clone_replace(list(graphs), _copies_of_shared(graphs))
    at = {variable: k for k, variable in enumerate(graphs)}
    lengths: dict[Variable, Variable] = {}
    for rv in minibatch_terms(model):
        if rv in model.observed_RVs:
            term, value = (now[at[x]] for x in (rv, model.rvs_to_values[rv]))
            [minibatch] = find_minibatches([term, value])
            new, length = _of_any_length(term)
            lengths[length] = minibatch.sources[0].shape[0]
            now = rebuilt(now, {term: new})
    return rebuilt(now, {**full_arrays(now), **lengths})


def _of_any_length(rv: Any) -> tuple[Any, Variable]:
    """Return an observed variable without total_size, and its symbolic length."""
    length, term = pt.lscalar(), unscaled(rv)
    with suppress(NotImplementedError):  # of distributions whose length follows from arrays
        # In its graph the length of a batch may have become a number
        term = resized(term, axis_of_rows(rv) or 0, length)
    return term, length


def _copies_of_shared(graphs: Sequence[Variable]) -> dict[Variable, Variable]:
    """Return shared variables of the same values, which can be set separately."""
    random = set(find_rng_nodes(graphs))
    copies: dict[Variable, Variable] = {}
    for variable in ancestors(list(graphs)):
        if not isinstance(variable, SharedVariable):
            continue
        if variable in random:
            copies[variable] = deepcopy_shared_variable(variable)
            continue
        value = variable.get_value(borrow=True)
        shape = {} if issparse(value) else {"shape": variable.type.shape}
        copies[variable] = pytensor.shared(value, variable.name, borrow=True, **shape)
    return copies


def _dims_of_observed(model: Model) -> dict[str, Any]:
    """Return the dims of observed variables, from the data whose rows they observe."""
    of_data = {data: model.named_vars_to_dims.get(data.name) for data in model.data_vars}
    dims = {}
    for rv in model.observed_RVs:
        value = before_casts(model.rvs_to_values[rv])
        source = full_arrays([value]).get(value)
        if source is not None and of_data.get(source) is not None:
            dims[str(rv.name)] = of_data[source]
    return dims


def _factors(model: Model) -> dict[Any, float]:
    """Return the factors of potentials of all rows, and refuse potentials that are no sum."""
    factors = dict.fromkeys(model.potentials, 1.0)
    for term, minibatch in minibatch_terms(model).items():
        two, three, five = _sums_over_rows(model, term)
        if term in model.observed_RVs and not np.isfinite(five):
            continue  # of rows that are impossible near the start; it needs no factor
        if np.isclose(five, two + three, rtol=1e-6):
            # A potential is multiplied by N / B, in numbers
            factors[term] = minibatch.batch_size / minibatch.count
        # Or by N / (length of the batch), which is 1 for all rows
        elif not np.isclose(_SIZES[2] * five, _SIZES[0] * two + _SIZES[1] * three, rtol=1e-6):
            raise ValueError(
                f"The term '{term.name}' is no sum over the rows of a pm.Minibatch, so that "
                "its value for the full data is unknown. Write it as a vector with one entry for "
                "each row, each multiplied by rows of the data / rows of the batch, or as an "
                "observed pm.CustomDist with total_size=."
            )
    return {potential: factors[potential] for potential in model.potentials}


def _sums_over_rows(model: Model, term: Any) -> list[float]:
    """Return the log density of two rows, of three others, and of these five."""
    values = [x for x in (model.rvs_to_values.get(term),) if x is not None]
    graphs = [given_observed(model, term, term), *values]
    batches = full_arrays(graphs)
    rows: dict[Any, Any] = {
        output: pt.tensor(dtype=source.type.dtype, shape=(None, *source.type.shape[1:]))
        for output, source in batches.items()
    }
    try:
        if term in model.observed_RVs:
            graphs[0], length = _of_any_length(graphs[0])
            rows_and_length = {**rows, length: next(iter(rows.values())).shape[0]}
            new, value = rebuilt(graphs, rows_and_length, keep=model.free_RVs)
            *_, of_rows = transformed_conditional_logp(
                [*model.free_RVs, new],
                rvs_to_values={**model.rvs_to_values, new: value},
                rvs_to_transforms=model.rvs_to_transforms,
            )
        else:
            [of_rows] = model.replace_rvs_by_values(rebuilt(graphs, rows, keep=model.free_RVs))
        density = pt.sum(masks_as_numbers([of_rows])[0])
        rng, arrays = np.random.default_rng(0), [evaluate(source) for source in batches.values()]
        # A term can be 0 in most rows
        tries = 1 if any(isinstance(array, Source) for array in arrays) else _TRIES
        chosen = unlike_rows(arrays, tries * _SIZES[2], rng).reshape(tries, -1)
        parts = [part for rows in chosen for part in (*np.split(rows, [_SIZES[0]]), rows)]
        choices = [[some_rows(array, part) for array in arrays] for part in parts]
        at_points = at_some_rows(model, [density], list(rows.values()), choices, rng)
        # A single row may be impossible near the start
        of_points = (np.reshape([float(x) for [x] in of], (tries, 3)) for of in at_points)
        finite = (sums[np.isfinite(sums).all(axis=1)] for sums in of_points)
        sums = next(filter(len, finite), np.full((1, 3), np.nan))
    except (AssertionError, TypeError, ValueError, IndexError) as error:
        raise NotImplementedError(
            f"The variable '{term.name}' is written for as many rows as a batch has; with others "
            f"PyTensor says: {first_line(error)} Write lengths as those of an array, such as "
            "x.shape[0], or build the model on the full arrays yourself."
        ) from error
    return [float(x) for x in sums[np.argmax(np.abs(sums).sum(axis=1))]]
