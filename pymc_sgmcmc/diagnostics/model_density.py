"""A model's posterior density at many draws, in PyMC's unconstrained or in standard coordinates."""

from __future__ import annotations

import warnings

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from pymc.distributions.transforms import CircularTransform
from pymc.model import Model
from pymc.vartypes import continuous_types
from scipy.linalg import cholesky, solve_triangular

from pymc_sgmcmc.backends.jax_backend import refuse_inherited
from pymc_sgmcmc.checks import positive
from pymc_sgmcmc.diagnostics.result import unconstrained
from pymc_sgmcmc.kernel.engine import Engine, parts_of, same_objects
from pymc_sgmcmc.kernel.options import Options
from pymc_sgmcmc.kernel.potential import Potential
from pymc_sgmcmc.model.choice_of_batches import chosen_batches
from pymc_sgmcmc.model.initial_point import initial_point
from pymc_sgmcmc.model.minibatch_checks import check_minibatches
from pymc_sgmcmc.model.recognise import LARGEST_DENSE
from pymc_sgmcmc.step.arguments import checked_backend, sampled_values

# A covariance from fewer draws would say more of them than of the posterior
DRAWS_A_DIMENSION = 5

# Its options, the objects that its model is made of, and itself
_latest: tuple[dict[str, Any], list[Any], ModelDensity] | None = None


def density_of(model: Model, **options: Any) -> ModelDensity:
    """Return the :class:`ModelDensity` of a model; that of the latest one is kept, compiled.

    Several diagnostics of one result, or of several results of one model, compile once.
    """
    global _latest  # noqa: PLW0603
    contents = [model, *parts_of(model), *model.rvs_to_values.values()]
    if options.get("backend") != "numba":
        refuse_inherited("Pass backend='numba', or start the process by 'forkserver' or 'spawn'.")
    if _latest is not None and _latest[0] == options and same_objects(_latest[1], contents):
        # Nothing depends on what was computed before
        _latest[2].set_rows(0)
    else:
        _latest = None  # frees its memory before the next one takes some
        _latest = options, contents, ModelDensity(model, **options)
    return _latest[2]


class ModelDensity:
    """U(φ) = −log p(data, f(φ)) − log|det f′(φ)| of all the data, and of batches.

    The arguments are those of the step methods; discrete variables are refused. ``dimension`` is
    that of φ, d; ``batch_size`` and ``rows`` are summed over minibatches, 0 without any.
    """

    def __init__(
        self,
        model: Model,
        *,
        backend: str = "auto",
        temperature: float = 1.0,
        batch_size: int | None = None,
        batch_dim: str | Mapping[str, int] | None = None,
    ) -> None:
        values = sampled_values(model, None)
        if left := [v for v in model.value_vars if v not in values]:
            trees = left[0].dtype in continuous_types
            kind, cure = ("made of trees", "Leave") if trees else ("discrete", "Sum")
            raise NotImplementedError(
                f"The variable '{model.values_to_rvs[left[0]].name}' is {kind} and has no "
                "gradient, which this diagnostic needs of all variables. "
                f"{cure} it out of the model."
            )
        with warnings.catch_warnings():
            # The step method has warned of these already
            warnings.simplefilter("ignore", UserWarning)
            check_minibatches(model)
        chosen = chosen_batches(model, batch_size, batch_dim)
        self.model = model
        backend, kwargs = checked_backend(backend, None)
        temperature = positive("temperature", temperature, usual=1.0)
        self._names = [model.values_to_rvs[v].name for v in values]
        self._value_names = [str(v.name) for v in values]
        options = Options(
            transforms="model",
            temperature=temperature,
            backend=backend,
            compile_kwargs=kwargs,
            batch_size=chosen.size,
            batch_dim=chosen.dim,
        )
        self._compiled = Engine(chosen.model, values, options, initial_point(model))
        self.dimension = self._compiled.dimension
        self._compiled.attempt(self._start)
        self.batch_size = self._potential.batch_size
        self.rows = sum(len(arrays[0]) for arrays in self._compiled.posterior.arrays)

    def _start(self) -> None:
        # Only the first call lets JAX trace the graph
        self.set_rows(0).block(np.zeros((1, self.dimension)), 0)

    def set_rows(self, row_order: int) -> Potential:
        """Put the rows into the order of a seed, and return the potential."""
        self._potential = self._compiled.potential_at(row_order, [], [])
        return self._potential

    def shuffle(self, rng: np.random.Generator) -> None:
        """Permute the rows anew: batches are blocks of consecutive ones."""
        self.set_rows(int(rng.integers(1, 2**31)))

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """For each variable the shape of its unconstrained coordinates."""
        return {
            name: tuple(phi.type.shape)
            for name, phi in zip(self._names, self._compiled.posterior.phi, strict=True)
        }

    def split(self, flat: np.ndarray) -> dict[str, np.ndarray]:
        """Return the variables' parts of a flat vector of length d."""
        return dict(zip(self._names, self._potential.split(flat), strict=True))

    def refuse_circular(self, diagnostic: str) -> None:
        """Raise where a coordinate is a circle."""
        for coordinate in self._compiled.posterior.coordinates:
            if isinstance(coordinate.transform, CircularTransform):
                raise NotImplementedError(
                    f"The variable '{coordinate.name}' is circular, and {diagnostic} is defined "
                    "for unbounded coordinates only. Compare its draws with those of NUTS."
                )

    def positions(self, draws: Mapping[str, np.ndarray]) -> np.ndarray:
        """Return φ, shape (n, d), of draws in the variables' own space; refuse others."""
        with np.errstate(all="ignore"):
            parts = unconstrained(self.model, draws)
        flat = [parts[name].reshape(len(parts[name]), -1) for name in self._value_names]
        for name, part in zip(self._names, flat, strict=True):
            outside = int((~np.isfinite(part)).any(axis=1).sum())
            if outside:
                raise ValueError(
                    f"{outside} of {len(part)} draws of '{name}' are not inside its support, or "
                    "are rounded to its boundary, so that they have no unconstrained coordinates. "
                    "Leave them out, or check that model is the one that was sampled."
                )
        return np.concatenate(flat, axis=1).astype(float)

    def gradients(self, positions: np.ndarray) -> np.ndarray:
        """Return ∇U of the full data at positions, shapes (n, d); refuse what is not finite."""
        return self._finite(self._potential.full(positions)[1])

    def batch_gradients(
        self, positions: np.ndarray, anchor: np.ndarray | None, rng: np.random.Generator
    ) -> np.ndarray:
        """Return an estimate of ∇U from one batch for each position, shape (1, n, d).

        With an anchor, shape (d,), they are (2, n, d): the second ones are less the gradient of
        the same batch at the anchor.
        """
        rows = self._potential.draw_rows(rng, len(positions))
        plain = self._finite(self._potential.batch_gradient(positions, rows))
        if anchor is None:
            return plain[None]
        there = np.broadcast_to(anchor, positions.shape)
        return np.stack([plain, plain - self._finite(self._potential.batch_gradient(there, rows))])

    def _finite(self, gradients: np.ndarray) -> np.ndarray:
        bad = (~np.isfinite(gradients)).any(axis=0)
        if bad.any():
            parts = self.split(bad.astype(float))
            name = next(name for name, part in parts.items() if part.any())
            count = int((~np.isfinite(gradients)).any(axis=1).sum())
            raise ValueError(
                f"The gradient of the log density for '{name}' is not finite at {count} of "
                f"{len(gradients)} points. Leave such draws out, or check that model is the one "
                "that was sampled."
            )
        return gradients


@dataclass(frozen=True)
class Standard:
    """The map φ = m + Lψ to coordinates ψ in which draws have mean 0 and covariance I."""

    centre: np.ndarray  # m, (d,)
    root: np.ndarray  # L, lower triangular of (d, d), or a diagonal of (d,)

    @classmethod
    def of(cls, positions: np.ndarray) -> Standard:
        """Fit to positions of shape (n, d): dense where they are enough for it."""
        n, d = positions.shape
        centre = positions.mean(axis=0)
        sd = positions.std(axis=0, ddof=1)
        # A coordinate in which all draws agree is left in its own unit
        sd = np.where(sd > 0, sd, 1.0)
        if d > LARGEST_DENSE or n < DRAWS_A_DIMENSION * d:
            return cls(centre, sd)
        correlation = np.cov((positions - centre) / sd, rowvar=False).reshape(d, d)
        np.fill_diagonal(correlation, 1.0)
        try:
            root = cholesky(correlation + 1e-10 * np.eye(d), lower=True)
        except np.linalg.LinAlgError:
            return cls(centre, sd)
        return cls(centre, sd[:, None] * root)

    def positions(self, phi: np.ndarray) -> np.ndarray:
        """Return ψ of φ, both of shape (n, d)."""
        away = phi - self.centre
        if self.root.ndim == 1:
            return away / self.root
        return solve_triangular(self.root, away.T, lower=True).T

    def gradients(self, gradients: np.ndarray) -> np.ndarray:
        """Return gradients with respect to ψ, ∇L, of those with respect to φ, shape (n, d)."""
        return gradients * self.root if self.root.ndim == 1 else gradients @ self.root
