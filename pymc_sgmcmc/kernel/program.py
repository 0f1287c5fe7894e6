"""The compiled updates of one sampler, which all chains of a process share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pymc_sgmcmc.disk.fetch import has_source
from pymc_sgmcmc.kernel.noise import FILL
from pymc_sgmcmc.kernel.sampler import Sampler
from pymc_sgmcmc.kernel.settings import Settings
from pymc_sgmcmc.kernel.tables import LARGEST_JOINED, sizes_of
from pymc_sgmcmc.kernel.transition import Transition
from pymc_sgmcmc.kernel.update import Layout
from pymc_sgmcmc.model.batch_schemes import BatchDraw, BatchScheme
from pymc_sgmcmc.model.posterior import Posterior

# Noise of the updates of one compiled call, in numbers: models with millions of parameters take
# several calls for a draw. What is measured at the end of each costs as much as a few updates
_LARGEST_NOISE_OF_DRAW = 2**26

# Numbers of rows on disk that a call reads: two or three copies of them are in memory
_LARGEST_READ_OF_DRAW = 2**22

# Draws in one compiled call, and elements of data and position that it works through, for calls of
# up to a twentieth of a second
_MOST_DRAWS = 16
_LARGEST_CALL = 2**24

# Numbers of noise for the draws of a call, and numbers read from disk: few enough for these to stay
# in a processor's cache from when a thread reads them until they are used
_LARGEST_INPUT = 2**20

# Largest relative variance of the sizes of groups of joined blocks: the last one may be smaller
_LARGEST_UNEVENNESS = 0.02


class Program:
    """What is compiled of a sampler's updates on a posterior, by layout, and what a call takes."""

    def __init__(
        self,
        posterior: Posterior,
        sampler: Sampler,
        scheme: BatchScheme,
        compile_kwargs: Mapping[str, Any],
    ) -> None:
        self.posterior = posterior
        self._sampler = sampler
        self._scheme = scheme
        self._compile_kwargs = compile_kwargs
        self._dimension = sum(int(np.prod(x.type.shape)) for x in posterior.phi)
        self._transitions: dict[Layout, Transition] = {}
        self._of_joined: dict[int, Posterior | None] = {}
        tables = [
            (batch.batch_size * (array.size // len(array)), has_source([arrays]))
            for batch, arrays in zip(posterior.minibatches, posterior.arrays, strict=True)
            for array in arrays
        ]
        # Numbers of a batch, and those of them that are read from disk
        self._numbers = sum(numbers for numbers, _ in tables)
        self._read = sum(numbers for numbers, on_disk in tables if on_disk)
        # The likelihood's own random numbers for a batch
        self._own_noise = sum(int(np.prod(x.type.shape)) for x in posterior.noise)

    def transition(
        self, backend: str, settings: Settings, psi: Sequence[np.ndarray], thin: int
    ) -> Transition:
        """Return the compiled updates for settings of this kind."""
        updates = self.updates_per_call(settings, thin)
        draws = self.draws_per_call(settings, updates) if updates == thin else 1
        posterior, joined = self._joined(settings)
        whitening = settings.whitening()
        layout = Layout(
            backend=backend,
            whitening=whitening.kind,
            contiguous=self._scheme.contiguous,
            anchored=bool(settings.anchor),
            stored_batches=len(settings.anchor_blocks[0]) if settings.anchor_blocks else 0,
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
                self._sampler,
                whitening,
                layout,
                position=psi,
                extra=self._sampler.initial_extra(list(psi), np.random.default_rng(0)),
                compile_kwargs=self._compile_kwargs,
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
        """Return how many of a draw's updates one call makes, the most of moderate memory."""
        noise = self._dimension + settings.batches * self._own_noise
        by_noise = _LARGEST_NOISE_OF_DRAW // max(noise, 1)
        by_read = _LARGEST_READ_OF_DRAW // max(settings.batches * self._read, 1)
        most = max(1, min(by_noise, by_read))
        return max(k for k in range(1, thin + 1) if thin % k == 0 and k <= most)

    def draws_per_call(self, settings: Settings, updates: int) -> int:
        """Return the draws of a call, so that it has little overhead and does not take long.

        It is one where draws depend on other step methods' variables or on a new anchor.
        """
        posterior = self.posterior
        if posterior.others or settings.refresh is not None:
            return 1
        whole = sum(np.size(array) for array in posterior.data.values())
        elements = self._dimension + settings.gradients * (self._numbers + whole)
        of_batch = self._read + self._own_noise
        fit = min(
            _LARGEST_CALL // max(updates * elements, 1),
            _LARGEST_INPUT // (updates * max(self._dimension, settings.batches * of_batch)),
        )
        return int(np.clip(fit, 1, _MOST_DRAWS))

    def draw_batches(
        self, rng: np.random.Generator, transition: Transition, updates: int, left: list[np.ndarray]
    ) -> list[np.ndarray]:
        """Draw the batches of a call: of each minibatch the rows, then the likelihood's own noise.

        The batches for measurements come first, then those of a draw's ``updates``, one set after
        another. ``left``, what the batch scheme has planned, is updated.
        """
        layout, scheme, sets = transition.layout, self._scheme, transition.row_sets
        averaged, fresh = layout.averaged, transition.fresh
        sizes = sizes_of(self.posterior)
        if layout.groups:
            # As batches of one row of a table of blocks
            [(_, size)] = sizes
            sizes, scheme = [(layout.groups, 1)], scheme.of_blocks(layout.joined * size)
        if len(left) != len(sizes):
            left[:] = [np.zeros(0, dtype=np.int32) for _ in sizes]
        batches = []
        for k, (rows, size) in enumerate(sizes):
            of_updates = BatchDraw(rng, rows, size, updates, averaged)
            aside = BatchDraw(rng, rows, size, fresh, averaged)
            measured, left[k] = scheme.aside(aside, left[k])
            followed, left[k] = scheme.follow(of_updates, left[k])
            if sets > 1:
                others = [scheme.draw(of_updates) for _ in range(sets - 1)]
                followed = np.stack([followed, *others], axis=1)
                followed = followed.reshape(updates * sets, *followed.shape[2:])
            batches.append(np.concatenate([measured, followed]))
        several = [averaged] * (averaged > 1)
        for x, kind in self.posterior.noise.items():
            shape = fresh + updates * sets, *several, *x.type.shape
            batches.append(FILL[kind](rng, np.empty(shape, dtype=x.dtype)))
        return batches


def blocks_to_join(batches: int, blocks: int, batch_size: int) -> int:
    """Return how many neighbouring blocks of B rows one gradient takes at once, a divisor of K.

    Averaging K disjoint batches is the gradient of one batch of K B rows, at less cost.
    """
    for count in range(batches, 1, -1):
        if batches % count or count * batch_size > LARGEST_JOINED:
            continue
        groups = -(-blocks // count)
        last = blocks - (groups - 1) * count
        squares = (groups - 1) * count**2 + last**2
        if groups * squares / blocks**2 - 1 < _LARGEST_UNEVENNESS:
            return count
    return 1
