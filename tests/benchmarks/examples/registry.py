"""Models by name, each with the notebook of PyMC's example gallery that has it."""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature

import pymc as pm

Builder = Callable[..., pm.Model]


class Examples(dict[str, Builder]):
    """Functions that build models, by name; ``notebook`` has where each is from."""

    def __init__(self) -> None:
        super().__init__()
        self.notebook: dict[str, str] = {}

    def of(self, notebook: str) -> Callable[[Builder], Builder]:
        """Return a decorator that registers a model of this notebook."""

        def add(function: Builder) -> Builder:
            name = function.__name__
            if name in self:
                raise ValueError(f"there is an example {name} already")
            self[name] = function
            self.notebook[name] = notebook
            return function

        return add

    def all_rows(self, name: str) -> pm.Model:
        """Return a model on all its rows: builders of minibatches take None for their size."""
        builder = self[name]
        return builder(None) if signature(builder).parameters else builder()


EXAMPLES = Examples()
