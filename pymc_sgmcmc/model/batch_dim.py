"""A model with batches of the rows of one dim in place of all of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt

from pymc.distributions.custom import CustomSymbolicDistRV
from pymc.distributions.shape_utils import change_dist_size
from pymc.model import Model
from pymc.pytensorf import constant_fold
from pymc.variational.minibatch_rv import MinibatchRandomVariable, create_minibatch_rv
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.traversal import ancestors, apply_ancestors
from pytensor.sparse.type import SparseTensorType
from pytensor.tensor.basic import Alloc, MakeVector
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.shape import Reshape, Shape, Shape_i
from pytensor.tensor.subtensor import Subtensor
from pytensor.tensor.type import TensorType
from pytensor.tensor.variable import TensorVariable

from pymc_sgmcmc.disk.on_disk import source_of
from pymc_sgmcmc.model.graphs import made_again, rebuilt
from pymc_sgmcmc.model.hidden_rows import with_hidden_rows
from pymc_sgmcmc.model.minibatch import all_rows, axis_of_rows, evaluate, find_minibatches
from pymc_sgmcmc.model.own_gradient import has_own_gradient
from pymc_sgmcmc.model.sparse_rows import columns_and_values, products

__all__ = ["Rows", "depends_on", "in_batches", "mismatch", "resized", "rows_of"]


@dataclass(frozen=True, eq=False)
class Rows:
    """Arrays and terms of a model along one dim."""

    dim: str
    count: int  # N
    # Of each array in the density along the dim: constant, shared variable or rows on disk
    axes: Mapping[TensorVariable, int]
    # Of each observed variable or potential that is a sum over rows
    terms: Mapping[TensorVariable, int]
    undeclared: Sequence[TensorVariable]  # arrays along the dim by their length alone
    # Observed variables, their densities' own arrays of rows as parameters
    observed: Mapping[TensorVariable, TensorVariable]


def in_batches(model: Model, dim: str | None, batch_size: int | None) -> Model:
    """Return the model with one ``pm.Minibatch`` of all its rows along a dim, or itself without.

    The copy shares the free variables, value variables and data of ``model`` and serves for reading
    the density only. It raises as :func:`rows_of` does, or where a batch exceeds the data.
    """
    if dim is None or batch_size is None:
        return model
    rows = rows_of(model, dim)
    if batch_size > rows.count:
        raise ValueError(
            f"batch_size={batch_size} is larger than the dim '{dim}' of {rows.count} rows. Pass a "
            "smaller batch_size, or batch_size=None to take all rows."
        )
    sources = [source for array, axis in rows.axes.items() for source in _sources(array, axis)]
    batches: Any = pm.Minibatch(*sources, batch_size=batch_size)
    batches = batches if len(sources) > 1 else [batches]
    try:
        terms, values = _taken(model, rows, batches, pt.constant(batch_size, dtype="int64"))
    except (AssertionError, ValueError, IndexError, TypeError) as error:
        raise ValueError(mismatch(model, rows, error)) from error
    return _view(model, rows, terms, values)


def rows_of(model: Model, dim: str) -> Rows:
    """Find a model's arrays and terms along a dim, or raise where batches of it would be wrong."""
    if dim not in model.dim_lengths:
        raise ValueError(_unknown(model, dim))
    values = [model.rvs_to_values[rv] for rv in model.observed_RVs]
    if find_minibatches([*model.observed_RVs, *values, *model.potentials]):
        raise ValueError(
            f"The model draws batches by pm.Minibatch, and batch_dim='{dim}' asks for batches of "
            "its rows. Leave batch_size and batch_dim out, or give the full arrays to the model."
        )
    axes: dict[TensorVariable, int] = {}
    on_disk = [array for array in model.named_vars.values() if source_of(array) is not None]
    for array in [*model.data_vars, *on_disk]:
        if (axis := _axis(model, array.name, dim)) is not None:
            axes[array] = axis
    terms: dict[TensorVariable, int] = {}
    for rv, value in zip(model.observed_RVs, values, strict=True):
        leaf: Any = all_rows(value)
        axis = _axis(model, rv.name, dim)
        axis = axes.get(leaf) if axis is None else axis
        if axis is None:
            continue
        # An expression of several arrays takes its rows from theirs
        if leaf.owner is None and axes.setdefault(leaf, axis) != axis:
            raise ValueError(
                f"The observed variable '{rv.name}' has the dim '{dim}' on axis {axis}, and its "
                f"data '{leaf.name}' on axis {axes[leaf]}. Give both the same dims."
            )
        _check_total_size(rv, leaf, axis, dim)
        terms[rv] = axis
    _check_free(model, dim, axes)
    for potential in model.potentials:
        if (axis := _axis(model, potential.name, dim)) is not None:
            terms[potential] = axis
    count = _count(dim, axes) if axes else int(evaluate(model.dim_lengths[dim]))
    undeclared = _undeclared(model, terms, axes, count)
    observed: dict[TensorVariable, TensorVariable] = {}
    for rv, value in zip(model.observed_RVs, values, strict=True):
        if rv in terms:
            observed[rv], hidden = with_hidden_rows(_without_total_size(rv), value, count)
            undeclared.update(hidden)
    axes.update(undeclared)
    _check_others(model, dim, axes, terms)
    if not terms or not axes:
        raise ValueError(
            f"No {'array' if terms else 'observed variable'} has the dim '{dim}'. Give it to the "
            f'observed variable, as in pm.Normal(..., observed=y, dims="{dim}"), and to the arrays '
            f'of rows, as in pm.Data("x", x, dims="{dim}"). A pm.Potential with one entry for each '
            f'row takes dims="{dim}" too.'
        )
    used = set(ancestors([*terms, *values, *observed.values()]))
    axes = {array: axis for array, axis in axes.items() if array in used}
    return Rows(dim, _count(dim, axes), axes, terms, list(undeclared), observed)


def _undeclared(
    model: Model,
    terms: Iterable[TensorVariable],
    axes: Mapping[TensorVariable, int],
    count: int,
) -> dict[TensorVariable, int]:
    """Return the arrays of terms that have as many entries as there are rows, on one axis alone.

    Those whose axis has another dim, or that depend on free variables, are left out.
    """
    graphs = [*terms, *(model.rvs_to_values[rv] for rv in terms if rv in model.observed_RVs)]
    others = set(ancestors(model.free_RVs)) | set(axes)
    found: dict[TensorVariable, int] = {}
    array: Any
    for array in ancestors(graphs, blockers=model.free_RVs):
        is_leaf = isinstance(array, Constant | SharedVariable) or source_of(array) is not None
        if not is_leaf or array in others or not isinstance(array.type, TensorType):
            continue
        named = model.named_vars.get(array.name) is array
        dims = (named and model.named_vars_to_dims.get(array.name)) or [None] * array.type.ndim
        lengths = evaluate(array).shape
        at = [k for k, n in enumerate(lengths) if n == count and dims[k] is None]
        if len(at) == 1 and lengths.count(count) == 1:
            found[array] = at[0]
    return found


def _sources(array: TensorVariable, axis: int) -> list[Any]:
    """Return what batches of an array are drawn from, its rows first."""
    if isinstance(array.type, SparseTensorType):
        return list(columns_and_values.make_node(array.T if axis else array).outputs)
    return [pt.moveaxis(array, axis, 0) if axis else array]


def _taken(
    model: Model,
    rows: Rows,
    batches: Iterable[Any],
    length: Any,
) -> tuple[dict[TensorVariable, TensorVariable], dict[TensorVariable, TensorVariable]]:
    """Return terms, and observed values, for ``length`` rows along the dim.

    ``batches`` has the rows of each array, as its first axis; of a sparse one, columns and values.
    """
    observed = list(rows.observed)
    # Unknown at first, for the parameters have all rows
    count = pt.lscalar()
    terms = [
        resized(rows.observed[term], axis, count) if term in observed else term
        for term, axis in rows.terms.items()
    ]
    graphs = [*terms, *(model.rvs_to_values[rv] for rv in observed)]
    replacements: dict[Variable, Variable] = {
        count: length,
        **_numbers_of_rows(graphs, model.free_RVs, rows.count, length),
    }
    drawn = iter(batches)
    for array, axis in rows.axes.items():
        if isinstance(array.type, SparseTensorType):
            replacements.update(products(array, graphs, next(drawn), next(drawn)))
        else:
            batch = next(drawn)
            replacements[array] = pt.moveaxis(batch, 0, axis) if axis else batch
    full = model.dim_lengths[rows.dim]
    if isinstance(full, SharedVariable):
        replacements[full] = length.astype(full.type.dtype)
    found = rebuilt(graphs, replacements, keep=model.free_RVs)
    of_terms = dict(zip(rows.terms, found[: len(rows.terms)], strict=True))
    for rv in observed:
        of_terms[rv].name = rv.name
    return of_terms, dict(zip(observed, found[len(rows.terms) :], strict=True))


def _numbers_of_rows(
    graphs: Sequence[Variable], free: Sequence[Variable], count: int, length: Any
) -> dict[Variable, Variable]:
    """Map shapes in which the number of rows is written as a number to those of ``length`` rows."""
    shapes: list[Any] = []
    for node in apply_ancestors(graphs, blockers=free):
        op: Any = node.op
        if isinstance(op, Alloc | Reshape):
            shapes += node.inputs[1:]
        elif isinstance(op, MakeVector):
            shapes += node.inputs
        elif isinstance(op, RandomVariable):
            shapes.append(op.size_param(node))
    shapes = [x for x in dict.fromkeys(shapes) if isinstance(x.type, TensorType)]
    found: dict[Variable, Variable] = {}
    for shape, value in zip(shapes, constant_fold(shapes, raise_not_constant=False), strict=True):
        numbers = [] if isinstance(value, Variable) else np.atleast_1d(value)
        if np.sum(numbers == count) == 1:
            new = [length if n == count else pt.constant(n, dtype="int64") for n in numbers]
            found[shape] = (new[0] if shape.ndim == 0 else pt.stack(new)).astype(shape.dtype)
    return found


def _view(
    model: Model,
    rows: Rows,
    terms: Mapping[TensorVariable, TensorVariable],
    values: Mapping[TensorVariable, TensorVariable],
) -> Model:
    """Return the model with other terms, a batch's likelihood scaled to all rows."""
    scaled: dict[TensorVariable, TensorVariable] = {}
    for term, axis in rows.terms.items():
        new = terms[term]
        if term in values:
            total_size: list[int | None] = [None] * new.ndim
            total_size[axis] = rows.count
            scaled[term] = create_minibatch_rv(new, total_size)
        else:
            new = pt.moveaxis(new, axis, 0)
            scaled[term] = new * (rows.count / new.shape[0]).astype(new.dtype)
            scaled[term].tag.scales_with_data = True
        scaled[term].name = term.name
    view: Model = object.__new__(type(model))
    view.__dict__.update(model.__dict__)
    of_values = {rv: values.get(rv, value) for rv, value in model.rvs_to_values.items()}
    view.observed_RVs = [scaled.get(rv, rv) for rv in model.observed_RVs]
    view.potentials = [scaled.get(potential, potential) for potential in model.potentials]
    view.rvs_to_values = {scaled.get(rv, rv): value for rv, value in of_values.items()}
    view.values_to_rvs = {value: rv for rv, value in view.rvs_to_values.items()}
    view.rvs_to_transforms = {
        scaled.get(rv, rv): transform for rv, transform in model.rvs_to_transforms.items()
    }
    return view


def resized(rv: Any, axis: int, length: Any) -> TensorVariable:
    """Return an observed variable whose shape was written as a number, for other rows."""
    node = rv.owner
    lengths = [rv.shape[k] for k in range(rv.ndim - node.op.ndim_supp)]
    if axis < len(lengths):
        lengths[axis] = length
        if isinstance(node.op, CustomSymbolicDistRV):
            # PyMC's function would go back to the parameters that it was written with
            size, *parameters = node.inputs
            if isinstance(size.type, TensorType):
                size = pt.stack([pt.cast(x, "int64") for x in lengths])
            found: TensorVariable = made_again(node, [size, *parameters])[0]
            return found
        resized: TensorVariable = change_dist_size(rv, tuple(lengths))
        return resized
    unchanged: TensorVariable = rv
    return unchanged


def _axis(model: Model, name: str, dim: str) -> int | None:
    dims = list(model.named_vars_to_dims.get(name) or ())
    if dims.count(dim) > 1:
        raise ValueError(
            f"The variable '{name}' has the dim '{dim}' twice: its entries belong to pairs of "
            "rows, which cannot be drawn in batches of rows."
        )
    return dims.index(dim) if dim in dims else None


def _check_total_size(rv: Any, array: Variable, axis: int, dim: str) -> None:
    scaled = axis_of_rows(rv)
    if scaled is None:
        return
    if scaled == axis and int(evaluate(rv.owner.inputs[1 + axis])) == evaluate(array).shape[axis]:
        return
    raise ValueError(
        f"The observed variable '{rv.name}' has a total_size=, which says that its rows are a "
        f"batch, and batch_dim='{dim}' draws batches of them. Leave total_size out."
    )


def _without_total_size(term: Any) -> TensorVariable:
    """Return an observed variable before it was scaled to the rows that it has anyway."""
    scaled = term.owner is not None and isinstance(term.owner.op, MinibatchRandomVariable)
    unscaled: TensorVariable = term.owner.inputs[0] if scaled else term
    return unscaled


def _check_free(model: Model, dim: str, axes: Mapping[TensorVariable, int]) -> None:
    """Refuse free variables with a value for each row."""
    length = model.dim_lengths[dim]
    for rv in model.free_RVs:
        imputed = rv.name.endswith("_unobserved") and rv.name.removesuffix("_unobserved")
        if imputed and _axis(model, imputed, dim) is not None:
            raise NotImplementedError(
                f"The observed variable '{imputed}' has missing values, which PyMC samples, for "
                f"rows of the dim '{dim}': what is sampled cannot be drawn in batches. Leave these "
                "rows out, or leave batch_size and batch_dim out."
            )
        if depends_on(rv, axes, length):
            raise NotImplementedError(
                f"The unobserved variable '{rv.name}' depends on the rows of the dim '{dim}': it "
                "has a value for each of them, which a batch cannot tell. Give it a dim of its own "
                f'and take its entries by an index, {rv.name}[pm.Data("of_row", of_row, dims="{dim}'
                '")]; or sum it out of the model, or leave batch_size and batch_dim out.'
            )


def _check_others(
    model: Model,
    dim: str,
    axes: Mapping[TensorVariable, int],
    known: Mapping[TensorVariable, int],
) -> None:
    """Refuse terms that depend on rows and lack the dim."""
    length = model.dim_lengths[dim]
    for term in [*model.observed_RVs, *model.potentials]:
        above = next((rv for rv in known if rv is not term and rv in ancestors([term])), None)
        if above is not None:
            raise NotImplementedError(
                f"'{term.name}' depends on the observed variable '{above.name}', of which batches "
                "are to be drawn, for all its rows, as of a variable with missing values. Leave "
                "batch_size and batch_dim out."
            )
        graphs = [term, model.rvs_to_values.get(term, term)]
        if term in known or not any(depends_on(graph, axes, length) for graph in graphs):
            continue
        if term in model.observed_RVs:
            raise ValueError(
                f"The observed variable '{term.name}' depends on rows of the dim '{dim}' and has "
                f'not the dim itself. Give it dims="{dim}", with further dims or None for its '
                "other axes. If an index or a mask takes some of the rows, take them before the "
                "model is made, so that all arrays have the rows that are observed."
            )
        if has_own_gradient([term]):
            raise NotImplementedError(
                f"The GradientPotential '{term.name}' depends on rows of the dim '{dim}', of which "
                "it has no value for each. Draw them by pm.Minibatch, with total_size=, and leave "
                "batch_size and batch_dim out."
            )
        raise NotImplementedError(
            f"The potential '{term.name}' depends on rows of the dim '{dim}'. How it scales with "
            "the data cannot be known: write it as a vector with one entry for each row and give "
            f'it dims="{dim}", or write an observed pm.CustomDist.'
        )


def depends_on(term: Variable, axes: Mapping[Any, int], length: Variable) -> bool:
    """Whether a graph depends on rows, or on their number; lengths of other axes do not."""
    if isinstance(length, SharedVariable) and length in ancestors([term]):
        return True
    seen: set[Variable] = set()
    left = [term]
    while left:
        variable = left.pop()
        if variable in seen:
            continue
        seen.add(variable)
        if variable in axes:
            return True
        node = variable.owner
        if node is not None and not _is_other_length(variable, axes):
            left += node.inputs
    return False


def _is_other_length(variable: Any, axes: Mapping[Any, int]) -> bool:
    """Whether a variable is the length of an array along an axis without the dim."""
    node = variable.owner
    if isinstance(node.op, Shape_i):
        array, axis = node.inputs[0], node.op.i
    elif isinstance(node.op, Subtensor) and len(node.inputs) == 2 and node.op.idx_list == (0,):
        of, index = node.inputs
        if of.owner is None or not isinstance(of.owner.op, Shape):
            return False
        array, axis = of.owner.inputs[0], _number(index)
    else:
        return False
    return array in axes and axis is not None and axis % array.ndim != axes[array]


def _number(index: Any) -> int | None:
    return int(index.data) if isinstance(index, Constant) else None


def _count(dim: str, axes: Mapping[TensorVariable, int]) -> int:
    lengths = {array: evaluate(array).shape[axis] for array, axis in axes.items()}
    if len(set(lengths.values())) > 1:
        listed = ", ".join(
            f"{f"'{array.name}'" if array.name else 'an observed array'} {length}"
            for array, length in lengths.items()
        )
        raise ValueError(
            f"The arrays along the dim '{dim}' differ in length: {listed}. Set all of them, by "
            "pm.set_data, to the same number of rows."
        )
    return int(next(iter(lengths.values())))


def mismatch(model: Model, rows: Rows, error: Exception) -> str:
    """Name arrays with as many entries as there are rows and without the dim."""
    for leaf in ancestors(list(rows.terms)):
        if isinstance(leaf.type, SparseTensorType) and leaf in rows.axes:
            return (
                f"{f"'{leaf.name}'" if leaf.name else 'An array'} of shape {evaluate(leaf).shape} "
                f"is sparse. Rows of the dim '{rows.dim}' are drawn from it for products alone, "
                "pytensor.sparse.structured_dot(x, b) with rows on the first axis of x. Write them "
                f'so, or pass pm.Data("x", x.toarray(), dims=("{rows.dim}", ...)); or leave '
                "batch_size and batch_dim out."
            )
    suspects = [
        leaf
        for leaf in ancestors(list(rows.terms))
        if leaf in rows.undeclared or (leaf not in rows.axes and _has_rows(model, leaf, rows.count))
    ]
    if suspects:
        return (
            f"The model cannot be taken in batches of the dim '{rows.dim}': it depends on "
            f"{named(suspects)}, with as many entries as there are rows ({rows.count}) and without "
            f'the dim. Wrap arrays of rows as pm.Data("x", x, dims="{rows.dim}"), with further '
            "dims or None for other axes, and give another dim to what holds no rows."
        )
    first = (str(error).splitlines() or [type(error).__name__])[0][:300]
    return (
        f"The model cannot be taken in batches of the dim '{rows.dim}'; with a few of its rows "
        f"PyTensor says: {first} Give each array of rows the dim, by pm.Data(..., "
        f'dims="{rows.dim}"), and write no shape as a number.'
    )


def named(arrays: Iterable[Any]) -> str:
    """Return the names of arrays, or their shapes."""
    told = (f"'{x.name}'" if x.name else f"an array of shape {x.type.shape}" for x in arrays)
    return ", ".join(dict.fromkeys(told))


def _has_rows(model: Model, leaf: Variable, count: int) -> bool:
    if isinstance(leaf, Constant | SharedVariable):
        return count in np.shape(evaluate(leaf)) if hasattr(leaf.type, "shape") else False
    return leaf in model.free_RVs and count in leaf.type.shape


def _unknown(model: Model, dim: str) -> str:
    close = get_close_matches(str(dim), list(model.dim_lengths), n=1)
    listed = ", ".join(f"'{name}'" for name in model.dim_lengths) or "none"
    return (
        f"batch_dim={dim!r} is no dim of the model."
        + (f" Did you mean '{close[0]}'?" if close else "")
        + f" Its dims: {listed}. Name that of the rows, which pm.Data and the observed variables "
        'have as dims=("obs", ...).'
    )
