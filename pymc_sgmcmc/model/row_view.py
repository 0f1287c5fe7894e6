"""A model as its batches see it: with rows of one dim, or those of its own ``pm.Minibatch``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from copy import copy
from difflib import get_close_matches
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt

from pymc.model import Model
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.traversal import ancestors
from pytensor.sparse.type import SparseTensorType
from pytensor.tensor.shape import Shape, Shape_i
from pytensor.tensor.subtensor import Subtensor
from pytensor.tensor.type_other import NoneConst
from pytensor.tensor.variable import TensorVariable

from pymc_sgmcmc.backends.errors import first_line
from pymc_sgmcmc.disk.on_disk import source_of
from pymc_sgmcmc.floats import as_float
from pymc_sgmcmc.model.graphs import is_data, rebuilt
from pymc_sgmcmc.model.minibatch import all_rows, axis_of_rows, evaluate, minibatch_terms, unscaled
from pymc_sgmcmc.model.own_gradient import has_own_gradient
from pymc_sgmcmc.model.row_graphs import (
    columns_and_values,
    given_observed,
    products,
    resized,
    scaled,
    shapes_of_length,
    with_arrays_as_parameters,
    with_terms,
)


def in_batches(model: Model, dim: str | None, batch_size: int | None) -> Model:
    """Return the model as its batches see it: along a dim, or by the model's own ``pm.Minibatch``.

    With a dim it has one ``pm.Minibatch`` of all its rows.
    """
    if dim is None or batch_size is None:
        return _of_own_batches(model)
    return RowView(model, dim).take(batch_size)


def _of_own_batches(model: Model) -> Model:
    """Return the model with observed variables as long as their batches, not as dims= says."""
    terms: dict[Any, Any] = {}
    for rv in minibatch_terms(model):
        axis = axis_of_rows(rv)
        if rv not in model.observed_RVs or axis is None:
            continue
        length, term = model.rvs_to_values[rv].type.shape[axis], unscaled(rv)
        written, dims = term.type.shape[axis], model.named_vars_to_dims.get(rv.name)
        if length is None or (written == length if written else not dims):
            continue
        with suppress(NotImplementedError):  # of distributions whose length follows from arrays
            of_batch = resized(term, axis, pt.constant(length, dtype="int64"))
            sizes = [None if NoneConst.equals(size) else size for size in rv.owner.inputs[1:]]
            terms[rv] = scaled(of_batch, rv.name, sizes)
    if not terms:
        return model
    for term in [*model.observed_RVs, *model.potentials]:
        # What depends on such a variable depends on what it observes
        graph = terms.get(term, term)
        if (seen := given_observed(model, term, graph)) is not graph:
            seen.name, seen.tag, terms[term] = term.name, copy(term.tag), seen
    return with_terms(model, terms, {})


class RowView:
    """A model's arrays and terms along one dim, whose entries are independent rows.

    It raises where batches of these rows would be wrong.
    """

    def __init__(self, model: Model, dim: str) -> None:
        if dim not in model.dim_lengths:
            raise ValueError(_unknown(model, dim))
        if minibatch_terms(model):
            raise ValueError(
                f"The model draws batches by pm.Minibatch, and batch_dim='{dim}' asks for batches "
                "of its rows. Leave batch_size and batch_dim out, or give the full arrays to the "
                "model."
            )
        self.model, self.dim = model, dim
        # Axis of rows of each array in the density: constant, shared variable or rows on disk
        self.axes = self._declared()
        # Axis of rows of each observed variable or potential that is a sum over rows
        self.terms = dict(self._observed_terms())
        self.count = self._count() if self.axes else int(evaluate(model.dim_lengths[dim]))  # N
        self._check_free()
        for potential in model.potentials:
            if (axis := self._axis(potential.name)) is not None:
                self.terms[potential] = axis
        # Arrays along the dim by their length alone
        self.undeclared = self._of_length()
        # Observed variables, arrays of rows that their functions hold as parameters
        self._observed: dict[TensorVariable, TensorVariable] = {}
        for rv in model.observed_RVs:
            if rv in self.terms:
                self._observed[rv], inner = with_arrays_as_parameters(
                    unscaled(rv), model.rvs_to_values[rv], self.count
                )
                self.undeclared.update(inner)
        self.axes.update(self.undeclared)
        self._check_others()
        values = [model.rvs_to_values[rv] for rv in model.observed_RVs]
        used = set(ancestors([*self.terms, *values, *self._observed.values()]))
        self.axes = {array: axis for array, axis in self.axes.items() if array in used}
        if not self.terms or not self.axes:
            raise ValueError(
                f"No {'array' if self.terms else 'observed variable'} has the dim '{dim}'. Give it "
                f'to the observed variable, as in pm.Normal(..., observed=y, dims="{dim}"), and to '
                f'the arrays of rows, as in pm.Data("x", x, dims="{dim}"). A pm.Potential with one '
                f'entry for each row takes dims="{dim}" too.'
            )
        self.count = self._count()

    # ------------------------------------------------------------------ what has rows

    def _axis(self, name: Any) -> int | None:
        dims = list(self.model.named_vars_to_dims.get(name) or ())
        if dims.count(self.dim) > 1:
            raise ValueError(
                f"The variable '{name}' has the dim '{self.dim}' twice: its entries belong to "
                "pairs of rows, which cannot be drawn in batches of rows."
            )
        return dims.index(self.dim) if self.dim in dims else None

    def _declared(self) -> dict[Any, int]:
        """Return the arrays that have the dim."""
        named = self.model.named_vars.values()
        arrays = [*self.model.data_vars, *(x for x in named if source_of(x) is not None)]
        axes = {array: self._axis(array.name) for array in arrays}
        return {array: axis for array, axis in axes.items() if axis is not None}

    def _observed_terms(self) -> Iterator[tuple[Any, int]]:
        """Yield observed variables and their axis of rows, which the arrays they observe get."""
        for rv in self.model.observed_RVs:
            array: Any = all_rows(self.model.rvs_to_values[rv])
            axis = self._axis(rv.name)
            axis = self.axes.get(array) if axis is None else axis
            if axis is None:
                continue
            # The rows of an expression are those of its arrays
            if array.owner is None and self.axes.setdefault(array, axis) != axis:
                raise ValueError(
                    f"The observed variable '{rv.name}' has the dim '{self.dim}' on axis {axis}, "
                    f"and its data '{array.name}' on axis {self.axes[array]}. Give both the same "
                    "dims."
                )
            along = axis_of_rows(rv)
            if along is not None and not (
                along == axis
                and int(evaluate(rv.owner.inputs[1 + axis])) == evaluate(array).shape[axis]
            ):
                raise ValueError(
                    f"The observed variable '{rv.name}' has a total_size=, which says that its "
                    f"rows are a batch, and batch_dim='{self.dim}' draws batches of them. Leave "
                    "total_size out."
                )
            yield rv, axis

    def _of_length(self) -> dict[Any, int]:
        """Return the arrays that have as many entries as there are rows, on one axis alone.

        Those whose axis has another dim, or that free variables depend on, are left out.
        """
        model, count = self.model, self.count
        values = [model.rvs_to_values[rv] for rv in self.terms if rv in model.observed_RVs]
        widths = [x for x in ancestors(model.free_RVs) if x.owner and self._is_other_length(x)]
        others = set(ancestors(model.free_RVs, blockers=widths)) | set(self.axes)
        axes: dict[Any, int] = {}
        array: Any
        for array in ancestors([*self.terms, *values], blockers=model.free_RVs):
            if array in others or not (is_data(array) or source_of(array) is not None):
                continue
            dims: Any = [None] * array.type.ndim
            if model.named_vars.get(array.name) is array:
                dims = model.named_vars_to_dims.get(array.name) or dims
            lengths = evaluate(array).shape
            at = [k for k, n in enumerate(lengths) if n == count and dims[k] is None]
            if len(at) == 1 and lengths.count(count) == 1:
                axes[array] = at[0]
        return axes

    def _count(self) -> int:
        lengths = {array: evaluate(array).shape[axis] for array, axis in self.axes.items()}
        if len(set(lengths.values())) > 1:
            listed = ", ".join(
                f"{f"'{array.name}'" if array.name else 'an observed array'} {length}"
                for array, length in lengths.items()
            )
            raise ValueError(
                f"The arrays along the dim '{self.dim}' differ in length: {listed}. Set all of "
                "them, by pm.set_data, to the same number of rows."
            )
        return int(next(iter(lengths.values())))

    # ------------------------------------------------------------------ what cannot be batched

    def depends_on_rows(self, term: Variable) -> bool:
        """Whether a graph depends on rows, or on their number; lengths of other axes do not."""
        graph = list(ancestors([term]))
        length = self.model.dim_lengths[self.dim]
        if isinstance(length, SharedVariable) and length in graph:
            return True
        others = [x for x in graph if x.owner and self._is_other_length(x)]
        return not self.axes.keys().isdisjoint(ancestors([term], blockers=others))

    def _is_other_length(self, variable: Any) -> bool:
        """Whether a variable is the length of an array along an axis that is not of rows."""
        op, inputs = variable.owner.op, variable.owner.inputs
        if isinstance(op, Shape_i):
            array, axis = inputs[0], op.i
        elif isinstance(op, Subtensor) and len(inputs) == 2 and op.idx_list == (0,):
            lengths, index = inputs
            is_shape = lengths.owner and isinstance(lengths.owner.op, Shape)
            if not is_shape or not isinstance(index, Constant):
                return False
            array, axis = lengths.owner.inputs[0], int(index.data)
        else:
            return False
        if array in self.axes:
            return axis % array.ndim != self.axes[array]
        read = is_data(array) or source_of(array) is not None
        return read and evaluate(array).shape[axis] != self.count

    def _check_free(self) -> None:
        """Refuse free variables that depend on the rows."""
        for rv in self.model.free_RVs:
            imputed = rv.name.endswith("_unobserved") and rv.name.removesuffix("_unobserved")
            if imputed and self._axis(imputed) is not None:
                raise NotImplementedError(
                    f"The observed variable '{imputed}' has missing values, which PyMC samples, "
                    f"for rows of the dim '{self.dim}': what is sampled cannot be drawn in "
                    "batches. Leave these rows out, or leave batch_size and batch_dim out."
                )
            of_rows = self.depends_on_rows(rv)
            if not of_rows and self.terms.keys().isdisjoint(ancestors([rv])):
                continue
            if rv.type.ndim == 0 or not of_rows:
                raise NotImplementedError(
                    f"The prior of '{rv.name}' is computed from the rows of the dim '{self.dim}', "
                    "so that a batch would change it. Compute its parameters from the arrays by "
                    "NumPy, before the model is made, or leave batch_size and batch_dim out."
                )
            raise NotImplementedError(
                f"The unobserved variable '{rv.name}' depends on the rows of the dim "
                f"'{self.dim}': it has a value for each of them, which a batch does not determine. "
                f"Give it a dim of its own and take its entries by an index, {rv.name}[pm.Data("
                f'"of_row", of_row, dims="{self.dim}")]; or sum it out of the model, or leave '
                "batch_size and batch_dim out."
            )

    def _check_others(self) -> None:
        """Refuse terms that depend on rows and lack the dim."""
        model, dim = self.model, self.dim
        for term in [*model.observed_RVs, *model.potentials]:
            under = set(ancestors([term])) - {term}
            above = [] if term in self.terms else [rv for rv in self.terms if rv in under]
            if above:
                raise NotImplementedError(
                    f"'{term.name}' depends on the observed variable '{above[0].name}', of which "
                    "batches are to be drawn, for all its rows, as of a variable with missing "
                    "values. Leave batch_size and batch_dim out."
                )
            graphs = [term, model.rvs_to_values.get(term, term)]
            if term in self.terms or not any(map(self.depends_on_rows, graphs)):
                continue
            if term in model.observed_RVs:
                raise ValueError(
                    f"The observed variable '{term.name}' depends on rows of the dim '{dim}' and "
                    f'has not the dim itself. Give it dims="{dim}", with further dims or None for '
                    "its other axes. If an index or a mask takes some of the rows, take them "
                    "before the model is made, so that all arrays have the rows that are observed."
                )
            if has_own_gradient([term]):
                raise NotImplementedError(
                    f"The GradientPotential '{term.name}' depends on rows of the dim '{dim}', of "
                    "which it has no value for each. Draw them by pm.Minibatch, with total_size=, "
                    "and leave batch_size and batch_dim out."
                )
            raise NotImplementedError(
                f"The potential '{term.name}' depends on rows of the dim '{dim}'. How it scales "
                "with the data cannot be known: write it as a vector with one entry for each row "
                f'and give it dims="{dim}", or write an observed pm.CustomDist.'
            )

    # ------------------------------------------------------------------ batches

    def take(self, batch_size: int) -> Model:
        """Return the model with one ``pm.Minibatch`` of all its rows.

        It shares the free variables, value variables and data of the model and serves for reading
        the density only.
        """
        if batch_size > self.count:
            raise ValueError(
                f"batch_size={batch_size} is larger than the dim '{self.dim}' of {self.count} "
                "rows. Pass a smaller batch_size, or batch_size=None to take all rows."
            )
        try:
            terms, values = self._taken(batch_size)
        except (
            AssertionError, NotImplementedError, ValueError, IndexError, TypeError,
        ) as error:  # fmt: skip
            raise ValueError(self.mismatch(error)) from error
        return with_terms(self.model, terms, values)

    def _taken(self, size: int) -> tuple[dict[Any, Any], dict[Any, Any]]:
        """Return terms of a batch, scaled to all rows, and the batch's observed values."""
        model, observed = self.model, self._observed
        sources = [source for array, axis in self.axes.items() for source in _sources(array, axis)]
        batches: Any = pm.Minibatch(*sources, batch_size=size)
        drawn = iter(batches if len(sources) > 1 else [batches])
        length: Any = pt.constant(size, dtype="int64")
        # Unknown while the parameters still have all rows
        count = pt.lscalar()
        graphs = [
            given_observed(
                model, term, resized(observed[term], axis, count) if term in observed else term
            )
            for term, axis in self.terms.items()
        ]
        graphs += [model.rvs_to_values[rv] for rv in observed]
        new: dict[Any, Any] = {count: length}
        new.update(shapes_of_length(graphs, model.free_RVs, self.count, length))
        for array, axis in self.axes.items():
            if isinstance(array.type, SparseTensorType):
                new.update(products(array, graphs, next(drawn), next(drawn)))
            else:
                batch = next(drawn)
                new[array] = pt.moveaxis(batch, 0, axis) if axis else batch
        full = model.dim_lengths[self.dim]
        if isinstance(full, SharedVariable):
            new[full] = length.astype(full.type.dtype)
        made = iter(rebuilt(graphs, new, keep=model.free_RVs))
        terms: dict[Any, Any] = {}
        for term, axis in self.terms.items():
            of_batch = next(made)
            if term in observed:
                total_size = [self.count if k == axis else None for k in range(of_batch.ndim)]
                terms[term] = scaled(of_batch, term.name, total_size)
            else:
                of_batch = as_float(pt.moveaxis(of_batch, axis, 0))
                terms[term] = of_batch * (self.count / of_batch.shape[0]).astype(of_batch.dtype)
                terms[term].tag.scales_with_data = True
            terms[term].name = term.name
        return terms, dict(zip(observed, made, strict=True))

    def mismatch(self, error: Exception) -> str:
        """Name arrays with as many entries as there are rows and without the dim."""
        for term in self.terms:
            imputed = str(term.name).removesuffix("_observed")
            if f"{imputed}_unobserved" in self.model.named_vars:
                return (
                    f"The observed variable '{imputed}' has missing values, which PyMC samples, "
                    "so that its rows cannot be drawn in batches. Leave these rows out of the "
                    "model, or leave batch_size and batch_dim out."
                )
        leaves = list(ancestors(list(self.terms)))
        for leaf in leaves:
            if isinstance(leaf.type, SparseTensorType) and leaf in self.axes:
                return (
                    f"{f"'{leaf.name}'" if leaf.name else 'An array'} of shape "
                    f"{evaluate(leaf).shape} is sparse. Rows of the dim '{self.dim}' are drawn "
                    "from it for products alone, pytensor.sparse.structured_dot(x, b) with rows on "
                    'the first axis of x. Write them so, or pass pm.Data("x", x.toarray(), '
                    f'dims=("{self.dim}", ...)); or leave batch_size and batch_dim out.'
                )
        suspects = [
            leaf
            for leaf in leaves
            if leaf in self.undeclared or (leaf not in self.axes and self._has_count(leaf))
        ]
        if suspects:
            return (
                f"The model cannot be taken in batches of the dim '{self.dim}': it depends on "
                f"{named(suspects)}, with as many entries as there are rows ({self.count}) and "
                f'without the dim. Wrap arrays of rows as pm.Data("x", x, dims="{self.dim}"), with '
                "further dims or None for other axes, and give another dim to what holds no rows."
            )
        return (
            f"The model cannot be taken in batches of the dim '{self.dim}'; with a few of its rows "
            f"PyTensor says: {first_line(error)} Give each array of rows the dim, by pm.Data(..., "
            f'dims="{self.dim}"), and write no shape as a number.'
        )

    def _has_count(self, leaf: Any) -> bool:
        if isinstance(leaf, Constant | SharedVariable):
            return hasattr(leaf.type, "shape") and self.count in np.shape(evaluate(leaf))
        return leaf in self.model.free_RVs and self.count in leaf.type.shape


def _sources(array: Any, axis: int) -> list[Any]:
    """Return what batches of an array are drawn from, its rows first."""
    if isinstance(array.type, SparseTensorType):
        return list(columns_and_values.make_node(array.T if axis else array).outputs)
    return [pt.moveaxis(array, axis, 0) if axis else array]


def named(arrays: Iterable[Any]) -> str:
    """Return the names of arrays, or their shapes."""
    names = (f"'{x.name}'" if x.name else f"an array of shape {x.type.shape}" for x in arrays)
    return ", ".join(dict.fromkeys(names))


def _unknown(model: Model, dim: str) -> str:
    close = get_close_matches(str(dim), list(model.dim_lengths), n=1)
    listed = ", ".join(f"'{name}'" for name in model.dim_lengths) or "none"
    return (
        f"batch_dim={dim!r} is no dim of the model."
        + (f" Did you mean '{close[0]}'?" if close else "")
        + f" Its dims: {listed}. Name that of the rows, which pm.Data and the observed variables "
        'have as dims=("obs", ...).'
    )
