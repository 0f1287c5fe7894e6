"""One model, one sampler, compiled: what all chains of a process share."""

from __future__ import annotations

import logging

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from textwrap import shorten
from typing import Any

import numpy as np
import pymc as pm

from pymc.exceptions import SamplingError
from pymc.logprob.transforms import Transform
from pymc.model import Model
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.traversal import graph_inputs
from pytensor.tensor.type import TensorType
from pytensor.tensor.variable import TensorVariable

from pymc_sgmcmc.coordinates import INTERPRETER, coordinates_at
from pymc_sgmcmc.minibatch import BATCH_SCHEMES
from pymc_sgmcmc.posterior import Posterior
from pymc_sgmcmc.transition import Sampler, Transition, updates_per_call

__all__ = ["Engine", "Settings"]

_log = logging.getLogger("pymc.sgmcmc")

# What JAX raises, at the first call only, for a graph whose shapes it cannot know
_UNTRACEABLE = (IndexError, NotImplementedError, TypeError, ValueError)

# Halvings of the jitter before the unjittered start is the only one left
_MOST_HALVINGS = 10


@dataclass(frozen=True)
class Settings:
    """What decides the compiled function, beside the model."""

    thin: int
    batch: str
    transforms: str | Mapping[str, Transform | None]
    scale: Mapping[str, np.ndarray]
    temperature: float
    backend: str
    compile_kwargs: Mapping[str, Any]


class Engine:
    """The posterior and the compiled transition of one step method.

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
        self._read = _shared_arrays(model)
        coordinates, phi, _ = coordinates_at(model, values, settings.transforms, point)
        self.posterior = Posterior(model, coordinates, settings.temperature)
        self.whitening = [self._whitening(c.name, x) for c, x in zip(coordinates, phi, strict=True)]
        self._compile(phi, "numba" if settings.backend == "numba" else "jax")
        self._tried = False

    def _whitening(self, name: str, phi: np.ndarray) -> np.ndarray | None:
        scale = self.settings.scale.get(name)
        if scale is None:
            return None
        try:
            return np.array(np.broadcast_to(scale, phi.shape), dtype=phi.dtype)
        except ValueError:
            raise ValueError(
                f"scale['{name}'] has shape {scale.shape}, but the unconstrained coordinates of "
                f"'{name}' have shape {phi.shape}. Pass an array of that shape, or one number."
            ) from None

    def _compile(self, phi: list[np.ndarray], backend: str) -> None:
        self._evaluator: Any = None
        updates = updates_per_call(self.settings.thin, sum(x.size for x in phi))
        try:
            self.transition = Transition(
                self.posterior,
                self.sampler,
                position=phi,
                extra=self.sampler.initial_extra(phi, np.random.default_rng(0)),
                whitened=[w is not None for w in self.whitening],
                contiguous=self.scheme.contiguous,
                updates=updates,
                backend=backend,
                compile_kwargs=self.settings.compile_kwargs,
            )
        except (NotImplementedError, AttributeError) as error:
            if backend == "jax" and self.settings.backend == "auto":
                self._fall_back(phi, error)
                return
            raise NotImplementedError(
                f"The model has an operation that the {backend} backend lacks: {_reason(error)}. "
                f"Pass backend='{'numba' if backend == 'jax' else 'jax'}'."
            ) from error

    def _fall_back(self, phi: list[np.ndarray], error: Exception) -> None:
        reason = _reason(error)
        if self.settings.backend == "jax":
            raise NotImplementedError(
                f"JAX cannot run this model: {reason.rstrip('.')}. Pass backend='numba'."
            ) from error
        _log.info("JAX cannot run this model (%s): compiling with numba instead.", reason)
        self._compile(phi, "numba")

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

    def whiten(self, phi: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Return ψ of φ."""
        return [x if w is None else x / w for x, w in zip(phi, self.whitening, strict=True)]

    def jittered(
        self,
        phi: list[np.ndarray],
        scales: list[np.ndarray],
        point: Mapping[str, np.ndarray],
        rng: np.random.Generator,
    ) -> list[np.ndarray]:
        """Move a start by up to one in each unconstrained coordinate.

        The jitter is halved until density and gradient are finite and the density is not
        absurdly lower than at the start itself.

        Raises
        ------
        SamplingError
            If the density or its gradient is not finite at the start itself.
        """
        others = [point[value.name] for value in self.posterior.others]

        def potential(x: list[np.ndarray]) -> float:
            log_density, *gradient = self._evaluate(*x, *scales, *others)
            finite = np.isfinite(log_density) and all(np.all(np.isfinite(g)) for g in gradient)
            return -float(log_density) if finite else np.inf

        try:
            start = potential(phi)
        except _UNTRACEABLE as error:
            if self.transition.backend == "numba":
                raise
            self._fall_back(phi, error)
            start = potential(phi)
        if not np.isfinite(start):
            raise SamplingError(self._why_not_finite(phi, scales, others))
        jitter = [rng.uniform(-1, 1, size=x.shape) for x in phi]
        for k in range(_MOST_HALVINGS):
            moved = [(x + j * 2.0**-k).astype(x.dtype) for x, j in zip(phi, jitter, strict=True)]
            if potential(moved) <= 2 * abs(start) + 1000:
                return moved
        return phi

    def _first_rows(self) -> dict[Any, np.ndarray]:
        return {
            row: array[: len_of.batch_size]
            for group, arrays, len_of in zip(
                self.posterior.rows, self.posterior.arrays, self.posterior.minibatches, strict=True
            )
            for row, array in zip(group, arrays, strict=True)
        }

    def _function_at_first_rows(self, outputs: list[TensorVariable]) -> Any:
        posterior = self.posterior
        data = {**posterior.data, **self._first_rows()}
        mode = "JAX" if self.transition.backend == "jax" else INTERPRETER
        inputs = [*posterior.phi, *posterior.scales, *posterior.others]
        function = pm.compile([*inputs, *data], outputs, mode=mode, on_unused_input="ignore")
        return lambda *arguments: function(*arguments, *data.values())

    def _evaluate(self, *arguments: np.ndarray) -> list[np.ndarray]:
        """Log density and gradient, for all chains of this process compiled once."""
        if self._evaluator is None:
            outputs = [self.posterior.log_density, *self.posterior.gradient]
            self._evaluator = self._function_at_first_rows(outputs)
        return self._evaluator(*arguments)

    def _why_not_finite(
        self, phi: list[np.ndarray], scales: list[np.ndarray], others: list[np.ndarray]
    ) -> str:
        terms = self.posterior.terms
        values = self._function_at_first_rows(list(terms.values()))(*phi, *scales, *others)
        gradients = self._function_at_first_rows(self.posterior.gradient)(*phi, *scales, *others)
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
        return (
            f"The chain cannot start: {'; '.join(bad_terms + bad_gradients)}. Pass initvals= to "
            "pm.sample with values that the priors and the likelihood allow."
        )

    def prepare(self, scales: list[np.ndarray], row_order: int) -> tuple[list[Any], list[Any]]:
        """Place what a chain's calls have in common: before and after the others' values."""
        place = self.transition.place
        before = [*(w for w in self.whitening if w is not None), *scales]
        tables = [
            self.scheme.arrange(array, np.random.default_rng([row_order, i]), batch.batch_size)
            for i, (batch, arrays) in enumerate(
                zip(self.posterior.minibatches, self.posterior.arrays, strict=True)
            )
            for array in arrays
        ]
        return place(before), place([*self.posterior.data.values(), *tables])

    def draw_batches(self, rng: np.random.Generator, updates: int) -> list[np.ndarray]:
        """Draw the batches of ``updates`` updates, for each minibatch."""
        return [
            self.scheme.draw(rng, len(arrays[0]), batch.batch_size, updates)
            for batch, arrays in zip(self.posterior.minibatches, self.posterior.arrays, strict=True)
        ]

    def run(
        self, position: list[Any], extra: dict[str, list[Any]], *arguments: Any
    ) -> tuple[list[Any], dict[str, list[Any]], list[Any], dict[str, float]]:
        """Call the transition; where the choice is ours, numba serves what JAX cannot trace."""
        if self._tried or self.transition.backend == "numba":
            return self.transition(position, extra, *arguments)
        try:
            result = self.transition(position, extra, *arguments)
        except _UNTRACEABLE as error:
            self._fall_back([np.asarray(x) for x in position], error)
            self._tried = True
            numpy_extra = {k: [np.asarray(x) for x in v] for k, v in extra.items()}
            step_sizes, batches, noise, fixed = arguments
            return self.transition(
                [np.array(x) for x in position],
                numpy_extra,
                np.array(step_sizes),
                batches,
                noise,
                self.transition.place([np.array(x) for x in fixed]),
            )
        self._tried = True
        return result


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
