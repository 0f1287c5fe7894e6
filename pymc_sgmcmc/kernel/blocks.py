"""Arithmetic on the list of tensors that is a position, a gradient or a momentum."""

import operator

from collections.abc import Callable, Iterable, Iterator
from functools import reduce
from typing import Any

import pytensor.tensor as pt

from pytensor.tensor.variable import TensorVariable


def _each(function: Callable[[Any, Any], Any]) -> Callable[["Blocks", Any], "Blocks"]:
    """Return a method that applies a function of two block by block."""
    return lambda blocks, other: blocks.map(function, other)


class Blocks:
    """A list of tensors, one for each variable, with elementwise arithmetic.

    On a processor the state of a sampler is not joined into one long vector: a model with
    millions of parameters must not copy them at every update. On a GPU it is, as one block.
    ``Blocks`` lets an update be written as the paper writes it,
    ``x - h * g + sqrt(2 * h) * eta``.

    Parameters
    ----------
    parts : iterable of tensor_like
        The tensors.

    Examples
    --------
    >>> x = Blocks([1.0, 2.0])
    >>> [float(part) for part in x + 3 * x]
    [4.0, 8.0]
    """

    __slots__ = ("parts",)

    def __init__(self, parts: Iterable[Any]) -> None:
        self.parts: tuple[Any, ...] = tuple(parts)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.parts)

    def __len__(self) -> int:
        return len(self.parts)

    def __repr__(self) -> str:
        return f"Blocks({list(self.parts)!r})"

    def map(self, function: Callable[..., Any], *others: "Blocks | Any") -> "Blocks":
        """Apply ``function`` block by block; what is not ``Blocks`` goes to every block."""
        columns = [
            other.parts if isinstance(other, Blocks) else (other,) * len(self.parts)
            for other in others
        ]
        return Blocks(function(*row) for row in zip(self.parts, *columns, strict=True))

    def __neg__(self) -> "Blocks":
        return self.map(operator.neg)

    __add__ = __radd__ = _each(operator.add)
    __mul__ = __rmul__ = _each(operator.mul)
    __sub__, __rsub__ = _each(operator.sub), _each(lambda a, b: b - a)
    __truediv__, __rtruediv__ = _each(operator.truediv), _each(lambda a, b: b / a)
    __pow__ = _each(operator.pow)

    def sum(self) -> TensorVariable:
        """Sum over all elements of all blocks."""
        return pt.add(*[pt.sum(part) for part in self.parts], 0.0)

    def mean(self) -> TensorVariable:
        """Mean over all elements of all blocks."""
        return self.sum() / pt.add(*[pt.as_tensor(part).size for part in self.parts], 0)

    def max_abs(self) -> TensorVariable:
        """Largest absolute value over all blocks."""
        return reduce(pt.maximum, [pt.max(pt.abs(part)) for part in self.parts])


def mapped(function: Callable[[Any], Any], x: Any) -> Any:
    """Apply ``function`` to each of ``Blocks``, or to what is one tensor or number."""
    return x.map(function) if isinstance(x, Blocks) else function(x)


def exp(x: Any) -> Any:
    """Elementwise exponential.

    Parameters
    ----------
    x : Blocks or tensor_like
        The argument.
    """
    return mapped(pt.exp, x)


def sqrt(x: Any) -> Any:
    """Elementwise square root.

    Parameters
    ----------
    x : Blocks or tensor_like
        The argument.
    """
    return mapped(pt.sqrt, x)
