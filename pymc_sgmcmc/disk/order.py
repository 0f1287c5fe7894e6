"""Whether rows on disk are in random order, seen from some blocks of them."""

from __future__ import annotations

import warnings

from collections.abc import Sequence
from typing import Any

import numpy as np

from pymc_sgmcmc.disk.source import Source

__all__ = ["design_effect", "warn_of_order"]

_BLOCKS = 32

# Least ratio that is told: of rows in random order it is met once in 100,000 columns
_LARGEST = 2.5

# Most columns and products of columns that are looked at
_MOST_COLUMNS = 256


def design_effect(group: Sequence[Source], size: int) -> tuple[float, Source]:
    r"""Return how much more means of blocks of rows vary than those of random ones, and in what.

    With m blocks of B rows that is :math:`B s_b^2 / s_w^2`, the variance between blocks over that
    within them, about 1 in random order and about :math:`1 + (B - 1) \rho` where rows of a block
    have a correlation :math:`\rho` [1]_. It is the largest over all columns and over products of
    each column with arrays of one dimension, among which what is observed usually is; 1 where there
    are too few rows to tell.

    References
    ----------
    .. [1] Kish (1965). Survey sampling. Wiley, section 5.4.
    """
    rows = len(group[0])
    if size < 2 or rows < 2 * _BLOCKS * size:
        return 1.0, group[0]
    first = np.linspace(0, rows - size, _BLOCKS).astype(int).tolist()
    found = 1.0, group[0]
    blocks = [
        np.stack([source.rows(k, k + size) for k in first])
        .reshape(_BLOCKS, size, -1)[..., :_MOST_COLUMNS]
        .astype(float)
        for source in group
    ]
    alone = [x for x in blocks if x.shape[-1] == 1]
    for source, x in zip(group, blocks, strict=True):
        for columns in [x, *(_centred(x) * _centred(y) for y in alone if y is not x)]:
            with np.errstate(invalid="ignore", divide="ignore"):
                between = size * columns.mean(axis=1).var(axis=0, ddof=1)
                ratio = between / columns.var(axis=1, ddof=1).mean(axis=0)
            # Columns that do not vary within blocks may vary between them
            ratio = np.where(np.isnan(ratio), 1.0, ratio)
            if ratio.max() > found[0]:
                found = float(ratio.max()), source
    return found


def warn_of_order(group: Sequence[Any], size: int, package: tuple[str, ...]) -> None:
    """Warn where batches of neighbouring rows on disk are far noisier than those of random ones."""
    if not isinstance(group[0], Source):
        return
    effect, source = design_effect(group, size)
    if effect > _LARGEST:
        warnings.warn(
            f"The rows of {source.name} are not in random order: means of blocks of {size} rows "
            f"vary {effect:.3g} times as much as those of random rows, and with them the gradients "
            "of batches, which are such blocks. Bring the rows into random order once, all arrays "
            "together: sg.shuffle_to_disk({'x': 'x.npy', 'y': 'y.npy'}, folder).",
            UserWarning,
            skip_file_prefixes=package,
        )


def _centred(x: np.ndarray) -> np.ndarray:
    centred: np.ndarray = x - x.mean(axis=(0, 1))
    return centred
