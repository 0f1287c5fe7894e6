"""Models by name, each with the notebook of PyMC's example gallery that has it."""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from typing import Any

import pymc as pm

from registry import Builder, Registry, Writer, built


class Examples(Registry):
    """Functions that build models, by name; ``notebook`` has where each is from."""

    def __init__(self) -> None:
        super().__init__()
        self.notebook: dict[str, str] = {}

    def of(self, notebook: str, **options: Any) -> Callable[[Writer], Builder]:
        """Return a decorator that registers a model of this notebook, with options of its own."""

        def register(write: Writer) -> Builder:
            self[write.__name__] = build = built(write, **options)
            self.notebook[write.__name__] = notebook
            return build

        return register

    def all_rows(self, name: str) -> pm.Model:
        """Return a model on all its rows: builders of minibatches take None for their size."""
        builder = self[name]
        return builder(None) if signature(builder).parameters else builder()


EXAMPLES = Examples()
