"""What a compiled function takes and returns, in named groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np


class Groups(dict[str, list[Any]]):
    """Symbols or arrays by name, in the order in which a compiled function has them."""

    @property
    def flat(self) -> list[Any]:
        """All of them, group after group."""
        return [x for group in self.values() for x in group]

    def like(self, flat: Sequence[Any]) -> Groups:
        """Return a flat list in these groups."""
        rest = iter(flat)
        return Groups({name: list(islice(rest, len(own))) for name, own in self.items()})

    def arranged(self, arrays: Mapping[str, Sequence[Any]]) -> list[Any]:
        """Return the arrays for all of these symbols in their order."""
        sizes = {name: len(own) for name, own in self.items()}
        if (given := {name: len(own) for name, own in arrays.items()}) != sizes:
            raise ValueError(f"A compiled function takes arrays in groups {sizes}, got {given}.")
        return [x for name in self for x in arrays[name]]

    def check(self, arrays: Mapping[str, Sequence[Any]]) -> None:
        """Raise ValueError where an array has not the shape of its symbol."""
        for name, own in arrays.items():
            for symbol, x in zip(self[name], own, strict=True):
                shape, given = symbol.type.shape, np.shape(x)
                if len(shape) != len(given) or any(
                    n not in (None, m) for n, m in zip(shape, given, strict=True)
                ):
                    raise ValueError(
                        f"'{symbol.name}' of the inputs '{name}' has shape {shape}, got {given}."
                    )
