"""Whether a likelihood is a sum over rows, tried out with a few of them."""

from __future__ import annotations

import logging

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np
import pytensor

from pymc.model import Model
from pytensor.graph.basic import Variable
from pytensor.graph.op import Op
from pytensor.tensor.basic import ARange, Join
from pytensor.tensor.subtensor import AdvancedIncSubtensor, IncSubtensor

from pymc_sgmcmc.backends.compiling import building, compiled
from pymc_sgmcmc.disk.source import Source
from pymc_sgmcmc.model.batch_cost import numbers_of_batch
from pymc_sgmcmc.model.graphs import nodes_of, substitute
from pymc_sgmcmc.model.initial_point import points_near_start
from pymc_sgmcmc.model.minibatch import evaluate, full_arrays, minibatch_terms
from pymc_sgmcmc.model.own_gradient import has_own_gradient
from pymc_sgmcmc.model.passes import masks_as_numbers
from pymc_sgmcmc.model.row_view import RowView, named

_log = logging.getLogger("pymc.sgmcmc")

# Rows in a batch, half of them twice; the least, as where each is read with a chunk of a file; and
# numbers in memory among which the ends of columns are looked for
_ROWS, _LEAST_ROWS, _LOOKED_AT = 200, 6, 2**22

# Most rows that come with another one of their group, and numbers that are searched for these
_GROUPED, _SEARCHED = 16, 2**28

# Operations on places; most rows and numbers of a batch that shows these, and its points
_OF_PLACES = ARange, Join, IncSubtensor, AdvancedIncSubtensor
_MOST_PLACES, _MOST_NUMBERS, _POINTS = 2**20, 2**26, 2


def require_independent_rows(model: Model, view: RowView | None = None) -> None:
    """Raise ValueError as :func:`check_independent_rows`, and log where nothing can be said."""
    if not check_independent_rows(model, view):
        _log.warning(
            "Whether the rows of %s are independent could not be tested: the log density of a few "
            "of them cannot be computed here, or is not finite.",
            "a pm.Minibatch" if view is None else f"the dim '{view.dim}'",
        )


@building()
def check_independent_rows(model: Model, view: RowView | None = None) -> bool:
    """Raise ValueError where a model's log density is no sum over the rows of its batches.

    The log densities of two batches must have the same sum however rows are dealt to them, and of a
    view also that of batches of half as many rows, which count twice as much. The batches are those
    of ``pm.Minibatch``, or of the rows of a view. Returns whether the densities could be compared.

    Many rows show what happens at places that few do not have, as from the ten thousandth on: if
    the density reads places, their batch must have the same sum in any order.
    """
    if view is None:
        return _compare(model, None, [model], None)
    arrays = [evaluate(x) for x in view.axes]
    # Some of the rows: what all of them fit may not fit a batch
    size = min(view.count, max(_LEAST_ROWS, view.count // 3), _most_rows(arrays))
    if size >= _LEAST_ROWS:
        size = size // 2 * 2
    parts = [view.take(n) for n in ([size, size // 2] if size >= _LEAST_ROWS else [size])]
    compared = _compare(model, view, parts, size)
    if not compared or any(isinstance(x, Source) for x in arrays):
        return compared
    graphs = _densities(parts[:1])[1]
    # As written, for what few rows simplify, and as densities, for those of the user's own
    if _reads_places([*view.terms, *graphs], model):
        each = sum(x.size for x in arrays) / view.count
        each += numbers_of_batch(parts[0], graphs, size) / size
        many = min(view.count, _MOST_PLACES, int(_MOST_NUMBERS / each))
        if many > size:
            _compare(model, view, [view.take(many)], many)
    return True


def _reads_places(graphs: Sequence[Any], model: Model) -> bool:
    """Whether numbers are taken, changed or made by their places in an array."""
    for node in nodes_of(graphs, Op, blockers=model.free_RVs):
        slices = [x for x in getattr(node.op, "idx_list", ()) if isinstance(x, slice)]
        if isinstance(node.op, _OF_PLACES) or any(x != slice(None) for x in slices):
            return True
    return False


def _densities(parts: Sequence[Model]) -> tuple[list[str], list[Any]]:
    """Return the names of the terms with rows, and all parts' log densities of their rows."""
    graphs: list[Any] = []
    for part in parts:
        terms = [term for term in minibatch_terms(part) if not has_own_gradient([term])]
        graphs += masks_as_numbers(part.logp(terms, jacobian=False, sum=False)) if terms else []
    return [str(term.name) for term in terms], graphs


def _compare(model: Model, view: RowView | None, parts: Sequence[Model], size: int | None) -> bool:
    """Compare sums of parts' densities; return as :func:`check_independent_rows`.

    A view's batches have ``size`` rows. Of more than 200 one batch is compared with itself in
    another order.
    """
    rng, many = np.random.default_rng(0), size if size and size > _ROWS else None
    try:
        names, graphs = _densities(parts)
        if not names:
            return True
        batches = full_arrays(graphs)
        rows = {batch: batch.type() for batch in batches}
        of_rows = substitute(graphs, rows)
        dealt = _in_two_orders(batches, rng, many) if many else _dealt(batches, rng, size)
        at_points = at_some_rows(model, of_rows, list(rows.values()), dealt, rng)
        compared = list(islice(at_points, _POINTS if many else None))
    except NotImplementedError:
        return False  # an operation that the interpreter lacks
    except (AssertionError, ValueError, IndexError, TypeError) as error:
        if view is None:
            return False  # sampling will raise it
        raise ValueError(view.mismatch(error)) from error
    # The density of counts is double where its parameters are single
    kinds = {pytensor.config.floatX, *(str(graph.dtype) for graph in graphs)}
    kinds = {kind for kind in kinds if kind.startswith("float")}
    precision = float(max(np.finfo(kind).eps for kind in kinds)) ** 0.7
    # One row whose log density is huge at a point hides all others there
    for values in compared:
        for name, wrong in zip(names, _unequal(values, len(names), precision), strict=True):
            if wrong:
                raise ValueError(_no_sum(name, view))
    return any(map(all_finite, compared))


def _unequal(values: list[list[Any]], n: int, precision: float) -> np.ndarray:
    """Return for each of n terms whether its sums over batches differ by more than rounding.

    ``values`` are those of batches, of which the later half has the rows of the first; each has n
    terms, and may have those of half the rows.
    """
    with np.errstate(all="ignore"):
        sums = np.array([[np.sum(x, dtype=float) for x in each] for each in values])
        sizes = np.array([[np.sum(np.abs(x), dtype=float) for x in each] for each in values])
        first, second = np.split(sums, 2)
        off = np.abs(first.sum(axis=0) - second.sum(axis=0))[:n]
        if sums.shape[1] > n:
            off = np.maximum(off, np.abs(sums[0, :n] - sums[0, n:]))
        return off > precision * (1 + sizes.sum(axis=0)[:n])


def _dealt(
    batches: Mapping[Any, Variable], rng: np.random.Generator, size: int | None
) -> list[list[np.ndarray]]:
    """Return the rows of two batches, and of two others of the same rows, for each array.

    If a ``size`` is given, all batches have the same rows: so many, or the first of these.
    """
    numbers: dict[Variable | None, np.ndarray] = {}
    dealt: list[list[np.ndarray]] = [[], [], [], []]
    sources = {batch: evaluate(source) for batch, source in batches.items()}
    streams = {batch: batch.owner.inputs[-1] if size is None else None for batch in batches}
    for batch, array in sources.items():
        own, stream = batch.type.shape[0], streams[batch]
        if stream not in numbers:
            alike = {id(x): x for other, x in sources.items() if streams[other] is stream}
            least = min(_most_rows(alike.values()), size or own) // 2
            few = unlike_rows(list(alike.values()), 2 * max(least, 1), rng).reshape(2, -1)
            both = np.stack([np.resize(x, size or own) for x in few])
            others = rng.permutation(both.ravel()).reshape(both.shape)
            numbers[stream] = np.concatenate([both, others])
        for arrays, part in zip(dealt, numbers[stream], strict=True):
            arrays.append(some_rows(array, part[:own]))
    return dealt


def _in_two_orders(
    batches: Mapping[Any, Variable], rng: np.random.Generator, size: int
) -> list[list[np.ndarray]]:
    """Return ``size`` rows of each array, and the same rows in another order."""
    sources = [evaluate(source) for source in batches.values()]
    order = rng.permutation(len(sources[0]))[:size]
    return [[some_rows(x, part) for x in sources] for part in (order, rng.permutation(order))]


def _most_rows(arrays: Iterable[Any]) -> int:
    """Return how many rows of arrays, or of sources on disk, are compared at most."""
    in_chunks = any(isinstance(x, Source) and x.chunk_rows > 1 for x in arrays)
    return _LEAST_ROWS if in_chunks else _ROWS


def unlike_rows(arrays: Sequence[Any], n: int, rng: np.random.Generator) -> np.ndarray:
    """Return the numbers of n rows: of the ends of columns in memory, of groups, and of any.

    What few rows have, as an event or a group of their own, may be all by which rows depend on each
    other.
    """
    count = len(arrays[0])
    held = [x for x in arrays if not isinstance(x, Source)]
    width = sum(x[:1].size for x in held)
    most = _LOOKED_AT // max(width, 1) if held else n
    pool = rng.choice(count, min(count, max(n, most)), replace=False)
    columns = [np.reshape(x[pool], (len(pool), -1)) for x in held]
    ends = [f(x, axis=0) for x in columns for f in (np.argmin, np.argmax)]
    first = rng.permutation(np.unique(np.concatenate([np.zeros(0, int), *ends])))
    order = [*first, *np.setdiff1d(np.arange(len(pool)), first)]
    return rng.permutation(_in_groups(held, np.resize(pool[order], n), rng))


def _in_groups(
    arrays: Sequence[np.ndarray], rows: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Return rows of which the last share an integer of some column with those before them."""
    whole = sorted((x for x in arrays if x.dtype.kind in "iu"), key=np.ndim)
    columns = [column for x in whole for column in np.reshape(x, (len(x), -1)).T]
    grouped = rows.copy()
    if columns:
        most = int(np.clip(_SEARCHED // len(columns[0]), 1, _GROUPED))
        for k in range(min(most, len(rows) // 4)):
            row, column = rows[-2 * k - 2], columns[k % len(columns)]
            same = np.flatnonzero(column == column[row])
            if len(same) > 1:
                grouped[-2 * k - 1] = rng.choice(same[same != row])
    return grouped


def at_some_rows(
    model: Model,
    graphs: Sequence[Any],
    rows: Sequence[Any],
    choices: Sequence[Sequence[np.ndarray]],
    rng: np.random.Generator,
) -> Iterator[list[list[Any]]]:
    """Yield the graphs' values for each choice of rows, at points ever nearer the start.

    ``rows`` are the inputs of the graphs, which are interpreted; a choice has an array for each.
    """
    function = compiled([*model.value_vars, *rows], graphs, "interpreter")
    for point in points_near_start(model, rng):
        with np.errstate(all="ignore"):
            yield [list(function(*point, *arrays)) for arrays in choices]


def all_finite(values: Iterable[Iterable[Any]]) -> bool:
    """Return whether the sum of each array is finite."""
    with np.errstate(all="ignore"):
        return all(np.isfinite(np.sum(x, dtype=float)) for each in values for x in each)


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
        "Compute such means, and what follows from a row's number, as arrays before the model is "
        "made, and draw all arrays of rows in one batch, "
        f"x, y = pm.Minibatch(x, y, batch_size=...); or leave {cure} out, for rows that depend on "
        f"each other cannot be drawn alone.{taken}"
    )
