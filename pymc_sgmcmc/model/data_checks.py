"""Whether a model's data fit it: their shapes, indices into arrays, and finite numbers."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from itertools import zip_longest
from typing import Any

import numpy as np
import pymc as pm
import xarray as xr

from pymc.data import MinibatchOp
from pymc.distributions.custom import CustomDistRV, CustomSymbolicDistRV
from pymc.distributions.distribution import SymbolicRandomVariable
from pymc.model import Model
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.traversal import ancestors, graph_inputs
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.subtensor import (
    AdvancedIncSubtensor,
    BaseSubtensor,
    IncSubtensor,
    indices_from_subtensor,
)
from pytensor.tensor.variable import TensorVariable
from scipy.sparse import issparse

from pymc_sgmcmc.disk.fetch import rows_at
from pymc_sgmcmc.disk.on_disk import source_of
from pymc_sgmcmc.disk.source import Source
from pymc_sgmcmc.model.graphs import is_data, nodes_of, rebuilt, same_memory, substitute
from pymc_sgmcmc.model.minibatch import all_rows, evaluate, full_arrays, unscaled

_Shape = tuple[int | None, ...]

_OWN = CustomDistRV, CustomSymbolicDistRV

# Rows that are checked together: a mask of all numbers would take an eighth of the data
_ROWS = 2**16


# ----------------------------------------------------------------------------- shapes


def check_coords(model: Model, kept: Collection[str] | None = None) -> None:
    """Refuse dims and coords with which no result can be made: PyMC would lose all draws.

    Deterministics count where draws keep them: those named in ``kept``, at first none.
    """
    left_out = {x.name for x in model.deterministics}.difference(kept or ())
    variables: dict[str, Any] = {
        name: all_rows(model.rvs_to_values[x]) if x in model.observed_RVs else x
        for name, x in model.named_vars.items()
        if x not in model.potentials and name not in left_out
    }
    dims = {
        name: model.named_vars_to_dims.get(name) or [f"{name}_dim_{k}" for k in range(x.ndim)]
        for name, x in variables.items()
    }
    named = [name for name in variables if not model.coords.keys().isdisjoint(dims[name])]
    for dim in model.coords.keys() & {dim for name in named for dim in dims[name]}:
        _check_labels(dim, model.coords[dim])
    graphs = with_lengths(model, [variables[name] for name in named])
    for name, graph in zip(named, graphs, strict=True):
        for dim, length in zip(dims[name], graph.type.shape, strict=False):
            labels = model.coords.get(dim)
            if labels is not None and length not in (None, len(labels)):
                raise ValueError(
                    f"'{name}' has {length} entries along the dim '{dim}', whose coords have "
                    f"{len(labels)}: PyMC could not put the draws together. Give the dim coords of "
                    f"that length, or '{name}' another dim. If an index or a mask takes some of "
                    "the rows, take them before the model is made."
                )


def _check_labels(dim: str, labels: Sequence[Any] | None) -> None:
    """Refuse a dim that xarray, in which PyMC returns draws, does not take."""
    try:
        some = np.arange(2) if labels is None else np.array(labels[:2])
        xr.DataTree(xr.Dataset(coords={dim: some}))
    except ValueError as error:
        of = "" if labels is None else f" with the coords {', '.join(map(repr, labels[:2]))}, ..."
        raise ValueError(
            f"PyMC could not put the draws together: xarray takes no dim '{dim}'{of}. Give the dim "
            "a name without '/', and as coords one number or word for each entry: of a MultiIndex "
            "such as ['-'.join(map(str, x)) for x in index]."
        ) from error


def check_potentials(model: Model) -> None:
    """Refuse potentials that depend on random variables of no model, or of another one."""
    own = set(model.basic_RVs)
    for potential in model.potentials:
        # What draws the rows of a batch is random, too
        drawn = {x for node in nodes_of([potential], MinibatchOp) for x in node.outputs}
        for x in ancestors([potential], blockers=own | drawn):
            is_random = x.owner and isinstance(x.owner.op, RandomVariable | SymbolicRandomVariable)
            if is_random and x not in own | drawn:
                named = f"the random variable '{x.name}'" if x.name else "a random variable"
                raise ValueError(
                    f"The potential '{potential.name}' depends on {named}, which is not one of the "
                    "model's. Write it with variables of this model; where they were made anew, "
                    "make the potential anew, too. If it is pm.logp of a distribution that copies "
                    "its parameters, such as pm.Censored, write that with observed= instead."
                )


def check_observed_shapes(model: Model) -> None:
    """Refuse observed variables that would be compared with more than as many parameters.

    N numbers in a column beside N means in a row make N x N differences. PyTensor then names no
    variable, and a density of the user's own is silently that of all pairs.
    """
    for rv in model.observed_RVs:
        op, value = unscaled(rv).owner.op, model.rvs_to_values[rv]
        own = isinstance(op, _OWN)
        compared = (
            [(x, 0) for x in _own_density(model, rv)]
            if own
            else list(_parameters(model, unscaled(rv)))
        )
        graphs = with_lengths(model, [value, *(graph for graph, _ in compared)])
        # What pm.observe observes may be an expression
        observed = graphs[0].type.shape[: value.ndim - getattr(op, "ndim_supp", 0)]
        for graph, (_, core) in zip(graphs[1:], compared, strict=True):
            shape = graph.type.shape[: graph.ndim - core]
            # Parameters of the user's own density may have any shape: its result decides
            if _in_pairs(shape, observed) if own else not _fits(shape, observed):
                with_what = "gives a log density" if own else "is compared with parameters"
                raise ValueError(
                    f"The observed variable '{rv.name}' has the shape {_listed(observed)} and "
                    f"{with_what} of shape {_listed(shape)}. Give both the same rows on the same "
                    "axes: observe a vector, y[:, 0] in place of a column, or give the parameters "
                    "a second axis, mu[:, None]; and draw all arrays of rows in one call, x, y = "
                    "pm.Minibatch(x, y, batch_size=...)."
                )


def _parameters(model: Model, rv: TensorVariable) -> Iterator[tuple[TensorVariable, int]]:
    """Yield parameters of a distribution and of its components, and how many axes each has."""
    op = rv.owner.op
    if not hasattr(op, "dist_params"):
        return
    try:
        parameters = op.dist_params(rv.owner)
    except ValueError:  # PyMC has no signature of what a distribution truncates
        return
    for parameter, core in zip(parameters, op.ndims_params, strict=False):
        if core == 0 and parameter.owner and parameter not in model.basic_RVs:
            yield from _parameters(model, parameter)
        yield parameter, core


def _fits(shape: _Shape, observed: _Shape) -> bool:
    pairs = zip(shape[::-1], observed[::-1], strict=False)
    return all(length in (1, None, other) or other is None for length, other in pairs)


def _in_pairs(shape: _Shape, observed: _Shape) -> bool:
    """Whether a density has entries for pairs of observations."""
    # An axis that is not observed counts as one of length 1
    pairs = zip_longest(shape[::-1], observed[::-1], fillvalue=1)
    lengths = {*observed} - {1, None}
    return any(other == 1 and length in lengths for length, other in pairs)


def _own_density(model: Model, rv: TensorVariable) -> list[Any]:
    """Return the log density of the user's function, which is not in the model's graph."""
    blockers = [other for other in model.basic_RVs if other is not rv]
    if not nodes_of([rv], _OWN, blockers):
        return []
    # PyMC warns of random variables in a density
    symbols: dict[Any, Any] = {x: x.type() for x in model.basic_RVs}
    value = model.rvs_to_values[rv] if rv in model.observed_RVs else symbols[rv]
    with suppress(NotImplementedError, TypeError, ValueError):  # sampling will raise it
        [alone] = substitute([rv], {other: symbols[other] for other in blockers})
        density = pm.logp(alone, value, warn_rvs=False)
        return list(substitute([density], {symbol: x for x, symbol in symbols.items()}))
    return []


def with_lengths(model: Model, graphs: Sequence[Any]) -> Sequence[Any]:
    """Return graphs with the static shapes of the model's present data."""
    unknown = {
        x: x.type.clone(shape=np.shape(evaluate(x)))()
        for x in graph_inputs(graphs)
        if isinstance(x, SharedVariable) and is_data(x) and None in x.type.shape
    }
    with suppress(NotImplementedError, TypeError, ValueError):
        return rebuilt(graphs, unknown, keep=model.free_RVs)
    return graphs


def _listed(shape: _Shape) -> str:
    lengths = [str(length or "?") for length in shape]
    return f"({', '.join(lengths)}{',' * (len(lengths) == 1)})"


# ----------------------------------------------------------------------------- indices


def check_indices(model: Model) -> None:
    """Raise ValueError where data, over all rows, index beyond the end of an array.

    JAX gives no gradient for such rows, and numba reads beyond the array. With floatX="float32"
    PyMC makes 16 bits of whole numbers in pm.Data, where those that need more become negative.
    """
    for index, x, axis in dict.fromkeys(_uses_of_indices(model)):
        fault, cut_off = None, False
        with suppress(AssertionError, IndexError, NotImplementedError, TypeError, ValueError):
            length, values = x.type.shape[axis] or int(evaluate(x.shape[axis])), evaluate(index)
            fault = _beyond(values, length)
            of_16_bits = isinstance(values, np.ndarray) and values.dtype == "int16"
            cut_off = of_16_bits and length > 2**15 and values.min() < 0
        names = [f"'{leaf.name}'" for leaf in ancestors([index]) if leaf.name]
        if cut_off:
            raise ValueError(
                f"The index {', '.join(names) or f'of shape {index.type.shape}'} has 16 bits and "
                f"negative numbers, among {length:,} entries: in pm.Data with floatX='float32' "
                "PyMC makes negative ones of numbers above 32,767. Use the array itself, without "
                "pm.Data."
            )
        if fault:
            of = [f"'{rv.name}'" for rv in ancestors([x]) if rv in model.basic_RVs]
            array = f"'{x.name}'" if x.name else f"an array of {', '.join(of) or 'numbers'}"
            raise ValueError(
                f"The index {', '.join(names) or f'of shape {index.type.shape}'} has the value "
                f"{fault}, beyond the end of {array}, whose {length} entries have the numbers 0 to "
                f"{length - 1}. Such rows would be lost without an error. Count from 0, by "
                "subtracting 1 from an index that counts from 1, or give what is indexed more "
                "entries."
            )


def _uses_of_indices(model: Model) -> Iterator[tuple[Any, Any, int]]:
    """Yield each index that is data, with the array and the axis that it indexes; rows are all."""
    values = [model.rvs_to_values[rv] for rv in model.observed_RVs]
    own = [graph for rv in model.basic_RVs for graph in _own_density(model, rv)]
    graphs: list[Any] = [*model.basic_RVs, *values, *model.potentials, *own]
    rows = full_arrays(graphs)
    index: Any
    for node in nodes_of(graphs, BaseSubtensor):
        first, axis = 1 + isinstance(node.op, IncSubtensor | AdvancedIncSubtensor), 0
        for index in indices_from_subtensor(node.inputs[first:], node.op.idx_list):
            is_mask = isinstance(index, Variable) and index.type.dtype == "bool"
            if not is_mask and _is_of_data(index, rows):
                pair = [index, node.inputs[0]]
                with suppress(AssertionError, IndexError, TypeError, ValueError):
                    if rows.keys() & set(ancestors([index])):
                        pair = rebuilt(pair, rows, keep=model.free_RVs)
                    yield pair[0], pair[1], axis
            axis += index.type.ndim if is_mask else 1


def _is_of_data(index: Any, rows: Collection[Variable]) -> bool:
    """Whether an index is an array of integers that no parameter changes."""
    if not isinstance(index, Variable) or (isinstance(index, Constant) and index.type.ndim == 0):
        return False
    leaves = (x for x in ancestors([index], blockers=rows) if x.owner is None and x not in rows)
    return all(map(is_data, leaves))


def _beyond(values: Any, length: int) -> str:
    """Name the first index beyond the end of an array of this length, if there is one."""
    start = 0
    for part in values.parts() if isinstance(values, Source) else [np.atleast_1d(values)]:
        if part.size and (part.max() >= length or part.min() < -length):
            row, *rest = at = tuple(np.argwhere((part >= length) | (part < -length))[0].tolist())
            return f"{part[at]} in row {start + row}" + (f" (at {rest})" if rest else "")
        start += len(part)
    return ""


# ----------------------------------------------------------------------------- finite numbers


def bad_rows(arrays: Sequence[np.ndarray]) -> np.ndarray:
    """Return which rows of arrays of the same length hold NaN or an infinity, shape (N,)."""
    bad = np.zeros(len(arrays[0]), dtype=bool)
    for array in arrays:
        if array.dtype.kind in "fc":
            for start in range(0, len(array), _ROWS):
                part = array[start : start + _ROWS]
                bad[start : start + _ROWS] |= ~np.isfinite(part).reshape(len(part), -1).all(axis=1)
    return bad


def faults_of_data(model: Model, names: Collection[str]) -> str:
    """Name the arrays that hold NaN or an infinity, and the remedy."""
    faults: dict[str, bool] = {}  # whether each is of NaN
    seen: list[Any] = []
    for label, array in _arrays(model, names):
        if any(_is_same(array, other) for other in seen):
            continue
        seen.append(array)
        if fault := _fault(array):
            faults[f"{label} {fault}"] = "NaN" in fault
    if not faults:
        return ""
    data = f"The data are not finite: {'; '.join(faults)}."
    if any(faults.values()):
        return (
            f"{data} Leave these rows out, or fill in what is missing. Of an array given to "
            "observed= as it is, without pm.Minibatch, PyMC samples the missing values."
        )
    return f"{data} Leave these rows out, unless they are meant, as an infinite bound is."


def impossible(model: Model, rv: Any, bad: np.ndarray, count: int) -> str:
    """Name an observed variable's rows without density, of ``count``, by their entries ``bad``."""
    row, *entry = bad[np.lexsort(bad.T[::-1])[0]].tolist()
    observed = evaluate(all_rows(model.rvs_to_values[rv]))
    value: Any = rows_at(observed if len(observed.shape) else observed.reshape(1), row, 1)[0]
    if entry and np.ndim(value) >= len(entry):
        value = value[tuple(entry)]
    rows = len(np.unique(bad[:, 0]))
    at = f"row {row} with the value {np.asarray(value).tolist()!r:.60}"
    if rows == count > 1:
        return (
            f"The log density of '{rv.name}' is infinite or NaN in all {count} rows, such as {at}: "
            "the distribution can never have these values, or a parameter is outside its range, "
            "such as a negative sigma or a covariance that is not positive definite. Choose a "
            "distribution that can have them, and priors within the range of the parameters; or "
            "pass initvals= to pm.sample, and a smaller step_size if you set it."
        )
    return (
        f"The log density of '{rv.name}' is infinite or NaN in {rows} of {count} rows, "
        f"{'the first of them ' * (rows > 1)}{at}. Correct such rows or leave them out if the "
        "distribution can never have these values: categories count from 0, counts are not "
        "negative, a LogNormal has no zeros. If other values of the parameters allow them, pass "
        "initvals= to pm.sample."
    )


def _fault(array: Any) -> str:
    """Say which numbers of an array are not finite, and where, if there are any."""
    if array.dtype.kind not in "fc":
        return ""
    if not array.shape:
        return "is NaN" if np.isnan(array) else ""
    missing = infinite = False
    bad = [np.zeros(0, dtype=bool)]
    for part in array.parts() if isinstance(array, Source) else [array]:
        bad.append(bad_rows([part]))
        missing |= bool(np.isnan(part).any())
        infinite |= bool(np.isinf(part).any())
    rows = np.flatnonzero(np.concatenate(bad))
    if not rows.size:
        return ""
    what = " and ".join(["NaN"] * missing + ["inf"] * infinite)
    first = f"the first of them row {rows[0]}" if rows.size > 1 else f"row {rows[0]}"
    return f"has {what} in {rows.size} of {len(array)} rows, {first}"


def _arrays(model: Model, names: Collection[str]) -> Iterator[tuple[str, Any]]:
    """Yield the observed data, then all other data that they depend on, with their labels."""
    variables = [v for v in [*model.basic_RVs, *model.potentials] if v.name in names]
    for rv in [rv for rv in variables if rv in model.observed_RVs]:
        for leaf in _leaves(model.rvs_to_values[rv]):
            yield _label(leaf, f"the observed array of '{rv.name}'"), evaluate(leaf)
    for variable in variables:
        for leaf in _leaves(variable):
            array = evaluate(leaf)
            label = f"an array of shape {array.shape} on which '{variable.name}' depends"
            if issparse(array):  # one number of each row tells whether all are finite
                array = abs(array).max(axis=1).toarray()
            yield _label(leaf, label), array


def _leaves(graph: Variable) -> list[Variable]:
    """Return the arrays that a graph reads; of a pm.Minibatch only the one that is used."""
    leaves: dict[Variable, None] = {}
    graphs = [graph]
    while graphs:
        graph = graphs.pop()
        batches = {x for node in nodes_of([graph], MinibatchOp) for x in node.outputs}
        for x in ancestors([graph], blockers=batches):
            if x in batches:
                graphs.append(x.owner.inputs[x.owner.outputs.index(x)])
            elif is_data(x) or source_of(x):
                leaves[x] = None
    return list(leaves)


def _label(leaf: Variable, otherwise: str) -> str:
    if (source := source_of(leaf)) is not None:
        return source.name
    return f"pm.Data '{leaf.name}'" if isinstance(leaf, SharedVariable) else otherwise


def _is_same(a: Any, b: Any) -> bool:
    if a is b or isinstance(a, Source) or isinstance(b, Source):
        return a is b
    return a.ndim > 0 and same_memory(a, b)
