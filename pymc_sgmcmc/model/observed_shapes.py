"""Whether what is observed has the shape of what it is compared with."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import pymc as pm

from pymc.distributions.custom import CustomDistRV, CustomSymbolicDistRV
from pymc.model import Model
from pymc.variational.minibatch_rv import MinibatchRandomVariable
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.traversal import apply_ancestors, graph_inputs
from pytensor.tensor.type import TensorType
from pytensor.tensor.variable import TensorVariable

from pymc_sgmcmc.model.graphs import rebuilt, substitute
from pymc_sgmcmc.model.minibatch import all_rows, evaluate

__all__ = ["check_coords", "check_observed_shapes", "own_density"]

_Shape = tuple[int | None, ...]

_OWN = CustomDistRV, CustomSymbolicDistRV


def check_coords(model: Model, kept: Collection[str] | None = None) -> None:
    """Refuse variables whose length differs from their coords', for which PyMC loses all draws.

    Deterministics count where draws keep them: those named in ``kept``, at first none.
    """
    left_out = {x.name for x in model.deterministics}.difference(kept or ())
    kept = {
        name: x
        for name, x in model.named_vars.items()
        if x not in model.potentials and name not in left_out
    }
    dims = {name: of for name, of in model.named_vars_to_dims.items() if of and name in kept}
    observed = {rv.name: all_rows(model.rvs_to_values[rv]) for rv in model.observed_RVs}
    graphs = _with_lengths(model, [observed.get(name, kept[name]) for name in dims])
    for (name, of), graph in zip(dims.items(), graphs, strict=True):
        for dim, length in zip(of, graph.type.shape, strict=False):
            labels = model.coords.get(dim)
            if labels is not None and length not in (None, len(labels)):
                raise ValueError(
                    f"'{name}' has {length} entries along the dim '{dim}', whose coords have "
                    f"{len(labels)}: PyMC could not put the draws together. Give the dim coords of "
                    f"that length, or '{name}' another dim. If an index or a mask takes some of "
                    "the rows, take them before the model is made."
                )


def check_observed_shapes(model: Model) -> None:
    """Refuse observed variables that would be compared with more than as many parameters.

    N numbers in a column beside N means in a row make N x N differences. PyTensor then names no
    variable, and a density of the user's own is silently that of all pairs.
    """
    for rv in model.observed_RVs:
        inner = rv.owner.inputs[0] if isinstance(rv.owner.op, MinibatchRandomVariable) else rv
        value = model.rvs_to_values[rv]
        own = isinstance(inner.owner.op, _OWN)
        compared = (
            [(x, 0) for x in own_density(model, rv)] if own else list(_compared(model, inner))
        )
        graphs = _with_lengths(model, [value, *(graph for graph, _ in compared)])
        observed = graphs[0].type.shape[: value.ndim - inner.owner.op.ndim_supp]
        for graph, (_, core) in zip(graphs[1:], compared, strict=True):
            shape = graph.type.shape[: graph.ndim - core]
            # Parameters of the user's own density may have any shape: its result decides
            if _in_pairs(shape, observed) if own else not _fits(shape, observed):
                raise ValueError(_misfit(rv.name, observed, shape, own))


def _compared(model: Model, rv: TensorVariable) -> Iterator[tuple[TensorVariable, int]]:
    """Parameters of a distribution and of its component distributions, with their own axes."""
    op = rv.owner.op
    if not hasattr(op, "dist_params"):
        return
    try:
        parameters = op.dist_params(rv.owner)
    except ValueError:  # PyMC has no signature of what a distribution truncates
        return
    for parameter, core in zip(parameters, op.ndims_params, strict=False):
        if core == 0 and parameter.owner and parameter not in model.basic_RVs:
            yield from _compared(model, parameter)
        yield parameter, core


def _fits(shape: _Shape, observed: _Shape) -> bool:
    pairs = zip(shape[::-1], observed[::-1], strict=False)
    return all(length in (1, None, other) or other is None for length, other in pairs)


def _in_pairs(shape: _Shape, observed: _Shape) -> bool:
    """Whether observations and parameters are compared one to one."""
    pairs = zip(shape[::-1], observed[::-1], strict=False)
    return any(other == 1 and length in observed and length != 1 for length, other in pairs)


def own_density(model: Model, rv: TensorVariable) -> list[Any]:
    """Return the log density of the user's function, which is not in the model's graph."""
    blockers = [other for other in model.basic_RVs if other is not rv]
    if not any(isinstance(node.op, _OWN) for node in apply_ancestors([rv], blockers)):
        return []
    # PyMC warns of random variables in a density
    others: dict[Any, Any] = {other: other.type() for other in blockers}
    with suppress(NotImplementedError, TypeError, ValueError):  # what sampling will say
        [alone] = substitute([rv], others)
        density = pm.logp(alone, model.rvs_to_values[rv], warn_rvs=False)
        return list(substitute([density], {symbol: other for other, symbol in others.items()}))
    return []


def _with_lengths(model: Model, graphs: Sequence[Any]) -> Sequence[Any]:
    """Return graphs with the static shapes of the model's present data."""
    unknown = {
        x: x.type.clone(shape=np.shape(evaluate(x)))()
        for x in graph_inputs(graphs)
        if isinstance(x, SharedVariable) and isinstance(x.type, TensorType) and None in x.type.shape
    }
    with suppress(NotImplementedError, TypeError, ValueError):
        return rebuilt(graphs, unknown, keep=model.free_RVs)
    return graphs


def _misfit(name: str | None, observed: _Shape, shape: _Shape, own: bool) -> str:
    with_what = "gives a log density" if own else "is compared with parameters"
    return (
        f"The observed variable '{name}' has the shape {_told(observed)} and {with_what} of shape "
        f"{_told(shape)}. Give both the same rows on the same axes: observe a vector, y[:, 0] in "
        "place of a column, or give the parameters a second axis, mu[:, None]; and draw all arrays "
        "of rows in one call, x, y = pm.Minibatch(x, y, batch_size=...)."
    )


def _told(shape: _Shape) -> str:
    lengths = [str(length or "?") for length in shape]
    return f"({', '.join(lengths)}{',' * (len(lengths) == 1)})"
