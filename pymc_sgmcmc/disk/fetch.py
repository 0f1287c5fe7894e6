"""Batches at offsets of sources, gathered into tables; whether rows are in random order."""

from __future__ import annotations

import warnings

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from pymc_sgmcmc.disk.source import Source

# Bytes that are read at once: as many as a disk transfers in the time of a seek
BYTES_OF_A_RUN = 2**20

# Places of a file from which a sample of its rows is taken
_SAMPLED_BLOCKS = 64

# Blocks that are compared, and their most columns
_BLOCKS, _MOST_COLUMNS = 32, 256

# Largest ratio without a warning: random order exceeds it in one of 100,000 columns, and in one of
# 1,000 whose blocks have a few rare values
_LARGEST = 2.5


def has_source(tables: Sequence[Sequence[Any]]) -> bool:
    """Whether there are rows on disk among the tables of all minibatches."""
    return any(isinstance(array, Source) for group in tables for array in group)


def gather(source: Source, offsets: np.ndarray, rows: int, size: int, out: np.ndarray) -> None:
    """Put blocks at sorted offsets one after the other; the first row follows the last."""
    whole = int(np.searchsorted(offsets, rows - size, side="right"))
    source.read_blocks(offsets[:whole], size, out[: whole * size])
    for k in range(whole, len(offsets)):
        first, part = int(offsets[k]), out[k * size : (k + 1) * size]
        source.read(first, part[: rows - first])
        source.read(0, part[rows - first :])


def rows_at(array: Any, first: int, size: int) -> np.ndarray:
    """Return ``size`` rows of an array or of a source, the last ones where fewer follow."""
    first = min(first, len(array) - size)
    rows: np.ndarray = (
        array.rows(first, first + size)
        if isinstance(array, Source)
        else array[first : first + size]
    )
    return rows


def sampled(group: Sequence[Any], count: int) -> list[np.ndarray]:
    """Return about ``count`` rows of arrays that are drawn together, from all over the data."""
    rows = len(group[0])
    if not has_source([group]):
        return list(group)
    if rows <= count:
        return [source.rows(0, rows) for source in group]
    size = -(-count // _SAMPLED_BLOCKS)
    return [np.concatenate(list(_spread(source, size, _SAMPLED_BLOCKS))) for source in group]


def _spread(source: Source, size: int, blocks: int) -> Iterator[np.ndarray]:
    """Return blocks of rows at even distances."""
    for first in np.linspace(0, len(source) - size, blocks).astype(int).tolist():
        yield source.rows(first, first + size)


def design_effect(group: Sequence[Source], size: int, later: float = 0.0) -> tuple[float, Source]:
    r"""Return how much more means of blocks of rows vary than those of random ones, and in what.

    With m blocks of B rows that is :math:`B s_b^2 / s_w^2`, the variance between blocks over that
    within them, about 1 in random order and about :math:`1 + (B - 1) \rho` where rows of a block
    have a correlation :math:`\rho`: Kish (1965). Survey sampling. Wiley, section 5.4. It is the
    largest over all columns, their squares, and products of each with arrays of one dimension,
    among which what is observed usually is. Blocks are shorter where the rows are fewer than 64 of
    them; 1 where that leaves too few. They are at even distances; at 0 and 0.5 of one ``later``
    they have no rows in common.
    """
    size = min(size, len(group[0]) // (2 * _BLOCKS))
    if size < 2:
        return 1.0, group[0]
    largest = 1.0, group[0]
    firsts = ((np.arange(_BLOCKS) + later) * len(group[0]) / _BLOCKS).astype(int)
    centre: list[np.ndarray] = []
    moments = []
    for first in firsts.tolist():
        rows = [source.rows(first, first + size).reshape(size, -1) for source in group]
        x = [part[:, :_MOST_COLUMNS].astype(float) for part in rows]
        # Of the first block: any centre near the mean serves
        centre = centre or [part.mean(axis=0) for part in x]
        z = [part - middle for part, middle in zip(x, centre, strict=True)]
        single = [y for y in z if y.shape[1] == 1]
        looks = [[a, a * a, *(a * y for y in single if y is not a)] for a in z]
        moments.append([[(c.mean(axis=0), c.var(axis=0, ddof=1)) for c in of] for of in looks])
    for source, *of_source in zip(group, *moments, strict=True):
        for of_columns in zip(*of_source, strict=True):
            means, variances = map(np.array, zip(*of_columns, strict=True))
            with np.errstate(invalid="ignore", divide="ignore"):
                ratio = size * means.var(axis=0, ddof=1) / variances.mean(axis=0)
            # Columns that do not vary within blocks may vary between them
            ratio = np.where(np.isnan(ratio), 1.0, ratio)
            if ratio.max() > largest[0]:
                largest = float(ratio.max()), source
    return largest


def warn_of_order(group: Sequence[Any], size: int, package: tuple[str, ...]) -> None:
    """Warn where batches of neighbouring rows on disk are far noisier than those of random ones."""
    if not isinstance(group[0], Source):
        return
    # A chain reads runs of neighbouring batches, and whole chunks
    run = BYTES_OF_A_RUN // max(1, sum(x.row_bytes for x in group))
    size = max(size, run, *(x.chunk_rows for x in group))
    size = min(size, max(2, len(group[0]) // (2 * _BLOCKS)))
    effect, source = design_effect(group, size)
    if effect > _LARGEST and design_effect(group, size, later=0.5)[0] > _LARGEST:
        warnings.warn(
            f"The rows of {source.name} are not in random order: means of blocks of {size} rows "
            f"vary {effect:.3g} times as much as those of random rows, and with them the gradients "
            "of batches, which come from such blocks. Bring the rows into random order once, all "
            "arrays together: sg.shuffle_to_disk({'x': 'x.npy', 'y': 'y.npy'}, folder).",
            UserWarning,
            skip_file_prefixes=package,
        )
