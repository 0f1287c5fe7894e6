"""The unconstrained coordinates in which each variable is sampled."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, cast

import numpy as np
import pymc as pm
import pytensor.tensor as pt

from pymc.distributions.continuous import HalfCauchyRV, HalfStudentTRV
from pymc.logprob.transforms import Transform
from pymc.model import Model
from pytensor.tensor.variable import TensorVariable

from pymc_sgmcmc.backends.interpreting import INTERPRETER
from pymc_sgmcmc.centring.coefficients import Coefficients
from pymc_sgmcmc.centring.gaussian_map import GaussianMap
from pymc_sgmcmc.centring.partial import Centring
from pymc_sgmcmc.model.affine_use import ModelView, is_standard
from pymc_sgmcmc.model.graphs import depends_on, substitute
from pymc_sgmcmc.model.masses import Masses, masses_of
from pymc_sgmcmc.model.recognise import recognised
from pymc_sgmcmc.model.support import kind_of_support
from pymc_sgmcmc.model.transform_choice import lipschitz, mirror
from pymc_sgmcmc.transforms import Softplus

Express = Callable[[Mapping[str, np.ndarray]], tuple[list[np.ndarray], list[np.ndarray]]]

# Scale of the scaled softplus over the variable's start: the map is then log-like in the bulk. A
# half-Cauchy prior's tail is one of powers of ten, log-like too
_SCALE_OVER_START = 10.0
_SCALE_OF_LONG_TAILS = 1e4
_LONG_TAILED = (HalfCauchyRV, HalfStudentTRV)


@dataclass(frozen=True, eq=False)
class Coordinate:
    """A variable and the unconstrained coordinates φ in which it is sampled, θ = f(φ)."""

    name: str
    rv: TensorVariable
    value: TensorVariable  # PyMC's value variable
    transform: Transform | None  # f, as ``transform.backward``
    phi: TensorVariable
    # What tuning fits of the map: s of a softplus, shaped as θ, a hierarchy's information, or the
    # scale of masses
    scale: TensorVariable | None
    kind: str  # as ``kind_of_support`` names it
    lower: Any | None  # bounds of θ, graphs of the variable's inputs or None
    upper: Any | None

    @property
    def weighted(self) -> bool:
        """Whether ``scale`` is the information of a hierarchy's map."""
        return self.scale is not None and isinstance(self.transform, GaussianMap)

    @property
    def bends(self) -> bool:
        """Whether θ = s softplus(φ), log-like below 0 and linear above, with a fitted s."""
        return self.scale is not None and isinstance(self.transform, Softplus)

    @property
    def unbounded(self) -> bool:
        """Whether φ is real because θ is."""
        if isinstance(self.transform, GaussianMap):
            return self.transform.unbounded
        return self.transform is None or isinstance(self.transform, Centring)

    @property
    def map(self) -> GaussianMap:
        """The map of a hierarchy."""
        assert isinstance(self.transform, GaussianMap)
        return self.transform


def coordinates_at(
    model: Model,
    values: Sequence[TensorVariable],
    choice: str,
    point: Mapping[str, np.ndarray],
    **options: Any,
) -> tuple[list[Coordinate], list[np.ndarray], list[np.ndarray]]:
    """Choose coordinates as :func:`coordinates_for` does, and express the point in them."""
    coordinates, express, _ = coordinates_for(model, values, choice, point, **options)
    return coordinates, *express(point)


def coordinates_for(
    model: Model,
    values: Sequence[TensorVariable],
    choice: str,
    point: Mapping[str, np.ndarray],
    *,
    named: Mapping[str, Transform | None] = MappingProxyType({}),
    centring: bool = False,
    bend: int | None = None,
) -> tuple[list[Coordinate], Express, list[TensorVariable]]:
    """Choose coordinates of each value variable, and return them with a function of a point.

    Beside these are the graphs of φ, in coordinates of any scales, of all of PyMC's values.
    The function returns φ and each scale: ten times the distance of θ from its bound (10,000 times
    for half-Cauchy and half-Student-t variables), no information of a hierarchy, or the scale of
    prior masses.
    """
    rvs = [model.values_to_rvs[value] for value in values]
    maps: Mapping[TensorVariable, GaussianMap] = {}
    if centring:
        shapes = {rv: np.shape(point[str(v.name)]) for rv, v in zip(rvs, values, strict=True)}
        maps = recognised(ModelView(model, rvs, shapes, named))
    chosen = [
        (named[rv.name] or model.rvs_to_transforms[rv], None)
        if rv.name in named
        else _informed(rv, maps[rv], np.shape(point[str(value.name)]))
        if rv in maps
        else _bounded(model, value, choice, np.shape(point[str(value.name)]), bend)
        for rv, value in zip(rvs, values, strict=True)
    ]
    outputs = [
        rv if transform is None else transform.forward(rv, *rv.owner.inputs)
        for rv, (transform, _) in zip(rvs, chosen, strict=True)
    ]
    scales = [
        _at_first(model, rv, transform, scale)
        for rv, (transform, scale) in zip(rvs, chosen, strict=True)
        if scale is not None
    ]
    symbols = [scale for _, scale in chosen if scale is not None]
    graphs = model.replace_rvs_by_values([*outputs, *scales])
    scales, of_values = graphs[len(outputs) :], graphs[: len(outputs)]
    graphs = [*substitute(of_values, dict(zip(symbols, scales, strict=True))), *scales]
    function = pm.compile(model.value_vars, graphs, mode=INTERPRETER, on_unused_input="ignore")

    def express(point: Mapping[str, np.ndarray]) -> tuple[list[np.ndarray], list[np.ndarray]]:
        results = [np.asarray(x) for x in function(*[point[str(v.name)] for v in model.value_vars])]
        position = [
            np.array(x, dtype=value.dtype)
            for x, value in zip(results[: len(values)], values, strict=True)
        ]
        # Copies, as the function may lend its results
        return position, [x.copy() for x in results[len(values) :]]

    phis = [
        pt.TensorType(str(x.dtype), x.shape)(f"{rv.name}_phi")
        for rv, x in zip(rvs, express(point)[0], strict=True)
    ]
    coordinates = [
        Coordinate(
            rv.name,
            rv,
            value,
            transform,
            phi,
            scale,
            *kind_of_support(model.rvs_to_transforms[rv], rv),
        )
        for rv, value, (transform, scale), phi in zip(rvs, values, chosen, phis, strict=True)
    ]
    return coordinates, express, of_values


def rescaled(
    coordinates: Sequence[Coordinate],
    scales: Sequence[np.ndarray],
    positions: Sequence[Sequence[np.ndarray]],
) -> tuple[list[np.ndarray], list[list[np.ndarray]]]:
    """Fit the scales of softplus maps and of masses to positions; return both, at the same θ.

    The first position sets the scales, as :func:`coordinates_for` has them. With three or more, the
    next two are one sd above and below it, and scales of masses are fitted too.
    """
    scaled = [(c, x) for c, *x in zip(coordinates, *positions, strict=True) if c.scale is not None]
    new = [_fitted(c, scale, *x) for scale, (c, x) in zip(scales, scaled, strict=True)]
    return new, [at_scales(coordinates, scales, new, position) for position in positions]


def at_scales(
    coordinates: Sequence[Coordinate],
    old: Sequence[np.ndarray],
    new: Sequence[np.ndarray],
    position: Sequence[np.ndarray],
    informed: Callable[[], Sequence[np.ndarray]] | None = None,
) -> list[np.ndarray]:
    """Return φ in coordinates of other scales, at the same θ.

    ``informed`` returns the new φ of hierarchies' maps; it is called if their information differs.
    """
    both = iter(zip(old, new, strict=True))
    pairs = [None if c.scale is None else next(both) for c in coordinates]
    changed = [
        pair is not None and c.weighted and not np.array_equal(*pair)
        for c, pair in zip(coordinates, pairs, strict=True)
    ]
    of_maps: Iterator[np.ndarray] = iter(())
    if any(changed):
        assert informed is not None
        of_maps = iter(informed())
    moved = []
    for c, x, pair, differs in zip(coordinates, position, pairs, changed, strict=True):
        if pair is None or (c.weighted and not any(changed)):
            moved.append(x)
        elif c.weighted:
            at_new = next(of_maps)
            moved.append(at_new if differs else x)
        elif isinstance(c.transform, Masses):
            moved.append(c.transform.at_scale(x, *pair))
        else:
            ratio = pair[0].astype(float) / pair[1]
            moved.append(_softplus_inverse(_softplus(x) * ratio).astype(x.dtype))
    return moved


def left_as_written(coordinates: Sequence[Coordinate]) -> list[str]:
    """Return the names of hierarchical or standard variables that no pass recognised."""
    sampled = {c.rv for c in coordinates}
    return [
        c.name
        for c in coordinates
        if not c.weighted and (depends_on(c.rv.owner.inputs, sampled) or is_standard(c.rv))
    ]


def _fitted(c: Coordinate, scale: np.ndarray, x: np.ndarray, *around: np.ndarray) -> np.ndarray:
    if isinstance(c.transform, Masses):
        both = around[:2]
        return c.transform.fitted(scale, x, (both[0] - both[1]) / 2) if both[1:] else scale
    if c.weighted:
        return scale
    ratio = _over_start(c.rv) * _softplus(x)
    fits = np.allclose(ratio, 1, rtol=1e-6)
    return scale if fits else np.asarray(scale * ratio, dtype=scale.dtype)


def _over_start(rv: TensorVariable) -> float:
    return _SCALE_OF_LONG_TAILS if isinstance(rv.owner.op, _LONG_TAILED) else _SCALE_OVER_START


def _softplus(x: np.ndarray) -> np.ndarray:
    return np.maximum(np.logaddexp(0.0, x.astype(float)), np.finfo(float).tiny)


def _softplus_inverse(y: np.ndarray) -> np.ndarray:
    return y + np.log(-np.expm1(-y))


def _informed(
    rv: TensorVariable, map_: GaussianMap, shape: tuple[int, ...]
) -> tuple[Transform, TensorVariable]:
    """Return a hierarchy's map and the symbol of its information."""
    if isinstance(map_, Coefficients):
        return map_, map_.array
    array = pt.TensorType(rv.dtype, (map_.rows, *shape))(f"{rv.name}_weight")
    return map_.with_information(array), array


def _bounded(
    model: Model, value: TensorVariable, choice: str, shape: tuple[int, ...], bend: int | None
) -> tuple[Transform | None, TensorVariable | None]:
    """Return the map of a variable that is in no hierarchy, and the symbol of its scale or None."""
    rv = model.values_to_rvs[value]
    own = model.rvs_to_transforms[rv]
    if bend is not None and (map_ := masses_of(rv, own)) is not None:
        of_mass = (*shape[:-1], 1) if map_.ndim_supp else shape
        scale = pt.TensorType(value.dtype, of_mass)(f"{rv.name}_scale")
        return map_(scale, bend), scale
    if choice in ("identity", "model", "mirror"):
        return {"identity": None, "model": own, "mirror": mirror(own, rv)}[choice], None
    scale = pt.TensorType(value.dtype, shape)(f"{rv.name}_scale")
    transform = lipschitz(own, rv, scale=scale)
    fitted = isinstance(transform, Softplus) and transform is not own
    return transform, scale if fitted else None


def _at_first(
    model: Model, rv: TensorVariable, transform: Transform | None, scale: TensorVariable
) -> Any:
    """Return the scale at a start, as a graph of the variables."""
    if isinstance(transform, GaussianMap):
        array = transform.uniform(transform.as_written, scale.type.shape[1:])
        return pt.constant(array.astype(scale.dtype))
    if isinstance(transform, Masses):
        return transform.of_prior(rv).astype(scale.dtype)
    unit = cast(Softplus, lipschitz(model.rvs_to_transforms[rv], rv, scale=1.0))
    distance = pt.softplus(unit.forward(rv, *rv.owner.inputs))
    return (_over_start(rv) * distance).astype(scale.dtype)
