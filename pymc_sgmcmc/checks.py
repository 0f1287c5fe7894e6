"""Checks of arguments: an error names the argument, what is wrong with it and what to pass."""

from __future__ import annotations

import math
import os

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from functools import partial, wraps
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np

from pymc.model import Model, modelcontext

_LARGEST = 2**31 - 1


def with_checks[**P, R](
    **checks: Callable[[str, Any], Any],
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Check arguments of a function by their names; a default needs no check."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        arguments = signature(function)

        @wraps(function)
        def checked(*args: P.args, **kwargs: P.kwargs) -> R:
            for name, value in arguments.bind(*args, **kwargs).arguments.items():
                if name in checks and value is not arguments.parameters[name].default:
                    checks[name](name, value)
            return function(*args, **kwargs)

        return checked

    return decorate


def by_name(argument: str, mapping: Mapping[Any, Any]) -> dict[str, Any]:
    """Return a dict by the names of its keys, which may be variables."""
    for key in mapping:
        if not isinstance(getattr(key, "name", key), str):
            raise TypeError(
                f"{argument} must have variables, or their names, as keys, got {key!r:.80}."
            )
    return {getattr(key, "name", key): value for key, value in mapping.items()}


def without_elements(name: str | None) -> str:
    """Return the message for variables none of which has an element, such as the one named."""
    return (
        f"The variable '{name}' has no elements, nor has any other that would be sampled. Give one "
        "a shape without 0."
    )


def name_of(function: Any) -> str:
    """Return how errors call a function, a class or a callable object."""
    inner = function.func if isinstance(function, partial) else function
    return str(getattr(inner, "__qualname__", None) or type(inner).__qualname__)


def a_model(value: Any) -> Model:
    """Check for a model; None is the one in context."""
    # PyMC's frozen models are no subclass, but of the same metaclass
    if value is not None and not isinstance(type(value), type(Model)):
        raise TypeError(
            f"model must be a pm.Model, got {value!r:.80}. Leave it out inside of 'with model:'."
        )
    try:
        return modelcontext(value)
    except TypeError:
        raise TypeError(
            "model is missing: pass a pm.Model, or call inside 'with model:'."
        ) from None


def a_function(name: str, value: Any) -> None:
    """Check for something that can be called."""
    if not callable(value):
        raise TypeError(f"{name} must be a function, got {value!r:.80}.")


def of_class(kind: type) -> Callable[[str, Any], None]:
    """Return a check for an object of a class."""

    def check(name: str, value: Any) -> None:
        if not isinstance(value, kind):
            raise TypeError(f"{name} must be of the class {kind.__name__}, got {value!r:.80}.")

    return check


def a_generator(name: str, seed: Any) -> np.random.Generator:
    """Return the generator that a seed stands for."""
    with suppress(TypeError, ValueError):
        generator = np.random.default_rng(seed)
        # That of a RandomState makes no further ones
        if hasattr(generator.bit_generator.seed_seq, "spawn"):
            return generator
    raise TypeError(
        f"{name} must be None, an integer of at least 0, a list of them or a "
        f"numpy.random.Generator, got {seed!r:.80}."
    )


def a_path(name: str, value: Any, usual: str) -> Path:
    """Check for a path that there could be; ``usual`` is of what, with an example."""
    why = "empty"
    try:
        path = Path(value).expanduser()
        with suppress(FileNotFoundError, NotADirectoryError, PermissionError):
            path.stat()
        if os.fspath(value):
            return path
    except (OSError, RuntimeError, TypeError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
    raise ValueError(f"{name} must be the path of {usual}, got {value!r:.200} ({why}).")


def positive(name: str, value: Any, usual: float) -> float:
    """Check for a positive, finite number."""
    return _number(
        name, value, lambda x: 0 < x < math.inf, f"be a positive, finite number such as {usual}"
    )


def not_negative(name: str, value: Any, usual: float) -> float:
    """Check for a finite number of at least 0."""
    words = f"be a finite number of at least 0, such as {usual}"
    return _number(name, value, lambda x: 0 <= x < math.inf, words)


def share(name: str, value: Any, usual: float) -> float:
    """Check for a number of at least 0 and below 1."""
    words = f"be at least 0 and below 1, such as {usual}"
    return _number(name, value, lambda x: 0 <= x < 1, words)


def within(name: str, value: Any, above: float, most: float, usual: float) -> float:
    """Check for a number in the half-open interval from ``above`` to ``most``."""
    words = f"lie in {above} < {name} <= {most}, such as {usual}"
    return _number(name, value, lambda x: above < x <= most, words)


def positive_int(name: str, value: Any, usual: int) -> int:
    """Check for an integer of at least 1 and below 2³¹."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise ValueError(
            f"{name} must be an integer of at least 1, such as {usual}, got {value!r}."
        )
    if value > _LARGEST:
        raise ValueError(f"{name} must be at most {_LARGEST}, such as {usual}, got {value!r}.")
    return int(value)


def positive_int_or_auto(name: str, value: Any, usual: int) -> int | None:
    """Check for "auto", returned as None, or an integer of at least 1."""
    if is_auto(value):
        return None
    if isinstance(value, str):
        raise ValueError(f"{name} must be 'auto' or an integer of at least 1, got {value!r}.")
    return positive_int(name, value, usual)


def is_auto(value: Any) -> bool:
    """Whether an argument is the word "auto"; arrays are compared with no word."""
    return isinstance(value, str) and value == "auto"


def one_of(name: str, value: Any, choices: Collection[str]) -> str:
    """Check for one of a few words."""
    if not isinstance(value, str) or value not in choices:
        listed = ", ".join(repr(choice) for choice in choices)
        raise ValueError(f"{name} must be one of {listed}, got {value!r}.")
    return value


def _number(name: str, value: Any, holds: Callable[[Any], bool], words: str) -> float:
    """Check for a number for which something holds, as the words say."""
    number = isinstance(value, int | float | np.floating | np.integer)
    if not number or isinstance(value, bool) or not holds(value):
        raise ValueError(f"{name} must {words}, got {value!r:.80}.")
    return float(value)
