"""What a chain's calls take of the data: batches, and the tables in which they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from pymc_sgmcmc.chain.state import ChainState
from pymc_sgmcmc.disk.fetch import fetched, has_source
from pymc_sgmcmc.kernel.engine import Engine
from pymc_sgmcmc.kernel.transition import Transition

__all__ = ["Feed"]

# JAX reads arrays where they are if they begin at a multiple of this many bytes
_ALIGNED = 64


@dataclass
class _Taken:
    """What a call takes, and where the generator of batches stands after it."""

    drawn: list[np.ndarray]
    tables: list[Any]
    generator: Mapping[str, Any]
    left: list[np.ndarray]


class Feed:
    """Draws the batches of a chain, and reads those on disk ahead of their use.

    While a call is made, a thread draws and reads what the next one will take if it is like
    this one. What is drawn is decided by the state of the chain's generator alone: where another
    call comes, what was read ahead is forgotten.

    Parameters
    ----------
    engine : Engine
        The compiled model.
    transition : Transition
        The compiled updates.
    state : ChainState
        The chain's, of which the generator of batches and what is left of a plan are moved.
    """

    def __init__(self, engine: Engine, transition: Transition, state: ChainState) -> None:
        self._engine = engine
        self._transition = transition
        self._state = state
        self._tables = engine.tables(state.row_order)
        self._thread: ThreadPoolExecutor | None = None
        self._coming: tuple[Any, Future[_Taken]] | None = None
        self._buffers = _Buffers()

    def draw(self, updates: int) -> list[np.ndarray]:
        """Draw what one draw takes for its batches."""
        state = self._state
        return self._draw(state.batch_rng, updates, state.batches_left)

    def next(self, updates: int, count: int) -> tuple[list[np.ndarray], list[Any]]:
        """Return what the next call takes: for each draw its batches, and the tables.

        Parameters
        ----------
        updates : int
            Of one draw.
        count : int
            Draws of the call.

        Raises
        ------
        DiskError
            If rows on disk cannot be read.
        """
        state = self._state
        if not self._engine.on_disk:
            return self._stacked(state.batch_rng, updates, count, state.batches_left), self._tables
        now = state.batch_rng.bit_generator.state
        coming, self._coming = self._coming, None
        taken = None
        if coming is not None:
            before, future = coming
            found = future.result()
            if _same(before, (now, state.batches_left, updates, count)):
                taken = found
        if taken is None:
            taken = self._take(_at(state.batch_rng, now), state.batches_left, updates, count)
        state.batch_rng.bit_generator.state = taken.generator
        state.batches_left = list(taken.left)
        self._read_ahead(updates, count)
        return taken.drawn, taken.tables

    def _read_ahead(self, updates: int, count: int) -> None:
        state = self._state
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "read-ahead")
        now, left = state.batch_rng.bit_generator.state, list(state.batches_left)
        rng = _at(state.batch_rng, now)
        reading = self._thread.submit(self._take, rng, left, updates, count)
        self._coming = (now, left, updates, count), reading

    def _take(
        self, rng: np.random.Generator, left: list[np.ndarray], updates: int, count: int
    ) -> _Taken:
        """Draw and read what a call takes, with a generator that is its own."""
        left = list(left)
        posterior, place = self._transition.posterior, self._transition.place
        drawn = self._stacked(rng, updates, count, left)
        n = len(posterior.minibatches)
        offsets, numbers = drawn[:n], []
        if self._transition.layout.groups:
            # Blocks are known by their numbers, and are elsewhere in the tables
            numbers = offsets
            offsets = [
                (x.astype(np.int64) * batch.batch_size).astype(x.dtype)
                for x, batch in zip(offsets, posterior.minibatches, strict=True)
            ]
        sizes = [
            (len(group[0]), batch.batch_size)
            for batch, group in zip(posterior.minibatches, posterior.arrays, strict=True)
        ]
        tables = iter(self._tables)
        groups = [[next(tables) for _ in group] for group in posterior.arrays]
        self._buffers.turn()
        places, found = fetched(groups, offsets, sizes, self._buffers.empty)
        placed = iter(found)
        read: list[Any] = []
        for group in groups:
            arrays = [next(placed) for _ in group]
            read += place(arrays) if has_source([group]) else arrays
        return _Taken([*numbers, *places, *drawn[n:]], read, rng.bit_generator.state, left)

    def _stacked(
        self, rng: np.random.Generator, updates: int, count: int, left: list[np.ndarray]
    ) -> list[np.ndarray]:
        rows = [self._draw(rng, updates, left) for _ in range(count)]
        return [np.stack(of_one) for of_one in zip(*rows, strict=True)]

    def _draw(
        self, rng: np.random.Generator, updates: int, left: list[np.ndarray]
    ) -> list[np.ndarray]:
        return self._engine.draw_batches(rng, self._transition, updates, left)


class _Buffers:
    """Arrays that are filled anew for every second call, when the call before has ended."""

    def __init__(self) -> None:
        self._kept: tuple[list[np.ndarray], list[np.ndarray]] = ([], [])
        self._turn = self._used = 0

    def turn(self) -> None:
        """Fill the arrays of the other call from now on."""
        self._turn, self._used = 1 - self._turn, 0

    def empty(self, shape: Sequence[int], dtype: Any) -> np.ndarray:
        """Return an array to fill."""
        kept, k = self._kept[self._turn], self._used
        self._used += 1
        if k < len(kept) and kept[k].shape == tuple(shape) and kept[k].dtype == dtype:
            return kept[k]
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        raw = np.empty(size + _ALIGNED, dtype=np.uint8)
        first = -raw.ctypes.data % _ALIGNED
        new = raw[first : first + size].view(dtype).reshape(shape)
        kept[k:] = [new]
        return new


def _at(rng: np.random.Generator, state: Mapping[str, Any]) -> np.random.Generator:
    """Return a generator of the same kind in a state of its own."""
    bits = type(rng.bit_generator)(0)
    bits.state = state
    return np.random.Generator(bits)


def _same(a: Any, b: Any) -> bool:
    """Whether nested dicts, lists and arrays are equal."""
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(_same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(_same, a, b))
    return np.array_equal(a, b) if isinstance(a, np.ndarray) else bool(a == b)
