"""Dimensions and names of a model's variables, as ArviZ has them."""

from __future__ import annotations

from typing import Any

import numpy as np

from pymc.model import Model

__all__ = ["dims_of", "element_labels"]


def dims_of(
    model: Model, name: str, shape: tuple[int, ...]
) -> tuple[tuple[str, ...], dict[str, Any]]:
    """Return the dimensions of an array that belongs to a variable, and their coordinates.

    Where its shape is not the variable's own, they are named after unconstrained coordinates.
    """
    own = model[name].type.shape
    dims = model.named_vars_to_dims.get(name)
    if dims is not None and len(dims) == len(shape) and _fits(own, shape):
        coords = {dim: np.asarray(model.coords[dim]) for dim in dims if _has(model, dim)}
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


def _fits(own: tuple[int | None, ...], shape: tuple[int, ...]) -> bool:
    return len(own) == len(shape) and all(a in (None, b) for a, b in zip(own, shape, strict=True))


def _has(model: Model, dim: str | None) -> bool:
    return dim in model.coords and model.coords[dim] is not None
