"""One number for each kink and jump of a graph, whatever is made of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytensor.scalar as ps

from pytensor.graph.basic import Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import node_rewriter
from pytensor.scan.op import Scan
from pytensor.tensor.elemwise import CAReduce, DimShuffle, Elemwise
from pytensor.tensor.variable import TensorVariable

from pymc_sgmcmc.backends.once import Once
from pymc_sgmcmc.model.graphs import is_a, rewritten

# Operations with kinks or jumps, of single numbers or of an axis
_BROKEN = ps.Clip, ps.Maximum, ps.Minimum, ps.Abs, ps.basic.LogicalComparison


def kinks_from_one_number(graphs: Sequence[Any]) -> list[TensorVariable]:
    """Return ``graphs`` whose kinks, and all parts of whose gradients, lie where one number says.

    XLA computes an elementwise array anew for each use, and may round it otherwise. The largest
    entry then equals none of the entries, and its gradient is lost. The squared distances of a
    Gaussian process are clipped at 0, that of a place from itself: some parts of a gradient then
    counted the place, and others, which would cancel them, did not.
    """
    return rewritten(graphs, _one_argument, clone=False)


@node_rewriter([Elemwise, CAReduce, Scan])
def _one_argument(fgraph: Any, node: Any) -> list[Variable] | None:
    """Compute the arguments of an operation with a kink or a jump once."""
    if isinstance(node.op, Scan):
        return _one_argument_within(node)
    if not _is_broken(node):
        return None
    once = [Once()(x) if _is_computed(x) else x for x in node.inputs]
    return None if once == node.inputs else [node.op(*once)]


def _one_argument_within(node: Any) -> list[Variable] | None:
    """Compute them once in a loop, too, and what a step returns: gradients compare with it."""
    loop = node.op.fgraph.unfreeze()
    nodes, returned = loop.toposort(), [x.owner for x in loop.outputs if x.owner is not None]
    if not any(_is_broken(x) and any(map(_is_computed, x.inputs)) for x in nodes) and not any(
        map(_is_broken, returned)
    ):
        return None
    outputs: list[Any] = [
        Once()(x) if x.owner is not None and _is_broken(x.owner) else x
        for x in rewritten(loop.outputs, _one_argument, clone=False)
    ]
    op = node.op.clone_with_inner_graph(FunctionGraph(loop.inputs, outputs, clone=False))
    new: list[Variable] = op(*node.inputs, return_list=True)
    return new


def _is_broken(node: Any) -> bool:
    return isinstance(getattr(node.op, "scalar_op", None), _BROKEN)


def _is_computed(x: Any) -> bool:
    """Whether an array is more than an input in another shape, and not computed once already."""
    while is_a(DimShuffle, x):
        [x] = x.owner.inputs
    return x.owner is not None and not is_a(Once, x)
