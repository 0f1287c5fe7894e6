"""Sampling states as arrays and JSON, and back: no file of a store can run code.

A tree of lists, dicts, dataclasses, generators and arrays becomes one ``.npz``: the arrays, and
the tree as text that refers to them. Dataclasses are named by their class, which must be one of
those that this process knows: the state of a chain, and PyMC's sampling states.
"""

from __future__ import annotations

import io
import json

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from pymc.step_methods.state import DataClassState
from pymc.util import RandomGeneratorState, get_state_from_generator, random_generator_from_state

from pymc_sgmcmc.chain.memory import Memory, Place
from pymc_sgmcmc.chain.monitor import Monitor
from pymc_sgmcmc.chain.state import ChainState
from pymc_sgmcmc.kernel.settings import Settings

__all__ = ["packed", "unpacked"]

_OURS = ChainState, Settings, Monitor, Memory, Place
_GENERATORS = "PCG64", "PCG64DXSM", "SFC64", "Philox", "MT19937"


def packed(tree: Any) -> bytes:
    """Return the tree as the bytes of an ``.npz``.

    Raises
    ------
    TypeError
        If something in it is no number, text, array, generator or known dataclass.
    """
    arrays: list[np.ndarray] = []
    text = json.dumps(_encoded(tree, arrays))
    file = io.BytesIO()
    members = {str(k): array for k, array in enumerate(arrays)}
    np.savez(file, tree=np.frombuffer(text.encode(), dtype=np.uint8), **members)  # type: ignore[arg-type]
    return file.getvalue()


def unpacked(data: bytes) -> Any:
    """Return the tree that :func:`packed` was given: arrays with their bits and types."""
    with np.load(io.BytesIO(data), allow_pickle=False) as file:
        tree = json.loads(file["tree"].tobytes().decode())
        return _decoded(tree, lambda k: file[str(k)])


def _encoded(value: Any, arrays: list[np.ndarray]) -> Any:
    def inside(x: Any) -> Any:
        return _encoded(x, arrays)

    def array(x: Any) -> int:
        if x.dtype.hasobject:
            raise TypeError(f"An array of {x.dtype} cannot be stored.")
        arrays.append(x)
        return len(arrays) - 1

    if isinstance(value, np.generic):
        return {"scalar": array(np.asarray(value))}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list):
        return [inside(x) for x in value]
    if isinstance(value, RandomGeneratorState):
        return {"generator state": [inside(x) for x in value]}
    if isinstance(value, np.random.Generator):
        return {"generator": [inside(x) for x in get_state_from_generator(value)]}
    if type(value) is tuple:
        return {"tuple": [inside(x) for x in value]}
    if isinstance(value, dict):
        return {"dict": [[inside(k), inside(x)] for k, x in value.items()]}
    if is_dataclass(value) and (name := _name(type(value))) in _known():
        found = {f.name: inside(getattr(value, f.name)) for f in fields(value)}
        return {"of": name, "fields": found}
    if hasattr(value, "__array__"):
        return {"array": array(np.asarray(value))}
    raise TypeError(f"A value of type {type(value).__name__} cannot be stored.")


def _decoded(tree: Any, array: Any) -> Any:
    def inside(x: Any) -> Any:
        return _decoded(x, array)

    if isinstance(tree, list):
        return [inside(x) for x in tree]
    if not isinstance(tree, dict):
        return tree
    match tree:
        case {"scalar": k}:
            return array(k)[()]
        case {"array": k}:
            return array(k)
        case {"tuple": parts}:
            return tuple(inside(x) for x in parts)
        case {"dict": pairs}:
            return {inside(k): inside(x) for k, x in pairs}
        case {"generator state": parts}:
            return _generator_state(inside(parts))
        case {"generator": parts}:
            return random_generator_from_state(_generator_state(inside(parts)))
        case {"of": name, "fields": found}:
            return _known()[name](**{key: inside(x) for key, x in found.items()})
    raise ValueError(f"The store has an entry that is not known: {sorted(tree)}.")


def _generator_state(parts: list[Any]) -> RandomGeneratorState:
    state = RandomGeneratorState(*parts)
    if state.bit_generator_state["bit_generator"] not in _GENERATORS:
        raise ValueError("The store has a random generator that is not known.")
    return state


def _known() -> dict[str, type]:
    """Return the dataclasses that a sampling state may hold, by name."""

    def below(cls: type) -> Iterator[type]:
        yield cls
        for further in cls.__subclasses__():
            yield from below(further)

    return {_name(cls): cls for cls in (*_OURS, *below(DataClassState))}


def _name(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"
