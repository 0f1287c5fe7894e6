"""Whether a likelihood is a sum over rows, tried out with a few of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytensor.tensor as pt

from pymc.logprob.basic import transformed_conditional_logp
from pymc.model import Model
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.traversal import ancestors
from pytensor.sparse.type import SparseTensorType
from pytensor.tensor.variable import TensorVariable

from pymc_sgmcmc.backends.compiling import compiled
from pymc_sgmcmc.disk.source import Source
from pymc_sgmcmc.model.batch_dim import Rows, rows_of, sparse_rows, taken
from pymc_sgmcmc.model.graphs import masks_as_numbers
from pymc_sgmcmc.model.initial_point import at_values, points_near_start
from pymc_sgmcmc.model.minibatch import evaluate

__all__ = ["check_independent_rows", "log_densities", "some_rows"]

# Sizes of two sets of rows. Their joint log density is the sum of theirs, if rows are independent
_SIZES = 2, 3


def check_independent_rows(model: Model, dim: str) -> None:
    """Refuse a model whose log density is no sum over the rows of a dim.

    The terms of five rows are compared with those of two and of three of them.

    Raises
    ------
    ValueError
        If rows depend on each other, or if the model holds arrays of as many rows without the dim.
    """
    rows = rows_of(model, dim)
    terms, function = _log_densities(model, rows)
    values = [evaluate(array) for array in rows.axes]
    rng = np.random.default_rng(0)
    chosen = rng.choice(rows.count, sum(_SIZES), replace=rows.count < sum(_SIZES))
    sets = [chosen, *np.split(chosen, [_SIZES[0]])]
    parts = [
        [
            some_rows(value, part, axis)
            for value, axis in zip(values, rows.axes.values(), strict=True)
        ]
        for part in sets
    ]
    for point in points_near_start(model, rng):
        try:
            with np.errstate(all="ignore"):
                found = [function(*point, *part) for part in parts]
        except NotImplementedError:
            return  # an operation that the interpreter lacks
        except (AssertionError, ValueError, IndexError, TypeError) as error:
            raise ValueError(_mismatch(model, rows, error)) from error
        whole, *halves = [np.array([np.sum(term) for term in one]) for one in found]
        for k, (term, axis) in enumerate(zip(terms, rows.terms.values(), strict=True)):
            shapes = [np.shape(one[k]) for one in found]
            if any(
                len(shape) <= axis or shape[axis] != len(part)
                for shape, part in zip(shapes, sets, strict=True)
            ):
                raise ValueError(_no_sum(term, dim))
        if np.isfinite(whole).all():
            size = np.array([np.abs(term).sum() for term in found[0]])
            precision = np.finfo(found[0][0].dtype).eps ** 0.5
            wrong = ~(np.abs(whole - sum(halves)) <= precision * (1 + size))
            if wrong.any():
                raise ValueError(_no_sum(terms[int(np.argmax(wrong))], dim))
            return


def some_rows(value: Any, part: np.ndarray, axis: int) -> np.ndarray:
    """Return some rows of an array, as its first axis."""
    if isinstance(value, Source):
        return np.concatenate([value.rows(k, k + 1) for k in part.tolist()])
    return np.moveaxis(np.take(value, part, axis), axis, 0)


def _log_densities(model: Model, rows: Rows) -> tuple[list[str], Callable[..., Any]]:
    """Return the terms' names and a function for their log densities, entry by entry."""
    batches: list[Any] = []
    for array, axis in rows.axes.items():
        shape = [length for k, length in enumerate(array.type.shape) if k != axis]
        batches.append(pt.tensor(dtype=array.type.dtype, shape=(None, *shape)))
    try:
        terms, values = taken(model, rows, batches, batches[0].shape[0])
        graphs = log_densities(model, terms, values)
        inputs: list[Variable] = [*model.value_vars, *batches]
        return [str(term.name) for term in rows.terms], compiled(inputs, graphs, "interpreter")
    except (AssertionError, ValueError, IndexError, TypeError) as error:
        raise ValueError(_mismatch(model, rows, error)) from error


def log_densities(
    model: Model, terms: Mapping[Any, Any], values: Mapping[Any, Any]
) -> list[TensorVariable]:
    """Return the log densities of terms, entry by entry, at the model's value variables.

    Parameters
    ----------
    model : pymc.Model
    terms : dict
        Observed variables and potentials of the model, with what stands for each.
    values : dict
        Observed variables, with what is observed.
    """
    logps = transformed_conditional_logp(
        [*model.free_RVs, *(terms[rv] for rv in values)],
        rvs_to_values={
            **{rv: model.rvs_to_values[rv] for rv in model.free_RVs},
            **{terms[rv]: value for rv, value in values.items()},
        },
        rvs_to_transforms={rv: model.rvs_to_transforms[rv] for rv in model.free_RVs},
    )
    found = dict(zip(values, logps[len(model.free_RVs) :], strict=True))
    rest = [term for term in terms if term not in found]
    found.update(zip(rest, at_values(model, [terms[term] for term in rest]), strict=True))
    return masks_as_numbers([found[term] for term in terms])


def _no_sum(term: str, dim: str) -> str:
    return (
        f"The log density of '{term}' is not a sum over the rows of the dim '{dim}': rows depend "
        "on each other, as in a time series, or through a mean over rows that the model takes. "
        "Compute such means before the model is made; or leave batch_size and batch_dim out, for "
        "rows that depend on each other cannot be drawn alone."
    )


def _mismatch(model: Model, rows: Rows, error: Exception) -> str:
    """Name what has as many entries as there are rows and lacks the dim."""
    for leaf in ancestors(list(rows.terms)):
        if isinstance(leaf.type, SparseTensorType) and isinstance(leaf, Constant | SharedVariable):
            array = leaf.data if isinstance(leaf, Constant) else leaf.get_value(borrow=True)
            if rows.count in array.shape:
                return sparse_rows(f"An array of shape {array.shape}", rows.dim)
    suspects = dict.fromkeys(
        f"'{leaf.name}'" if leaf.name else f"an array of shape {leaf.type.shape}"
        for leaf in ancestors(list(rows.terms))
        if leaf not in rows.axes and _has_rows(model, leaf, rows.count)
    )
    if suspects:
        listed = ", ".join(suspects)
        return (
            f"The model cannot be taken in batches of the dim '{rows.dim}': it depends on "
            f"{listed}, with as many entries as there are rows ({rows.count}) and without the "
            f'dim. Wrap arrays of rows as pm.Data("x", x, dims="{rows.dim}"), with further dims '
            "or None for other axes."
        )
    first = (str(error).splitlines() or [type(error).__name__])[0][:300]
    return (
        f"The model cannot be taken in batches of the dim '{rows.dim}'; with a few of its rows "
        f"PyTensor says: {first} Give each array of rows the dim, by pm.Data(..., "
        f'dims="{rows.dim}"), and write no shape as a number.'
    )


def _has_rows(model: Model, leaf: Variable, count: int) -> bool:
    if isinstance(leaf, Constant | SharedVariable):
        return count in np.shape(evaluate(leaf)) if hasattr(leaf.type, "shape") else False
    return leaf in model.free_RVs and count in leaf.type.shape
