"""What ``pm.Minibatch`` and ``total_size`` must satisfy for a density to be right."""

from __future__ import annotations

import os
import warnings

from typing import Any

from pymc.model import Model
from pytensor.graph.traversal import ancestors
from pytensor.tensor.type_other import NoneConst
from pytensor.tensor.variable import TensorVariable

from pymc_sgmcmc.disk.fetch import warn_of_order
from pymc_sgmcmc.disk.on_disk import MOST_ROWS, RowsOnDisk, source_of
from pymc_sgmcmc.model.graphs import nodes_of
from pymc_sgmcmc.model.minibatch import (
    Minibatch,
    axis_of_rows,
    evaluate,
    find_minibatches,
    full_arrays,
)

_DRAWS = "its pm.Minibatch draws from"
_IF_ROWS_CHANGE = (
    ", or, if pm.set_data changes the number of rows, total_size=[data.shape[0]] with the pm.Data"
)

# Warnings name the user's line
_PACKAGE = (os.path.dirname(os.path.dirname(__file__)),)


def check_minibatches(model: Model) -> list[Minibatch]:
    """Return every ``pm.Minibatch`` call of a model; raise or warn where a density is wrong."""
    for rv in model.free_RVs:
        if find_minibatches([rv]):
            raise NotImplementedError(
                f"The unobserved variable '{rv.name}' depends on a pm.Minibatch: its meaning "
                "would change with every batch. Give it the shape of the full data and index "
                "it with a minibatched index."
            )
    values = [model.rvs_to_values[rv] for rv in model.observed_RVs]
    for rv, value in zip(model.observed_RVs, values, strict=True):
        _check_likelihood(rv, value)
    minibatches = find_minibatches([*model.observed_RVs, *values, *model.potentials])
    for minibatch in minibatches:
        _check_rows(minibatch)
    _refuse_whole_rows(model)
    for minibatch in minibatches:
        warn_of_order(minibatch.arrays(), minibatch.batch_size, _PACKAGE)
    for potential in model.potentials:
        _check_potential(potential)
    for deterministic in model.deterministics:
        if find_minibatches([deterministic]):
            _warn(
                f"The deterministic '{deterministic.name}' depends on a pm.Minibatch: it records "
                "values for a random batch of rows, another one in each draw. Leave it out by "
                "pm.sample(var_names=...), and compute it after sampling for all rows: "
                "pm.compute_deterministics in sg.full_data(model)."
            )
    return minibatches


def _warn(message: str) -> None:
    warnings.warn(message, UserWarning, skip_file_prefixes=_PACKAGE)


def _check_likelihood(rv: TensorVariable, value: Any) -> None:
    axis, minibatches = axis_of_rows(rv), find_minibatches([rv, value])
    if axis is not None:
        _check_other_axes(rv, axis, value)
    if not minibatches:
        if axis is not None:
            _check_size(rv, axis, evaluate(value).shape[axis], "it has all of its")
        return
    if axis is None:
        raise ValueError(without_total_size(f"The observed variable '{rv.name}'"))
    _check_aligned(f"The observed variable '{rv.name}'", minibatches)
    _check_size(rv, axis, minibatches[0].count)


def _check_aligned(what: str, minibatches: list[Minibatch], otherwise: str = "") -> None:
    if len(minibatches) > 1:
        raise ValueError(
            f"{what} draws its rows from {len(minibatches)} pm.Minibatch calls, whose rows are not "
            "aligned. Draw all its arrays in one call: x, y = pm.Minibatch(x, y, "
            f"batch_size=...).{otherwise}"
        )


def _check_other_axes(rv: TensorVariable, axis: int, value: Any) -> None:
    """Refuse a likelihood that is scaled along an axis besides that of its rows."""
    for k, size in enumerate(rv.owner.inputs[1:]):
        if k == axis or NoneConst.equals(size):
            continue
        if (total := int(evaluate(size))) != (length := int(evaluate(value.shape[k]))):
            raise ValueError(
                f"The observed variable '{rv.name}' has total_size={total} on axis {k}, which has "
                f"{length} entries, besides that of its rows on axis {axis}. Rows are drawn along "
                f"one axis: put total_size=[..., None] or {length} there."
            )


def _check_size(rv: TensorVariable, axis: int, rows: int, which: str = _DRAWS) -> None:
    total_size = rv.owner.inputs[1 + axis]
    on_disk = any(source_of(x) is not None for x in ancestors([total_size]))
    of_batch = find_minibatches([total_size]) if on_disk else []
    if of_batch or not on_disk:
        # The length of a batch is known without a row being read
        size = of_batch[0].batch_size if of_batch else int(evaluate(total_size))
        what = f"The observed variable '{rv.name}'"
        _check_total_size(what, size, rows, which, _IF_ROWS_CHANGE)


def without_total_size(what: str) -> str:
    """Say that a term lacks the number of rows of the full data."""
    return (
        f"{what} uses a pm.Minibatch without the size of the full data, so that its likelihood "
        "would count one batch only. Pass total_size=<number of rows> to it."
    )


def _check_total_size(
    what: str, total_size: int, rows: int, which: str = _DRAWS, otherwise: str = ""
) -> None:
    """Refuse a likelihood of no rows, and warn where it is scaled to a wrong number of rows."""
    if total_size < 1:
        raise ValueError(
            f"{what} has total_size={total_size}. Pass the number of its rows, {rows}."
        )
    if total_size != rows:
        _warn(
            f"{what} has total_size={total_size}, but {which} {rows} rows: the likelihood counts "
            f"{total_size / rows:.3g} times what they say. Pass total_size={rows}{otherwise}."
        )


def _check_potential(potential: Any) -> None:
    what, minibatches = f"The potential '{potential.name}'", find_minibatches([potential])
    otherwise = " If it is the sum of several terms, write a pm.Potential for each."
    _check_aligned(what, minibatches, otherwise)
    # A term with a known gradient only is marked by its operation, one of batch_dim by a tag
    of = potential.owner and potential.owner.op, potential.tag
    if minibatches and (total_size := getattr(of[0], "total_size", None)):
        _check_total_size(what, total_size, minibatches[0].count)
    if minibatches and not any(getattr(x, "scales_with_data", False) for x in of):
        _warn(
            f"{what} depends on a pm.Minibatch. How it scales with the data cannot be known: it "
            "must already be multiplied by (rows of the data) / (rows of the batch)."
        )


def _refuse_whole_rows(model: Model) -> None:
    """Refuse rows on disk that are used without a minibatch."""
    graphs = [*model.basic_RVs, *model.rvs_to_values.values(), *model.potentials]
    for node in nodes_of(graphs, RowsOnDisk, full_arrays(graphs)):
        raise ValueError(
            f"The rows of {node.op.source.name} are used as a whole, for which all of them would "
            "be read. Pass batch_size= to the step method, such as 500, or draw batches of them in "
            "the model: x, y = pm.Minibatch(sg.on_disk(...), sg.on_disk(...), batch_size=...)."
        )


def _check_rows(minibatch: Minibatch) -> None:
    if minibatch.batch_size < 1:
        raise ValueError(
            f"A pm.Minibatch has batch_size={minibatch.batch_size}. Pass the number of its rows, "
            "such as 500."
        )
    rows = [len(evaluate(source)) for source in minibatch.sources]
    if len(set(rows)) > 1:
        raise ValueError(
            f"A pm.Minibatch draws from arrays of different lengths, {rows}: pass arrays with "
            "the same number of rows."
        )
    if rows[0] > MOST_ROWS:
        raise ValueError(
            f"A pm.Minibatch draws from {rows[0]} rows, more than 2^31 - 1. Divide them among "
            "several likelihoods, each with a pm.Minibatch of its own."
        )
    if minibatch.batch_size > rows[0]:
        raise ValueError(
            f"The batch_size={minibatch.batch_size} of a pm.Minibatch is larger than its data "
            f"of {rows[0]} rows. Choose a smaller batch_size, or leave pm.Minibatch out to "
            "sample with the full gradient."
        )
