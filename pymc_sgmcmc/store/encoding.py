"""Sampling states as arrays and JSON, and back: no file of a store can run code.

A tree of lists, dicts, dataclasses, generators and arrays becomes one ``.npz``: the arrays, and
the tree as text that refers to them. Dataclasses are named by their class, which must be one of
those that this process knows: the state of a chain, and PyMC's sampling states.
"""

from __future__ import annotations

import io
import json

from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from pymc.step_methods.state import DataClassState
from pymc.util import RandomGeneratorState, get_state_from_generator, random_generator_from_state

from pymc_sgmcmc.chain.memory import Memory, Place
from pymc_sgmcmc.chain.monitor import Monitor
from pymc_sgmcmc.chain.state import ChainState
from pymc_sgmcmc.kernel.settings import Settings

__all__ = ["made", "packed", "unpacked"]

_OURS = ChainState, Settings, Monitor, Memory, Place
_GENERATORS = "PCG64", "PCG64DXSM", "SFC64", "Philox", "MT19937"


def packed(tree: Any) -> bytes:
    """Return the tree as the bytes of an ``.npz``, or raise for what is none of these."""
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

    found: Any
    if isinstance(value, np.generic):
        found = {"scalar": array(np.asarray(value))}
    elif value is None or isinstance(value, bool | int | float | str):
        found = value
    elif isinstance(value, list):
        found = [inside(x) for x in value]
    elif isinstance(value, RandomGeneratorState):
        found = {"generator state": [inside(x) for x in value]}
    elif isinstance(value, np.random.Generator):
        found = {"generator": [inside(x) for x in get_state_from_generator(value)]}
    elif type(value) is tuple:
        found = {"tuple": [inside(x) for x in value]}
    elif isinstance(value, dict):
        found = {"dict": [[inside(k), inside(x)] for k, x in value.items()]}
    elif is_dataclass(value) and (name := _name(type(value))) in _known():
        own = {f.name: inside(getattr(value, f.name)) for f in fields(value)}
        found = {"of": name, "fields": own}
    elif hasattr(value, "__array__"):
        found = {"array": array(np.asarray(value))}
    else:
        raise TypeError(f"A value of type {type(value).__name__} cannot be stored.")
    return found


def _decoded(tree: Any, array: Callable[[int], np.ndarray]) -> Any:
    def inside(x: Any) -> Any:
        return _decoded(x, array)

    found: Any = tree
    match tree:
        case list():
            found = [inside(x) for x in tree]
        case {"scalar": k}:
            found = array(k)[()]
        case {"array": k}:
            found = array(k)
        case {"tuple": parts}:
            found = tuple(inside(x) for x in parts)
        case {"dict": pairs}:
            found = {inside(k): inside(x) for k, x in pairs}
        case {"generator state": parts}:
            found = _generator_state(inside(parts))
        case {"generator": parts}:
            found = random_generator_from_state(_generator_state(inside(parts)))
        case {"of": name, "fields": own}:
            found = made(_known()[name], {key: inside(x) for key, x in own.items()})
    return found


def made(cls: type, own: dict[str, Any]) -> Any:
    """Return a dataclass of its fields, of which none is left out."""
    if differ := own.keys() ^ {f.name for f in fields(cls)}:
        raise ValueError(f"{cls.__name__} has other fields, {', '.join(map(str, differ))}")
    return cls(**own)


def _generator_state(parts: list[Any]) -> RandomGeneratorState:
    state = RandomGeneratorState(*parts)
    if state.bit_generator_state["bit_generator"] not in _GENERATORS:
        raise ValueError("The store has a random generator that is not known.")
    return state


def _known() -> dict[str, type]:
    """Return the dataclasses that a sampling state may hold, by name."""

    def below(cls: type) -> Iterator[type]:
        yield cls
        subclasses: list[type] = cls.__subclasses__()
        for further in subclasses:
            yield from below(further)

    return {_name(cls): cls for cls in (*_OURS, *below(DataClassState))}


def _name(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"
