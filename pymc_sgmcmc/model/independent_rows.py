"""Whether a likelihood is a sum over rows, tried out with a few of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pymc.model import Model
from pytensor.graph.basic import Variable

from pymc_sgmcmc.backends.compiling import building, compiled
from pymc_sgmcmc.disk.source import Source
from pymc_sgmcmc.model.batch_dim import in_batches, mismatch, named, rows_of
from pymc_sgmcmc.model.graphs import masks_as_numbers, substitute
from pymc_sgmcmc.model.initial_point import points_near_start
from pymc_sgmcmc.model.minibatch import evaluate, find_minibatches, full_arrays
from pymc_sgmcmc.model.own_gradient import has_own_gradient

__all__ = ["check_independent_rows", "some_rows"]


@building()
def check_independent_rows(model: Model, dim: str | None = None) -> None:
    """Raise ValueError where a model's log density is no sum over the rows of its batches.

    The log densities of two batches must have the same sum however rows are dealt to them. The
    batches are those of ``pm.Minibatch``, or of the rows of a dim.
    """
    batched = model
    if dim is not None:
        batched = in_batches(model, dim, min(rows_of(model, dim).count, 6))
    terms = [
        term
        for term in [*batched.observed_RVs, *batched.potentials]
        if find_minibatches([term, batched.rvs_to_values.get(term, term)])
        and not has_own_gradient([term])
    ]
    if not terms:
        return
    rng = np.random.default_rng(0)
    try:
        graphs: Any = masks_as_numbers(batched.logp(terms, jacobian=False, sum=False))
        batches = full_arrays(graphs)
        rows: dict[Any, Any] = {batch: batch.type() for batch in batches}
        dealt = _dealt(batches, rng)
        inputs: list[Variable] = [*model.value_vars, *rows.values()]
        function = compiled(inputs, substitute(graphs, rows), "interpreter")
        for point in points_near_start(model, rng):
            with np.errstate(all="ignore"):
                found = [[_sums(x) for x in function(*point, *four)] for four in dealt]
            sums, sizes = np.moveaxis(np.array(found, dtype=float), 2, 0)
            if np.isfinite(sums).all():
                break
    except NotImplementedError:
        return  # an operation that the interpreter lacks
    except (AssertionError, ValueError, IndexError, TypeError) as error:
        if dim is None:
            return  # sampling will say
        raise ValueError(mismatch(model, rows_of(model, dim), error)) from error
    with np.errstate(invalid="ignore"):
        off = np.abs(sums[0] + sums[1] - sums[2] - sums[3])
    precision = np.finfo(graphs[0].dtype).eps ** 0.5
    for term, wrong in zip(terms, off > precision * (1 + sizes.sum(axis=0)), strict=True):
        if wrong:
            undeclared = rows_of(model, dim).undeclared if dim is not None else []
            raise ValueError(_no_sum(str(term.name), dim, undeclared))


def _dealt(batches: Mapping[Any, Variable], rng: np.random.Generator) -> list[list[np.ndarray]]:
    """Return the rows of two batches, and of two others of the same rows, for each array."""
    numbers: dict[Variable, np.ndarray] = {}
    found: list[list[np.ndarray]] = [[], [], [], []]
    for batch, source in batches.items():
        array, size = evaluate(source), batch.type.shape[0]
        stream = batch.owner.inputs[-1]
        if stream not in numbers:
            few = rng.choice(len(array), (2, 3), replace=len(array) < 6)
            both = np.stack([np.resize(x, size) for x in few])
            numbers[stream] = np.concatenate([both, rng.permutation(both.ravel()).reshape(2, size)])
        for four, part in zip(found, numbers[stream], strict=True):
            four.append(some_rows(array, part))
    return found


def _sums(x: np.ndarray) -> list[float]:
    return [np.sum(x, dtype=float), np.sum(np.abs(x), dtype=float)]


def some_rows(value: Any, part: np.ndarray) -> np.ndarray:
    """Return some rows of an array."""
    if isinstance(value, Source):
        few, at = np.unique(part, return_inverse=True)
        return np.concatenate([value.rows(k, k + 1) for k in few.tolist()])[at]
    return np.take(value, part, axis=0)


def _no_sum(term: str, dim: str | None, undeclared: Sequence[Any]) -> str:
    of, cure = f"the dim '{dim}'", "batch_size and batch_dim"
    if dim is None:
        of, cure = "a pm.Minibatch", "pm.Minibatch"
    return (
        f"The log density of '{term}' is not a sum over the rows of {of}: rows depend on each "
        "other, as in a time series or through a mean over the batch, or on their place in it. "
        "Compute such means before the model is made, and draw all arrays of rows in one batch, "
        f"x, y = pm.Minibatch(x, y, batch_size=...); or leave {cure} out, for rows that depend on "
        "each other cannot be drawn alone."
        + (
            f" By its length alone {named(undeclared)} is taken for rows: if it holds none, pass "
            "it as pm.Data with another dim."
            if undeclared
            else ""
        )
    )
