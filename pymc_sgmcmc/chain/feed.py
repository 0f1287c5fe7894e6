"""What a chain's calls take of the data: batches, and the tables in which they are."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from pymc.step_methods.state import equal_dataclass_values

from pymc_sgmcmc.backends.placing import aligned, is_in_place
from pymc_sgmcmc.chain.state import ChainState
from pymc_sgmcmc.kernel.engine import Engine
from pymc_sgmcmc.kernel.tables import read_batches
from pymc_sgmcmc.kernel.transition import Transition

# Batches of a call, and their tables
_Read = tuple[list[np.ndarray], list[Any]]


@dataclass
class _Planned:
    """What a call takes, and where the generator of batches stands after it."""

    drawn: list[np.ndarray]
    generator: Mapping[str, Any]
    left: list[np.ndarray]


class Feed:
    """Draws the batches of a chain, and reads those on disk ahead of their use.

    While a call is made, a thread reads what the next one will take if it is like this one. What
    is drawn is decided by the state of the chain's generator alone: where another call comes, what
    was read ahead is forgotten.
    """

    def __init__(self, engine: Engine, transition: Transition, state: ChainState) -> None:
        self._engine = engine
        self._transition = transition
        self._state = state
        self._tables = engine.tables(state.row_order)
        self._thread: ThreadPoolExecutor | None = None
        self._coming: tuple[Any, _Planned, Future[_Read]] | None = None
        self._buffers = _Buffers()

    def next(self, updates: int, count: int) -> _Read:
        """Return, for each of ``count`` draws of a call, its batches, and the tables."""
        state = self._state
        if not self._engine.on_disk:
            return self.drawn(state.batch_rng, updates, count, state.batches_left), self._tables
        coming, self._coming = self._coming, None
        if coming is not None and equal_dataclass_values(coming[0], self._key(updates, count)):
            _, planned, reading = coming
            batches, tables = reading.result()
        else:
            if coming is not None:
                # Wait, as it fills arrays that are filled anew below; its error is of unused rows
                coming[2].exception()
            planned = self._planned(updates, count)
            batches, tables = self._read(planned.drawn)
        state.batch_rng.bit_generator.state = planned.generator
        state.batches_left = list(planned.left)
        self._read_ahead(updates, count)
        return batches, tables

    def _read_ahead(self, updates: int, count: int) -> None:
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "read-ahead")
        # In this thread: Python code of another one would hold the lock that the call needs
        key, planned = self._key(updates, count), self._planned(updates, count)
        self._coming = key, planned, self._thread.submit(self._read, planned.drawn)

    def _key(self, updates: int, count: int) -> list[Any]:
        """Return what decides the batches of a call."""
        state = self._state
        return [state.batch_rng.bit_generator.state, list(state.batches_left), updates, count]

    def _planned(self, updates: int, count: int) -> _Planned:
        """Draw what a call takes, and leave the state as it is."""
        state = self._state
        left, bits = list(state.batches_left), type(state.batch_rng.bit_generator)(0)
        bits.state = state.batch_rng.bit_generator.state
        drawn = self.drawn(np.random.Generator(bits), updates, count, left)
        return _Planned(drawn, bits.state, left)

    def _read(self, drawn: list[np.ndarray]) -> _Read:
        """Read what was drawn; return it as batches of tables that hold nothing else."""
        posterior, place = self._transition.posterior, self._transition.place
        n = len(posterior.minibatches)
        offsets, numbers = drawn[:n], []
        if self._transition.layout.groups:
            # Rows of batches are numbers of blocks, which begin elsewhere in the tables
            numbers = offsets
            offsets = [
                (x.astype(np.int64) * batch.batch_size).astype(x.dtype)
                for x, batch in zip(offsets, posterior.minibatches, strict=True)
            ]
        buffers = self._buffers
        buffers.swap()
        places, arrays = read_batches(posterior, self._tables, offsets, buffers.empty)
        read = [
            # Those in memory are as they were
            array if array is table else buffers.placed(array, place)
            for array, table in zip(arrays, self._tables, strict=True)
        ]
        return [*numbers, *places, *drawn[n:]], read

    def drawn(
        self, rng: np.random.Generator, updates: int, count: int, left: list[np.ndarray]
    ) -> list[np.ndarray]:
        """Draw what each of ``count`` draws takes for its batches."""
        draw = self._engine.program.draw_batches
        rows = [draw(rng, self._transition, updates, left) for _ in range(count)]
        return [np.stack(of_one) for of_one in zip(*rows, strict=True)]


class _Buffers:
    """Arrays that are filled anew for every second call, when the call before has ended."""

    def __init__(self) -> None:
        self._kept: tuple[list[np.ndarray], list[np.ndarray]] = ([], [])
        self._side = self._used = 0
        self._placed: dict[int, Any] = {}

    def swap(self) -> None:
        """Fill the arrays of the other call from now on."""
        self._side, self._used = 1 - self._side, 0

    def empty(self, shape: Sequence[int], dtype: Any) -> np.ndarray:
        """Return an array to fill."""
        kept, k = self._kept[self._side], self._used
        self._used += 1
        if k < len(kept) and kept[k].shape == tuple(shape) and kept[k].dtype == dtype:
            return kept[k]
        for old in kept[k:]:
            self._placed.pop(id(old), None)
        new = aligned(shape, dtype)
        kept[k:] = [new]
        return new

    def placed(self, array: np.ndarray, place: Callable[[Any], list[Any]]) -> Any:
        """Return an array that was filled as the backend reads it.

        Placing takes a tenth of a millisecond: where it makes no copy it is done once.
        """
        placed = self._placed.pop(id(array), None)
        if placed is None:
            [placed] = place([array])
        if is_in_place(placed, array):
            self._placed[id(array)] = placed
        return placed
