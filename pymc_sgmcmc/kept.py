"""What of a chain's state lives in its runner, and outlives it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, overload

import numpy as np

from pymc_sgmcmc.runner import Runner

__all__ = ["Kept", "arrays"]


class Kept[T]:
    """An attribute of a step: the runner's where there is one, else what is stored.

    Setting it stores it and drops the runner: the next draw goes on from there.

    Parameters
    ----------
    of_runner : callable
        Reads it.
    doc : str
        What it is.
    """

    def __init__(self, of_runner: Callable[[Runner], T], doc: str) -> None:
        self._of_runner = of_runner
        self.__doc__ = doc

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, step: None, owner: type) -> Kept[T]: ...
    @overload
    def __get__(self, step: Any, owner: type) -> T: ...
    def __get__(self, step: Any, owner: type) -> T | Kept[T]:
        if step is None:
            return self
        if step._runner is not None:
            return self._of_runner(step._runner)
        stored: T = step._stored[self._name]
        return stored

    def __set__(self, step: Any, value: T) -> None:
        step._store(self._name, value)


def arrays(parts: Sequence[Any]) -> list[np.ndarray]:
    """Return the parts as arrays of NumPy."""
    return [np.asarray(part) for part in parts]
