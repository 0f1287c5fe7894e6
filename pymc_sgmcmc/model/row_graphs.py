"""Graphs of a batch's rows (lengths, sparse arrays, arrays of functions), and models of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt

from pymc.distributions.custom import CustomDistRV, CustomSymbolicDistRV
from pymc.distributions.shape_utils import change_dist_size
from pymc.logprob.abstract import _logprob
from pymc.model import Model
from pymc.pytensorf import constant_fold
from pymc.variational.minibatch_rv import create_minibatch_rv
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.op import Op
from pytensor.graph.traversal import ancestors, apply_ancestors
from pytensor.sparse.math import Dot, StructuredDot
from pytensor.tensor.basic import Alloc, MakeVector
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.shape import Reshape
from pytensor.tensor.type import TensorType
from pytensor.tensor.variable import TensorVariable

from pymc_sgmcmc.model.graphs import is_data, made_again, nodes_of, rebuilt, substitute
from pymc_sgmcmc.model.minibatch import evaluate


def resized(rv: Any, axis: int, length: Any) -> Any:
    """Return an observed variable whose shape was written as a number, for other rows."""
    node = rv.owner
    if not hasattr(node.op, "ndim_supp"):
        return rv  # an expression, as of pm.observe: shapes_of_length has its sizes
    lengths = [rv.shape[k] for k in range(rv.ndim - node.op.ndim_supp)]
    if axis >= len(lengths):
        return rv
    lengths[axis] = length
    if isinstance(node.op, CustomSymbolicDistRV):
        # PyMC's function would go back to the parameters that it was written with
        size, *parameters = node.inputs
        if isinstance(size.type, TensorType):
            size = pt.stack([pt.cast(x, "int64") for x in lengths])
        return made_again(node, [size, *parameters])[0]
    return change_dist_size(rv, tuple(lengths))


def shapes_of_length(
    graphs: Sequence[Variable], free: Sequence[Variable], count: int, length: Any
) -> dict[Variable, Variable]:
    """Map shapes in which the number of rows is written as a number to those of ``length`` rows."""
    shapes: list[Any] = []
    for node in apply_ancestors(graphs, blockers=free):
        op: Any = node.op
        if isinstance(op, Alloc | Reshape):
            shapes += node.inputs[1:]
        elif isinstance(op, MakeVector):
            # Floats are no lengths
            shapes += [x for x in node.inputs if x.type.dtype.startswith("int")]
        elif isinstance(op, RandomVariable):
            shapes.append(op.size_param(node))
    shapes = [x for x in dict.fromkeys(shapes) if isinstance(x.type, TensorType)]
    others: dict[Variable, Variable] = {}
    for shape, value in zip(shapes, constant_fold(shapes, raise_not_constant=False), strict=True):
        numbers = [] if isinstance(value, Variable) else np.atleast_1d(value)
        if np.sum(numbers == count) == 1:
            new = [length if n == count else pt.constant(n, dtype="int64") for n in numbers]
            others[shape] = (new[0] if shape.ndim == 0 else pt.stack(new)).astype(shape.dtype)
    return others


def with_arrays_as_parameters(rv: Any, value: Any, count: int) -> tuple[Any, dict[Any, int]]:
    """Return an observed variable, and the arrays that its function holds, with their axis of rows.

    Arrays with ``count`` entries on one axis, such as weights, which the model's graph does not
    show, become parameters of a new variable of the same density.
    """
    node = rv.owner
    if not isinstance(node.op, CustomDistRV | CustomSymbolicDistRV) or node.op.ndim_supp:
        return rv, {}
    given = list(node.op.dist_params(node))
    # As PyTensor expands them, so that all have the axes of what is observed
    parameters: list[Any] = [pt.atleast_Nd(x, n=rv.ndim) for x in given]
    symbols: list[Any] = [x.type() for x in parameters]
    observed = value.type()
    known = dict(zip(given, symbols, strict=True))
    with suppress(NotImplementedError, TypeError, ValueError):  # sampling will raise it
        density: Any = _logprob(node.op, [observed], *[known.get(x, x) for x in node.inputs])
        arrays = {}
        for x in filter(is_data, ancestors([density])):
            lengths = np.shape(evaluate(x))
            if len(lengths) == rv.ndim and lengths.count(count) == 1:
                arrays[x] = lengths.index(count)
        if arrays:

            def logp(value: Any, *others: Any) -> Any:
                new = zip([observed, *symbols, *arrays], [value, *others], strict=True)
                return rebuilt([density], dict(new))[0]

            core = ",".join("()" for _ in [*parameters, *arrays])
            opened = pm.CustomDist.dist(
                *parameters, *arrays, logp=logp, signature=f"{core}->()", dtype=rv.dtype
            )
            return opened, arrays
    return rv, {}


class ColumnsAndValues(Op):
    """Columns and values of a sparse matrix's rows, both (N, m) for at most m entries in a row.

    Shorter rows are filled up with zeros in column 0.
    """

    __props__ = ()

    def make_node(self, *inputs: Any) -> Apply[Any]:
        """Return the node of a sparse matrix, (N, p)."""
        [matrix] = inputs
        shape = (matrix.type.shape[0], None)
        kinds = ("int32", matrix.type.dtype)
        return Apply(self, [matrix], [pt.tensor(dtype=kind, shape=shape) for kind in kinds])

    def perform(self, node: Apply[Any], inputs: Sequence[Any], output_storage: Any) -> None:
        """Compute both arrays."""
        rows = inputs[0].tocsr()
        counts = np.diff(rows.indptr)
        filled = np.arange(counts.max(initial=1)) < counts[:, None]
        for output, storage, entries in zip(
            node.outputs, output_storage, (rows.indices, rows.data), strict=True
        ):
            storage[0] = np.zeros(filled.shape, dtype=output.type.dtype)
            storage[0][filled] = entries


columns_and_values = ColumnsAndValues()


def products(
    matrix: Variable, graphs: Sequence[Variable], columns: Any, values: Any
) -> dict[Variable, TensorVariable]:
    """Map products with a sparse matrix to those with the ``values`` (B, m) of a batch."""
    of_batch: dict[Variable, TensorVariable] = {}
    for node in nodes_of(graphs, Dot | StructuredDot):
        if node.inputs[0] is matrix:
            taken: Any = pt.as_tensor(node.inputs[1])[columns]
            entries = values if taken.ndim == values.ndim else values[:, :, None]
            product = pt.sum(entries * taken, axis=1)
            of_batch[node.outputs[0]] = product.astype(node.outputs[0].type.dtype)
    return of_batch


def given_observed(model: Model, term: Any, graph: Any) -> Any:
    """Return a term's graph with what other observed variables observe in their place."""
    under = set(ancestors([graph])) - {term}
    seen = {rv: model.rvs_to_values[rv] for rv in model.observed_RVs if rv in under}
    return substitute([graph], seen)[0] if seen else graph


def scaled(rv: Any, name: str, total_size: Sequence[Any]) -> Any:
    """Return an observed variable of a batch, scaled to all rows."""
    rv.name = name
    of_all = create_minibatch_rv(rv, total_size)
    of_all.name = name
    return of_all


def with_terms(model: Model, terms: Mapping[Any, Any], values: Mapping[Any, Any]) -> Model:
    """Return a model with other observed variables, potentials and observed values, for reading."""
    view, of_values = like(model), {**model.rvs_to_values, **values}
    view.observed_RVs = [terms.get(rv, rv) for rv in model.observed_RVs]
    view.potentials = [terms.get(potential, potential) for potential in model.potentials]
    view.rvs_to_values = {terms.get(rv, rv): value for rv, value in of_values.items()}
    view.values_to_rvs = {value: rv for rv, value in view.rvs_to_values.items()}
    view.rvs_to_transforms = {
        terms.get(rv, rv): transform for rv, transform in model.rvs_to_transforms.items()
    }
    return view


def like(model: Model) -> Model:
    """Return a copy that shares variables and data with a model; its own lists can be replaced."""
    copied: Model = object.__new__(type(model))
    copied.__dict__.update(model.__dict__)
    return copied
