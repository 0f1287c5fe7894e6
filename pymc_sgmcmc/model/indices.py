"""Whether indices that are data lie within what they index."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import pymc as pm
import pytensor

from pymc.distributions.custom import CustomDistRV, CustomSymbolicDistRV
from pymc.model import Model
from pytensor.compile.mode import Mode
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.traversal import ancestors, apply_ancestors
from pytensor.tensor.subtensor import (
    AdvancedIncSubtensor,
    BaseSubtensor,
    IncSubtensor,
    indices_from_subtensor,
)
from pytensor.tensor.type import TensorType

from pymc_sgmcmc.disk.source import Source
from pymc_sgmcmc.model.graphs import rebuilt
from pymc_sgmcmc.model.minibatch import evaluate, full_arrays

__all__ = ["check_indices"]

_UNKNOWN = AssertionError, IndexError, NotImplementedError, TypeError, ValueError


def check_indices(model: Model) -> None:
    """Refuse data that index beyond the end of an array, over all rows.

    JAX takes no gradient of such rows, and numba reads whatever lies behind the array.

    Raises
    ------
    ValueError
        If there are any.
    """
    uses = list(dict.fromkeys(_uses(model)))
    lengths: list[Any] = [x.type.shape[axis] for _, x, axis in uses]
    unknown = [k for k, length in enumerate(lengths) if length is None]
    with suppress(*_UNKNOWN):
        # The interpreter: no compiler is started in the process that only reads the model
        shapes = [uses[k][1].shape[uses[k][2]] for k in unknown]
        found = pytensor.function([], shapes, mode=Mode("py", "fast_compile"))()
        for k, length in zip(unknown, found, strict=True):
            lengths[k] = int(length)
    for (index, x, _), length in zip(uses, lengths, strict=True):
        if length is not None:
            _check(model, index, x, length)


def _uses(model: Model) -> Iterator[tuple[Any, Any, int]]:
    """Yield each index that is data, of all rows, with the array and the axis that it indexes."""
    values = [model.rvs_to_values[rv] for rv in model.observed_RVs]
    graphs = [*model.basic_RVs, *values, *model.potentials, *_own_densities(model)]
    rows = full_arrays(graphs)
    for node in apply_ancestors(graphs):
        if not isinstance(node.op, BaseSubtensor):
            continue
        index: Any
        first, axis = 1 + isinstance(node.op, IncSubtensor | AdvancedIncSubtensor), 0
        for index in indices_from_subtensor(node.inputs[first:], node.op.idx_list):
            is_mask = isinstance(index, Variable) and index.type.dtype == "bool"
            if not is_mask and _is_data(index, rows):
                pair: list[Any] = [index, node.inputs[0]]
                with suppress(*_UNKNOWN):
                    if rows.keys() & set(ancestors([index])):
                        pair = rebuilt(pair, rows, keep=model.free_RVs)
                    yield pair[0], pair[1], axis
            axis += index.type.ndim if is_mask else 1


def _own_densities(model: Model) -> Iterator[Any]:
    """Yield the densities that the user's functions write, which are not in the model's graph."""
    for rv in model.basic_RVs:
        nodes = apply_ancestors([rv], blockers=[x for x in model.basic_RVs if x is not rv])
        if any(isinstance(node.op, CustomDistRV | CustomSymbolicDistRV) for node in nodes):
            with suppress(*_UNKNOWN):  # what sampling will say
                yield pm.logp(rv, model.rvs_to_values[rv], warn_rvs=False)


def _is_data(index: Any, rows: Collection[Variable]) -> bool:
    """Whether an index is an array of integers, of batches or not, without parameters."""
    if not isinstance(index, Variable) or (isinstance(index, Constant) and index.type.ndim == 0):
        return False
    leaves = [x for x in ancestors([index], blockers=rows) if x.owner is None and x not in rows]
    return all(
        isinstance(x, Constant | SharedVariable) and isinstance(x.type, TensorType) for x in leaves
    )


def _check(model: Model, index: Any, x: Any, length: int) -> None:
    try:
        values, start = evaluate(index), 0
    except _UNKNOWN:
        return
    for part in values.parts() if isinstance(values, Source) else [np.atleast_1d(values)]:
        if part.size and (part.max() >= length or part.min() < -length):
            row, *rest = at = tuple(np.argwhere((part >= length) | (part < -length))[0].tolist())
            names = [f"'{leaf.name}'" for leaf in ancestors([index]) if leaf.name]
            if isinstance(values, Source):
                names = [values.name]
            told = ", ".join(names) or f"of shape {values.shape}"
            of = [f"'{rv.name}'" for rv in ancestors([x]) if rv in model.basic_RVs]
            array = f"'{x.name}'" if x.name else f"an array of {', '.join(of) or 'numbers'}"
            place = f"row {start + row}" + (f" (at {rest})" if rest else "")
            raise ValueError(
                f"The index {told} has the value {part[at]} in {place}, beyond the end of {array}, "
                f"whose {length} entries have the numbers 0 to {length - 1}. The data of such rows "
                "would be lost without an error. Count from 0, by subtracting 1 from an index "
                "that counts from 1, or give what is indexed more entries."
            )
        start += len(part)
