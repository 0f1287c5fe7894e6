"""The draws of a result as arrays that fit a model: read, named, mapped between PyMC's spaces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import xarray as xr

from pymc.logprob.utils import replace_rvs_by_values
from pymc.model import Model
from pytensor.graph.replace import vectorize_graph
from pytensor.tensor.variable import TensorVariable

from pymc_sgmcmc.backends.interpreting import INTERPRETER
from pymc_sgmcmc.checks import a_model, positive_int
from pymc_sgmcmc.model.minibatch import evaluate
from pymc_sgmcmc.model.tensor_model import in_tensors

# Relative differences of weights that rounding explains
_SAME = 1e-6


@dataclass(frozen=True)
class Draws:
    """Draws of a result, evenly spaced in its weights; arrays begin with chains times draws."""

    posterior: xr.Dataset  # the whole group
    values: dict[str, np.ndarray]  # of each free variable
    chain: np.ndarray  # numbers in the group, by position
    draw: np.ndarray
    each: int  # draws of each chain


def checked_model(model: Any) -> Model:
    """Return the model, or the one in context; of tensors, where it is of ``pymc.dims``."""
    return in_tensors(a_model(model))


def draws_of(result: Any, model: Model, *, group: str, limit: int | None) -> Draws:
    """Read up to ``limit`` draws a chain of the free variables; refuse what does not fit."""
    posterior = _group_of(result, group)
    sizes = posterior.sizes
    if not {"chain", "draw"} <= set(sizes) or sizes["chain"] * sizes["draw"] < 2:
        raise ValueError(
            f"result's group '{group}' must have the dimensions chain and draw and at least two "
            f"draws, got {dict(sizes)}."
        )
    chains, draws = sizes["chain"], sizes["draw"]
    count = draws if limit is None else min(draws, positive_int("draws", limit, usual=500))
    if draws > count == 1:
        raise ValueError("draws must be at least 2, got 1: a single draw says nothing of a chain.")
    kept = _kept(_weights(result, group, posterior), count)
    values = {}
    for name, shape in _shapes(model).items():
        if name not in posterior:
            raise ValueError(
                f"result's group '{group}' has no variable '{name}', which the model has. Pass the "
                "model that was sampled, and a result from which no variable was dropped."
            )
        taken = _in_own_order("result", posterior[name], model, ("chain", "draw"))
        taken = taken[np.arange(chains)[:, None], kept]
        _check_shape("result", name, taken.shape[2:], shape)
        values[name] = taken.reshape(chains * count, *taken.shape[2:])
    return Draws(posterior, values, np.repeat(np.arange(chains), count), kept.ravel(), count)


def _weights(result: Any, group: str, posterior: xr.Dataset) -> np.ndarray:
    """Return the weights of a schedule's draws, (chains, draws), or ones."""
    shape = posterior.sizes["chain"], posterior.sizes["draw"]
    if isinstance(result, xr.DataTree):
        if not result.children and result.parent is not None:  # dt.posterior
            result, group = result.parent, str(result.name)
        name = group.replace("posterior", "sample_stats")
        has_weights = name != group and name in result.children
        weights = result[name].to_dataset().get("weight") if has_weights else None
        if weights is not None:
            labels = {dim: posterior[dim] for dim in ("chain", "draw")}
            if not all(weights[dim].equals(of_draws) for dim, of_draws in labels.items()):
                # One of the groups was cut
                try:
                    weights = weights.reindex(labels)
                except ValueError as error:
                    raise ValueError(
                        f"result's groups '{group}' and '{name}' have different draws, and no "
                        "labels, or repeated ones, so that it is unknown which draws belong "
                        "together. Cut both alike."
                    ) from error
            array = weights.transpose("chain", "draw", ...).values.reshape(*shape, -1)
            if np.all(array > 0):
                # One of each step method, which says nothing where all draws of a chain have it
                share = array / array.mean(axis=1, keepdims=True)
                varying = np.flatnonzero(np.ptp(share, axis=1).max(axis=0) > _SAME)
                if varying.size and np.ptp(share[..., varying], axis=2).max() > _SAME:
                    raise ValueError(
                        f"result's group '{name}' has other weights of one step method than of "
                        "another. Give both the same schedule."
                    )
                column: np.ndarray = array[..., varying[0] if varying.size else 0]
                return column
    return np.ones(shape)


def _kept(weights: np.ndarray, count: int) -> np.ndarray:
    """Return numbers of draws, (chains, count), evenly spaced in the sum of their weights."""
    chains, draws = weights.shape
    if np.ptp(weights) <= _SAME * weights.max():
        even = np.linspace(0, draws - 1, count).round().astype(int)
        return np.tile(even, (chains, 1))
    middles = (np.arange(count) + 0.5) / count
    ends = np.cumsum(weights, axis=1) / weights.sum(axis=1, keepdims=True)
    return np.stack([np.searchsorted(of, middles).clip(0, draws - 1) for of in ends])


def point_of(name: str, point: Mapping[str, Any], model: Model) -> dict[str, np.ndarray]:
    """Read a point in the variables' own space as a draw, shape (1, ...); refuse what is none."""
    if not isinstance(point, Mapping):
        raise TypeError(f"{name} must be a dict of a value for each variable, got {point!r:.80}.")
    values = {}
    for variable, shape in _shapes(model).items():
        if variable not in point:
            raise ValueError(
                f"{name} has no value for the variable '{variable}'. Give one for each of "
                f"{', '.join(_shapes(model))}, in the variables' own space."
            )
        value = point[variable]
        if isinstance(value, xr.DataArray):
            value = _in_own_order(name, value, model)
        array = np.asarray(value)
        if array.dtype.kind not in "fiub":
            raise TypeError(
                f"{name} must hold numbers, and has {point[variable]!r:.80} for '{variable}'."
            )
        array = array.astype(float)
        _check_shape(name, variable, array.shape, shape)
        values[variable] = array[None]
    return values


def _in_own_order(
    where: str, array: xr.DataArray, model: Model, first: tuple[str, ...] = ()
) -> np.ndarray:
    """Return an array with a variable's axes and labels in the model's order; refuse others.

    The axes ``first`` come before them. Without the model's dims axes are in the order they have.
    """
    dims = model.named_vars_to_dims.get(array.name, ())
    if set(dims) != set(array.dims).difference(first):
        return np.asarray(array.transpose(*first, ...))
    for dim in dims:
        labels, given = model.coords.get(dim), array.indexes.get(dim)
        if labels is None or given is None or len(labels) != len(given):
            continue
        own = xr.Dataset(coords={dim: np.array(labels)}).indexes[dim]
        if not given.equals(own):
            places = given.get_indexer(own) if given.is_unique else np.array([-1])
            if np.any(places < 0):
                raise ValueError(
                    f"{where} has other labels of '{array.name}' along the dim '{dim}' than the "
                    "model. Pass the model that was sampled."
                )
            array = array.isel({dim: places})
    return np.asarray(array.transpose(*first, *dims))


def _group_of(result: Any, group: Any) -> xr.Dataset:
    if isinstance(result, xr.DataTree) and not result.children:
        result = result.to_dataset()  # dt.posterior, as PyMC takes it
    if isinstance(result, xr.Dataset):
        return result
    if not isinstance(result, xr.DataTree):
        raise TypeError(
            "result must be the DataTree that pm.sample returns, or one of its groups, got "
            f"{type(result).__name__}."
        )
    if not isinstance(group, str) or group not in result.children:
        groups = ", ".join(f"'{name}'" for name in result.children) or "none"
        raise ValueError(f"result has no group '{group}'. It has {groups}.")
    return result[group].to_dataset()


def _check_shape(
    where: str, name: str, shape: tuple[int, ...], expected: tuple[int | None, ...]
) -> None:
    if not _fits(expected, shape):
        raise ValueError(
            f"{where} has '{name}' with the shape {shape}, where the model has {expected}. Pass "
            "the model that was sampled."
        )


def _fits(own: tuple[int | None, ...], shape: tuple[int, ...]) -> bool:
    """Whether a shape is a variable's own, of which the data may leave lengths open."""
    return len(own) == len(shape) and all(a in (None, b) for a, b in zip(own, shape, strict=True))


def _shapes(model: Model) -> dict[str, tuple[int | None, ...]]:
    """Return the shapes of the free variables, None where the data decide."""
    return {rv.name: _shape(model, rv.name) for rv in model.free_RVs}


def _shape(model: Model, name: str) -> tuple[int | None, ...]:
    """Return the shape of a variable, with the lengths that dims give: the graph may lack them."""
    own: tuple[int | None, ...] = model[name].type.shape
    lengths = [model.dim_lengths.get(dim) for dim in model.named_vars_to_dims.get(name, ())]
    if not lengths:
        return own
    return tuple(n if x is None else int(evaluate(x)) for n, x in zip(own, lengths, strict=True))


def dims_of(
    model: Model, name: str, shape: tuple[int, ...]
) -> tuple[tuple[str, ...], dict[str, Any]]:
    """Return the dimensions of an array that belongs to a variable, and their coordinates.

    Where its shape is not the variable's own, they are named after unconstrained coordinates.
    """
    own, dims = _shape(model, name), model.named_vars_to_dims.get(name)
    if dims is not None and len(dims) == len(shape) and _fits(own, shape):
        known = [dim for dim in dims if model.coords.get(dim) is not None]
        coords = {dim: np.asarray(model.coords[dim]) for dim in known}
        return tuple(str(dim) for dim in dims), coords
    kind = "dim" if _fits(own, shape) else "unconstrained_dim"
    return tuple(f"{name}_{kind}_{i}" for i in range(len(shape))), {}


def element_labels(model: Model, name: str, shape: tuple[int, ...]) -> list[str]:
    """Name each element of a variable, such as ``beta[age]``."""
    dims, coords = dims_of(model, name, shape)
    if not shape:
        return [name]
    axes = [
        [str(label) for label in coords.get(dim, range(n))]
        for dim, n in zip(dims, shape, strict=True)
    ]
    return [
        f"{name}[{', '.join(axis[i] for axis, i in zip(axes, index, strict=True))}]"
        for index in np.ndindex(*shape)
    ]


def unconstrained(model: Model, draws: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Map draws of the free variables, shape (n, ...), to PyMC's value variables."""
    symbols = {rv: rv.type() for rv in model.free_RVs}
    outputs = []
    for rv in model.free_RVs:
        transform = model.rvs_to_transforms[rv]
        value = rv if transform is None else transform.forward(rv, *rv.owner.inputs)
        outputs.append(pt.as_tensor(value))
    outputs = replace_rvs_by_values(outputs, rvs_to_values={**model.rvs_to_values, **symbols})
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
