"""A model, read and compiled for one backend, whatever shall be done with it."""

from __future__ import annotations

import logging

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np

from pymc.model import Model
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.traversal import graph_inputs
from pytensor.tensor.type import TensorType
from pytensor.tensor.variable import TensorVariable

from pymc_sgmcmc.backends.compiling import BackendError, building, compiled, first_line
from pymc_sgmcmc.backends.placing import aligned, place
from pymc_sgmcmc.disk.fetch import has_source, rows_at, sampled
from pymc_sgmcmc.kernel.noise import FILL
from pymc_sgmcmc.kernel.options import Options
from pymc_sgmcmc.kernel.potential import Potential
from pymc_sgmcmc.kernel.row_memory import SHARED_ORDER, RowMemory, arrange, shape_of_table
from pymc_sgmcmc.model.batch_schemes import BATCH_SCHEMES, BatchScheme, Runs
from pymc_sgmcmc.model.coordinates import (
    Coordinate,
    at_scales,
    coordinates_for,
    left_as_written,
)
from pymc_sgmcmc.model.data_checks import bad_rows, faults_of_data, impossible
from pymc_sgmcmc.model.hierarchy import depends_on
from pymc_sgmcmc.model.masses import Masses
from pymc_sgmcmc.model.posterior import Posterior
from pymc_sgmcmc.model.row_view import in_batches

__all__ = ["CompiledModel"]

_log = logging.getLogger("pymc.sgmcmc")

# Largest number of values stored for an anchor: they are saved and sent with a chain's state
_LARGEST_MEMORY = 2**21

# Number of rows on disk that are searched for non-finite ones
_LOOKED_AT = 2**14


class CompiledModel:
    """The posterior of a model, its data as a backend reads them, and its potential.

    ``point`` is any point of the model, for shapes; forked processes share ``row_memory``.
    """

    @building()
    def __init__(
        self,
        model: Model,
        values: list[TensorVariable],
        options: Options,
        point: Mapping[str, np.ndarray],
        row_memory: RowMemory | None = None,
    ) -> None:
        self.model = model = in_batches(model, options.batch_dim, options.batch_size)
        self.values = values
        self.options = options
        self.backend = "numba" if options.backend == "numba" else "jax"
        self._read = _shared_arrays(model)
        coordinates, self._express = coordinates_for(
            model,
            values,
            options.transforms,
            point,
            named=options.named_transforms,
            centring=options.centring,
            bend=options.bend(sum(np.size(point[str(v.name)]) for v in values)),
        )
        self.posterior = Posterior(model, coordinates, options.temperature)
        self.on_disk = has_source(self.posterior.arrays)
        self.scheme: BatchScheme = BATCH_SCHEMES[options.batch]
        if self.on_disk and options.batch == "shuffled":
            rows = [source for group in self.posterior.arrays if has_source([group])
                    for source in group]  # fmt: skip
            self.scheme = Runs(
                sum(source.row_bytes for source in rows), max(source.chunk_rows for source in rows)
            )
        if options.centring and (names := left_as_written(coordinates)):
            listed = ", ".join(names)
            _log.debug("Hierarchical or standard, and sampled only as written: %s.", listed)
        self.dimension = sum(x.size for x in self._express(point)[0])
        self._potential: Potential | None = None
        self._row_memory = row_memory
        self._laid_out: tuple[Any, list[Any]] | None = None
        self._data: tuple[str, list[Any]] | None = None
        self._of_values: Callable[..., Any] | None = None
        self._of_hierarchy: Callable[..., Any] | None = None
        self._worst_rows: tuple[str, Callable[..., Any]] | None = None

    def is_stale(self) -> bool:
        """Whether the model's data were replaced since they were read."""
        now = _shared_arrays(self.model)
        return len(now) != len(self._read) or any(
            a is not b for a, b in zip(now, self._read, strict=True)
        )

    def express(self, point: Mapping[str, np.ndarray]) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Return φ at a point of PyMC, and the scales that belong to it."""
        return self._express(point)

    def expressed(
        self, point: Mapping[str, np.ndarray], scales: Sequence[np.ndarray]
    ) -> list[np.ndarray]:
        """Return φ at a point of PyMC, in coordinates of these scales."""
        phi, own = self.express(point)
        others = [point[str(value.name)] for value in self.posterior.others]
        return self.at_scales(phi, own, scales, others)

    def values_at(
        self, phi: Sequence[np.ndarray], scales: Sequence[np.ndarray], others: Sequence[np.ndarray]
    ) -> list[np.ndarray]:
        """Return PyMC's value variables at φ."""
        if self._of_values is None:
            self._of_values = self._at_worst_rows(self.posterior.values)
        return [np.array(x) for x in self._of_values(*phi, *scales, *others)]

    def at_scales(
        self,
        phi: Sequence[np.ndarray],
        old: Sequence[np.ndarray],
        new: Sequence[np.ndarray],
        others: Sequence[np.ndarray],
    ) -> list[np.ndarray]:
        """Return φ in coordinates of other scales and weights, at the same θ."""
        return at_scales(
            self.posterior.coordinates,
            old,
            new,
            phi,
            lambda: self._hierarchy(phi, old, others, weights=new)[2],
        )

    def hierarchy(
        self, phi: Sequence[np.ndarray], scales: Sequence[np.ndarray], others: Sequence[np.ndarray]
    ) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Return σ and μ of each element with a weight, shaped as φ."""
        return self._hierarchy(phi, scales, others, weights=scales)[:2]

    def weights(self, scales: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
        """Return λ of the variables that have one, shaped as their coordinates, by name."""
        found = self._weights(scales)
        return {c.name: w[0] if c.map.numbers else w for c, w in found.items()}

    def standardised(self, scales: Sequence[np.ndarray]) -> list[bool]:
        """Return for each coordinate whether these weights standardise all elements."""
        told = {c for c, w in self._weights(scales).items() if c.map.by_shift and w[1].any()}
        return [c in told for c in self.posterior.coordinates]

    @property
    def shares_noise(self) -> bool:
        """Whether some variable's noise is shared among its coordinates."""
        weighted = (c.weighted and c.map.shares_noise for c in self.posterior.coordinates)
        return any(weighted) or self.noise_grows

    @property
    def noise_grows(self) -> bool:
        """Whether some variable with a sampled law has noise that grows along its coordinates."""
        coordinates = self.posterior.coordinates
        own = {c.rv for c in coordinates}
        simplexes = (c for c in coordinates if isinstance(c.transform, Masses))
        return any(c.weighted and c.map.noise_grows for c in coordinates) or any(
            depends_on(c.rv.owner.inputs, own) for c in simplexes
        )

    def _weights(self, scales: Sequence[np.ndarray]) -> dict[Coordinate, np.ndarray]:
        fitted = [c for c in self.posterior.coordinates if c.scale is not None]
        return {c: w for c, w in zip(fitted, scales, strict=True) if c.weighted}

    def _hierarchy(
        self,
        phi: Sequence[np.ndarray],
        scales: Sequence[np.ndarray],
        others: Sequence[np.ndarray],
        *,
        weights: Sequence[np.ndarray],
    ) -> tuple[list[np.ndarray], list[np.ndarray], list[np.ndarray]]:
        """Return σ, μ, and φ at other weights, of coordinates with a weight."""
        posterior = self.posterior
        if self._of_hierarchy is None:
            graphs = [*posterior.spreads, *posterior.locations, *posterior.reweighted]
            self._of_hierarchy = self._at_worst_rows(graphs, posterior.new_weights)
        new = list(self._weights(weights).values())
        found = [np.asarray(x) for x in self._of_hierarchy(*phi, *scales, *others, *new)]
        old = [x for x, c in zip(phi, posterior.coordinates, strict=True) if c.weighted]
        n = len(old)
        spreads, locations = (
            [_at_least(x, at.shape) for x, at in zip(part, old, strict=True)]
            for part in (found[:n], found[n : 2 * n])
        )
        moved = [x.astype(at.dtype) for x, at in zip(found[2 * n :], old, strict=True)]
        return spreads, locations, moved

    # ------------------------------------------------------------------ compiled functions

    @property
    def remembers_blocks(self) -> bool:
        """Whether the gradients at an anchor of all blocks of the data can be stored."""
        if not self.scheme.contiguous or len(self.posterior.minibatches) != 1:
            return False
        return self.potential().n_blocks * self.dimension <= _LARGEST_MEMORY

    def potential(self) -> Potential:
        """Return the compiled potential, or raise where a term has a gradient alone."""
        if not self.posterior.has_value:
            raise NotImplementedError(
                "The model has a GradientPotential, so that its log density is not known. "
                "Diagnostics that need it, tuning and anchors of gradients are not to be had: pass "
                "step_size=, and gradient='plain'."
            )
        if self._potential is None:
            self._potential = Potential(self.posterior, self.backend, self.options.compile_kwargs)
        return self._potential

    def potential_at(
        self,
        row_order: int,
        scales: Sequence[np.ndarray],
        others: Sequence[np.ndarray],
    ) -> Potential:
        """Return the compiled potential for this order of the rows and these fixed values."""
        return self.potential().at(self.fixed(row_order, scales, others))

    def fixed(
        self, row_order: int, scales: Sequence[np.ndarray], others: Sequence[np.ndarray]
    ) -> list[Any]:
        """Return a potential's inputs beside positions and batches, placed."""
        variable = self.place([np.asarray(x) for x in [*scales, *others]])
        return [*variable, *self.data(), *self.tables(row_order, "shuffled")]

    def use(self, backend: str) -> None:
        """Compile for a backend from now on."""
        if backend != self.backend:
            self.backend, self._potential = backend, None

    @building()
    def attempt(self, first_use: Callable[[], Any]) -> Any:
        """Compile and call; where the user chose no backend, numba replaces a JAX that fails."""
        try:
            return first_use()
        except BackendError as error:
            if self.backend != "jax" or self.options.backend != "auto":
                raise
            _log.info(
                "JAX cannot run this model (%s): compiling with numba instead, which may take "
                "minutes.",
                first_line(error.__cause__),
            )
            self.use("numba")
            return first_use()

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
        """Return the data lifted out of the model's graph, placed once."""
        if self._data is None or self._data[0] != self.backend:
            self._data = self.backend, self.place(list(self.posterior.data.values()))
        return self._data[1]

    def tables(self, row_order: int, scheme: str | None = None) -> list[Any]:
        """Return the rows in a batch scheme's layout, placed; of rows on disk the sources.

        The last layout is kept, so that tuning and sampling read the same copy of the data.
        """
        used = BATCH_SCHEMES[scheme] if scheme else self.scheme
        key = self.backend, row_order, used.contiguous
        if self._laid_out is None or self._laid_out[0] != key:
            self._laid_out = None
            self._laid_out = key, self._lay_out(row_order, used)
        return self._laid_out[1]

    def _lay_out(self, row_order: int, scheme: BatchScheme) -> list[Any]:
        minibatches, groups = self.posterior.minibatches, self.posterior.arrays
        if not scheme.contiguous:
            return self.place([array for arrays in groups for array in arrays])
        in_memory = [
            (array, i, shape_of_table(array, batch.batch_size))
            for i, (batch, arrays) in enumerate(zip(minibatches, groups, strict=True))
            if not has_source([arrays])
            for array in arrays
        ]

        def write(tables: list[np.ndarray]) -> None:
            for (array, i, _), table in zip(in_memory, tables, strict=True):
                arrange(array, np.random.default_rng([row_order, i]), table)

        memory = self._row_memory
        if memory is not None and row_order == SHARED_ORDER and memory.is_of(minibatches):
            tables = memory.tables(write)
        else:
            tables = [aligned(shape, array.dtype) for array, _, shape in in_memory]
            write(tables)
        placed = iter(self.place(tables))
        return [
            array if has_source([arrays]) else next(placed) for arrays in groups for array in arrays
        ]

    # ------------------------------------------------------------------ errors

    def why_not_finite(
        self, phi: Sequence[np.ndarray], scales: Sequence[np.ndarray], others: Sequence[np.ndarray]
    ) -> str:
        """Return a message that names non-finite terms at a start."""
        terms, gradients = self._not_finite(phi, scales, others)
        bad = [f"the log density of '{name}' is {value}" for name, value in terms.items()]
        bad += [f"the gradient for '{name}' is not finite" for name in gradients]
        what = "; ".join(bad) or "the log density of some rows is not finite"
        names = terms or self.posterior.terms
        # Where a prior has no density either, the start is at fault
        of_data = {rv.name for rv in self.model.observed_RVs}.issuperset(terms)
        cure = (
            faults_of_data(self.model, names)
            or (of_data and self.impossible_rows(names, [*phi, *scales, *others]))
            or "Pass initvals= to pm.sample with values that the priors and the likelihood allow."
        )
        return f"The chain cannot start: {what}. {cure}"

    def impossible_rows(self, names: Collection[str], point: Sequence[np.ndarray]) -> str:
        """Name the rows of observed variables without a log density, or return an empty string."""
        posterior, told = self.posterior, []
        for rv in [rv for rv in self.model.observed_RVs if rv.name in names]:
            log_density, of = posterior.entries[rv.name]
            function, n, size = self._of_rows([log_density]), 1, 1
            if of is not None:
                n, size = len(posterior.arrays[of][0]), posterior.minibatches[of].batch_size
            bad = []
            for first in range(0, n, size):
                batches = [
                    [rows_at(array, first, batch.batch_size) for array in arrays]
                    for batch, arrays in zip(posterior.minibatches, posterior.arrays, strict=True)
                ]
                found = np.atleast_1d(function(point, batches)[0])
                entries = np.argwhere(~(found > -np.inf))
                entries[:, 0] += min(first, n - size)
                bad.append(entries)
            if any(map(len, bad)):
                count = len(found) if of is None else n
                told.append(impossible(self.model, rv, np.concatenate(bad), count))
        return " ".join(told)

    def _not_finite(
        self, phi: Sequence[np.ndarray], scales: Sequence[np.ndarray], others: Sequence[np.ndarray]
    ) -> tuple[dict[str, float], list[str]]:
        """Return non-finite terms of the density, and variables with non-finite gradients."""
        terms = self.posterior.terms
        point = [*phi, *scales, *others]
        values = self._at_worst_rows(list(terms.values()))(*point)
        gradients = self._at_worst_rows(self.posterior.gradient)(*point)
        return (
            {
                name: float(value)
                for name, value in zip(terms, values, strict=True)
                if not np.isfinite(value)
            },
            [
                c.name
                for c, g in zip(self.posterior.coordinates, gradients, strict=True)
                if not np.all(np.isfinite(g))
            ],
        )

    def at_worst_rows(
        self, phi: Sequence[np.ndarray], scales: Sequence[np.ndarray], others: Sequence[np.ndarray]
    ) -> tuple[float, np.ndarray]:
        """Return U and ∇U, flat, from B rows of each minibatch, non-finite rows first."""
        if self._worst_rows is None or self._worst_rows[0] != self.backend:
            posterior = self.posterior
            graphs = [-posterior.log_density, *posterior.gradient]
            self._worst_rows = self.backend, self._at_worst_rows(graphs)
        potential, *gradient = self._worst_rows[1](*phi, *scales, *others)
        return float(potential), Potential.join(gradient)

    def bounds_at(
        self, phi: Sequence[np.ndarray], scales: Sequence[np.ndarray], others: Sequence[np.ndarray]
    ) -> list[tuple[np.ndarray, np.ndarray]]:
        """Return lower and upper bounds of θ, infinite where there are none, shaped as φ."""
        flat = [bound for pair in self.posterior.bounds for bound in pair]
        found = iter(self._at_worst_rows(flat)(*phi, *scales, *others))
        return [
            (np.broadcast_to(next(found), x.shape), np.broadcast_to(next(found), x.shape))
            for x in phi
        ]

    def _at_worst_rows(
        self, outputs: list[TensorVariable], further: Sequence[TensorVariable] = ()
    ) -> Callable[..., Any]:
        batches: list[list[np.ndarray]] = []
        for whole, batch in zip(self.posterior.arrays, self.posterior.minibatches, strict=True):
            arrays = sampled(whole, max(batch.batch_size, _LOOKED_AT))
            # Rows with a number that is not finite, filled up with the first of the others
            bad = bad_rows(arrays)
            of_bad = np.flatnonzero(bad)[: batch.batch_size]
            good = np.flatnonzero(~bad[: batch.batch_size + len(of_bad)])
            first = np.concatenate([of_bad, good])[: batch.batch_size]
            batches.append([array[first] for array in arrays])
        function = self._of_rows(outputs, further)
        return lambda *point: function(point, batches)

    def _of_rows(
        self, outputs: list[TensorVariable], further: Sequence[TensorVariable] = ()
    ) -> Callable[..., Any]:
        """Return a function of a point and of one batch of each minibatch."""
        posterior, rng = self.posterior, np.random.default_rng(0)
        noise: dict[Any, np.ndarray] = {
            x: FILL[kind](rng, np.empty(x.type.shape, dtype=x.dtype))
            for x, kind in posterior.noise.items()
        }
        data: dict[Any, np.ndarray] = {**posterior.data, **noise}
        inputs = [*posterior.phi, *posterior.scales, *posterior.others, *further]
        backend = "jax" if self.backend == "jax" else "interpreter"
        function = compiled([*inputs, *chain(*posterior.rows), *data], outputs, backend)
        return lambda point, batches: function(*point, *chain(*batches), *data.values())


def _shared_arrays(model: Model) -> list[np.ndarray]:
    """Return the arrays of every pm.Data and shared variable in the model."""
    graphs = [*model.basic_RVs, *model.rvs_to_values.values(), *model.potentials]
    return [
        source.get_value(borrow=True)
        for source in graph_inputs(graphs)
        if isinstance(source, SharedVariable) and isinstance(source.type, TensorType)
    ]


def _at_least(x: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Return what is known of each element, along optional further dimensions."""
    return np.broadcast_to(x, (*x.shape[: max(0, x.ndim - len(shape))], *shape))
