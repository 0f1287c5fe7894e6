"""A PyMC model, read as a posterior density in the coordinates of the step."""

from __future__ import annotations

import copy

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt

from pymc.distributions.transforms import CircularTransform
from pymc.logprob.basic import transformed_conditional_logp
from pymc.logprob.utils import replace_rvs_by_values
from pymc.model import Model
from pytensor.gradient import NullTypeGradError
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors
from pytensor.tensor.variable import TensorVariable

from pymc_sgmcmc.backends.errors import first_line
from pymc_sgmcmc.centring.coefficients import Coefficients
from pymc_sgmcmc.model.coordinates import Coordinate
from pymc_sgmcmc.model.graphs import gradient_of, lengthened, merged, substitute
from pymc_sgmcmc.model.masses import Masses
from pymc_sgmcmc.model.minibatch import (
    Minibatch,
    axis_of_rows,
    find_minibatches,
    replace_minibatches,
)
from pymc_sgmcmc.model.own_gradient import has_own_gradient, own_gradients
from pymc_sgmcmc.model.passes import simplify
from pymc_sgmcmc.model.properties import has_kinks

# What PyTensor raises for operations without a gradient, or with a faulty one
_WITHOUT_GRADIENT = NotImplementedError, NullTypeGradError, TypeError


@dataclass(frozen=True, eq=False)
class _Term:
    """One elementwise term of the log density, and the minibatch that it is a part of."""

    name: str
    log_density: TensorVariable
    minibatch: int | None


@dataclass(frozen=True, eq=False)
class _Graphs:
    """What is read of a model, as graphs of φ; one for each coordinate but where noted."""

    log_densities: list[TensorVariable]  # of each term
    values: list[TensorVariable]  # PyMC's value variables
    parameters: list[TensorVariable]  # θ
    log_slopes: list[TensorVariable]  # log|det f′(φ)|, elementwise for elementwise maps
    lower: list[TensorVariable]  # bounds of θ, −∞ and ∞ where there are none
    upper: list[TensorVariable]
    spreads: list[TensorVariable]  # of coordinates with a weight, as the hierarchy says
    locations: list[TensorVariable]  # the same
    reweighted: list[TensorVariable]  # of these, φ at ``new_weights`` for the same θ

    @property
    def all(self) -> list[TensorVariable]:
        """The graphs of all fields, in their order."""
        return [graph for field in fields(self) for graph in getattr(self, field.name)]

    def map(self, rewrite: Callable[[list[TensorVariable]], Sequence[TensorVariable]]) -> _Graphs:
        """Return what ``rewrite`` returns for all graphs together."""
        new = iter(rewrite(self.all))
        return _Graphs(*([next(new) for _ in getattr(self, f.name)] for f in fields(self)))


class Posterior:
    """The log density of a model's posterior in the coordinates φ, all symbolic.

    U(φ) = −log p(data, f(φ)) − log|det f′(φ)| is the potential of the full data. A temperature T
    divides prior and likelihood, not the Jacobian.
    """

    def __init__(
        self, model: Model, coordinates: Sequence[Coordinate], temperature: float = 1.0
    ) -> None:
        self.coordinates = list(coordinates)
        self.temperature = temperature
        self.kinked = has_kinks(model)  # whether ∇U jumps somewhere
        self._potentials = {potential.name for potential in model.potentials}
        # Other weights of centred coordinates
        self.new_weights = [
            c.scale.type(f"new_{c.scale.name}")
            for c in coordinates
            if c.weighted and c.scale is not None
        ]
        sampled = {coordinate.value for coordinate in coordinates}
        # Value variables that this step does not sample; inputs
        self.others = [value for value in model.value_vars if value not in sampled]
        names, graphs = self._read(model)
        logps = graphs.log_densities
        self.minibatches = find_minibatches(logps)
        of_terms = [_index(find_minibatches([logp]), self.minibatches) for logp in logps]
        self.arrays = [batch.arrays() for batch in self.minibatches]
        # Inputs for each minibatch's batch, leading dimension B
        self.rows = self._row_symbols()
        # For each minibatch the weight of a row with which the sum over all rows is the full data's
        self.row_weights = [
            batch.batch_size / len(arrays[0])
            for batch, arrays in zip(self.minibatches, self.arrays, strict=True)
        ]
        # False where only a gradient's estimate is known
        self.has_value = not has_own_gradient(logps)
        self.noise: dict[TensorVariable, str] = {}
        self.data: dict[Variable, np.ndarray] = {}
        graphs = graphs.map(self._simplified)
        self._summands = [
            _Term(name, logp, batch)
            for name, logp, batch in zip(names, graphs.log_densities, of_terms, strict=True)
        ]
        self.values, self.parameters = graphs.values, graphs.parameters
        # None where θ = φ
        self.log_slopes = [
            None if c.transform is None else slope
            for c, slope in zip(self.coordinates, graphs.log_slopes, strict=True)
        ]
        self.bounds = list(zip(graphs.lower, graphs.upper, strict=True))
        self.spreads, self.locations = graphs.spreads, graphs.locations
        self.reweighted = graphs.reweighted
        # An unbiased estimate of −U from one batch of each minibatch; exact without minibatches
        self.log_density = pt.add(*[pt.sum(term.log_density) for term in self._summands], 0.0)
        self.gradient = self._gradient()  # ∇U, one tensor for each coordinate

    def _simplified(self, graphs: list[TensorVariable]) -> list[TensorVariable]:
        """Return graphs of inputs alone: rows, data and the likelihood's own random numbers."""
        graphs, self.noise = own_gradients(graphs)
        graphs = substitute(graphs, replace_minibatches(graphs, self.minibatches, self.rows))
        graphs, self.data = simplify(graphs)
        if any(isinstance(c.transform, Coefficients) for c in self.coordinates):
            graphs = merged(graphs)
        return graphs

    def _row_symbols(self) -> list[list[TensorVariable]]:
        return [
            [
                pt.tensor(f"batch_{i}_{j}", dtype=a.dtype, shape=(batch.batch_size, *a.shape[1:]))
                for j, a in enumerate(arrays)
            ]
            for i, (batch, arrays) in enumerate(zip(self.minibatches, self.arrays, strict=True))
        ]

    def _gradient(self) -> list[TensorVariable]:
        """Return ∇U, or name the term that has none."""
        try:
            return gradient_of(-self.log_density, self.phi)
        except _WITHOUT_GRADIENT as error:
            for name, term in self.terms.items():
                try:
                    gradient_of(term, self.phi)
                except _WITHOUT_GRADIENT:
                    raise NotImplementedError(
                        f"The log density of '{name}' has no gradient: {first_line(error)}. Give "
                        "its operation a method pullback, or write the term as a "
                        "sg.GradientPotential, with a gradient of yours. For JAX register the "
                        "operation with pytensor.link.jax.dispatch.jax_funcify."
                    ) from error
            raise

    @property
    def phi(self) -> list[TensorVariable]:
        """The position, one tensor for each coordinate."""
        return [coordinate.phi for coordinate in self.coordinates]

    @property
    def entries(self) -> dict[str, tuple[TensorVariable, int | None]]:
        """The terms of the log density with one entry for each row, and their minibatches."""
        return {term.name: (term.log_density, term.minibatch) for term in self._summands}

    @property
    def terms(self) -> dict[str, TensorVariable]:
        """The terms of the log density, summed, by the name of their variable."""
        return {term.name: pt.sum(term.log_density) for term in self._summands}

    @property
    def scales(self) -> list[TensorVariable]:
        """The scales of the coordinates that have one."""
        return [c.scale for c in self.coordinates if c.scale is not None]

    @property
    def base(self) -> TensorVariable:
        """The part of the log density that depends on no minibatch."""
        parts = [pt.sum(t.log_density) for t in self._summands if t.minibatch is None]
        return pt.add(*parts, 0.0) if parts else pt.constant(0.0)

    def weighted(self) -> tuple[TensorVariable, TensorVariable, list[TensorVariable]]:
        """Return the log density with row weights, ``base``, and each minibatch's weights (B,).

        Its sum over blocks of B rows is the full data's, with ``row_weights`` (0 for rows that wrap
        round) and ``base``, the weight of terms without rows, 1 in the first block and 0 in others.
        """
        base = pt.scalar("base", dtype=pytensor.config.floatX)
        weights = [
            pt.tensor(f"weights_{i}", dtype=pytensor.config.floatX, shape=(batch.batch_size,))
            for i, batch in enumerate(self.minibatches)
        ]
        total = pt.as_tensor(0.0)
        for term in self._summands:
            logp = term.log_density
            if term.minibatch is None:
                total = total + base * pt.sum(logp)
                continue
            batch_size = self.minibatches[term.minibatch].batch_size
            if logp.ndim == 0 or logp.type.shape[0] not in (None, batch_size):
                raise NotImplementedError(self._no_rows(term, batch_size))
            weight = weights[term.minibatch].reshape((batch_size, *[1] * (logp.ndim - 1)))
            total = total + pt.sum(weight * logp)
        return total, base, weights

    def _no_rows(self, term: _Term, batch_size: int) -> str:
        shape = term.log_density.type.shape
        of = f"'{term.name}' has, of a batch, a log density of shape {shape}, not one entry "
        why = (
            f"for each of the {batch_size} rows of a batch, so that its value for the full data, "
            "which tuning needs, is unknown. "
        )
        if term.name not in self._potentials:
            return (
                f"The variable {of}{why}Return it from logp= without .sum(). Rows that depend on "
                "each other cannot be drawn alone: leave pm.Minibatch, or batch_size=, out."
            )
        return (
            f"The potential {of}{why}Write it as a vector with one entry for each row (before any "
            ".sum(), each entry multiplied by rows of the data / rows of the batch), or as an "
            "observed pm.CustomDist with total_size=. Left as it is, it can be sampled only "
            "untuned, with step_size, thin and batches set by hand, scale=None and "
            "gradient='plain'."
        )

    def joined(self, count: int) -> Posterior | None:
        """Return this posterior with batches of ``count`` times as many rows, None if impossible.

        Only :meth:`weighted` changes. ``row_weights`` stay as they are: a row counts as before.
        """
        other = copy.copy(self)
        other.minibatches = [
            replace(batch, batch_size=count * batch.batch_size) for batch in self.minibatches
        ]
        other.rows = other._row_symbols()
        longer = {
            old: new
            for olds, news in zip(self.rows, other.rows, strict=True)
            for old, new in zip(olds, news, strict=True)
        }
        logps = lengthened([term.log_density for term in self._summands], longer)
        if logps is None:
            return None
        other._summands = [
            replace(term, log_density=logp)
            for term, logp in zip(self._summands, logps, strict=True)
        ]
        for term in other._summands:
            if term.minibatch is not None:
                size = other.minibatches[term.minibatch].batch_size
                if term.log_density.ndim == 0 or term.log_density.type.shape[0] != size:
                    return None
        return other

    @cached_property
    def circular(self) -> np.ndarray:
        """Which elements of φ, over all variables in turn, lie on a circle."""
        return np.repeat(
            [isinstance(c.transform, CircularTransform) for c in self.coordinates],
            [int(np.prod(c.phi.type.shape)) for c in self.coordinates],
        )

    @property
    def widest(self) -> np.ndarray:
        """The largest sd that a fit may give to each element of φ, over all variables in turn.

        On a nearly flat circle the curvature does not determine a width.
        """
        maps = [c.transform for c in self.coordinates]
        widths = [x.widest if isinstance(x, Masses) else np.inf for x in maps]
        sizes = [int(np.prod(c.phi.type.shape)) for c in self.coordinates]
        return np.where(self.circular, 1.0, np.repeat(widths, sizes))

    def on_line(self, parts: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
        """Leave out elements on a circle, of arrays shaped as φ or of one flat array."""
        circular = self.circular
        if not circular.any():
            return parts
        return [np.concatenate([np.reshape(part, -1) for part in parts])[~circular]]

    def wrapped(self, phi: Sequence[TensorVariable]) -> list[TensorVariable]:
        """Reduce circular coordinates to (−π, π]; others are returned as they are."""
        return [
            pt.arctan2(pt.sin(x), pt.cos(x)) if isinstance(c.transform, CircularTransform) else x
            for x, c in zip(phi, self.coordinates, strict=True)
        ]

    def _read(self, model: Model) -> tuple[list[str], _Graphs]:
        """Return the names of the terms of the log density, and the graphs."""
        # The density is first written in the model's own parameters θ: then f(φ) goes in
        theta: dict[Variable, Variable] = {rv: rv.type() for rv in model.free_RVs}
        at_phi: dict[Variable, Variable] = {}
        known = {**model.rvs_to_values, **theta}

        def of_theta(graphs: Sequence[Any]) -> list[TensorVariable]:
            return replace_rvs_by_values(graphs, rvs_to_values=known)

        def of_phi(graphs: Sequence[Any]) -> list[TensorVariable]:
            return substitute(of_theta(graphs), at_phi)

        rvs = [*model.free_RVs, *model.observed_RVs]
        # Free variables are given here as they are
        transforms = {rv: model.rvs_to_transforms[rv] for rv in model.observed_RVs}
        logps = transformed_conditional_logp(
            rvs,
            rvs_to_values=known,
            rvs_to_transforms={rv: t for rv, t in transforms.items() if t is not None},
        )
        logps = [_rows_first(rv, logp) for rv, logp in zip(rvs, logps, strict=True)]
        logps += of_theta(model.potentials)
        names = [str(rv.name) for rv in [*rvs, *model.potentials]]

        own = {c.rv: (c.transform, c.phi) for c in self.coordinates}
        slopes: dict[Variable, TensorVariable] = {}
        for rv in _parents_first(model, self.coordinates):
            pymcs = model.rvs_to_transforms[rv], model.rvs_to_values[rv]
            transform, x = own.get(rv, pymcs)
            parameter = pt.as_tensor(x)
            if transform is not None:
                parameter, slopes[rv] = of_phi(
                    [f(x, *rv.owner.inputs) for f in (transform.backward, transform.log_jac_det)]
                )
                names.append(f"{rv.name} (Jacobian)")
            # Constants of double precision may have widened it
            parameter = pt.as_tensor(parameter).astype(rv.dtype)
            at_phi[theta[rv]] = rv.type.filter_variable(parameter, allow_convert=True)
        logps = substitute(logps, at_phi)
        tempered = [logp / self.temperature if self.temperature != 1 else logp for logp in logps]

        values: list[TensorVariable] = []
        for c in self.coordinates:
            transform = model.rvs_to_transforms[c.rv]
            if transform is c.transform:
                values.append(pt.as_tensor(c.phi).copy())
            else:
                value = c.rv if transform is None else transform.forward(c.rv, *c.rv.owner.inputs)
                values += of_phi([value])
        bounds = of_phi(
            [
                pt.as_tensor(np.full((), sign * np.inf) if bound is None else bound)
                for sign, side in ((-1, "lower"), (1, "upper"))
                for bound in (getattr(c, side) for c in self.coordinates)
            ]
        )
        weighted = [c for c in self.coordinates if c.weighted]
        hierarchy = of_phi(
            [
                pt.as_tensor(of_map(*c.rv.owner.inputs)).copy()
                for of_map, c in [(c.map.spread, c) for c in weighted]
                + [(c.map.location, c) for c in weighted]
            ]
        )
        reweighted = [c.map.forward(c.rv, *c.rv.owner.inputs) for c in weighted]
        # φ of θ, at new weights: θ itself is that of the old ones
        new = dict(zip([c.scale for c in weighted], self.new_weights, strict=True))
        reweighted = substitute(of_theta(reweighted), new)
        return names, _Graphs(
            log_densities=[*tempered, *slopes.values()],
            values=values,
            parameters=[pt.as_tensor(at_phi[theta[c.rv]]).copy() for c in self.coordinates],
            log_slopes=[slopes.get(c.rv, pt.constant(0.0)) for c in self.coordinates],
            lower=bounds[: len(self.coordinates)],
            upper=bounds[len(self.coordinates) :],
            spreads=hierarchy[: len(weighted)],
            locations=hierarchy[len(weighted) :],
            reweighted=substitute(reweighted, at_phi),
        )


def _parents_first(model: Model, coordinates: Sequence[Coordinate]) -> list[TensorVariable]:
    """Return the free variables in an order in which each follows those that it depends on."""
    maps = {c.rv: c.map for c in coordinates if c.weighted}
    free = set(model.free_RVs)
    ordered: dict[TensorVariable, None] = {}

    def add(rv: TensorVariable) -> None:
        if rv in ordered:
            return
        inputs = rv.owner.inputs
        of_map: list[Any] = maps[rv].depends_on(*inputs) if rv in maps else []
        above = set(ancestors([*inputs, *of_map])) & free
        for parent in model.free_RVs:
            if parent in above and parent is not rv:
                add(parent)
        ordered[rv] = None

    for rv in model.free_RVs:
        add(rv)
    return list(ordered)


def _index(minibatches: list[Minibatch], of_all: list[Minibatch]) -> int | None:
    streams = [minibatch.stream for minibatch in of_all]
    return streams.index(minibatches[0].stream) if minibatches else None


def _rows_first(rv: TensorVariable, logp: TensorVariable) -> TensorVariable:
    """Bring the axis of rows of a minibatch to the front."""
    axis = axis_of_rows(rv)
    if axis is None or not 0 < axis < logp.ndim:
        return logp
    return pt.moveaxis(logp, axis, 0)
