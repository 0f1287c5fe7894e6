"""A loop over graphs that were made of placeholders."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import pytensor
import pytensor.tensor as pt

from pytensor.graph.basic import Constant, Variable
from pytensor.graph.traversal import ancestors, io_toposort
from pytensor.tensor.linalg import Eigh
from pytensor.tensor.type import TensorType
from pytensor.tensor.variable import TensorVariable

from pymc_sgmcmc.backends.jax_loop import loop
from pymc_sgmcmc.model.graphs import substitute

_Replaced = Mapping[TensorVariable, TensorVariable]


def looped(
    graphs: Sequence[TensorVariable],
    steps: _Replaced,
    states: _Replaced,
    fixed: _Replaced,
    backend: str,
    in_a_row: int = 1,
    settled: Callable[[Sequence[Any], Sequence[Any]], list[Any]] | None = None,
) -> list[TensorVariable]:
    """Return the states after the last step, then the other outputs of each step.

    ``graphs`` are the next states and other outputs, as functions of placeholders. ``steps`` maps
    placeholders to their values in all steps, along a new first dimension, ``states`` to those
    before the first step, and ``fixed`` to what all steps read. Placeholders of ``fixed`` that no
    graph reads are left out, or PyTensor would make another loop without them. ``settled`` makes of
    the states before and after ``in_a_row`` steps, which JAX compiles as one, those that the next
    steps begin with.
    """
    if settled is not None and in_a_row == 1:
        n = len(states)
        graphs, settled = [*settled(list(states), graphs[:n]), *graphs[n:]], None
    # A backend's own search does not look into the branches of a step
    same = {x: x.type() for x in _same_in_all(graphs, {*steps, *states})}
    if same:
        fixed = {**fixed, **dict(zip(same.values(), substitute(list(same), fixed), strict=True))}
        graphs = substitute(graphs, same)
    read = set(ancestors(list(graphs)))
    fixed = {symbol: x for symbol, x in fixed.items() if symbol in read}
    if backend == "jax":
        length = next(iter(steps.values())).type.shape[0]
        return loop(graphs, steps, states, fixed, length, in_a_row, settled)
    placeholders = [*steps, *states, *fixed]
    outputs: list[TensorVariable] = pytensor.scan(
        lambda *inner: substitute(graphs, dict(zip(placeholders, inner, strict=True))),
        sequences=list(steps.values()),
        outputs_info=[*states.values(), *[None] * (len(graphs) - len(states))],
        non_sequences=list(fixed.values()),
        return_list=True,
        return_updates=False,
        strict=True,
    )
    n = len(states)
    return [*(x[-1] for x in outputs[:n]), *outputs[n:]]


def _same_in_all(graphs: Sequence[Variable], varying: Collection[Variable]) -> list[Variable]:
    """Return inputs that are the same in all steps, where eigenvectors are among them."""
    nodes = io_toposort([], list(graphs))
    if not any(isinstance(getattr(node.op, "core_op", node.op), Eigh) for node in nodes):
        return []
    moving, same, read = set(varying), set[Variable](), dict[Variable, None]()
    for node in nodes:
        if moving.intersection(node.inputs):
            moving.update(node.outputs)
            # An index is a number of another type
            arrays = [x for x in node.inputs if x in same and isinstance(x.type, TensorType)]
            read.update(dict.fromkeys(arrays))
        elif not all(isinstance(x, Constant) for x in node.inputs):
            same.update(node.outputs)
    return list(read)


def along(symbols: Iterable[TensorVariable], length: int | None) -> list[TensorVariable]:
    """Return symbols of such values along a new first dimension."""
    return [pt.tensor(x.name, dtype=x.dtype, shape=(length, *x.type.shape)) for x in symbols]


def unchanged(variables: Iterable[TensorVariable]) -> dict[TensorVariable, TensorVariable]:
    """Return the mapping of variables to themselves."""
    return {x: x for x in variables}
