"""One update of an algorithm, in symbols."""

from __future__ import annotations

import math

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt

from pytensor.tensor.variable import TensorVariable

from pymc_sgmcmc.backends.once import computed_once
from pymc_sgmcmc.kernel.blocks import Blocks
from pymc_sgmcmc.kernel.estimators import Estimator
from pymc_sgmcmc.kernel.layout import Layout
from pymc_sgmcmc.kernel.noise import Noise
from pymc_sgmcmc.kernel.sampler import Extra, Gradient, Sampler
from pymc_sgmcmc.kernel.taming import Taming
from pymc_sgmcmc.kernel.variables import Variables
from pymc_sgmcmc.model.graphs import substitute

__all__ = ["State", "Update"]


class State:
    """Symbols of a chain's state: the position ψ, then the sampler's further state.

    Of the arrays only shapes and dtypes are used.
    """

    def __init__(
        self, position: Sequence[np.ndarray], extra: Mapping[str, Sequence[np.ndarray]]
    ) -> None:
        self.psi = [_like(f"psi_{i}", x) for i, x in enumerate(position)]
        self.origin = [_like(f"origin_{i}", x) for i, x in enumerate(position)]
        self._counts = {name: len(parts) for name, parts in extra.items()}
        self.symbols = [
            *self.psi,
            *(_like(name, x) for name, parts in extra.items() for x in parts),
        ]

    def split(self, flat: Sequence[Any]) -> dict[str, Sequence[Any]]:
        """Return the further state by name from the flat list of its parts."""
        pieces, start = {}, 0
        for name, count in self._counts.items():
            pieces[name] = flat[start : start + count]
            start += count
        return pieces

    def extra(self, symbols: Sequence[TensorVariable]) -> Extra:
        """Return the further state of a state's symbols."""
        pieces = self.split(symbols[len(self.psi) :])
        return {name: Blocks(parts) for name, parts in pieces.items()}

    def flat(self, position: Blocks, extra: Extra) -> list[TensorVariable]:
        """Return a new state in the order and with the dtypes of ``symbols``."""
        new = [*position, *(part for name in self._counts for part in extra[name])]
        return [part.astype(was.dtype) for part, was in zip(new, self.symbols, strict=True)]

    @property
    def alike(self) -> bool:
        """Whether each further part has the position's blocks."""
        shapes = [x.type.shape for x in self.psi]
        return [x.type.shape for x in self.symbols] == shapes * (1 + len(self._counts))

    def joined(self) -> State:
        """Return the state with all blocks of the position, and of each further part, in one."""
        dtype = np.result_type(*(x.dtype for x in self.psi))
        one = [np.empty(sum(math.prod(x.type.shape) for x in self.psi), dtype)]
        return State(one, dict.fromkeys(self._counts, one))

    def join(self, parts: Sequence[Any]) -> list[TensorVariable]:
        """Return parts of this state, in its order, as parts of the joined one."""
        n = len(self.psi)
        groups = [parts[i : i + n] for i in range(0, len(parts), n)]
        return [pt.concatenate([x.ravel() for x in group]) for group in groups]

    def part(self, joined: Sequence[Any]) -> list[TensorVariable]:
        """Return parts of the joined state as parts of this one."""
        sizes = [math.prod(x.type.shape) for x in self.psi]
        return [
            vector[end - size : end].reshape(x.type.shape).astype(x.dtype)
            for vector in joined
            for x, size, end in zip(self.psi, sizes, np.cumsum(sizes), strict=True)
        ]


class Update:
    """The graph of an update, and its inputs.

    With ``in_one`` the sampler's blocks are joined into one: a GPU then runs one kernel where it
    would run one for each variable.
    """

    def __init__(
        self,
        sampler: Sampler,
        state: State,
        estimator: Estimator,
        layout: Layout,
        *,
        in_one: bool = False,
    ) -> None:
        self._blocks = state
        self._in_one = in_one
        # What the graph is of
        self.state = state.joined() if in_one else state
        self._estimator = estimator
        self._backend = layout.backend
        self._variables = Variables(estimator.posterior, estimator.whitening)
        self._relative = _named("relative", state.psi) if layout.per_coordinate else []
        self._variance = _named("variance", state.psi) if layout.compensated else []
        floatX = pytensor.config.floatX
        self._bound = [pt.scalar("largest", dtype=floatX) for _ in range(layout.bounded)]
        # Relative step sizes, noise variances, bound on gradients, where used; then the estimator's
        self.fixed = [*self._relative, *self._variance, *self._bound, *estimator.fixed]
        self.step_size = pt.scalar("step_size", dtype=floatX)
        self.noise = Noise(
            [x.type.shape for x in self.state.psi],
            [x.dtype for x in self.state.psi],
            layout.backend,
        )
        # Symbols of the batches of each independent estimate
        self.row_sets: list[list[TensorVariable]] = []
        # The next state, whether a bound acted, whether the update was rejected
        self.outputs = self._next(sampler)

    def steps(self) -> tuple[Any, Any]:
        """Return step size and known variance: one for all coordinates, or one for each."""
        h: Any = self.step_size * Blocks(self._relative) if self._relative else self.step_size
        return h, Blocks(self._variance) if self._variance else 0.0

    def _next(self, sampler: Sampler) -> list[TensorVariable]:
        state, taming = self.state, Taming()
        old = state.symbols
        position, extra = sampler.update(
            Blocks(state.psi),
            state.extra(old),
            self._gradient(taming),
            self._as_state(self.steps()[0]),
            self.noise,
        )
        new = state.flat(position, extra)
        # A part of which others are made, as a momentum that moves the position, is made for all
        once = zip(new, computed_once(new, self._backend), strict=True)
        large = {part: held for part, held in once if held is not part}
        if large:
            new = [substitute([x], {p: y for p, y in large.items() if p is not x})[0] for x in new]
        # A sum is finite only if all its terms are; arrays of one shape are read in one pass
        alike: dict[Any, list[TensorVariable]] = {}
        for part in new:
            alike.setdefault(part.type, []).append(part)
        sums = [pt.sum(reduce(pt.add, parts)) for parts in alike.values()]
        finite = pt.isfinite(reduce(pt.add, sums))
        kept = [pt.switch(finite, part, was) for part, was in zip(new, old, strict=True)]
        return [*kept, taming.acted(), ~finite]

    def _as_state(self, x: Any) -> Any:
        """Return what may be blocks as blocks of the state that the graph is of."""
        joins = self._in_one and isinstance(x, Blocks)
        return Blocks(self._blocks.join(list(x))) if joins else x

    def _gradient(self, taming: Taming) -> Gradient:
        """Return what an update may ask of the density, from rows of its own."""
        estimator, rows = self._estimator, self._estimator.new_rows()
        self.row_sets.append(rows)

        def blocks(position: Blocks) -> list[Any]:
            return self._blocks.part(list(position)) if self._in_one else list(position)

        def estimate(position: Blocks) -> Blocks:
            """Estimate ∇U, scaled down as a whole where an element exceeds the bound."""
            found = self._as_state(estimator(blocks(position), rows))
            for bound in self._bound:
                found = taming.shortened(found, bound)
            return found

        return Gradient(
            estimate,
            lambda position: estimator.potential(blocks(position), rows),
            lambda: self._gradient(taming),
            self._as_state(self.steps()[1]),
            self._as_state(Blocks(self._blocks.origin)),
            taming,
            self._variables,
        )


def _like(name: str, array: np.ndarray) -> TensorVariable:
    return pt.tensor(name, dtype=str(array.dtype), shape=array.shape)


def _named(name: str, like: Sequence[TensorVariable]) -> list[TensorVariable]:
    return [pt.tensor(f"{name}_{i}", dtype=x.dtype, shape=x.type.shape) for i, x in enumerate(like)]
