"""One model, one sampler, compiled: what all chains of a process share."""

from __future__ import annotations

import logging

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from textwrap import shorten
from typing import Any

import numpy as np
import pymc as pm

from pymc.logprob.transforms import Transform
from pymc.model import Model
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.traversal import graph_inputs
from pytensor.tensor.type import TensorType
from pytensor.tensor.variable import TensorVariable

from pymc_sgmcmc.adaptation import Adaptation
from pymc_sgmcmc.compiling import INTERPRETER, uncollected
from pymc_sgmcmc.coordinates import at_scales, coordinates_at
from pymc_sgmcmc.joined import LARGEST_JOINED, blocks_to_join
from pymc_sgmcmc.minibatch import BATCH_SCHEMES
from pymc_sgmcmc.posterior import Posterior
from pymc_sgmcmc.potential import Potential
from pymc_sgmcmc.transition import Sampler, Transition, place, updates_per_call

__all__ = ["Engine", "Settings"]

_log = logging.getLogger("pymc.sgmcmc")

# Draws in one compiled call, elements of data and position that it works through, for calls of
# up to a twentieth of a second, and of position alone, for which it takes noise
_MOST_DRAWS = 16
_LARGEST_CALL = 2**24
_LARGEST_NOISE = 2**22

# Elements of gradients that are kept of an anchor: with a chain's state they are stored and sent
_LARGEST_MEMORY = 2**20

# What a backend raises, at the first call only, for a graph that it cannot trace
_UNTRACEABLE = (IndexError, NotImplementedError, TypeError, ValueError, AttributeError)


@dataclass(frozen=True)
class Settings:
    """What decides the compiled functions, beside the model and the tuning."""

    batch: str
    transforms: str | Mapping[str, Transform | None]
    temperature: float
    backend: str
    compile_kwargs: Mapping[str, Any]


class Engine:
    """The posterior of a step method and its compiled functions.

    Parameters
    ----------
    model : pymc.Model
        The model.
    values : list of TensorVariable
        The value variables to sample.
    sampler : Sampler
        The algorithm.
    settings : Settings
        The user's choices.
    point : dict
        A point of the model, for shapes.
    """

    @uncollected()
    def __init__(
        self,
        model: Model,
        values: list[TensorVariable],
        sampler: Sampler,
        settings: Settings,
        point: Mapping[str, np.ndarray],
    ) -> None:
        self.model = model
        self.values = values
        self.sampler = sampler
        self.settings = settings
        self.scheme = BATCH_SCHEMES[settings.batch]
        self.backend = "numba" if settings.backend == "numba" else "jax"
        self._read = _shared_arrays(model)
        coordinates, phi, _ = coordinates_at(model, values, settings.transforms, point)
        self.posterior = Posterior(model, coordinates, settings.temperature)
        self.dimension = sum(x.size for x in phi)
        self._transitions: dict[Any, Transition] = {}
        self._potential: Potential | None = None
        self._laid_out: tuple[Any, list[Any]] | None = None

    def is_stale(self) -> bool:
        """Whether the model's data were set anew since they were read."""
        now = _shared_arrays(self.model)
        return len(now) != len(self._read) or any(
            a is not b for a, b in zip(now, self._read, strict=True)
        )

    def express(self, point: Mapping[str, np.ndarray]) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Return φ at a point of PyMC, and the scales that belong to it."""
        _, phi, scales = coordinates_at(self.model, self.values, self.settings.transforms, point)
        return phi, scales

    def expressed(
        self, point: Mapping[str, np.ndarray], scales: Sequence[np.ndarray]
    ) -> list[np.ndarray]:
        """Return φ at a point of PyMC, in coordinates of these scales."""
        phi, own = self.express(point)
        return at_scales(self.posterior.coordinates, own, scales, phi)

    # ------------------------------------------------------------------ compiled functions

    def transition(
        self, adaptation: Adaptation, psi: Sequence[np.ndarray], thin: int
    ) -> Transition:
        """Return the compiled updates for adaptations of this kind."""
        updates = updates_per_call(thin, self.dimension)
        draws = self.draws_per_call(adaptation, updates) if updates == thin else 1
        # Numba's function makes any number of updates and, if more than one, of draws
        size = (updates, draws) if self.backend == "jax" else draws > 1
        key = (self.backend, *adaptation.kind(), size)
        if key not in self._transitions:
            posterior, joined = self._joined(adaptation)
            self._transitions[key] = Transition(
                posterior,
                self.sampler,
                adaptation.whitening(),
                position=psi,
                extra=self.sampler.initial_extra(list(psi), np.random.default_rng(0)),
                contiguous=self.scheme.contiguous,
                anchored=bool(adaptation.anchor),
                blocks=len(adaptation.anchor_blocks[0]) if adaptation.anchor_blocks else 0,
                batches=adaptation.batches,
                joined=joined,
                adapted=bool(adaptation.relative),
                tamed=adaptation.largest_gradient is not None,
                updates=updates,
                draws=draws,
                backend=self.backend,
                compile_kwargs=self.settings.compile_kwargs,
            )
        return self._transitions[key]

    def _joined(self, adaptation: Adaptation) -> tuple[Posterior, int]:
        """Return the posterior of as many blocks in one as serve, and their number."""
        if adaptation.anchor_blocks:
            [batch] = self.posterior.minibatches
            blocks = len(adaptation.anchor_blocks[0])
            count = blocks_to_join(adaptation.batches, blocks, batch.batch_size)
            posterior = self.posterior.joined(count) if count > 1 else None
            if posterior is not None:
                return posterior, count
        return self.posterior, 1

    def draws_per_call(self, adaptation: Adaptation, updates: int) -> int:
        """How many draws a call makes, so that it costs little and does not take long.

        One where they depend on what happens between draws: on variables that other step
        methods move, or on an anchor that is taken anew.
        """
        posterior = self.posterior
        if posterior.others or adaptation.refresh is not None:
            return 1
        rows = sum(
            batch.batch_size * (array.size // len(array))
            for batch, arrays in zip(posterior.minibatches, posterior.arrays, strict=True)
            for array in arrays
        )
        whole = sum(np.size(array) for array in posterior.data.values())
        twice = adaptation.anchor and not adaptation.anchor_blocks
        gradients = adaptation.batches * (2 if twice else 1)
        elements = self.dimension + gradients * (rows + whole)
        fit = min(
            _LARGEST_CALL // max(updates * elements, 1),
            _LARGEST_NOISE // (updates * self.dimension),
        )
        return int(np.clip(fit, 1, _MOST_DRAWS))

    @property
    def remembers_blocks(self) -> bool:
        """Whether the gradients at an anchor of all blocks of the data can be kept."""
        if not self.scheme.contiguous or len(self.posterior.minibatches) != 1:
            return False
        return self.potential().n_blocks * self.dimension <= _LARGEST_MEMORY

    def potential(self) -> Potential:
        """Return the compiled potential of the full data and of batches."""
        if self._potential is None:
            self._potential = Potential(self.posterior, self.backend, self.settings.compile_kwargs)
        return self._potential

    @uncollected()
    def attempt(self, first_use: Callable[[], Any]) -> Any:
        """Compile and call; where the choice is ours, numba serves what JAX cannot run.

        Raises
        ------
        NotImplementedError
            If the backend lacks an operation of the model.
        """
        try:
            return first_use()
        except _UNTRACEABLE as error:
            reason = _reason(error)
            if self.backend == "jax" and self.settings.backend == "auto":
                _log.info("JAX cannot run this model (%s): compiling with numba instead.", reason)
                self.backend, self._potential = "numba", None
                return first_use()
            if self.backend == "numba" and not isinstance(
                error, NotImplementedError | AttributeError
            ):
                raise
            other = "numba" if self.backend == "jax" else "jax"
            what = (
                f"The model has an operation that the {self.backend} backend lacks"
                if isinstance(error, NotImplementedError | AttributeError)
                else "JAX cannot run this model"
            )
            raise NotImplementedError(
                f"{what}: {reason.rstrip('.')}. Pass backend='{other}'."
            ) from error

    # ------------------------------------------------------------------ what they read

    def scale_arrays(
        self, scale: Mapping[str, np.ndarray], phi: Sequence[np.ndarray]
    ) -> list[np.ndarray]:
        """Return the user's scale for every variable, 1 for those not named."""
        arrays = []
        for coordinate, x in zip(self.posterior.coordinates, phi, strict=True):
            given = scale.get(coordinate.name, np.ones(()))
            try:
                arrays.append(np.array(np.broadcast_to(given, x.shape), dtype=x.dtype))
            except ValueError:
                raise ValueError(
                    f"scale['{coordinate.name}'] has shape {given.shape}, but the unconstrained "
                    f"coordinates of '{coordinate.name}' have shape {x.shape}. Pass an array of "
                    "that shape, or one number."
                ) from None
        return arrays

    def place(self, arrays: Sequence[np.ndarray]) -> list[Any]:
        """Put arrays where the backend reads them without a copy at every call."""
        return place(arrays, self.backend)

    def data(self) -> list[Any]:
        """Return what was lifted out of the model's graph, placed."""
        return self.place(list(self.posterior.data.values()))

    def tables(self, row_order: int, scheme: str | None = None) -> list[Any]:
        """Return the rows as a batch scheme lays them out, placed.

        What was laid out last is kept: tuning and sampling read the same copy of the data.
        """
        used = BATCH_SCHEMES[scheme] if scheme else self.scheme
        key = self.backend, row_order, used.contiguous
        if self._laid_out is None or self._laid_out[0] != key:
            self._laid_out = None
            self._laid_out = key, self._lay_out(row_order, used.arrange)
        return self._laid_out[1]

    def _lay_out(self, row_order: int, arrange: Callable[..., np.ndarray]) -> list[Any]:
        return self.place([
            arrange(
                array,
                np.random.default_rng([row_order, i]),
                max(batch.batch_size, LARGEST_JOINED),
            )
            for i, (batch, arrays) in enumerate(
                zip(self.posterior.minibatches, self.posterior.arrays, strict=True)
            )
            for array in arrays
        ])  # fmt: skip

    def draw_batches(
        self, rng: np.random.Generator, transition: Transition, updates: int
    ) -> list[np.ndarray]:
        """Draw the batches of a call, for each minibatch."""
        count = updates + transition.fresh
        if transition.blocks:
            # As batches of one row of a table of blocks
            return [self.scheme.draw(rng, transition.blocks, 1, count, transition.batches)]
        return [
            self.scheme.draw(rng, len(arrays[0]), batch.batch_size, count, transition.batches)
            for batch, arrays in zip(self.posterior.minibatches, self.posterior.arrays, strict=True)
        ]

    # ------------------------------------------------------------------ errors

    def why_not_finite(
        self, phi: Sequence[np.ndarray], scales: Sequence[np.ndarray], others: Sequence[np.ndarray]
    ) -> str:
        """Return a message that names what is not finite at a start."""
        terms = self.posterior.terms
        point = [*phi, *scales, *others]
        values = self._at_first_rows(list(terms.values()))(*point)
        gradients = self._at_first_rows(self.posterior.gradient)(*point)
        bad_terms = [
            f"the log density of '{name}' is {float(value)}"
            for name, value in zip(terms, values, strict=True)
            if not np.isfinite(value)
        ]
        bad_gradients = [
            f"the gradient for '{c.name}' is not finite"
            for c, g in zip(self.posterior.coordinates, gradients, strict=True)
            if not np.all(np.isfinite(g))
        ]
        bad = "; ".join(bad_terms + bad_gradients) or "the log density of some rows is not finite"
        return (
            f"The chain cannot start: {bad}. Pass initvals= to pm.sample with values that the "
            "priors and the likelihood allow."
        )

    def _at_first_rows(self, outputs: list[TensorVariable]) -> Callable[..., Any]:
        posterior = self.posterior
        rows: dict[Any, np.ndarray] = {
            row: array[: batch.batch_size]
            for group, arrays, batch in zip(
                posterior.rows, posterior.arrays, posterior.minibatches, strict=True
            )
            for row, array in zip(group, arrays, strict=True)
        }
        data: dict[Any, np.ndarray] = {**posterior.data, **rows}
        inputs = [*posterior.phi, *posterior.scales, *posterior.others]
        mode = "JAX" if self.backend == "jax" else INTERPRETER
        function = pm.compile([*inputs, *data], outputs, mode=mode, on_unused_input="ignore")
        return lambda *arguments: function(*arguments, *data.values())


def _reason(error: Exception) -> str:
    """Return the first line of a backend's message, which can hold a whole graph."""
    lines = str(error).splitlines() or [type(error).__name__]
    return shorten(lines[0], 300)


def _shared_arrays(model: Model) -> list[np.ndarray]:
    """Return the arrays of every pm.Data and shared variable in the model."""
    graphs = [*model.basic_RVs, *model.rvs_to_values.values(), *model.potentials]
    return [
        source.get_value(borrow=True)
        for source in graph_inputs(graphs)
        if isinstance(source, SharedVariable) and isinstance(source.type, TensorType)
    ]
