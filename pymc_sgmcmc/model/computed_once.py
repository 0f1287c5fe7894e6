"""What a model computes of its data alone, such as the basis functions of a process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytensor
import pytensor.scalar as ps
import pytensor.tensor as pt

from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.op import HasInnerGraph
from pytensor.graph.traversal import io_toposort
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.math import Dot
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.type import TensorType
from pytensor.tensor.variable import TensorVariable

from pymc_sgmcmc.backends.compiling import INTERPRETER
from pymc_sgmcmc.model.graphs import substitute

__all__ = ["computed_once"]

# Others cost no more than to read their results, which may be larger than their arguments
_LIGHT = (
    ps.Add, ps.Sub, ps.Mul, ps.TrueDiv, ps.IntDiv, ps.Neg, ps.Abs, ps.Sqr, ps.Sqrt, ps.Identity,
    ps.Cast, ps.Second, ps.Switch, ps.Maximum, ps.Minimum, ps.Sign, ps.basic.LogicalComparison,
    ps.AND, ps.OR, ps.XOR, ps.Invert,
)  # fmt: skip


def computed_once(graphs: Sequence[Any]) -> list[TensorVariable]:
    """Return ``graphs`` with constants in place of costly results that no parameter changes."""
    fixed: dict[Variable, bool] = {}
    users: dict[Variable, None] = {}
    for node in io_toposort([], list(graphs)):
        known = all(x in fixed or _is_given(x) for x in node.inputs)
        if known and _is_repeatable(node):
            costly = _is_costly(node.op) or any(fixed.get(x, False) for x in node.inputs)
            fixed.update(dict.fromkeys(node.outputs, costly))
        else:
            users.update(dict.fromkeys(node.inputs))
    users.update(dict.fromkeys(graphs))
    results: list[Any] = [x for x in users if fixed.get(x, False)]
    if not results:
        return list(graphs)
    try:
        with np.errstate(all="ignore"):
            arrays = pytensor.function([], results, mode=INTERPRETER)()
    except (ValueError, ArithmeticError):
        # What is no number for the backends is an error of the interpreter
        return list(graphs)
    constants = [
        pt.constant(np.asarray(array, dtype=x.dtype))
        for array, x in zip(arrays, results, strict=True)
    ]
    return substitute(graphs, dict(zip(results, constants, strict=True)))


def _is_given(x: Variable) -> bool:
    return isinstance(x, Constant | SharedVariable) and isinstance(x.type, TensorType)


def _is_repeatable(node: Any) -> bool:
    tensors = all(isinstance(x.type, TensorType) for x in node.outputs)
    return tensors and not isinstance(node.op, RandomVariable | HasInnerGraph)


def _is_costly(op: Any) -> bool:
    if isinstance(op, Elemwise):
        return not isinstance(op.scalar_op, _LIGHT)
    return isinstance(op, Dot | Blockwise)
