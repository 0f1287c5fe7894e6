"""Models by name, and what their functions have in common."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import pymc as pm

Builder = Callable[..., pm.Model]
# Writes the variables of a model into its context
Writer = Callable[..., None]


def built(write: Writer, **options: Any) -> Builder:
    """Return what builds the model that a function writes, with these options of ``pm.Model``."""

    @wraps(write)
    def build(*given: Any, **named: Any) -> pm.Model:
        with pm.Model(**options) as model:
            write(*given, **named)
        return model

    return build


def batched(batch_size: int | None, *rows: Any) -> Any:
    """Return two arrays of rows or more as they are, or minibatches of them."""
    return rows if batch_size is None else pm.Minibatch(*rows, batch_size=batch_size)


class Registry(dict[str, Builder]):
    """Functions that build models, by name."""

    def __setitem__(self, name: str, build: Builder) -> None:
        if name in self:
            raise ValueError(f"there is a model {name} already")
        super().__setitem__(name, build)

    def add(self, write: Writer) -> Builder:
        """Register what builds the model that a function writes, under its name: a decorator."""
        self[write.__name__] = build = built(write)
        return build
