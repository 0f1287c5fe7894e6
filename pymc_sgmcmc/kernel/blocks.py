"""Arithmetic on the list of tensors that is a position, a gradient or a momentum."""

from collections.abc import Callable, Iterable, Iterator
from functools import reduce
from typing import Any

import pytensor.tensor as pt

from pytensor.tensor.variable import TensorVariable

__all__ = ["Blocks", "exp", "mapped", "sqrt"]


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

    def __add__(self, other: Any) -> "Blocks":
        return self.map(lambda a, b: a + b, other)

    def __sub__(self, other: Any) -> "Blocks":
        return self.map(lambda a, b: a - b, other)

    def __mul__(self, other: Any) -> "Blocks":
        return self.map(lambda a, b: a * b, other)

    def __truediv__(self, other: Any) -> "Blocks":
        return self.map(lambda a, b: a / b, other)

    def __neg__(self) -> "Blocks":
        return self.map(lambda a: -a)

    def __rsub__(self, other: Any) -> "Blocks":
        return self.map(lambda a, b: b - a, other)

    def __rtruediv__(self, other: Any) -> "Blocks":
        return self.map(lambda a, b: b / a, other)

    def __pow__(self, other: Any) -> "Blocks":
        return self.map(lambda a, b: a**b, other)

    __radd__ = __add__
    __rmul__ = __mul__

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
