"""What is raised where a backend cannot run a model."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from textwrap import shorten

# What backends raise where they lack an operation, or cannot trace a graph at its first call
_UNTRACEABLE = (
    AttributeError, IndexError, NotImplementedError, OverflowError, TypeError, ValueError,
)  # fmt: skip


class BackendError(NotImplementedError):
    """A backend cannot compile or run a model; its own exception is the cause."""


@contextmanager
def named(backend: str) -> Generator[None]:
    """Let what a backend raises name the backend and the cure."""
    try:
        yield
    except _UNTRACEABLE as error:
        name, other = {"jax": ("JAX", "numba"), "numba": ("numba", "jax")}[backend]
        raise BackendError(
            f"{name} cannot run this model: {first_line(error).rstrip('.')}. "
            f"Pass backend='{other}', or register the operation with "
            f"pytensor.link.{backend}.dispatch."
        ) from error


def first_line(error: BaseException | None) -> str:
    """Return the first line of a backend's message, which can hold a whole graph."""
    lines = str(error).splitlines() or [type(error).__name__]
    return shorten(lines[0], 300)
