"""Batch schemes: how the rows of the batches of a chain's updates are drawn."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from math import gcd
from typing import Any

import numpy as np

from pymc_sgmcmc.disk.fetch import BYTES_OF_A_RUN

# Smallest number of runs in the data. The batches of one run share no rows, which reduces their
# variance by less than this part
_LEAST_RUNS = 50


@dataclass(slots=True)
class BatchDraw:
    """The batches to draw: ``batches`` for each update, each of ``size`` of all ``rows``."""

    rng: np.random.Generator
    rows: int
    size: int
    updates: int
    batches: int = 1

    @property
    def count(self) -> int:
        """The number of batches."""
        return self.updates * self.batches

    def row_numbers(self, shape: int | tuple[int, int]) -> np.ndarray:
        """Draw numbers of rows."""
        # rng.integers takes 7 µs for its checks alone, this one in all; uniform to 2^-53
        return (self.rng.random(shape) * self.rows).astype(np.int32)

    def of_updates(self, drawn: np.ndarray) -> np.ndarray:
        """Return batches (count, ...) as (updates, batches, ...); a single batch has no axis."""
        if self.batches == 1:
            return drawn
        return drawn.reshape(self.updates, self.batches, *drawn.shape[1:])


class BatchScheme(ABC):
    """How the rows of a batch are chosen."""

    contiguous = True
    """Whether a batch is a block of rows at an offset, or a set of row indices."""
    independent = True
    """Whether the batches of an update are independent of those of the others."""

    @abstractmethod
    def draw(self, wanted: BatchDraw) -> np.ndarray:
        """Return independent batches (updates, batches, ...), or (updates, ...) for one in each."""

    def follow(self, wanted: BatchDraw, left: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the batches of the chain's next updates, and the rest of the plan.

        ``left`` is the rest of the last plan, empty at first and for schemes without plans.
        """
        return self.draw(wanted), left

    def aside(self, wanted: BatchDraw, left: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return batches for measurements, which no update uses; as :meth:`follow`."""
        return self.draw(wanted), left

    def of_blocks(self, size: int) -> BatchScheme:
        """Return the scheme for blocks of ``size`` rows in place of rows."""
        return self

    @abstractmethod
    def variance_ratio(self, rows: int, batch_size: int, batches: int) -> float:
        """Return the variance of the mean of ``batches`` batches over that of one block of rows."""


class Shuffled(BatchScheme):
    """A contiguous block of once-permuted rows at a random offset, wrapping round.

    Its gradient has the noise of sampling without replacement, and no rows are gathered.
    """

    def draw(self, wanted: BatchDraw) -> np.ndarray:
        """Return offsets, shape (updates,) or (updates, batches).

        Several batches are neighbours, which share rows only once all rows are used: together they
        have the noise of one batch of their joint size.
        """
        first = wanted.row_numbers(wanted.updates)
        if wanted.batches == 1:
            return first
        steps = np.arange(wanted.batches, dtype=np.int64) * wanted.size
        return ((first[:, None] + steps) % wanted.rows).astype(np.int32)

    def variance_ratio(self, rows: int, batch_size: int, batches: int) -> float:
        """Return the variance of the mean of ``batches`` batches over that of one block of rows.

        K B rows laid round N count each row equally often, except r extra rows chosen at random,
        with a variance of r (1 - r/N).
        """
        if batch_size >= rows:
            return 0.0
        blocks = rows / batch_size
        remainder = batches * batch_size % rows / batch_size
        alone = (1 - remainder / blocks) / (1 - 1 / blocks)
        return remainder / batches * alone / batches


class Random(BatchScheme):
    """``pm.Minibatch``'s own scheme: rows drawn with replacement."""

    contiguous = False

    def draw(self, wanted: BatchDraw) -> np.ndarray:
        """Return row indices, shape (updates, batch_size) or (updates, batches, batch_size)."""
        return wanted.of_updates(wanted.row_numbers((wanted.count, wanted.size)))

    def variance_ratio(self, rows: int, batch_size: int, batches: int) -> float:
        """Return the variance of the mean of ``batches`` batches over that of one block of rows."""
        # A block is drawn without replacement
        return (rows - 1) / (max(rows - batch_size, 1) * batches)


class Sweep(Shuffled):
    """Sweeps over blocks of the rows: each block once, in random order from a random offset.

    The errors of one sweep's batches cancel: with m = N/B blocks and step size h, about hm/3 of the
    gradient noise remains. ``symmetric`` repeats each sweep backwards: Paulin, Whalley, Chada,
    Leimkuhler (2024). Sampling from Bayesian neural network posteriors with symmetric minibatch
    splitting Langevin dynamics.
    """

    independent = False

    def __init__(self, *, symmetric: bool) -> None:
        self._symmetric = symmetric

    def follow(self, wanted: BatchDraw, left: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the rest of the last sweep, then as many new ones as are needed."""
        parts, count = [left], len(left)
        while count < wanted.count:
            parts.append(self._sweep(wanted))
            count += len(parts[-1])
        drawn, left = np.split(np.concatenate(parts), [wanted.count])
        return wanted.of_updates(drawn), left

    def _sweep(self, wanted: BatchDraw) -> np.ndarray:
        """Return the offsets of a sweep."""
        blocks = -(-wanted.rows // wanted.size)
        first = wanted.row_numbers(1).astype(np.int64)
        order = wanted.rng.permutation(blocks)
        starts = ((first + wanted.size * order) % wanted.rows).astype(np.int32)
        return np.concatenate([starts, starts[::-1]]) if self._symmetric else starts

    def variance_ratio(self, rows: int, batch_size: int, batches: int) -> float:
        """Return the variance of the mean of ``batches`` batches over that of one block of rows.

        K batches are the end of one sweep, there and back where it is symmetric, whole sweeps, and
        the beginning of another, averaged over all places to begin at. The sum of blocks that
        appear c times each has Σc² - (Σc)² B/N times B times the variance of a row. A sweep's last
        block and its first share r rows, which adds 2r/B times the mean product of two c.
        """
        blocks = -(-rows // batch_size)
        if blocks == 1:
            return 0.0
        period = 2 * blocks if self._symmetric else blocks
        overlap = 2 * (blocks - rows / batch_size) / (blocks * (blocks - 1))

        def variance(start: Any, count: Any) -> Any:
            # Blocks on both sides of the turn are counted twice
            twice = np.maximum(np.minimum(blocks - start, start + count - blocks), 0)
            squares = count + 2 * twice
            return squares + overlap * (count**2 - squares) - count**2 * batch_size / rows

        start = np.arange(0, period, gcd(batches, period))
        first = np.minimum(period - start, batches)
        whole, rest = np.divmod(batches - first, period)
        sums = variance(start, first) + whole * variance(0, period) + variance(0, rest)
        return float(np.mean(sums)) / batches**2 / (1 - batch_size / rows)


class Runs(Shuffled):
    """Neighbouring blocks of rows on disk in random order, from a random offset on, wrapping round.

    With rows in random order they are as good a sample as blocks at random offsets, and a run of
    them is read at once.
    """

    def __init__(self, row_bytes: int, chunk_rows: int = 1) -> None:
        self._rows = max(BYTES_OF_A_RUN // max(row_bytes, 1), chunk_rows)

    def follow(self, wanted: BatchDraw, left: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the rest of the last run, then new runs."""
        if len(left) < wanted.count:
            blocks = max(1, min(self._rows, wanted.rows // _LEAST_RUNS) // wanted.size)
            runs = -(-(wanted.count - len(left)) // blocks)
            first = (wanted.rng.random(runs) * wanted.rows).astype(np.int64)
            starts = (first[:, None] + wanted.size * np.arange(blocks)) % wanted.rows
            left = np.concatenate([left, starts.reshape(-1).astype(np.int32)])
        return wanted.of_updates(left[: wanted.count]), left[wanted.count :]

    def of_blocks(self, size: int) -> Runs:
        """Return the scheme for blocks of rows, with accordingly fewer of them in a run."""
        return Runs(BYTES_OF_A_RUN, max(1, self._rows // size))

    def variance_ratio(self, rows: int, batch_size: int, batches: int) -> float:
        """Return the variance of the mean of ``batches`` batches over that of one block of rows.

        Runs begin anywhere, and together they make no pass.
        """
        return 0.0 if batch_size >= rows else 1 / batches

    # What is measured is the next of the run: no update uses it
    aside = follow


BATCH_SCHEMES: dict[str, BatchScheme] = {
    "shuffled": Shuffled(),
    "random": Random(),
    "sweep": Sweep(symmetric=False),
    "symmetric": Sweep(symmetric=True),
}
