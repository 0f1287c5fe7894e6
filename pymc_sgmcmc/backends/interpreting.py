"""The modes in which PyTensor interprets graphs that are computed once, and compiles nothing."""

from __future__ import annotations

from typing import Any

import pytensor.scalar as ps

from pytensor.compile.mode import FAST_COMPILE, Mode
from pytensor.graph.rewriting.basic import in2out, node_rewriter
from pytensor.tensor.elemwise import Elemwise

# Rewrites that are left out: then no BLAS library is looked for. Fused operations would run in
# Python element by element
_LEFT_OUT = "BlasOpt", "fusion", "inplace"

# Operands of an operation, and after which rewrites there are no more than that
_MOST, _LAST = 30, 100


@node_rewriter([Elemwise])
def _of_few_operands(fgraph: Any, node: Any) -> Any:
    """Divide a sum or product of more operands than PyTensor interprets, which are 31."""
    if len(node.inputs) <= _MOST or not isinstance(node.op.scalar_op, ps.Add | ps.Mul):
        return None
    return [node.op(node.op(*node.inputs[:_MOST]), *node.inputs[_MOST:])]


def _with_few_operands(mode: Mode) -> Mode:
    return mode.register((in2out(_of_few_operands), _LAST))


INTERPRETER = _with_few_operands(Mode(linker="py", optimizer="fast_run").excluding(*_LEFT_OUT))

# For graphs whose simplification would take longer than to compute them
UNSIMPLIFIED = _with_few_operands(FAST_COMPILE)
