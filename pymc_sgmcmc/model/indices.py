"""Whether indices that are data lie within what they index."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import suppress
from typing import Any

import numpy as np

from pymc.model import Model
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
from pymc_sgmcmc.model.observed_shapes import own_density

__all__ = ["check_indices"]


def check_indices(model: Model) -> None:
    """Raise ValueError where data, over all rows, index beyond the end of an array.

    JAX gives no gradient for such rows, and numba reads beyond the array.
    """
    for index, x, axis in dict.fromkeys(_uses(model)):
        fault = None
        with suppress(AssertionError, IndexError, NotImplementedError, TypeError, ValueError):
            length = x.type.shape[axis] or int(evaluate(x.shape[axis]))
            fault = _beyond(evaluate(index), length)
        if fault:
            names = [f"'{leaf.name}'" for leaf in ancestors([index]) if leaf.name]
            of = [f"'{rv.name}'" for rv in ancestors([x]) if rv in model.basic_RVs]
            array = f"'{x.name}'" if x.name else f"an array of {', '.join(of) or 'numbers'}"
            raise ValueError(
                f"The index {', '.join(names) or f'of shape {index.type.shape}'} has the value "
                f"{fault}, beyond the end of {array}, whose {length} entries have the numbers 0 to "
                f"{length - 1}. Such rows would be lost without an error. Count from 0, by "
                "subtracting 1 from an index that counts from 1, or give what is indexed more "
                "entries."
            )


def _uses(model: Model) -> Iterator[tuple[Any, Any, int]]:
    """Yield each index that is data, of all rows, with the array and the axis that it indexes."""
    values = [model.rvs_to_values[rv] for rv in model.observed_RVs]
    own = [graph for rv in model.basic_RVs for graph in own_density(model, rv)]
    graphs: list[Any] = [*model.basic_RVs, *values, *model.potentials, *own]
    rows = full_arrays(graphs)
    index: Any
    for node in apply_ancestors(graphs):
        if not isinstance(node.op, BaseSubtensor):
            continue
        first, axis = 1 + isinstance(node.op, IncSubtensor | AdvancedIncSubtensor), 0
        for index in indices_from_subtensor(node.inputs[first:], node.op.idx_list):
            is_mask = isinstance(index, Variable) and index.type.dtype == "bool"
            if not is_mask and _is_data(index, rows):
                pair = [index, node.inputs[0]]
                with suppress(AssertionError, IndexError, TypeError, ValueError):
                    if rows.keys() & set(ancestors([index])):
                        pair = rebuilt(pair, rows, keep=model.free_RVs)
                    yield pair[0], pair[1], axis
            axis += index.type.ndim if is_mask else 1


def _is_data(index: Any, rows: Collection[Variable]) -> bool:
    """Whether an index is an array of integers, of batches or not, without parameters."""
    if not isinstance(index, Variable) or (isinstance(index, Constant) and index.type.ndim == 0):
        return False
    leaves = [x for x in ancestors([index], blockers=rows) if x.owner is None and x not in rows]
    return all(
        isinstance(x, Constant | SharedVariable) and isinstance(x.type, TensorType) for x in leaves
    )


def _beyond(values: Any, length: int) -> str:
    """Say which of some indices is the first that is beyond an array's end, if any is."""
    start = 0
    for part in values.parts() if isinstance(values, Source) else [np.atleast_1d(values)]:
        if part.size and (part.max() >= length or part.min() < -length):
            row, *rest = at = tuple(np.argwhere((part >= length) | (part < -length))[0].tolist())
            return f"{part[at]} in row {start + row}" + (f" (at {rest})" if rest else "")
        start += len(part)
    return ""
