"""What a store is of: model, data, samplers and versions, each as a line that can be compared.

A line is a digest of a graph or of an array, or a short text. Where two runs differ, the names of
the lines that differ say in what.
"""

from __future__ import annotations

import hashlib
import zlib

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, is_dataclass
from functools import partial
from types import CodeType, FunctionType
from typing import Any

import numpy as np
import pymc as pm
import pytensor

from pymc.distributions.custom import CustomDistRV, CustomSymbolicDistRV
from pymc.model import Model
from pymc.step_methods.compound import BlockedStep
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.op import Op
from pytensor.graph.traversal import ancestors, graph_inputs, toposort
from pytensor.graph.type import Type
from pytensor.tensor.type import TensorType
from scipy.sparse import issparse

from pymc_sgmcmc._version import __version__
from pymc_sgmcmc.disk.on_disk import source_of
from pymc_sgmcmc.disk.source import Source
from pymc_sgmcmc.model.minibatch import evaluate
from pymc_sgmcmc.model.tensor_model import in_tensors

__all__ = ["differences", "fingerprint", "model_arrays"]

# Bytes that are taken at once, and that are read of an array at most
_BLOCK, _MOST_READ = 2**22, 2**31

# What tells one of the user's objects from others
_PLAIN = (
    bool, int, float, str, tuple, list, dict, np.ndarray, np.generic,
    FunctionType, partial, Variable,
)  # fmt: skip

_OF_THE_STEP = {
    "model", "vars", "rng", "tune", "names", "kinds", "blocked", "options", "left_out",
    "stats_dtypes", "stats_dtypes_shapes",
}  # fmt: skip


def fingerprint(model: Model, steps: Sequence[BlockedStep]) -> dict[str, str]:
    """Return what a run is of, as lines by name; what was asked of our step methods counts."""
    found = {
        "version of pymc_sgmcmc": __version__,
        "version of PyMC": pm.__version__,
        "floatX": str(pytensor.config.floatX),
    }
    for k, step in enumerate(steps):
        names = ", ".join(model.values_to_rvs[value].name for value in step.vars)
        found[f"step method {k}"] = f"{type(step).__name__} of {names}"
        options = getattr(step, "options", None)
        if options is None:
            continue
        asked = {f.name: getattr(options, f.name) for f in fields(options)}
        # One argument for the user: a word, or some variables' transforms beside the method's word
        asked["transforms"] = asked.pop("named_transforms") or asked["transforms"]
        asked |= {
            key: value
            for key, value in vars(step).items()
            if key not in _OF_THE_STEP and not key.startswith("_")
        }
        for name, value in asked.items():
            found[f"{name}= of step method {k}"] = _told(value)
    model = in_tensors(model)
    graphs = _graphs(model)
    for name, graph in graphs.items():
        others = {rv for rv in model.basic_RVs if rv is not graph[0]}
        found[f"the model's '{name}'"] = _of_graph(graph, others)
    for name, density in _own_densities(model).items():
        found[f"the density of '{name}'"] = _of_graph([density], set(model.basic_RVs))
        graphs[name].append(density)
    for rv in model.free_RVs:
        found[f"the transform of '{rv.name}'"] = _told(model.rvs_to_transforms[rv])
    for name, arrays in _arrays(graphs).items():
        found[f"the data of '{name}'"] = _digest(*map(_of_array, arrays))
    return found


def differences(was: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Return in what two runs differ, in words."""
    found = []
    for name in [*was, *(name for name in now if name not in was)]:
        old, new = was.get(name), now.get(name)
        if old == new:
            continue
        if old is None or new is None:
            found.append(f"{name} is {'new' if old is None else 'gone'}")
        elif name.startswith("the "):
            found.append(f"{name} differ" + ("" if "data" in name else "s"))
        else:
            found.append(f"{name} was {old} and is {new}")
    return found


def model_arrays(model: Model) -> list[Any]:
    """Return all arrays that the model reads: the same objects as long as it is unchanged."""
    return [array for arrays in _arrays(_graphs(in_tensors(model))).values() for array in arrays]


# ----------------------------------------------------------------------------- graphs


def _graphs(model: Model) -> dict[str, list[Variable]]:
    found: dict[str, list[Variable]] = {}
    for rv in model.basic_RVs:
        observed = [model.rvs_to_values[rv]] if rv in model.observed_RVs else []
        found[rv.name] = [rv, *observed]
    for potential in model.potentials:
        found[potential.name] = [potential]
    return found


def _own_densities(model: Model) -> dict[str, Variable]:
    """Return the densities that are the user's functions, which are not in the model's graph."""
    found: dict[str, Variable] = {}
    for rv in model.basic_RVs:
        below = ancestors([rv], blockers=[other for other in model.basic_RVs if other is not rv])
        if any(x.owner is not None and _is_own(x.owner.op) for x in below):
            with suppress(NotImplementedError):  # where it has none
                found[rv.name] = pm.logp(rv, rv.type("value"), warn_rvs=False)
    return found


def _is_own(op: Op) -> bool:
    """Whether an operation is a distribution of the user's own, or holds one."""
    if isinstance(op, CustomDistRV | CustomSymbolicDistRV):
        return True
    inner = getattr(op, "fgraph", None)
    return inner is not None and any(_is_own(node.op) for node in inner.apply_nodes)


def _of_graph(
    outputs: Sequence[Variable], named: set[Variable], inputs: Sequence[Variable] | None = None
) -> str:
    """Return a digest of a graph: its operations, and numbers that are no arrays.

    Named variables stand for themselves. In a graph inside an operation, which has inputs, arrays
    count, too.
    """
    inner = inputs is not None
    known = {x: _digest("argument", k) for k, x in enumerate(inputs or ())}
    known |= {x: _digest("variable", x.name) for x in named}

    def of(variable: Variable) -> str:
        if variable in known:
            return known[variable]
        kind = variable.type
        if not isinstance(kind, TensorType):
            told = _told(variable.data) if isinstance(variable, Constant) else ""
            return _digest("input", type(kind).__name__, told)
        if isinstance(variable, Constant) and (inner or np.ndim(variable.data) == 0):
            return _digest("number", _of_array(np.asarray(variable.data)))
        # Arrays are data, and are compared as such
        return _digest("array", kind.dtype, kind.ndim, variable.name)

    for node in toposort(outputs, blockers=list(known)):
        if source_of(node.outputs[0]) is not None:
            known[node.outputs[0]] = of(node.outputs[0])
            continue
        op, below = _told(node.op), [of(x) for x in node.inputs]
        for k, output in enumerate(node.outputs):
            known[output] = _digest(op, k, *below)
    return _digest(*[of(output) for output in outputs])


def _told(value: Any) -> str:
    """Return a text that is the same in every process."""
    found = ""
    match value:
        case bool() | int() | float() | str() | bytes() | np.dtype() | np.generic() | None:
            found = repr(value)
        case list() | tuple():
            found = f"({', '.join(_told(x) for x in value)})"
        case set() | frozenset():
            found = f"({', '.join(sorted(_told(x) for x in value))})"
        case Mapping():
            found = "{" + ", ".join(f"{_told(k)}: {_told(x)}" for k, x in value.items()) + "}"
        case np.ndarray():
            found = f"array {_of_array(value)[:12]}"
        case type():
            found = f"{value.__module__}.{value.__qualname__}"
        case Type():
            found = str(value)
        case Variable():
            found = _of_graph([value], set())
        case partial():
            found = _told([value.func, value.args, value.keywords])
        case FunctionType():
            found = _of_function(value, frozenset())
        case _:
            found = f"{type(value).__qualname__}{_of_attributes(value)}"
    return found


def _of_attributes(value: Any) -> str:
    """Return a text of what tells an object from others of its kind."""
    inner = getattr(value, "fgraph", None) if isinstance(value, Op) else None
    graph = "" if inner is None else _of_graph(inner.outputs, set(), inner.inputs)
    own = getattr(value, "__dict__", {})
    names = getattr(value, "__props__", None) if isinstance(value, Op) else None
    if names is None and is_dataclass(value):
        names = [f.name for f in fields(value)]
    if names is None:
        # One of the user's that does not say in what it differs: what is plain in it
        plain = _PLAIN if isinstance(value, Op) else bool | int | float | str | np.ndarray | None
        names = [k for k, x in own.items() if isinstance(x, plain) and not k.startswith("__")]
        names = [] if graph else names
    return _told({key: getattr(value, key) for key in names}) + graph


def _of_function(function: Any, above: frozenset[int]) -> str:
    """Return a text of a function's code, and of the numbers and functions that it refers to."""
    above |= {id(function)}
    code = _all_code(function.__code__)
    named = {name for part in code for name in part.co_names}
    found: dict[str, Any] = {
        **{name: x for name, x in function.__globals__.items() if name in named},
        **_enclosed(function),
        "defaults": function.__defaults__,
        "keywords": function.__kwdefaults__,
    }
    told = [
        f"{name}: {_of_function(x, above) if isinstance(x, FunctionType) else _told(x)}"
        for name, x in sorted(found.items())
        if isinstance(x, _PLAIN) and id(x) not in above
    ]
    constants = [[c for c in part.co_consts if not isinstance(c, CodeType)] for part in code]
    text = [
        (part.co_code, _told(c), part.co_names) for part, c in zip(code, constants, strict=True)
    ]
    return f"{function.__module__}.{function.__qualname__} {_digest(text, told)[:12]}"


def _enclosed(function: Any) -> dict[str, Any]:
    """Return what a function refers to in those around it, but for names without a value yet."""
    found = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with suppress(ValueError):
            found[name] = cell.cell_contents
    return found


def _all_code(code: CodeType) -> list[CodeType]:
    inner = [c for c in code.co_consts if isinstance(c, CodeType)]
    return [code, *(part for c in inner for part in _all_code(c))]


# ----------------------------------------------------------------------------- data


def _arrays(graphs: Mapping[str, Sequence[Variable]]) -> dict[str, list[Any]]:
    """Return the arrays that each variable reads, those of an earlier one left out.

    Of rows on disk they are sources.
    """
    seen: set[int] = set()
    found: dict[str, list[Any]] = {}
    for name, graph in graphs.items():
        arrays = []
        on_disk = [x for x in ancestors(graph) if source_of(x) is not None]
        for source in [*graph_inputs(graph), *on_disk]:
            array = _array(source)
            if array is not None and id(source) not in seen:
                seen.add(id(source))
                arrays.append(array)
        if arrays:
            found[name] = arrays
    return found


def _array(source: Variable) -> Any:
    if not isinstance(source.type, TensorType):
        return None
    if isinstance(source, SharedVariable) or (isinstance(source, Constant) and source.type.ndim):
        return evaluate(source)
    return source_of(source)


def _of_array(array: Any) -> str:
    """Return a digest of the array; of a huge one, of evenly spread blocks of its rows."""
    if isinstance(array, Source):
        return _digest(*array.fingerprint())
    if issparse(array):
        parts = [array.data, array.indices, array.indptr]
        return _digest(array.format, array.shape, *map(_of_array, parts))
    rows = np.atleast_1d(array)
    each = max(1, _BLOCK * len(rows) // max(rows.nbytes, 1))
    stride = each * max(1, -(-rows.nbytes // _MOST_READ))
    found = 0
    # A cryptographic digest would take several times as long to read the data
    for start in range(0, len(rows), stride):
        found = zlib.crc32(np.ascontiguousarray(rows[start : start + each]).tobytes(), found)
    return _digest(array.dtype, array.shape, found)


def _digest(*parts: Any) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        data = part if isinstance(part, bytes) else str(part).encode()
        digest.update(f"{len(data)} ".encode() + data)
    return digest.hexdigest()
