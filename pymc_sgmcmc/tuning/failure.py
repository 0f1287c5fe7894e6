"""Failures of tuning steps, as sentences that name the step and a cure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from functools import wraps
from typing import Any

import numpy as np

from pymc_sgmcmc.tuning.surface import TuningError

_BY_HAND = (
    "set step_size, thin and batches by hand, with scale=None and gradient='plain': then nothing "
    "is tuned"
)
NEARER = f"Pass initvals= to pm.sample near the posterior, take tighter priors, or {_BY_HAND}"


def diverged(part: str, step_size: float, *, fixed: bool) -> TuningError:
    """Return the error of a part of tuning that diverged, down to a step size or at a fixed one."""
    where = "at the step size" if fixed else "at every step size down to"
    return TuningError(
        f"{part} diverged {where} {step_size:.3g}. Pass a smaller step_size, initvals= near the "
        f"posterior, tighter priors, or {_BY_HAND}"
    )


def failed_step(step: str, why: str) -> TuningError:
    """Return the error of a tuning step, in a sentence that names the step and a cure."""
    return TuningError(f"{step} failed: {why}. {NEARER}")


def named_step[**P, R](name: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Make a step return finite numbers or raise a TuningError that begins with the step's name."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @wraps(function)
        def guarded(*args: P.args, **kwargs: P.kwargs) -> R:
            try:
                # The result is checked instead: NumPy's warnings name no cure
                with np.errstate(all="ignore"):
                    result = function(*args, **kwargs)
            except (np.linalg.LinAlgError, ArithmeticError) as error:
                raise TuningError(
                    f"{name} failed ({str(error).rstrip('.')}): the curvature of the log density "
                    f"is not finite, or it is 0 in some direction. {NEARER}"
                ) from error
            if not all(np.all(np.isfinite(number)) for number in _numbers(result)):
                raise TuningError(
                    f"{name} ended in numbers that are not finite: the log density has an "
                    f"unbounded gradient or curvature, or no curvature in some direction. {NEARER}"
                )
            return result

        return guarded

    return decorate


def _numbers(result: Any) -> Iterator[np.ndarray | float]:
    """Yield the numbers of a result, also from tuples and dataclasses."""
    if isinstance(result, tuple | list):
        for part in result:
            yield from _numbers(part)
    elif is_dataclass(result):
        for field in fields(result):
            yield from _numbers(getattr(result, field.name))
    elif isinstance(result, np.ndarray | float):
        yield result
