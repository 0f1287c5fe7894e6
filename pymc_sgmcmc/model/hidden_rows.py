"""Arrays of rows that a density of one's own holds, and that the model's graph does not show."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt

from pymc.distributions.custom import CustomDistRV, CustomSymbolicDistRV
from pymc.logprob.abstract import _logprob
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant
from pytensor.graph.traversal import ancestors
from pytensor.tensor.type import TensorType

from pymc_sgmcmc.model.graphs import rebuilt
from pymc_sgmcmc.model.minibatch import evaluate

__all__ = ["with_hidden_rows"]


def with_hidden_rows(rv: Any, value: Any, count: int) -> tuple[Any, dict[Any, int]]:
    """Return an observed variable, and the arrays that its function holds, with their axis of rows.

    Arrays with ``count`` entries on one axis, such as weights, become parameters of a new variable
    of the same density. Without any the variable itself is returned.
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
    with suppress(NotImplementedError, TypeError, ValueError):  # what sampling will say
        density: Any = _logprob(node.op, [observed], *[known.get(x, x) for x in node.inputs])
        hidden = {}
        for x in ancestors([density]):
            if isinstance(x, Constant | SharedVariable) and isinstance(x.type, TensorType):
                lengths = np.shape(evaluate(x))
                if len(lengths) == rv.ndim and lengths.count(count) == 1:
                    hidden[x] = lengths.index(count)
        if hidden:

            def logp(value: Any, *arrays: Any) -> Any:
                new = zip([observed, *symbols, *hidden], [value, *arrays], strict=True)
                return rebuilt([density], dict(new))[0]

            core = ",".join("()" for _ in [*parameters, *hidden])
            opened = pm.CustomDist.dist(
                *parameters, *hidden, logp=logp, signature=f"{core}->()", dtype=rv.dtype
            )
            return opened, hidden
    return rv, {}
