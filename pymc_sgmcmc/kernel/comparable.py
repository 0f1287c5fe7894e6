"""Equality of dataclasses that hold arrays: PyMC compares sampling states with ``==``."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from pymc.step_methods.state import equal_dataclass_values

__all__ = ["Comparable"]


class Comparable:
    """Mixin for dataclasses that are made with ``eq=False``."""

    def __eq__(self, other: Any) -> bool:
        return type(other) is type(self) and all(
            equal_dataclass_values(getattr(self, f.name), getattr(other, f.name))
            for f in fields(self)  # type: ignore[arg-type]
        )

    __hash__ = None  # type: ignore[assignment]
