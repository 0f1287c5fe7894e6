"""How a step of tuning fails: in a sentence that names the step and a cure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from functools import wraps
from typing import Any

import numpy as np

from pymc_sgmcmc.tuning.surface import TuningError

__all__ = ["BY_HAND", "NEARER", "named_step"]

BY_HAND = (
    "set step_size, thin and batches by hand, with scale=None and gradient='plain': then nothing "
    "is tuned"
)
NEARER = f"Pass initvals= to pm.sample near the posterior, take tighter priors, or {BY_HAND}"


def named_step[**P, R](name: str, cure: str = NEARER) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Let a step end in finite numbers or in a :class:`TuningError`, whatever it was given.

    Parameters
    ----------
    name : str
        What the step does, as the subject of a sentence.
    cure : str
        What the user can do about it, without a full stop.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @wraps(function)
        def guarded(*args: P.args, **kwargs: P.kwargs) -> R:
            try:
                # The result is what is looked at: a warning of NumPy names no cure
                with np.errstate(all="ignore"):
                    result = function(*args, **kwargs)
            except (np.linalg.LinAlgError, ArithmeticError) as error:
                raise TuningError(
                    f"{name} broke down ({str(error).rstrip('.')}): the curvature is not finite, "
                    f"or there is none in some direction. {cure}"
                ) from error
            if not all(np.all(np.isfinite(number)) for number in _numbers(result)):
                raise TuningError(
                    f"{name} ended in numbers that are not finite: the curvature or the gradient "
                    f"is unbounded, or there is none in some direction. {cure}"
                )
            return result

        return guarded

    return decorate


def _numbers(result: Any) -> Iterator[np.ndarray | float]:
    """Yield the numbers of a result, of tuples and dataclasses too."""
    if isinstance(result, tuple | list):
        for part in result:
            yield from _numbers(part)
    elif is_dataclass(result):
        for field in fields(result):
            yield from _numbers(getattr(result, field.name))
    elif isinstance(result, np.ndarray | float):
        yield result
