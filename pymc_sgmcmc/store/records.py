"""What is stored of a draw: PyMC's values and the statistics of all step methods, as one record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pymc.initial_point import PointType
from pymc.stats.convergence import SamplerWarning, WarningType
from pymc.step_methods.compound import BlockedStep

__all__ = ["Layout", "Records", "layout_of", "record_type", "values_of"]

Layout = list[tuple[str, str, tuple[int, ...]]]

_VALUE = "value "


def layout_of(methods: Sequence[BlockedStep], start: PointType) -> Layout:
    """Return names, types and shapes of the numbers in a record: of a point, and each method's."""
    layout = [(_VALUE + name, np.asarray(x).dtype.str, np.shape(x)) for name, x in start.items()]
    for k, method in enumerate(methods):
        for name, (kind, shape) in method.stats_dtypes_shapes.items():
            if _is_object(kind):
                continue
            if shape is None or None in shape:
                raise NotImplementedError(
                    f"{type(method).__name__} has a statistic, '{name}', whose shape is not "
                    "known beforehand: it cannot be kept."
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

    Of each warning there is the number of the draw, from 1 on, the index of the step method, the
    name of the statistic, and the warning's kind, message and level.
    """

    def __init__(
        self, methods: Sequence[BlockedStep], layout: Layout, warnings: Sequence[Any]
    ) -> None:
        self.warnings = list(warnings)
        self._said = {(draw, k, name): said for draw, k, name, *said in warnings}
        self._record = np.zeros((), dtype=record_type(layout))
        self._statistics = [
            [(name, _is_object(kind)) for name, (kind, _) in method.stats_dtypes_shapes.items()]
            for method in methods
        ]

    def write(self, number: int, point: PointType, stats: Sequence[Mapping[str, Any]]) -> bytes:
        """Return the record of a draw, and keep its warnings."""
        for name, value in point.items():
            self._record[_VALUE + name] = value
        for k, of_method in enumerate(stats):
            for name, value in of_method.items():
                if isinstance(value, SamplerWarning):
                    said = value.kind.name, value.message, value.level
                    self.warnings.append([number, k, name, *said])
                elif value is not None:
                    self._record[_statistic(k, name)] = value
        return self._record.tobytes()

    def read(self, number: int, record: np.void) -> tuple[PointType, list[dict[str, Any]]]:
        """Return the point and the statistics of a draw."""
        stats = []
        for k, of_method in enumerate(self._statistics):
            found: dict[str, Any] = {}
            for name, is_object in of_method:
                if is_object:
                    found[name] = self._warning(number, k, name)
                else:
                    found[name] = record[_statistic(k, name)]
            stats.append(found)
        return values_of(record), stats

    def _warning(self, number: int, k: int, name: str) -> SamplerWarning | None:
        said = self._said.get((number, k, name))
        return said and SamplerWarning(WarningType[said[0]], *said[1:])


def _statistic(k: int, name: str) -> str:
    return f"statistic {k} {name}"


def _is_object(kind: Any) -> bool:
    return np.dtype(kind) == object
