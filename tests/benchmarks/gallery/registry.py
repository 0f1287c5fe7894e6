"""The dict that a gallery is."""

from __future__ import annotations

from collections.abc import Callable

import pymc as pm

Builder = Callable[..., pm.Model]


class Registry(dict[str, Builder]):
    """Functions that build models, by name."""

    def add(self, function: Builder) -> Builder:
        """Register a function under its name: a decorator."""
        if function.__name__ in self:
            raise ValueError(f"the gallery has a model {function.__name__} already")
        self[function.__name__] = function
        return function
