"""The draws of a result of ``pm.sample``, as arrays that fit a model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr

from pymc.model import Model

from pymc_sgmcmc.checks import a_model, positive_int
from pymc_sgmcmc.model.tensor_model import in_tensors

__all__ = ["Draws", "checked_model", "draws_of", "point_of"]


@dataclass(frozen=True)
class Draws:
    """Evenly spaced draws of a result.

    Attributes
    ----------
    posterior : xarray.Dataset
        The whole group.
    values : dict
        For each free variable's name the chosen draws, shape ``(chains * draws, *shape)``.
    chain, draw : ndarray
        Their numbers in the group, by position, shape ``(chains * draws,)``.
    chains : int
        How many chains.
    """

    posterior: xr.Dataset
    values: dict[str, np.ndarray]
    chain: np.ndarray
    draw: np.ndarray
    chains: int

    @property
    def each(self) -> int:
        """Draws of each chain."""
        return len(self.chain) // self.chains


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
    kept = np.linspace(0, draws - 1, count).round().astype(int)
    values = {}
    for name, shape in _shapes(model).items():
        array = _variable(posterior, name, f"result's group '{group}'")
        taken = array.transpose("chain", "draw", ...).values[:, kept]
        _check_shape(name, taken.shape[2:], shape)
        values[name] = taken.reshape(chains * count, *taken.shape[2:])
    return Draws(
        posterior, values, np.repeat(np.arange(chains), count), np.tile(kept, chains), chains
    )


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
        array = np.asarray(point[variable])
        if array.dtype.kind not in "fiub":
            raise TypeError(
                f"{name} must hold numbers, and has {point[variable]!r:.80} for '{variable}'."
            )
        array = array.astype(float)
        _check_shape(variable, array.shape, shape, where=name)
        values[variable] = array[None]
    return values


def _group_of(result: Any, group: Any) -> xr.Dataset:
    if isinstance(result, xr.Dataset):
        return result
    if not isinstance(result, xr.DataTree):
        raise TypeError(
            "result must be the DataTree that pm.sample returns, or one of its groups, got "
            f"{type(result).__name__}."
        )
    if not isinstance(group, str) or group not in result.children:
        found = ", ".join(f"'{name}'" for name in result.children) or "none"
        raise ValueError(f"result has no group '{group}'. It has {found}.")
    return result[group].to_dataset()


def _variable(posterior: xr.Dataset, name: str, where: str) -> xr.DataArray:
    if name not in posterior:
        raise ValueError(
            f"{where} has no variable '{name}', which the model has. Pass the model that was "
            "sampled, and a result from which no variable was dropped."
        )
    return posterior[name]


def _check_shape(
    name: str, found: tuple[int, ...], expected: tuple[int | None, ...], where: str = "result"
) -> None:
    fits = len(found) == len(expected) and all(
        b in (None, a) for a, b in zip(found, expected, strict=True)
    )
    if not fits:
        raise ValueError(
            f"{where} has '{name}' with the shape {found}, where the model has {expected}. Pass "
            "the model that was sampled."
        )


def _shapes(model: Model) -> dict[str, tuple[int | None, ...]]:
    """Return the shapes of the free variables, None where the data decide."""
    return {rv.name: rv.type.shape for rv in model.free_RVs}
