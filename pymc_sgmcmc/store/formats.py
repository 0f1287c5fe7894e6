"""What the files of a chain hold: its beginning, its states, and a record for each draw.

A beginning and a state are trees of lists, dicts, dataclasses, generators and arrays. A tree
becomes one ``.npz``: the arrays, and the rest as JSON that refers to them. No file can run code:
dataclasses are named, and only those of sampling states are known. A record has PyMC's values and
the statistics of all step methods, one number after the other.
"""

from __future__ import annotations

import io
import json

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

import numpy as np

from pymc.initial_point import PointType
from pymc.stats.convergence import SamplerWarning, WarningType
from pymc.step_methods.arraystep import PopulationArrayStepShared
from pymc.step_methods.compound import BlockedStep
from pymc.step_methods.state import DataClassState
from pymc.util import RandomGeneratorState, get_state_from_generator, random_generator_from_state

from pymc_sgmcmc.chain.memory import Memory, Place
from pymc_sgmcmc.chain.monitor import Monitor
from pymc_sgmcmc.chain.state import ChainState
from pymc_sgmcmc.kernel.settings import Settings

# Raise it when earlier files can no longer be read or compared
SCHEMA = 6

Layout = list[tuple[str, str, tuple[int, ...]]]
"""Names, types and shapes of the numbers in a record."""


@dataclass
class Begin:
    """How a chain began."""

    fingerprint: dict[str, str]  # what the run is of
    rng: RandomGeneratorState  # with its seed, before the first draw
    tune: int
    start: dict[str, np.ndarray]
    after: str | None  # the run whose end the start is; None for one that is to be jittered
    layout: Layout


@dataclass
class Saved:
    """A chain after some draws."""

    draws: int = 0
    checksum: int = 0  # CRC-32 of their records
    begin: str = ""  # digest of the chain's beginning
    warnings: list[Any] = field(default_factory=list)  # as of Records
    state: Any = None  # the sampling state; None once it is in use


# ----------------------------------------------------------------------------- trees

_OURS = ChainState, Settings, Monitor, Memory, Place
_GENERATORS = "PCG64", "PCG64DXSM", "SFC64", "Philox", "MT19937"


def packed(tree: Any) -> bytes:
    """Return the tree as the bytes of an ``.npz``, or raise for what is none of these."""
    arrays: dict[str, np.ndarray] = {}

    def array(x: Any) -> str:
        if x.dtype.hasobject:
            raise TypeError(f"An array of {x.dtype} cannot be stored.")
        arrays[key := str(len(arrays))] = x
        return key

    def encoded(value: Any) -> Any:
        known = value is None or isinstance(value, bool | int | float | str)
        if isinstance(value, np.generic):
            value = {"scalar": array(np.asarray(value))}
        elif isinstance(value, list):
            value = [encoded(x) for x in value]
        elif isinstance(value, RandomGeneratorState):
            value = {"generator state": encoded(list(value))}
        elif isinstance(value, np.random.Generator):
            value = {"generator": encoded(get_state_from_generator(value))}
        elif type(value) is tuple:
            value = {"tuple": encoded(list(value))}
        elif isinstance(value, dict):
            value = {"dict": [[encoded(k), encoded(x)] for k, x in value.items()]}
        elif is_dataclass(value) and (name := _name(type(value))) in _dataclasses():
            own = {f.name: encoded(getattr(value, f.name)) for f in fields(value)}
            value = {"of": name, "fields": own}
        elif hasattr(value, "__array__"):
            value = {"array": array(np.asarray(value))}
        elif not known:
            raise TypeError(f"A value of type {type(value).__name__} cannot be stored.")
        return value

    text = json.dumps(encoded(tree))
    file = io.BytesIO()
    np.savez(file, tree=np.frombuffer(text.encode(), dtype=np.uint8), **arrays)  # type: ignore[arg-type]
    return file.getvalue()


def unpacked(data: bytes) -> Any:
    """Return the tree that :func:`packed` was given: arrays with their bits and types."""
    with np.load(io.BytesIO(data), allow_pickle=False) as file:

        def decoded(tree: Any) -> Any:
            match tree:
                case list():
                    tree = [decoded(x) for x in tree]
                case {"scalar": key}:
                    tree = file[key][()]
                case {"array": key}:
                    tree = file[key]
                case {"tuple": parts}:
                    tree = tuple(decoded(parts))
                case {"dict": pairs}:
                    tree = dict(decoded(pairs))
                case {"generator state": parts}:
                    tree = _generator_state(decoded(parts))
                case {"generator": state}:
                    tree = random_generator_from_state(decoded(state))
                case {"of": name, "fields": own}:
                    tree = made(_dataclasses()[name], {k: decoded(x) for k, x in own.items()})
            return tree

        return decoded(json.loads(file["tree"].tobytes().decode()))


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


def _dataclasses() -> dict[str, type]:
    """Return the dataclasses that a sampling state may hold, by name."""

    def below(cls: type) -> Iterator[type]:
        yield cls
        subclasses: list[type] = cls.__subclasses__()
        for further in subclasses:
            yield from below(further)

    return {_name(cls): cls for cls in (*_OURS, *below(DataClassState))}


def _name(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


# ----------------------------------------------------------------------------- records

_VALUE = "value "


def layout_of(methods: Sequence[BlockedStep], start: PointType) -> Layout:
    """Return the layout of a record: of a point, and of each method's statistics."""
    layout = [(_VALUE + name, np.asarray(x).dtype.str, np.shape(x)) for name, x in start.items()]
    for k, method in enumerate(methods):
        for name, (kind, shape) in method.stats_dtypes_shapes.items():
            if kind is SamplerWarning:
                continue
            if np.dtype(kind).kind not in "biuf" or shape is None or None in shape:
                raise NotImplementedError(
                    f"{type(method).__name__} has a statistic, '{name}', that is no number, or "
                    "whose shape is not known beforehand: it cannot be kept."
                )
            layout.append((_statistic(k, name), np.dtype(kind).str, tuple(shape)))
    return layout


def record_type(layout: Layout) -> np.dtype:
    """Return the type of a record."""
    return np.dtype([(name, kind, tuple(shape)) for name, kind, shape in layout])


def values_of(record: np.void) -> dict[str, np.ndarray]:
    """Return PyMC's values in a record."""
    names = [name for name in record.dtype.names or () if name.startswith(_VALUE)]
    return {name.removeprefix(_VALUE): np.array(record[name]) for name in names}


class Records:
    """Draws of a chain to records and back.

    A warning is kept as the number of its draw, from 1 on, the index of the step method, the name
    of the statistic, and the warning's kind, message and level.
    """

    def __init__(
        self, methods: Sequence[BlockedStep], layout: Layout, warnings: Sequence[Any]
    ) -> None:
        self.warnings = list(warnings)
        self._warnings = {(draw, k, name): content for draw, k, name, *content in warnings}
        self._type = record_type(layout)
        self._declared = [method.stats_dtypes_shapes for method in methods]
        self._floats = [
            {name for name, (kind, _) in declared.items() if np.dtype(kind).kind == "f"}
            for declared in self._declared
        ]

    def write(self, number: int, point: PointType, stats: Sequence[Mapping[str, Any]]) -> bytes:
        """Return the record of a draw, and keep its warnings."""
        # What a step leaves out of a draw is 0, as in PyMC's traces
        record = np.zeros((), dtype=self._type)
        for name, value in point.items():
            record[_VALUE + name] = value
        for k, of_method in enumerate(stats):
            for name, value in of_method.items():
                if isinstance(value, SamplerWarning):
                    content = value.kind.name, value.message, value.level
                    self.warnings.append([number, k, name, *content])
                elif value is not None:
                    record[_statistic(k, name)] = value
                elif name in self._floats[k]:
                    record[_statistic(k, name)] = np.nan
        return record.tobytes()

    def read(self, number: int, record: np.void) -> tuple[PointType, list[dict[str, Any]]]:
        """Return the point and the statistics of a draw."""
        stats = [
            {
                name: self._warning(number, k, name)
                if kind is SamplerWarning
                else record[_statistic(k, name)]
                for name, (kind, _) in declared.items()
            }
            for k, declared in enumerate(self._declared)
        ]
        return values_of(record), stats

    def _warning(self, number: int, k: int, name: str) -> SamplerWarning | None:
        content = self._warnings.get((number, k, name))
        return content and SamplerWarning(WarningType[content[0]], *content[1:])


def _statistic(k: int, name: str) -> str:
    return f"statistic {k} {name}"


def refuse_unkept(methods: Sequence[BlockedStep]) -> None:
    """Refuse step methods whose state is not that of one chain, or not known."""
    for method in methods:
        if isinstance(method, PopulationArrayStepShared):
            raise NotImplementedError("Step methods of a population of chains cannot be kept.")
        if method._state_class is DataClassState:
            raise NotImplementedError(
                f"{type(method).__name__} has no state that can be kept. Give it a _state_class, a "
                "dataclass_state below PyMC's StepMethodState, as PyMC's own step methods have."
            )
