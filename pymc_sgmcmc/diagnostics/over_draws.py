"""Maps between PyMC's spaces, over many draws in one call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pymc as pm
import pytensor.tensor as pt

from pymc.logprob.utils import replace_rvs_by_values
from pymc.model import Model
from pytensor.graph.replace import vectorize_graph
from pytensor.tensor.variable import TensorVariable

from pymc_sgmcmc.backends.compiling import INTERPRETER

__all__ = ["constrained", "unconstrained"]


def unconstrained(model: Model, draws: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Map draws of the free variables, shape (n, ...), to PyMC's value variables."""
    symbols = {rv: rv.type() for rv in model.free_RVs}
    outputs = []
    for rv in model.free_RVs:
        transform = model.rvs_to_transforms[rv]
        value = rv if transform is None else transform.forward(rv, *rv.owner.inputs)
        outputs.append(pt.as_tensor(value))
    outputs = replace_rvs_by_values(outputs, rvs_to_values=symbols)
    arrays = [draws[rv.name] for rv in model.free_RVs]
    mapped = _vectorised(list(symbols.values()), outputs, arrays)
    values = [model.rvs_to_values[rv] for rv in model.free_RVs]
    return {str(v.name): x.astype(v.dtype) for v, x in zip(values, mapped, strict=True)}


def constrained(model: Model, draws: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Map values of PyMC's value variables to the free variables; the inverse of the above."""
    outputs = model.replace_rvs_by_values(model.free_RVs)
    arrays = [draws[str(value.name)] for value in model.value_vars]
    mapped = _vectorised(list(model.value_vars), outputs, arrays)
    return {rv.name: x for rv, x in zip(model.free_RVs, mapped, strict=True)}


def _vectorised(
    symbols: Sequence[TensorVariable],
    outputs: Sequence[TensorVariable],
    arrays: Sequence[np.ndarray],
) -> list[np.ndarray]:
    """Evaluate graphs at arrays with one more dimension in front."""
    stacked = [pt.tensor(dtype=x.dtype, shape=(None, *x.type.shape)) for x in symbols]
    # A graph that is a symbol itself would be compiled to an alias of the input
    graphs = vectorize_graph(
        [pt.as_tensor(x).copy() for x in outputs], dict(zip(symbols, stacked, strict=True))
    )
    function = pm.compile(stacked, graphs, mode=INTERPRETER, on_unused_input="ignore")
    cast = [np.asarray(a, dtype=x.dtype) for a, x in zip(arrays, symbols, strict=True)]
    count = len(cast[0])
    # What depends on no variable is not stacked
    results = zip(function(*cast), outputs, strict=True)
    return [
        np.array(x if np.ndim(x) > out.ndim else np.broadcast_to(x, (count, *np.shape(x))))
        for x, out in results
    ]
