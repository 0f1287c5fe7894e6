"""One model, one sampler, compiled: what all chains of a process share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from pymc.model import Model
from pytensor.tensor.variable import TensorVariable

from pymc_sgmcmc.disk.fetch import has_source
from pymc_sgmcmc.kernel.compiled_model import CompiledModel
from pymc_sgmcmc.kernel.joined import blocks_to_join
from pymc_sgmcmc.kernel.layout import Layout
from pymc_sgmcmc.kernel.noise import FILL
from pymc_sgmcmc.kernel.options import Options
from pymc_sgmcmc.kernel.row_memory import RowMemory
from pymc_sgmcmc.kernel.sampler import Sampler
from pymc_sgmcmc.kernel.settings import Settings
from pymc_sgmcmc.kernel.transition import Transition, updates_per_call
from pymc_sgmcmc.model.batch_schemes import BatchDraw
from pymc_sgmcmc.model.posterior import Posterior

__all__ = ["Engine"]

# Draws in one compiled call, elements of data and position that it works through, for calls of
# up to a twentieth of a second, and of position alone, for which it takes noise
_MOST_DRAWS = 16
_LARGEST_CALL = 2**24
_LARGEST_NOISE = 2**20

# Numbers read from disk for the draws of a call: few enough to stay in a processor's cache from
# when a thread reads them until they are used
_LARGEST_READ = 2**20


class Engine(CompiledModel):
    """A compiled model with the updates of a sampler."""

    def __init__(
        self,
        model: Model,
        values: list[TensorVariable],
        sampler: Sampler,
        options: Options,
        point: Mapping[str, np.ndarray],
        row_memory: RowMemory | None = None,
    ) -> None:
        super().__init__(model, values, options, point, row_memory)
        self._as_written = model
        self.sampler = sampler
        self._transitions: dict[Layout, Transition] = {}
        self._of_joined: dict[int, Posterior | None] = {}
        self._joint: CompiledModel | None = None

    def joint(self, point: Mapping[str, np.ndarray]) -> CompiledModel:
        """Return the model of all continuous variables, as one step would sample them."""
        if self._joint is None:
            unasked = Options()
            options = replace(
                self.options, transforms=unasked.transforms, scale=unasked.scale, centring=True
            )
            self._joint = CompiledModel(
                self._as_written, self._as_written.continuous_value_vars, options, point,
                self._row_memory,
            )  # fmt: skip
        return self._joint

    def transition(self, settings: Settings, psi: Sequence[np.ndarray], thin: int) -> Transition:
        """Return the compiled updates for settings of this kind."""
        updates = self.updates_per_call(settings, thin)
        draws = self.draws_per_call(settings, updates) if updates == thin else 1
        posterior, joined = self._joined(settings)
        whitening = settings.whitening()
        layout = Layout(
            backend=self.backend,
            whitening=whitening.kind,
            contiguous=self.scheme.contiguous,
            anchored=bool(settings.anchor),
            known_blocks=len(settings.anchor_blocks[0]) if settings.anchor_blocks else 0,
            batches=settings.batches,
            joined=joined,
            per_coordinate=bool(settings.relative),
            compensated=bool(settings.variance),
            bounded=settings.largest_gradient is not None,
            updates=updates,
            draws=draws,
        )
        key = layout.key()
        if key not in self._transitions:
            self._transitions[key] = Transition(
                posterior,
                self.sampler,
                whitening,
                layout,
                position=psi,
                extra=self.sampler.initial_extra(list(psi), np.random.default_rng(0)),
                compile_kwargs=self.options.compile_kwargs,
            )
        return self._transitions[key]

    def _joined(self, settings: Settings) -> tuple[Posterior, int]:
        """Return the posterior of as many blocks in one batch as is fast, and their number."""
        if not settings.anchor_blocks:
            return self.posterior, 1
        [batch] = self.posterior.minibatches
        blocks = len(settings.anchor_blocks[0])
        count = blocks_to_join(settings.batches, blocks, batch.batch_size)
        if count not in self._of_joined:
            self._of_joined[count] = self.posterior.joined(count) if count > 1 else self.posterior
        posterior = self._of_joined[count]
        return (self.posterior, 1) if posterior is None else (posterior, count)

    def updates_per_call(self, settings: Settings, thin: int) -> int:
        """Return how many of a draw's updates one call makes."""
        return updates_per_call(thin, self.dimension, settings.batches * self._read_by_batch)

    @property
    def _read_by_batch(self) -> int:
        """Numbers of a batch that are read from disk."""
        posterior = self.posterior
        return sum(
            batch.batch_size * (source.size // len(source))
            for batch, group in zip(posterior.minibatches, posterior.arrays, strict=True)
            if has_source([group])
            for source in group
        )

    def draws_per_call(self, settings: Settings, updates: int) -> int:
        """Return the draws of a call, so that it has little overhead and does not take long.

        It is one where draws depend on other step methods' variables or on a new anchor.
        """
        posterior = self.posterior
        if posterior.others or settings.refresh is not None:
            return 1
        rows = sum(
            batch.batch_size * (array.size // len(array))
            for batch, arrays in zip(posterior.minibatches, posterior.arrays, strict=True)
            for array in arrays
        )
        whole = sum(np.size(array) for array in posterior.data.values())
        twice = settings.anchor and not settings.anchor_blocks
        gradients = settings.batches * (2 if twice else 1)
        elements = self.dimension + gradients * (rows + whole)
        fit = min(
            _LARGEST_CALL // max(updates * elements, 1),
            _LARGEST_NOISE // (updates * self.dimension),
            _LARGEST_READ // max(updates * settings.batches * self._read_by_batch, 1),
        )
        return int(np.clip(fit, 1, _MOST_DRAWS))

    def draw_batches(
        self,
        rng: np.random.Generator,
        transition: Transition,
        updates: int,
        left: list[np.ndarray],
    ) -> list[np.ndarray]:
        """Draw the batches of a call: of each minibatch the rows, then the likelihood's own noise.

        The batches for measurements come first, then those of a draw's ``updates``, one set after
        another. ``left``, what the batch scheme has planned, is updated.
        """
        layout, scheme, sets = transition.layout, self.scheme, transition.row_sets
        averaged, fresh = layout.averaged, transition.fresh
        sizes = [
            (len(arrays[0]), batch.batch_size)
            for batch, arrays in zip(self.posterior.minibatches, self.posterior.arrays, strict=True)
        ]
        if layout.groups:
            # As batches of one row of a table of blocks
            [(_, size)] = sizes
            sizes, scheme = [(layout.groups, 1)], scheme.of_blocks(layout.joined * size)
        if len(left) != len(sizes):
            left[:] = [np.zeros(0, dtype=np.int32) for _ in sizes]
        found = []
        for k, (rows, size) in enumerate(sizes):
            of_updates = BatchDraw(rng, rows, size, updates, averaged)
            measured, left[k] = scheme.aside(replace(of_updates, updates=fresh), left[k])
            followed, left[k] = scheme.follow(of_updates, left[k])
            if sets > 1:
                others = [scheme.draw(of_updates) for _ in range(sets - 1)]
                followed = np.stack([followed, *others], axis=1)
                followed = followed.reshape(updates * sets, *followed.shape[2:])
            found.append(np.concatenate([measured, followed]))
        several = [averaged] * (averaged > 1)
        for x, kind in self.posterior.noise.items():
            shape = fresh + updates * sets, *several, *x.type.shape
            found.append(FILL[kind](rng, np.empty(shape, dtype=x.dtype)))
        return found
