"""Minibatches of a model's graph: where they stand, and a step's own rows in their place."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytensor

from pymc.data import MinibatchOp
from pymc.model import Model
from pymc.variational.minibatch_rv import MinibatchRandomVariable
from pytensor.compile.mode import Mode
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.traversal import ancestors
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.type_other import NoneConst
from pytensor.tensor.variable import TensorVariable
from scipy.sparse import issparse

from pymc_sgmcmc.disk.on_disk import source_of
from pymc_sgmcmc.disk.source import Source, all_as_sources
from pymc_sgmcmc.model.graphs import nodes_of


@dataclass(frozen=True, eq=False)
class Minibatch:
    """One ``pm.Minibatch`` call: rows of several arrays, always drawn together."""

    stream: Variable  # PyMC's random stream of the call, shared by all its clones in a graph
    sources: tuple[TensorVariable, ...]  # the full arrays in the model
    batch_size: int  # B

    @property
    def count(self) -> int:
        """The number of rows, N."""
        return len(evaluate(self.sources[0]))

    def arrays(self) -> list[Any]:
        """Return the full arrays; where one is on disk, sources of all of them."""
        return all_as_sources([evaluate(source) for source in self.sources])


def evaluate(source: Variable) -> Any:
    """Return the value of a graph without free inputs, uncompiled; of rows on disk the source.

    That of a sparse constant or shared variable is the sparse matrix.
    """
    if isinstance(source, Constant):
        return source.data if issparse(source.data) else np.asarray(source.data)
    if isinstance(source, SharedVariable):
        value = source.get_value(borrow=True)
        return value if issparse(value) else np.asarray(value)
    rows = source_of(source)
    if rows is not None:
        return rows
    _refuse_computed(source)
    # Interpreted: a process that only reads the model starts no compiler
    return np.asarray(pytensor.function([], source, mode=Mode("py", "fast_compile"))())


def _refuse_computed(source: Variable) -> None:
    for variable in ancestors([source]):
        if isinstance(of_disk := source_of(variable), Source):
            raise ValueError(
                f"The rows of {of_disk.name} are changed before pm.Minibatch draws from them, for "
                "which all of them would be read. Pass sg.on_disk(...) to pm.Minibatch as it is, "
                "and compute with the batch."
            )


def find_minibatches(graphs: Iterable[Variable]) -> list[Minibatch]:
    """Return every ``pm.Minibatch`` call under ``graphs``, each once."""
    calls: dict[Variable, Minibatch] = {}
    for node in nodes_of(graphs, MinibatchOp):
        *sources, stream = node.inputs
        batch_size = node.outputs[0].type.shape[0]
        calls.setdefault(stream, Minibatch(stream, tuple(sources), int(batch_size)))
    return list(calls.values())


def minibatch_terms(model: Model) -> dict[Any, Minibatch]:
    """Return the observed variables and potentials that draw rows, with their first call."""
    terms = [*model.observed_RVs, *model.potentials]
    calls = [find_minibatches([term, model.rvs_to_values.get(term, term)]) for term in terms]
    return {term: of_term[0] for term, of_term in zip(terms, calls, strict=True) if of_term}


def full_arrays(graphs: Iterable[Variable]) -> dict[Variable, Variable]:
    """Map each batch under ``graphs`` to the array that it is drawn from."""
    return {
        output: source
        for node in nodes_of(graphs, MinibatchOp)
        for output, source in zip(node.outputs, node.inputs[:-1], strict=False)
    }


def replace_minibatches(
    graphs: Iterable[Variable], minibatches: Sequence[Minibatch], rows: Sequence[Sequence[Any]]
) -> dict[Variable, Variable]:
    """Map each batch under ``graphs`` to the step's own input for these rows."""
    positions = {minibatch.stream: i for i, minibatch in enumerate(minibatches)}
    return {
        output: rows[positions[node.inputs[-1]]][j]
        for node in nodes_of(graphs, MinibatchOp)
        for j, output in enumerate(node.outputs[:-1])
    }


def before_casts(value: Any) -> Any:
    """Return an observed value before functions of one argument, such as PyMC's cast."""
    while value.owner and isinstance(value.owner.op, Elemwise) and len(value.owner.inputs) == 1:
        value = value.owner.inputs[0]
    return value


def all_rows(value: Any) -> Variable:
    """Return the observed array, before a cast by PyMC, of a value that may be a batch."""
    value = before_casts(value)
    arrays: Mapping[Variable, Variable] = full_arrays([value])
    # The rows of a batch along another axis than the first are moved there
    moved = value.owner.inputs[0] if value.owner and value.owner.inputs else value
    return arrays.get(value, arrays.get(moved, value))


def unscaled(rv: Any) -> Any:
    """Return an observed variable before it was scaled to ``total_size``."""
    scaled = rv.owner is not None and isinstance(rv.owner.op, MinibatchRandomVariable)
    return rv.owner.inputs[0] if scaled else rv


def axis_of_rows(rv: TensorVariable) -> int | None:
    """Return the axis along which an observed variable is scaled to more rows than it has."""
    if not isinstance(rv.owner.op, MinibatchRandomVariable):
        return None
    sizes = rv.owner.inputs[1:]
    return next((k for k, size in enumerate(sizes) if not NoneConst.equals(size)), None)
