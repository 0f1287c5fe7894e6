"""Batches of rows on disk: one after the other in runs, each of which is read at once."""

from __future__ import annotations

import numpy as np

from pymc_sgmcmc.model.minibatch import Shuffled

__all__ = ["Runs"]

# Bytes that are read at once: as many as a disk transfers in the time of a seek
_BYTES = 2**20

# Smallest number of runs in the data. The batches of one run share no rows, which reduces their
# variance by less than this part
_LEAST_RUNS = 50


class Runs(Shuffled):
    """Neighbouring blocks of rows in random order, from a random offset on, wrapping round.

    With rows in random order they are as good a sample as blocks at random offsets, and a run of
    them is read at once.
    """

    def __init__(self, row_bytes: int, chunk_rows: int = 1) -> None:
        self._rows = max(_BYTES // max(row_bytes, 1), chunk_rows)

    def follow(
        self,
        rng: np.random.Generator,
        rows: int,
        batch_size: int,
        updates: int,
        batches: int,
        left: np.ndarray,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Draw the batches of the next updates: those ``left`` of the last run, then new runs."""
        count = updates * batches
        if len(left) < count:
            blocks = max(1, min(self._rows, rows // _LEAST_RUNS) // batch_size)
            first = (rng.random(-(-(count - len(left)) // blocks)) * rows).astype(np.int64)
            runs = (first[:, None] + batch_size * np.arange(blocks)) % rows
            left = np.concatenate([left, runs.reshape(-1).astype(np.int32)])
        drawn, left = left[:count], left[count:]
        return (drawn if batches == 1 else drawn.reshape(updates, batches)), left

    def of_blocks(self, size: int) -> Runs:
        """Return the scheme for blocks of rows, with accordingly fewer of them in a run."""
        return Runs(_BYTES, max(1, self._rows // size))

    # What is measured is the next of the run: no update uses it
    aside = follow
