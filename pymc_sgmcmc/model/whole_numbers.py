"""Arithmetic on whole numbers that a model is written with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import reduce
from typing import Any

import numpy as np
import pytensor.tensor as pt

from pytensor.graph.basic import Constant, Variable
from pytensor.graph.traversal import io_toposort
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.variable import TensorVariable

from pymc_sgmcmc.model.graphs import rebuilt


def whole_numbers(graphs: Sequence[Any]) -> list[TensorVariable]:
    """Return ``graphs`` with right results of arithmetic on whole numbers as they are written.

    ``sigma=20`` is an 8-bit integer, whose square in PyMC's densities is -112.
    """
    exact: dict[Variable, np.ndarray] = {}
    known: dict[Variable, Variable] = {}
    for node in io_toposort([], list(graphs)):
        result: Any = node.outputs[0]
        if not _is_small(result):
            continue
        values = [_whole(x, exact) for x in node.inputs]
        if any(x is None for x in values):
            continue
        if (value := _computed(node, values)) is None:
            continue
        exact[result], limits = value, np.iinfo(result.type.dtype)
        if np.any((value < limits.min) | (value > limits.max)):
            known[result] = pt.as_tensor(value.astype(np.min_scalar_type(-np.abs(value).max() - 1)))
    return rebuilt(graphs, known) if known else list(graphs)


def _whole(x: Any, exact: Mapping[Variable, np.ndarray]) -> np.ndarray | None:
    """Return the value of a constant of small integers, or of what is computed from such."""
    if isinstance(x, Constant) and _is_small(x):
        return np.asarray(x.data, dtype=np.int64)
    return exact.get(x)


def _computed(node: Any, values: Sequence[Any]) -> Any:
    """Return what NumPy makes of whole numbers, None where it has no such function."""
    if isinstance(node.op, DimShuffle):
        storage: list[Any] = [None]
        node.op.perform(node, values, [storage])
        return storage[0]
    name, count, _ = getattr(getattr(node.op, "scalar_op", None), "nfunc_spec", None) or ("", 0, 0)
    # That of ~x depends on how many bits x has
    function: Any = None if name == "invert" else getattr(np, name, None)
    if function is None or (len(values) != count and count != 2):
        return None
    with suppress(ValueError):  # a power of a negative exponent
        return function(*values) if len(values) == count else reduce(function, values)
    return None


def _is_small(x: Any) -> bool:
    return getattr(x.type, "dtype", "") in ("int8", "uint8", "int16", "uint16")
