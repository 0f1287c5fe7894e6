"""A model, read in coordinates and compiled: what all chains of a process share."""

from __future__ import annotations

import logging
import operator

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from pymc.model import Model
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.traversal import graph_inputs
from pytensor.tensor.type import TensorType
from pytensor.tensor.variable import TensorVariable

from pymc_sgmcmc.backends.compiling import building, compiled
from pymc_sgmcmc.backends.errors import BackendError, first_line
from pymc_sgmcmc.backends.placing import place
from pymc_sgmcmc.centring.gaussian_map import Probe
from pymc_sgmcmc.centring.information import read
from pymc_sgmcmc.checks import without_elements
from pymc_sgmcmc.disk.fetch import has_source
from pymc_sgmcmc.kernel import explain
from pymc_sgmcmc.kernel.options import Options
from pymc_sgmcmc.kernel.potential import Potential
from pymc_sgmcmc.kernel.program import Program
from pymc_sgmcmc.kernel.sampler import Sampler
from pymc_sgmcmc.kernel.tables import RowMemory, Tables
from pymc_sgmcmc.model.batch_schemes import BATCH_SCHEMES, BatchScheme, Runs
from pymc_sgmcmc.model.coordinates import Coordinate, at_scales, coordinates_for, left_as_written
from pymc_sgmcmc.model.graphs import depends_on
from pymc_sgmcmc.model.masses import Masses
from pymc_sgmcmc.model.posterior import Posterior
from pymc_sgmcmc.model.row_view import in_batches

_log = logging.getLogger("pymc.sgmcmc")

# Largest number of values stored for an anchor: they are saved and sent with a chain's state
_LARGEST_MEMORY = 2**21

Arrays = Sequence[np.ndarray]


class Engine:
    """The posterior of a model, its data as a backend reads them, and what is compiled of both.

    ``point`` is any point of the model, for shapes; forked processes share ``row_memory``. Chains
    need a ``sampler``, whose updates are the ``program``.
    """

    @building()
    def __init__(
        self,
        model: Model,
        values: list[TensorVariable],
        options: Options,
        point: Mapping[str, np.ndarray],
        *,
        sampler: Sampler | None = None,
        row_memory: RowMemory | None = None,
    ) -> None:
        self._as_written = model
        self.model = model = in_batches(model, options.batch_dim, options.batch_size)
        self.values = values
        self.options = options
        self.backend = "numba" if options.backend == "numba" else "jax"
        # Maps a point of PyMC to φ and the scales that belong to it
        coordinates, self.express, self._of_values = coordinates_for(
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
            rows = [x for group in self.posterior.arrays if has_source([group]) for x in group]
            self.scheme = Runs(
                sum(source.row_bytes for source in rows), max(source.chunk_rows for source in rows)
            )
        if options.centring and (names := left_as_written(coordinates)):
            listed = ", ".join(names)
            _log.debug("Hierarchical or standard, and sampled only as written: %s.", listed)
        self.dimension = sum(x.size for x in self.express(point)[0])
        if not self.dimension:
            raise ValueError(without_elements(coordinates[0].name))
        self._sampler = sampler
        self._row_memory = row_memory
        self._tables = Tables(self.posterior, row_memory)
        self._potential: Potential | None = None
        self._functions: dict[str, Callable[..., Any]] = {}  # by name
        self._joint: Engine | None = None

    @property
    def sampler(self) -> Sampler:
        """The algorithm that is sampled by."""
        assert self._sampler is not None
        return self._sampler

    @cached_property
    def program(self) -> Program:
        """The sampler's compiled updates."""
        return Program(self.posterior, self.sampler, self.scheme, self.options.compile_kwargs)

    def joint(self, point: Mapping[str, np.ndarray]) -> Engine:
        """Return the model of all continuous variables, as one step would sample them."""
        if self._joint is None:
            default = Options()
            options = replace(
                self.options, transforms=default.transforms, scale=default.scale, centring=True
            )
            self._joint = Engine(
                self._as_written, self._as_written.continuous_value_vars, options, point,
                row_memory=self._row_memory,
            )  # fmt: skip
        return self._joint

    # ------------------------------------------------------------------ coordinates

    def expressed(self, point: Mapping[str, np.ndarray], scales: Arrays) -> list[np.ndarray]:
        """Return φ at a point of PyMC, in coordinates of these scales."""
        values, coordinates = self.model.value_vars, self.posterior.coordinates
        arguments = [*(point[str(v.name)] for v in values), *scales]
        if (function := self._functions.get("of values")) is None:
            inputs = [*values, *self.posterior.scales]
            function = compiled(inputs, self._of_values, self.backend)
            try:
                function(*arguments)
            except BackendError:
                # A user's transform may have an inverse alone
                function = compiled(inputs, self._of_values, "interpreter")
            self._functions["of values"] = function
        results = function(*arguments)
        return [np.array(x, dtype=c.phi.dtype) for x, c in zip(results, coordinates, strict=True)]

    def values_at(self, phi: Arrays, scales: Arrays, others: Arrays) -> list[np.ndarray]:
        """Return PyMC's value variables at φ."""
        values = self._function("values", self.posterior.values)
        return [np.array(x) for x in values(*phi, *scales, *others)]

    def at_scales(self, phi: Arrays, old: Arrays, new: Arrays, others: Arrays) -> list[np.ndarray]:
        """Return φ in coordinates of other scales and weights, at the same θ."""
        return at_scales(
            self.posterior.coordinates,
            old,
            new,
            phi,
            lambda: self.hierarchy(phi, old, others, weights=new)[2],
        )

    def scale_arrays(self, scale: Mapping[str, np.ndarray], phi: Arrays) -> list[np.ndarray]:
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

    def bounds_at(
        self, phi: Arrays, scales: Arrays, others: Arrays
    ) -> list[tuple[np.ndarray, np.ndarray]]:
        """Return lower and upper bounds of θ, infinite where there are none, shaped as φ."""
        function = self._function("bounds", [x for pair in self.posterior.bounds for x in pair])
        bounds = iter(function(*phi, *scales, *others))
        return [
            (np.broadcast_to(next(bounds), x.shape), np.broadcast_to(next(bounds), x.shape))
            for x in phi
        ]

    # ------------------------------------------------------------------ weights of hierarchies

    def weights(self, scales: Arrays) -> dict[str, np.ndarray]:
        """Return λ of the variables that have one, shaped as their coordinates, by name."""
        return {c.name: w[0] for c, w in self._weights(scales).items()}

    def standardised(self, scales: Arrays) -> list[bool]:
        """Return for each coordinate whether these weights standardise all elements."""
        weights = self._weights(scales)
        moved = {c: w for c, w in weights.items() if c.map.probe is Probe.COMMON}
        informed = {c for c, w in moved.items() if read(c.map.kind, w).precision.any()}
        return [c in informed for c in self.posterior.coordinates]

    @cached_property
    def depends_on_others(self) -> list[bool]:
        """Whether each of PyMC's values at a φ depends on variables of other step methods."""
        others = set(self.posterior.others)
        return [depends_on([value], others) for value in self.posterior.values]

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

    def _weights(self, scales: Arrays) -> dict[Coordinate, np.ndarray]:
        fitted = [c for c in self.posterior.coordinates if c.scale is not None]
        return {c: w for c, w in zip(fitted, scales, strict=True) if c.weighted}

    def hierarchy(
        self, phi: Arrays, scales: Arrays, others: Arrays, *, weights: Arrays
    ) -> tuple[list[np.ndarray], list[np.ndarray], list[np.ndarray]]:
        """Return σ, μ, and φ at other weights, of coordinates with a weight."""
        posterior = self.posterior
        graphs = [*posterior.spreads, *posterior.locations, *posterior.reweighted]
        function = self._function("hierarchy", graphs, posterior.new_weights)
        new = list(self._weights(weights).values())
        results = [np.asarray(x) for x in function(*phi, *scales, *others, *new)]
        old = [x for x, c in zip(phi, posterior.coordinates, strict=True) if c.weighted]
        n = len(old)
        spreads, locations = (
            [_at_least(x, at.shape) for x, at in zip(part, old, strict=True)]
            for part in (results[:n], results[n : 2 * n])
        )
        moved = [x.astype(at.dtype) for x, at in zip(results[2 * n :], old, strict=True)]
        return spreads, locations, moved

    # ------------------------------------------------------------------ what is compiled

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
                "The model has a GradientPotential, so that its log density is not known. Tuning, "
                "control variates and some diagnostics need it: pass step_size= and "
                "gradient='plain'."
            )
        if self._potential is None:
            self._potential = Potential(self.posterior, self.backend, self.options.compile_kwargs)
        return self._potential

    def potential_at(self, row_order: int, scales: Arrays, others: Arrays) -> Potential:
        """Return the compiled potential for this order of the rows and these fixed values."""
        return self.potential().at(self.fixed(row_order, scales, others))

    def fixed(self, row_order: int, scales: Arrays, others: Arrays) -> list[Any]:
        """Return a potential's inputs beside positions and batches, placed."""
        arrays = {
            "scales": place([np.asarray(x) for x in scales], self.backend),
            "others": place([np.asarray(x) for x in others], self.backend),
            "data": self.data(),
            "tables": self._tables.rows(self.backend, row_order, contiguous=True),
        }
        return self.potential().inputs.arranged(arrays)

    def data(self) -> list[Any]:
        """Return the data lifted out of the model's graph, placed."""
        return self._tables.data(self.backend)

    def tables(self, row_order: int) -> list[Any]:
        """Return the rows in the batch scheme's layout, placed; of rows on disk the sources."""
        return self._tables.rows(self.backend, row_order, contiguous=self.scheme.contiguous)

    def use(self, backend: str) -> None:
        """Compile for a backend from now on."""
        if backend != self.backend:
            self.backend, self._potential, self._functions = backend, None, {}

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

    def _function(
        self, name: str, outputs: list[TensorVariable], further: Sequence[TensorVariable] = ()
    ) -> Callable[..., Any]:
        """Return a function of a point at some rows, compiled once; see :func:`explain.at_rows`."""
        if name not in self._functions:
            function = explain.at_rows(self.posterior, self.backend, outputs, further)
            self._functions[name] = lambda *point: function(point, self._some_rows)
        return self._functions[name]

    @cached_property
    def _some_rows(self) -> list[list[np.ndarray]]:
        return explain.some_rows(self.posterior)

    def at_some_rows(self, phi: Arrays, scales: Arrays, others: Arrays) -> tuple[float, np.ndarray]:
        """Return U and ∇U, flat, from B rows of each minibatch, non-finite ones among them."""
        graphs = [-self.posterior.log_density, *self.posterior.gradient]
        potential, *gradient = self._function("density", graphs)(*phi, *scales, *others)
        return float(potential), Potential.join(gradient)

    # ------------------------------------------------------------------ errors

    def why_not_finite(self, phi: Arrays, scales: Arrays, others: Arrays) -> str:
        """Return a message that names non-finite terms at a start."""
        point = [*phi, *scales, *others]
        return explain.why_not_finite(self.model, self.posterior, self.backend, point)

    def impossible_rows(self, names: Collection[str], point: Arrays) -> str:
        """Name the rows of observed variables without a log density, or return an empty string."""
        return explain.impossible_rows(self.model, self.posterior, self.backend, names, point)

    def impossible_terms(self, point: Arrays) -> list[str]:
        """Return the names of the priors and potentials that have no density at a point."""
        of_data = {rv.name for rv in self.model.observed_RVs}
        terms = {name: x for name, x in self.posterior.terms.items() if name not in of_data}
        values = self._function("priors", list(terms.values()))(*point)
        return [n for n, x in zip(terms, values, strict=True) if not np.asarray(x) > -np.inf]


def same_objects(some: Sequence[Any], others: Sequence[Any]) -> bool:
    """Return whether two lists hold the same objects."""
    return len(some) == len(others) and all(map(operator.is_, some, others))


def parts_of(model: Model) -> list[Any]:
    """Return what a density is made of, the same objects while it is unchanged."""
    values = model.rvs_to_values.values()
    graphs = [*model.basic_RVs, *values, *model.potentials, *model.data_vars]
    arrays = [
        source.get_value(borrow=True)
        for source in graph_inputs(graphs)
        if isinstance(source, SharedVariable) and isinstance(source.type, TensorType)
    ]
    return [*arrays, *model.basic_RVs, *model.potentials, *model.deterministics]


def _at_least(x: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Return x of each element, along optional further dimensions."""
    return np.broadcast_to(x, (*x.shape[: max(0, x.ndim - len(shape))], *shape))
