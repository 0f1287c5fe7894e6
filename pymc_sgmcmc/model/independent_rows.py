"""Whether a likelihood is a sum over rows, tried out with a few of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pymc.model import Model
from pytensor.graph.basic import Variable

from pymc_sgmcmc.backends.compiling import building, compiled
from pymc_sgmcmc.disk.source import Source
from pymc_sgmcmc.model.graphs import substitute
from pymc_sgmcmc.model.initial_point import points_near_start
from pymc_sgmcmc.model.minibatch import evaluate, full_arrays, minibatch_terms
from pymc_sgmcmc.model.own_gradient import has_own_gradient
from pymc_sgmcmc.model.passes import masks_as_numbers
from pymc_sgmcmc.model.row_view import RowView, named

__all__ = ["at_some_rows", "check_independent_rows", "some_rows"]


# Rows in a batch: some, each twice
_ROWS = 6


@building()
def check_independent_rows(model: Model, view: RowView | None = None) -> bool:
    """Raise ValueError where a model's log density is no sum over the rows of its batches.

    The log densities of two batches must have the same sum however rows are dealt to them, and of a
    view also that of batches of half as many rows, which count twice as much. The batches are those
    of ``pm.Minibatch``, or of the rows of a view. Returns whether the densities could be compared.
    """
    batched = [model] if view is None else [view.take(min(view.count, _ROWS))]
    if view is not None and view.count >= _ROWS:
        batched.append(view.take(_ROWS // 2))
    terms = [
        [term for term in minibatch_terms(part) if not has_own_gradient([term])] for part in batched
    ]
    if not terms[0]:
        return True
    rng = np.random.default_rng(0)
    try:
        graphs: list[Any] = []
        for part, of_part in zip(batched, terms, strict=True):
            graphs += masks_as_numbers(part.logp(of_part, jacobian=False, sum=False))
        batches = full_arrays(graphs)
        rows = {batch: batch.type() for batch in batches}
        of_rows = substitute(graphs, rows)
        dealt = _dealt(batches, rng, None if view is None else min(view.count, _ROWS))
        values = at_some_rows(model, of_rows, list(rows.values()), dealt, rng)
    except NotImplementedError:
        return False  # an operation that the interpreter lacks
    except (AssertionError, ValueError, IndexError, TypeError) as error:
        if view is None:
            return False  # sampling will raise it
        raise ValueError(view.mismatch(error)) from error
    n = len(terms[0])
    with np.errstate(all="ignore"):
        sums = np.array([[np.sum(x, dtype=float) for x in each] for each in values])
        sizes = np.array([[np.sum(np.abs(x), dtype=float) for x in each] for each in values])
        off = np.abs(sums[0] + sums[1] - sums[2] - sums[3])[:n]
        if len(batched) > 1:
            off = np.maximum(off, np.abs(sums[0, :n] - sums[0, n:]))
    precision = np.finfo(graphs[0].dtype).eps ** 0.5
    for term, wrong in zip(terms[0], off > precision * (1 + sizes.sum(axis=0)[:n]), strict=True):
        if wrong:
            raise ValueError(_no_sum(str(term.name), view))
    return bool(np.all(np.isfinite(sums)))


def _dealt(
    batches: Mapping[Any, Variable], rng: np.random.Generator, size: int | None
) -> list[list[np.ndarray]]:
    """Return the rows of two batches, and of two others of the same rows, for each array.

    If a ``size`` is given, all batches have the same rows: so many, or the first of these.
    """
    numbers: dict[Variable | None, np.ndarray] = {}
    dealt: list[list[np.ndarray]] = [[], [], [], []]
    for batch, source in batches.items():
        array, own = evaluate(source), batch.type.shape[0]
        stream = batch.owner.inputs[-1] if size is None else None
        if stream not in numbers:
            few = rng.choice(len(array), (2, _ROWS // 2), replace=len(array) < _ROWS)
            both = np.stack([np.resize(x, size or own) for x in few])
            others = rng.permutation(both.ravel()).reshape(both.shape)
            numbers[stream] = np.concatenate([both, others])
        for arrays, part in zip(dealt, numbers[stream], strict=True):
            arrays.append(some_rows(array, part[:own]))
    return dealt


def at_some_rows(
    model: Model,
    graphs: Sequence[Any],
    rows: Sequence[Any],
    choices: Sequence[Sequence[np.ndarray]],
    rng: np.random.Generator,
) -> list[list[Any]]:
    """Return the graphs' values for each choice of rows, near the start, interpreted.

    ``rows`` are the inputs of the graphs; a choice has an array for each of them. The point is the
    first at which all values are finite, or the initial point.
    """
    function = compiled([*model.value_vars, *rows], graphs, "interpreter")
    values: list[list[Any]] = []
    for point in points_near_start(model, rng):
        with np.errstate(all="ignore"):
            values = [list(function(*point, *arrays)) for arrays in choices]
            if all(np.isfinite(np.sum(x, dtype=float)) for each in values for x in each):
                break
    return values


def some_rows(value: Any, part: np.ndarray) -> np.ndarray:
    """Return some rows of an array."""
    if isinstance(value, Source):
        few, at = np.unique(part, return_inverse=True)
        return np.concatenate([value.rows(k, k + 1) for k in few.tolist()])[at]
    return np.take(value, part, axis=0)


def _no_sum(term: str, view: RowView | None) -> str:
    of, cure, taken = "a pm.Minibatch", "pm.Minibatch", ""
    if view is not None:
        of, cure = f"the dim '{view.dim}'", "batch_size and batch_dim"
        if view.undeclared:
            taken = (
                f" By its length alone {named(view.undeclared)} is taken for rows: if it holds "
                "none, pass it as pm.Data with another dim."
            )
    return (
        f"The log density of '{term}' is not a sum over the rows of {of}: rows depend on each "
        "other, as in a time series or through a mean over the batch, or on their place in it. "
        "Compute such means before the model is made, and draw all arrays of rows in one batch, "
        f"x, y = pm.Minibatch(x, y, batch_size=...); or leave {cure} out, for rows that depend on "
        f"each other cannot be drawn alone.{taken}"
    )
