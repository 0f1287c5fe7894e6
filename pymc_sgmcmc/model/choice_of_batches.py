"""The rows that batches are drawn of, and their number, where the user leaves them open."""

from __future__ import annotations

import logging
import math

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytensor.tensor as pt

from pymc.model import Model
from pytensor.graph.traversal import ancestors

from pymc_sgmcmc.checks import by_name, positive_int
from pymc_sgmcmc.model.batch_cost import numbers_of_batch
from pymc_sgmcmc.model.data_checks import with_lengths
from pymc_sgmcmc.model.graphs import is_data
from pymc_sgmcmc.model.independent_rows import check_independent_rows, require_independent_rows
from pymc_sgmcmc.model.minibatch import (
    all_rows,
    axis_of_rows,
    evaluate,
    find_minibatches,
    minibatch_terms,
)
from pymc_sgmcmc.model.row_graphs import like
from pymc_sgmcmc.model.row_view import RowView

_log = logging.getLogger("pymc.sgmcmc")

# What the dim of an axis without one is called, before the names of the variables
_ROWS_OF = "rows of "

# Sizes of batches, of which the largest is taken whose log density computes no more numbers than
# this: as long as an update takes besides
_SIZES = 100, 200, 500, 1000, 2000, 5000
_NUMBERS = 25_000

# Batches in the data from which an update of one of them, or of the few that are averaged, costs
# so much less than one of all rows that the noise is worth it
_LEAST_BATCHES = 20


@dataclass(frozen=True)
class Batches:
    """A model, the dim of the rows that batches are drawn of, and B; None where all rows count."""

    model: Model
    dim: str | None = None
    size: int | None = None


@dataclass(frozen=True)
class _Axis:
    """An axis that terms of a model share, by their names; its dim where it has one."""

    dim: str | None
    axes: Mapping[str, int]
    count: int  # N

    def named(self, model: Model) -> tuple[Model, str]:
        """Return the model with a dim for this axis, and the dim's name."""
        return rows_named(model, self.axes, self.dim)

    def __str__(self) -> str:
        return f"batch_dim={dict(self.axes) if self.dim is None else self.dim!r}"


def chosen_batches(model: Model, size: Any, dim: Any) -> Batches:
    """Return the batches that are asked for, or those that cost less than all rows.

    ``size`` is B, "auto" or None; ``dim`` a dim, a dict of variables' names to axes, or None. It
    raises where batches of the rows would be wrong; with "auto" such rows are not drawn in batches.
    """
    _check_kinds(size, dim)
    if isinstance(dim, Mapping):
        dim = by_name("batch_dim", dim)
    if size is None:
        return Batches(model)
    if isinstance(size, str):
        return _batches_or_all(model, dim)
    size = positive_int("batch_size", size, usual=500)
    if isinstance(dim, Mapping):
        model, dim = rows_named(model, dim)
    if dim is not None:
        view = RowView(model, dim)
        view.take(size)
        require_independent_rows(model, view)
        return Batches(model, dim, size)
    if minibatch_terms(model):
        raise ValueError(
            f"The model draws batches by pm.Minibatch, where the size of a batch stands, and "
            f"batch_size={size} asks for batches of its rows. Leave batch_size out, or give the "
            "full arrays to the model."
        )
    error: Exception | None = None
    for axis in _shared_by_all(model, size):
        try:
            named, of_axis = axis.named(model)
            return chosen_batches(named, size, of_axis)
        except (ValueError, NotImplementedError) as fault:
            error = error or fault
    assert error is not None
    raise error


def rows_named(model: Model, axes: Mapping[str, int], dim: str | None = None) -> tuple[Model, str]:
    """Return the model with a dim for these variables' axes, and its name.

    The copy shares the variables and data of ``model``. It raises where an axis cannot be one of
    rows.
    """
    if dim is None:
        dim = _ROWS_OF + ", ".join(axes)
        while dim in model.dim_lengths:
            dim += "'"
    named = like(model)
    named.named_vars_to_dims = dict(model.named_vars_to_dims)
    terms = {term.name: term for term in [*model.observed_RVs, *model.potentials]}
    for name, axis in axes.items():
        _check_axis(terms, name, axis)
        dims = list(model.named_vars_to_dims.get(name) or [None] * terms[name].ndim)
        if dims[axis] not in (None, dim):
            raise ValueError(
                f"batch_dim names axis {axis} of '{name}', which has the dim '{dims[axis]}'. Pass "
                f"batch_dim='{dims[axis]}'."
            )
        dims[axis] = dim
        named.named_vars_to_dims[name] = tuple(dims)
    if dim not in model.dim_lengths:
        name, axis = next(iter(axes.items()))
        length = pt.constant(_lengths(model, terms[name])[axis], dtype="int64")
        named._dim_lengths = {**model.dim_lengths, dim: length}
    return named, dim


def _check_kinds(size: Any, dim: Any) -> None:
    if dim is not None and not isinstance(dim, str | Mapping):
        raise TypeError(
            "batch_dim must be the name of a dim, such as 'obs', or a dict of observed variables "
            f"to their axis of rows, such as {{'y': 0}}, got {dim!r}."
        )
    if isinstance(dim, Mapping) and not dim:
        raise ValueError("batch_dim is an empty dict. Name an observed variable, or leave it out.")
    if size is None and dim is not None:
        raise ValueError(
            f"batch_dim={dim!r} needs batch_size=, the rows of a batch, such as 500, or 'auto'."
        )
    if isinstance(size, str) and size != "auto":
        raise ValueError(
            f"batch_size must be 'auto', a number of rows, or None for all rows, got {size!r}."
        )


def _check_axis(terms: Mapping[str, Any], name: str, axis: Any) -> None:
    if name not in terms:
        listed = ", ".join(f"'{term}'" for term in terms) or "none"
        raise ValueError(
            f"batch_dim names {name!r}, which is no observed variable or potential of the model. "
            f"It has {listed}."
        )
    count = len(_axes(terms[name]))
    if isinstance(axis, bool) or not isinstance(axis, int | np.integer) or not 0 <= axis < count:
        of = f"an axis from 0 to {count - 1}" if count else "no axis of rows"
        raise ValueError(
            f"batch_dim={{{name!r}: {axis!r}}}: '{name}' has {of}. Those of a multivariate "
            "distribution's own entries do not count."
        )


# ----------------------------------------------------------------------------- the axis of rows


def _shared_by_all(model: Model, size: int) -> list[_Axis]:
    """Return the axes that all observed variables share, the first first, or raise."""
    every = list(_axes_of_rows(model))
    axes = [axis for axis in every if axis.count >= size] or every
    observed = {rv.name for rv in model.observed_RVs}
    shared = [axis for axis in axes if observed.issubset(axis.axes)]
    if not shared and len(axes) == 1:
        return axes
    if not shared and axes:
        listed = ", ".join(f"{axis} ({axis.count:,} rows)" for axis in axes)
        raise ValueError(
            f"batch_size={size}: the observed variables have no axis of rows in common. Say which "
            f"rows batches are drawn of: {listed}. The other data then count in full in each "
            "update."
        )
    if not shared:
        raise ValueError(
            f"batch_size={size}, but no observed variable or potential has an axis of rows: "
            "each is a single number or one draw of a multivariate distribution. Leave batch_size "
            "out."
        )
    return shared


def _axes_of_rows(model: Model) -> list[_Axis]:
    """Return the axes of observed variables and potentials that may be those of rows.

    An axis without a dim belongs to the first axis of its length that has one.
    """
    of_terms: dict[str, list[tuple[str | None, int]]] = {}
    for term in [*model.observed_RVs, *model.potentials]:
        lengths = _lengths(model, term)
        dims = _dims(model, term, lengths)
        of_terms[term.name] = [(dims[k], lengths[k]) for k in _axes(term)]
    listed = [(name, k, *axis) for name, axes in of_terms.items() for k, axis in enumerate(axes)]
    places = {(name, k): place for place, (name, k, *_) in enumerate(listed)}
    seen: set[tuple[str | None, int]] = set()
    axes: list[_Axis] = []
    for name, k, dim, count in sorted(listed, key=lambda axis: axis[2] is None):
        if count < 2 or (dim, count) in seen:
            continue
        alike = {(dim, count), (None, count)}
        members = {name: k}
        for other, theirs in of_terms.items():
            at = [j for j, axis in enumerate(theirs) if axis in alike]
            if other != name and at:
                members[other] = at[0]
        seen.add((dim, count))
        if len(members) > 1:
            seen.add((None, count))
        axes.append(_Axis(dim, members, count))
    return sorted(axes, key=lambda axis: min(places[at] for at in axis.axes.items()))


def _dims(model: Model, term: Any, lengths: Sequence[int]) -> list[str | None]:
    """Return a term's dims; for one that it lacks, the only dim of that length of its data."""
    own = model.named_vars_to_dims.get(term.name) or [None] * term.ndim
    below = set(ancestors([term, model.rvs_to_values.get(term, term)]))
    known: dict[int, set[str]] = {}
    for data in model.data_vars:
        dims = model.named_vars_to_dims.get(data.name) or () if data in below else ()
        for dim, length in zip(dims, evaluate(data).shape, strict=False):
            if dim is not None:
                known.setdefault(length, set()).add(dim)
    alike = [sorted(known.get(length, ())) for length in lengths]
    return [dim or (of[0] if len(of) == 1 else None) for dim, of in zip(own, alike, strict=True)]


def _lengths(model: Model, term: Any) -> list[int]:
    """Return the lengths of a term's axes, 0 where they are not known."""
    value: Any = model.rvs_to_values.get(term)
    lengths = (with_lengths(model, [term])[0] if value is None else value).type.shape
    if value is not None and None in lengths:
        lengths = evaluate(all_rows(value)).shape
    return [n or 0 for n in lengths]


def _axes(term: Any) -> range:
    """Return the axes of a term along which its entries are independent."""
    own = getattr(term.owner and term.owner.op, "ndim_supp", 0)
    return range(term.ndim - own)


# ----------------------------------------------------------------------------- batches, or all rows


def _batches_or_all(model: Model, dim: str | Mapping[str, int] | None) -> Batches:
    """Return batches of a model's rows, or all rows where they are few or not independent."""
    if dim is not None:
        named, name = rows_named(model, dim) if isinstance(dim, Mapping) else (model, dim)
        return _batches_that_pay(named, name) or Batches(model)
    if minibatch_terms(model):
        return Batches(model)
    for axis in sorted(_axes_of_rows(model), key=lambda axis: -axis.count):
        if axis.count < _LEAST_BATCHES * _SIZES[0]:
            break
        try:
            if (batches := _batches_that_pay(*axis.named(model))) is not None:
                return batches
        # What was not asked for must not stop a model that all rows can sample
        except Exception as error:
            _log.log(
                logging.INFO if _are_many(axis.count) else logging.DEBUG,
                "An update takes all %s rows: batches of them cannot be drawn, as where values are "
                "missing or rows depend on each other (%.300s).",
                f"{axis.count:,}", error,
            )  # fmt: skip
    for potential in [x for x in model.potentials if x.ndim == 0]:
        below = ancestors([potential], blockers=model.free_RVs)
        lengths = [n for x in below if is_data(x) for n in np.shape(evaluate(x))]
        if _are_many(max(lengths, default=0)):
            _log.info(
                "An update takes all data of the potential '%s', which is one number. Written with "
                "an entry for each row, without sum(), it has batches.",
                potential.name,
            )
    return Batches(model)


def _are_many(rows: int) -> bool:
    """Whether it is worth a line of the log that there are no batches of so many rows."""
    return rows >= _LEAST_BATCHES * _SIZES[len(_SIZES) // 2]


def _batches_that_pay(model: Model, dim: str) -> Batches | None:
    """Return batches of a dim if updates of them cost much less than those of all rows."""
    view = RowView(model, dim)
    batched = view.take(min(_SIZES[0], view.count))
    terms = list(minibatch_terms(batched))
    graphs = batched.logp(terms, jacobian=False, sum=False)
    [batch] = find_minibatches(graphs)
    for term, graph in zip(terms, graphs, strict=True):
        # Tuning needs the weight of each row
        axis = axis_of_rows(term) or 0
        if graph.ndim <= axis or graph.type.shape[axis] not in (None, batch.batch_size):
            _log.debug("Updates take all rows: '%s' has no log density of each row.", term.name)
            return None
    each = numbers_of_batch(batched, graphs, batch.batch_size) / batch.batch_size
    size = max((b for b in _SIZES if b * each <= _NUMBERS), default=_SIZES[0])
    if view.count < _LEAST_BATCHES * size:
        _log.debug("Updates take all %d rows of '%s': a pass costs little.", view.count, dim)
        return None
    if not check_independent_rows(model, view):
        _log.info(
            "An update takes all %s rows of '%s': whether they are independent could not be "
            "tested. If they are, pass batch_size=%d.",
            f"{view.count:,}", dim.removeprefix(_ROWS_OF), size,
        )  # fmt: skip
        return None
    others = [rv for rv in model.observed_RVs if rv not in view.terms]
    in_full = sum(math.prod(_lengths(model, rv)) for rv in others)
    _log.info(
        "An update takes batches of %s of the %s rows of '%s'%s; with batch_size=None it takes "
        "all.",
        f"{size:,}", f"{view.count:,}", dim.removeprefix(_ROWS_OF),
        f", and all {in_full:,} other observations" if in_full > size else "",
    )  # fmt: skip
    return Batches(model, dim, size)
