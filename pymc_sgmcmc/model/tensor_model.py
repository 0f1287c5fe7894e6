"""Models of ``pymc.dims``, translated to tensors, which the rest of the package reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import pytensor.tensor as pt

from pymc.distributions import transforms as of_tensors
from pymc.logprob.transforms import Transform
from pymc.model import Model
from pytensor.compile import optdb
from pytensor.compile.ops import ViewOp
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import ancestors
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.random.rewriting.basic import local_dimshuffle_rv_lift
from pytensor.tensor.sharedvar import TensorSharedVariable
from pytensor.tensor.type import TensorType

# A model is read once, however many steps it gets, as long as it has the same variables
_READ: WeakKeyDictionary[Model, tuple[tuple[Variable, ...], Model]] = WeakKeyDictionary()


def in_tensors(model: Model) -> Model:
    """Return the model, or its twin of tensors if it has variables of ``pymc.dims``.

    The twin has the same names, values, transforms, coords and density, and reads the arrays of the
    model's own ``Data``: what :func:`pymc.set_data` sets is seen by both.
    """
    variables = (*model.named_vars.values(), *model.rvs_to_values.values())
    if not any(_has_dims(variable) for variable in variables):
        return model
    read, made = _READ.get(model, ((), model))
    if len(read) != len(variables) or any(
        new is not old for new, old in zip(variables, read, strict=True)
    ):
        made = _twin_of_tensors(model)
        _READ[model] = variables, made
    return made


def _has_dims(variable: Any) -> bool:
    return hasattr(variable.type, "dims")


def _twin_of_tensors(model: Model) -> Model:
    starts = [x for x in model.rvs_to_initial_values.values() if isinstance(x, Variable)]
    observed = [model.rvs_to_values[rv] for rv in model.observed_RVs]
    olds = list(dict.fromkeys([*model.named_vars.values(), *observed, *starts]))
    new: dict[Any, Any] = dict(zip(olds, _lowered(olds), strict=True))
    new.update((length, length) for length in model.dim_lengths.values())
    # A deterministic's name is not that of the graph it names
    new.update((x, new[x].copy()) for x in model.deterministics)
    for name, variable in model.named_vars.items():
        _refuse_dims(name, new[variable])
    transforms = {
        rv: _transform(model.rvs_to_transforms[rv], getattr(rv.type, "dims", ()))
        for rv in model.free_RVs
    }
    made = twin(model, new, transforms=transforms)
    # What is set later is seen by both
    made._coords = model._coords
    return made


def twin(
    model: Model,
    new: dict[Any, Any],
    *,
    transforms: Mapping[Any, Transform | None] | None = None,
    dims: Mapping[str, Any] | None = None,
) -> Model:
    """Return a model of other variables, with the names, dims, coords and initial values of one.

    ``new`` replaces named variables, observed values, dim lengths and symbolic initial values.
    Transforms, with value variables, and dims default to those of the model.
    """
    made = Model(model.name, model=None, check_bounds=model.check_bounds)
    made._coords = dict(model._coords)
    made._dim_lengths = {dim: new[length] for dim, length in model._dim_lengths.items()}
    # Value variables are named after their variables
    for name, variable in model.named_vars.items():
        new[variable].name = name
    for rv in model.free_RVs:
        made.free_RVs.append(new[rv])
        made.create_value_var(
            new[rv],
            transform=(transforms or model.rvs_to_transforms)[rv],
            default_transform=None,
            value_var=None if transforms else model.rvs_to_values[rv].clone(),
        )
    for rv in model.observed_RVs:
        made.observed_RVs.append(new[rv])
        value = new[model.rvs_to_values[rv]]
        made.create_value_var(
            new[rv],
            transform=model.rvs_to_transforms[rv],
            default_transform=None,
            value_var=value,
        )
    for kind in ("potentials", "deterministics", "data_vars"):
        getattr(made, kind).extend(new[x] for x in getattr(model, kind))
    for rv, start in model.rvs_to_initial_values.items():
        made.set_initval(new[rv], new.get(start) if isinstance(start, Variable) else start)
    all_dims = {**(dims or {}), **model.named_vars_to_dims}
    for name, variable in model.named_vars.items():
        made.add_named_variable(new[variable], all_dims.get(name))
    return made


def _lowered(graphs: Sequence[Any]) -> list[Any]:
    """Return graphs without dims, with the same shared nodes; other inputs stay."""
    from pytensor.xtensor.basic import tensor_from_xtensor, xtensor_from_tensor

    outputs: list[Any] = [tensor_from_xtensor(x) if _has_dims(x) else x for x in graphs]
    leaves = [x for x in ancestors(outputs) if x.owner is None and _has_dims(x)]
    without = {x: xtensor_from_tensor(_tensor_of(x), dims=x.type.dims) for x in leaves}
    graph = FunctionGraph(outputs=clone_replace(outputs, without), clone=False)
    for node in graph.toposort():
        # So a deterministic stays in graphs computed from it
        if isinstance(node.op, ViewOp) and _has_dims(node.outputs[0]):
            graph.replace(node.outputs[0], node.inputs[0])
    optdb.query("+lower_xtensor").rewrite(graph)
    for x in list(graph.outputs):
        # A variable whose dims were written in another order than its parameters have them
        if x.owner is not None and isinstance(x.owner.op, DimShuffle):
            lifted = local_dimshuffle_rv_lift.transform(graph, x.owner)
            graph.replace_all(list((lifted or {}).items()))
    return list(graph.outputs)


def _tensor_of(variable: Any) -> Any:
    """Return a leaf of a graph without its dims, of the same array."""
    kind = TensorType(variable.type.dtype, shape=variable.type.shape)
    if isinstance(variable, Constant):
        return pt.as_tensor(variable.data, name=variable.name)
    if isinstance(variable, SharedVariable):
        shared: Any = TensorSharedVariable
        return shared(kind, None, None, container=variable.container, name=variable.name)
    return kind(name=variable.name)


def _refuse_dims(name: str, variable: Any) -> None:
    for left in ancestors([variable]):
        if _has_dims(left):
            op = "an input" if left.owner is None else type(left.owner.op).__name__
            raise NotImplementedError(
                f"The variable '{name}' of pymc.dims cannot be sampled here: PyTensor does not "
                f"write {op} with tensors. Write it with pymc's own distributions."
            )


def _transform(transform: Any, dims: Sequence[str]) -> Transform | None:
    """Return the equivalent tensor transform of PyMC."""
    from pymc.dims.distributions import transforms as of_dims

    if not isinstance(transform, of_dims.DimTransform):
        return transform
    if type(transform).__module__ != of_dims.__name__:
        # A user's own one may be derived from one of PyMC's
        return _Lowered(transform, dims)
    made: Any = None
    match transform:
        case of_dims.LogTransform():
            made = of_tensors.log
        case of_dims.LogOddsTransform():
            made = of_tensors.logodds
        # A class that older versions of PyMC lack
        case of_dims.DimTransform(name="circular"):
            made = of_tensors.circular
        case of_dims.IntervalTransform():
            made = _interval(transform.lower, transform.upper, dims)
        case of_dims.SimplexTransform() if dims[-1] == transform.core_dim:
            made = of_tensors.simplex
        case of_dims.ZeroSumTransform() if set(dims[-len(transform.dims) :]) == set(transform.dims):
            made = of_tensors.ZeroSumTransform(range(-len(transform.dims), 0))
    return made or _Lowered(transform, dims)


def _interval(lower: Any, upper: Any, dims: Sequence[str]) -> Transform | None:
    """Return the transform to an interval, None where only some elements have a bound."""
    finite = [np.isfinite(bound.data) for bound in (lower, upper)]
    if any(each.any() != each.all() for each in finite):
        return None
    bounds = [
        _aligned(bound, dims) if each.all() else None
        for bound, each in zip((lower, upper), finite, strict=True)
    ]
    return of_tensors.Interval(bounds_fn=lambda *_: bounds)


def _aligned(constant: Any, dims: Sequence[str]) -> np.ndarray:
    """Return the array of a constant with an axis for each of the dims, or a scalar."""
    own = constant.type.dims
    array = np.asarray(constant.data).transpose([own.index(dim) for dim in dims if dim in own])
    return array[tuple(slice(None) if dim in own else None for dim in dims)] if own else array


class _Lowered(Transform):
    """A transform of arrays with dims, applied to arrays whose dims are known."""

    def __init__(self, transform: Any, dims: Sequence[str]) -> None:
        self.transform, self.dims, self.name = transform, tuple(dims), transform.name

    def _apply(self, method: str, value: Any) -> Any:
        from pytensor.xtensor.basic import xtensor_from_tensor

        of_dims = xtensor_from_tensor(pt.as_tensor(value), dims=self.dims)
        result = getattr(self.transform, method)(of_dims)
        return _lowered([result])[0]

    def forward(self, value: Any, *inputs: Any) -> Any:
        return self._apply("forward", value)

    def backward(self, value: Any, *inputs: Any) -> Any:
        return self._apply("backward", value)

    def log_jac_det(self, value: Any, *inputs: Any) -> Any:
        return self._apply("log_jac_det", value)
