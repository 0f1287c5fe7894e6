"""Batches at offsets of sources, gathered into tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pymc_sgmcmc.disk.source import Source

__all__ = ["fetched", "gather", "has_source", "rows_at", "sampled"]

# Places of a file from which a sample of its rows is taken
_SAMPLED_BLOCKS = 64

New = Callable[[tuple[int, ...], Any], np.ndarray]


def has_source(tables: Sequence[Sequence[Any]]) -> bool:
    """Whether there are rows on disk among the tables of all minibatches."""
    return any(isinstance(array, Source) for group in tables for array in group)


def fetched(
    tables: Sequence[Sequence[Any]],
    offsets: Sequence[np.ndarray],
    sizes: Sequence[tuple[int, int]],
    new: New = np.empty,
) -> tuple[list[np.ndarray], list[Any]]:
    """Read batches into tables that hold nothing else; return where they begin there, and these.

    Of each minibatch there are the arrays, or sources, where its batches begin, and the rows of the
    data and of a batch. ``new`` makes an empty array.
    """
    places: list[np.ndarray] = []
    found: list[Any] = []
    for group, begins, (rows, size) in zip(tables, offsets, sizes, strict=True):
        if not has_source([group]):
            places.append(begins)
            found += group
            continue
        unique, which = np.unique(begins, return_inverse=True)
        for source in group:
            source.check()
            out = new((begins.size * size, *source.shape[1:]), source.held)
            gather(source, unique, rows, size, out)
            found.append(out)
        places.append((which * size).astype(begins.dtype).reshape(begins.shape))
    return places, found


def gather(source: Source, offsets: np.ndarray, rows: int, size: int, out: np.ndarray) -> None:
    """Put the blocks of ``size`` rows at sorted offsets one after the other.

    The first row follows the last.
    """
    whole = int(np.searchsorted(offsets, rows - size, side="right"))
    source.read_blocks(offsets[:whole], size, out[: whole * size])
    for k in range(whole, len(offsets)):
        first, part = int(offsets[k]), out[k * size : (k + 1) * size]
        source.read(first, part[: rows - first])
        source.read(0, part[rows - first :])


def rows_at(array: Any, first: int, size: int) -> np.ndarray:
    """Return ``size`` rows of an array or of a source, the last ones where fewer follow."""
    first = min(first, len(array) - size)
    rows = array.rows if isinstance(array, Source) else lambda start, stop: array[start:stop]
    found: np.ndarray = rows(first, first + size)
    return found


def sampled(group: Sequence[Any], count: int) -> list[np.ndarray]:
    """Return about ``count`` rows of arrays that are drawn together, from all over the data."""
    rows = len(group[0])
    if not has_source([group]):
        return list(group)
    if rows <= count:
        return [source.rows(0, rows) for source in group]
    size = -(-count // _SAMPLED_BLOCKS)
    firsts = np.linspace(0, rows - size, _SAMPLED_BLOCKS).astype(int).tolist()
    return [np.concatenate([s.rows(first, first + size) for first in firsts]) for s in group]
