"""The dict that a gallery is, and what its models have in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pymc as pm

Builder = Callable[..., pm.Model]


def batched(batch_size: int | None, *rows: Any) -> Any:
    """Return two arrays of rows or more as they are, or minibatches of them."""
    return rows if batch_size is None else pm.Minibatch(*rows, batch_size=batch_size)


class Registry(dict[str, Builder]):
    """Functions that build models, by name."""

    def add(self, function: Builder) -> Builder:
        """Register a function under its name: a decorator."""
        if function.__name__ in self:
            raise ValueError(f"the gallery has a model {function.__name__} already")
        self[function.__name__] = function
        return function
