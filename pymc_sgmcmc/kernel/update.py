"""One update of an algorithm, in symbols."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import batched
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt

from pymc.exceptions import SamplingError
from pytensor.tensor.variable import TensorVariable

from pymc_sgmcmc.backends.once import computed_once
from pymc_sgmcmc.backends.placing import on_processor
from pymc_sgmcmc.kernel.blocks import Blocks
from pymc_sgmcmc.kernel.estimators import Estimator, named
from pymc_sgmcmc.kernel.groups import Groups
from pymc_sgmcmc.kernel.noise import Noise
from pymc_sgmcmc.kernel.ravel import Ravel
from pymc_sgmcmc.kernel.sampler import Extra, Gradient, Sampler, Taming
from pymc_sgmcmc.kernel.variables import Variables
from pymc_sgmcmc.model.graphs import substitute

# Most numbers of a block that is joined with others: a larger one takes longer to copy than a
# kernel to start
_LARGE = 2**16


@dataclass(frozen=True)
class Layout:
    """What decides the compiled updates beside model and sampler; chains with one layout share."""

    backend: str  # "numba" or "jax"
    whitening: Hashable  # kind of the map from ψ to φ
    contiguous: bool  # whether a batch is an offset, not row indices
    anchored: bool  # whether gradients have an anchor
    stored_batches: int  # batches whose gradients at the anchor are stored; 0 where none are
    batches: int  # K, batches averaged for one gradient
    joined: int  # neighbouring blocks evaluated together, a divisor of K
    per_coordinate: bool  # whether each coordinate has a step size
    compensated: bool  # whether the sampler reads the variance of each coordinate's gradient
    bounded: bool  # whether elements of a gradient estimate are bounded
    updates: int  # of a draw; fixed for JAX, any number for numba
    draws: int  # of a call; any number for numba unless 1

    @property
    def groups(self) -> int:
        """Groups of joined blocks that make up the data, 0 where no gradients are stored."""
        return -(-self.stored_batches // self.joined)

    @property
    def averaged(self) -> int:
        """How many gradients are averaged, each of joined batches."""
        return self.batches // self.joined

    def key(self) -> Layout:
        """Return the layout under which compiled functions are cached."""
        if self.backend == "jax":
            return self
        return replace(self, updates=0, draws=min(self.draws, 2))


class State:
    """Symbols of a chain's state: the position ψ, then the sampler's further state.

    Of the arrays only shapes and dtypes are used.
    """

    def __init__(
        self, position: Sequence[np.ndarray], extra: Mapping[str, Sequence[np.ndarray]]
    ) -> None:
        self.psi = [_like(f"psi_{i}", x) for i, x in enumerate(position)]
        self.origin = [_like(f"origin_{i}", x) for i, x in enumerate(position)]
        self.extra = Groups({name: [_like(name, x) for x in own] for name, own in extra.items()})
        self.groups = Groups(psi=self.psi, extra=self.extra.flat)
        self.symbols = self.groups.flat

    def extra_of(self, symbols: Sequence[TensorVariable]) -> Extra:
        """Return the further state of a state's symbols."""
        groups = self.extra.like(symbols[len(self.psi) :])
        return {name: Blocks(parts) for name, parts in groups.items()}

    def flat(self, position: Blocks, extra: Extra) -> list[TensorVariable]:
        """Return a new state in the order and with the dtypes of ``symbols``."""
        new = [*position, *(part for name in self.extra for part in extra[name])]
        return [part.astype(was.dtype) for part, was in zip(new, self.symbols, strict=True)]

    @property
    def alike(self) -> bool:
        """Whether each further part has the position's blocks."""
        shapes = [x.type.shape for x in self.psi]
        return [x.type.shape for x in self.symbols] == shapes * (1 + len(self.extra))

    def joined(self) -> State:
        """Return the state whose blocks, of the position and of each further part, are joined."""
        vectors = [
            np.empty(ravel.size, np.result_type(*ravel.dtypes)) for _, ravel in self._together
        ]
        return State(vectors, dict.fromkeys(self.extra, vectors))

    def join(self, parts: Sequence[Any]) -> list[TensorVariable]:
        """Return parts of this state, in its order, as parts of the joined one."""
        return [
            pt.concatenate([own[k].ravel() for k in members])
            for own in batched(parts, len(self.psi))
            for members, _ in self._together
        ]

    def part(self, joined: Sequence[Any]) -> list[TensorVariable]:
        """Return parts of the joined state as parts of this one."""
        parts: list[TensorVariable] = []
        for own in batched(joined, len(self._together)):
            of_block: dict[int, TensorVariable] = {}
            for vector, (members, ravel) in zip(own, self._together, strict=True):
                of_block |= zip(members, ravel.split(vector), strict=True)
            parts += [block for _, block in sorted(of_block.items())]
        return parts

    @property
    def _together(self) -> list[tuple[list[int], Ravel]]:
        """Which blocks make a vector, small ones together and large ones alone, and their ravel."""
        large = {k for k, x in enumerate(self.psi) if np.prod(x.type.shape) > _LARGE}
        small = [k for k in range(len(self.psi)) if k not in large]
        groups = [small] * bool(small) + [[k] for k in large]
        return [(members, Ravel.of([self.psi[k] for k in members])) for members in groups]


class Update:
    """The graph of an update, and its inputs.

    With ``in_one`` small blocks of the sampler are joined into one: a GPU then runs one kernel
    where it would run one for each variable.
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
        self.sampler = sampler
        # The state in the model's variables; ``state`` is what the graph is of
        self.in_model = state
        self._in_one = in_one
        self.state = state.joined() if in_one else state
        self.estimator = estimator
        self.backend = layout.backend
        self.variables = Variables(estimator.posterior, estimator.whitening)
        floatX = pytensor.config.floatX
        # What all updates have in common
        self.inputs = Groups(
            relative=named("relative", state.psi) if layout.per_coordinate else [],
            variance=named("variance", state.psi) if layout.compensated else [],
            bound=[pt.scalar("largest", dtype=floatX) for _ in range(layout.bounded)],
            **estimator.inputs,
        )
        self.step_size = pt.scalar("step_size", dtype=floatX)
        psi = self.state.psi
        self.noise = Noise([x.type.shape for x in psi], [x.dtype for x in psi], layout.backend)
        # Symbols of the batches of each independent estimate
        self.row_sets: list[list[TensorVariable]] = []
        # The next state, and whether a bound acted
        self.outputs = self._next()

    @property
    def own_inputs(self) -> Groups:
        """What each update has of its own."""
        return Groups(
            step_size=[self.step_size],
            rows=[row for row_set in self.row_sets for row in row_set],
            noise=[flat for _, flat in self.noise.flat_requests()],
        )

    def steps(self) -> tuple[Any, Any]:
        """Return step size and known variance: one for all coordinates, or one for each."""
        relative, variance = self.inputs["relative"], self.inputs["variance"]
        h: Any = self.step_size * Blocks(relative) if relative else self.step_size
        return h, Blocks(variance) if variance else 0.0

    def _next(self) -> list[TensorVariable]:
        state, taming = self.state, Taming()
        old = state.symbols
        result: Any = self.sampler.update(
            Blocks(state.psi),
            state.extra_of(old),
            self._gradient(taming),
            self._as_state(self.steps()[0]),
            self.noise,
        )
        name = f"{type(self.sampler).__name__}.update()"
        if not isinstance(result, tuple) or len(result) != 2:
            raise SamplingError(
                f"{name} must return the position and the further state, got {result!r:.80}."
            )
        position, extra = result
        if set(extra) != set(state.extra):
            raise SamplingError(
                f"{name} returns the further state {sorted(extra)}, and initial_extra() "
                f"{sorted(state.extra)}. Let both have the same names."
            )
        new = state.flat(position, extra)
        # A part of which others are made, as a momentum that moves the position, is made for all
        once = zip(new, computed_once(new, self.backend), strict=True)
        large = {part: held for part, held in once if held is not part}
        if large:
            new = [substitute([x], {p: y for p, y in large.items() if p is not x})[0] for x in new]
        return [*new, taming.acted()]

    def _as_state(self, x: Any) -> Any:
        """Return what may be blocks as blocks of the state that the graph is of."""
        joins = self._in_one and isinstance(x, Blocks)
        return Blocks(self.in_model.join(list(x))) if joins else x

    def _gradient(self, taming: Taming) -> Gradient:
        """Return what an update may ask of the density, from rows of its own."""
        estimator, rows = self.estimator, self.estimator.new_rows()
        self.row_sets.append(rows)

        def blocks(position: Blocks) -> list[Any]:
            return self.in_model.part(list(position)) if self._in_one else list(position)

        def estimate(position: Blocks) -> Blocks:
            """Estimate ∇U, scaled down as a whole where an element exceeds the bound."""
            gradient = self._as_state(estimator(blocks(position), rows))
            for bound in self.inputs["bound"]:
                gradient = taming.shortened(gradient, bound)
            return gradient

        return Gradient(
            estimate,
            lambda position: estimator.potential(blocks(position), rows),
            lambda: self._gradient(taming),
            self._as_state(self.steps()[1]),
            self._as_state(Blocks(self.in_model.origin)),
            taming,
            self.variables,
        )


def is_finite(parts: Sequence[Any], backend: str) -> TensorVariable:
    """Return whether all elements of the parts of a state are finite, by sums, which then are."""
    if on_processor(backend):
        return reduce(pt.and_, [pt.isfinite(pt.sum(part)) for part in parts])
    # A GPU reads arrays of one shape in one pass, which takes a processor a tenth of an update more
    alike: dict[Any, list[TensorVariable]] = {}
    for part in parts:
        alike.setdefault(part.type, []).append(part)
    sums = [pt.sum(reduce(pt.add, same)) for same in alike.values()]
    return pt.isfinite(reduce(pt.add, sums))


def _like(name: str, array: np.ndarray) -> TensorVariable:
    return pt.tensor(name, dtype=str(array.dtype), shape=array.shape)
