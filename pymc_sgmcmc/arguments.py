"""Checks of a step method's arguments: an error names the argument, the fault and the cure."""

from __future__ import annotations

import math

from collections.abc import Collection, Mapping, Sequence
from importlib.util import find_spec
from typing import Any

import numpy as np

from pymc.logprob.transforms import Transform
from pymc.model import Model
from pymc.util import get_value_vars_from_user_vars
from pymc.vartypes import continuous_types
from pytensor.compile.mode import get_mode
from pytensor.link.jax.linker import JAXLinker
from pytensor.link.numba.linker import NumbaLinker
from pytensor.tensor.type import TensorType
from pytensor.tensor.variable import TensorVariable

__all__ = [
    "checked_backend",
    "checked_scale",
    "checked_transforms",
    "one_of",
    "positive",
    "positive_int",
    "sampled_values",
]

TRANSFORM_CHOICES = ("lipschitz", "model", "mirror")


def sampled_values(model: Model, variables: Any) -> list[TensorVariable]:
    """Value variables of what the user wants to sample; by default all continuous ones."""
    for rv in model.basic_RVs:
        if not isinstance(rv.type, TensorType):
            raise NotImplementedError(
                f"The variable '{rv.name}' is a pymc.dims variable, which cannot be sampled here "
                "yet. Write it with pymc's own distributions."
            )
    if variables is None:
        values = list(model.continuous_value_vars)
        if not values:
            raise ValueError("The model has no continuous free variable to sample.")
        return values
    if not isinstance(variables, Sequence):
        variables = [variables]
    variables = [_by_name(model, v) if isinstance(v, str) else v for v in variables]
    values = get_value_vars_from_user_vars(variables, model)
    for value in values:
        if value.dtype not in continuous_types:
            name = model.values_to_rvs[value].name
            raise ValueError(
                f"The variable '{name}' is discrete and has no gradient. Leave it out of vars "
                "and give it a step method of its own: "
                "step=[sg.CoRVSGLD([...]), pm.Metropolis([...])]."
            )
    if len(set(values)) < len(values):
        raise ValueError("vars names a variable twice; name each once.")
    return values


def _by_name(model: Model, name: str) -> Any:
    if name not in model.named_vars:
        raise ValueError(f"vars names '{name}', which is not a variable of the model.")
    return model[name]


def positive(name: str, value: Any) -> float:
    """Check for a positive, finite number."""
    if not _is_number(value) or not math.isfinite(value) or value <= 0:
        raise ValueError(f"{name} must be a positive, finite number, got {value!r}.")
    return float(value)


def positive_int(name: str, value: Any) -> int:
    """Check for an integer of at least 1."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise ValueError(f"{name} must be an integer of at least 1, got {value!r}.")
    return int(value)


def one_of(name: str, value: Any, choices: Collection[str]) -> str:
    """Check for one of a few words."""
    if not isinstance(value, str) or value not in choices:
        listed = ", ".join(repr(choice) for choice in choices)
        raise ValueError(f"{name} must be one of {listed}, got {value!r}.")
    return value


def checked_transforms(transforms: Any, names: list[str]) -> str | dict[str, Transform | None]:
    """Check the choice of coordinates."""
    if isinstance(transforms, str):
        return one_of("transforms", transforms, TRANSFORM_CHOICES)
    if not isinstance(transforms, Mapping):
        listed = ", ".join(repr(choice) for choice in TRANSFORM_CHOICES)
        raise TypeError(
            f"transforms must be one of {listed} or a dict of variable names to transforms, got "
            f"{transforms!r}."
        )
    _check_names("transforms", transforms, names)
    for name, transform in transforms.items():
        if transform is not None and not isinstance(transform, Transform):
            raise TypeError(
                f"transforms['{name}'] must be a PyMC Transform or None, got {transform!r}."
            )
    return dict(transforms)


def checked_scale(scale: Any, names: list[str]) -> dict[str, np.ndarray]:
    """Check the whitening scales."""
    if scale is None:
        return {}
    if not isinstance(scale, Mapping):
        raise TypeError(
            "scale must be None or a dict of variable names to positive arrays, got "
            f"{type(scale).__name__}."
        )
    _check_names("scale", scale, names)
    checked = {}
    for name, value in scale.items():
        array = np.asarray(value)
        if array.dtype.kind not in "fiu" or not np.all(np.isfinite(array)) or np.any(array <= 0):
            raise ValueError(
                f"scale['{name}'] must hold positive, finite numbers: about one posterior sd for "
                "each element."
            )
        checked[name] = array
    return checked


def checked_backend(backend: Any, compile_kwargs: Any) -> tuple[str, dict[str, Any]]:
    """Choose the backend from the arguments; "auto" stays only where JAX is installed."""
    one_of("backend", backend, ("auto", "jax", "numba"))
    if compile_kwargs is not None and not isinstance(compile_kwargs, Mapping):
        raise TypeError(f"compile_kwargs must be a dict, got {compile_kwargs!r}.")
    kwargs = dict(compile_kwargs or {})
    if kwargs.get("mode") is not None:
        linker = get_mode(kwargs["mode"]).linker
        kinds = {"jax": JAXLinker, "numba": NumbaLinker}
        found = [name for name, kind in kinds.items() if isinstance(linker, kind)]
        if not found or backend not in ("auto", found[0]):
            raise ValueError(
                "compile_kwargs['mode'] must be a JAX or numba mode that agrees with backend="
                f"{backend!r}; pass backend='jax' or backend='numba' alone."
            )
        backend = found[0]
    if find_spec("jax") is None:
        if backend == "jax":
            raise ImportError(
                "backend='jax' needs JAX: pip install 'pymc-sgmcmc[jax]', or backend='numba'."
            )
        backend = "numba"
    return backend, kwargs


def _check_names(argument: str, mapping: Mapping[str, Any], names: list[str]) -> None:
    for name in mapping:
        if name not in names:
            raise ValueError(
                f"{argument} names '{name}', which this step does not sample; it samples "
                f"{', '.join(names)}."
            )


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.number) and not isinstance(value, bool)
