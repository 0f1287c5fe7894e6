"""What a run is of: versions, step methods with their options, variables and data.

Each is a line of text by its name. A line has a digest in place of an array or a graph, so that two
runs are compared line by line. The code of functions is not compared: a schedule counts by its step
sizes, a density and a transform by their graphs, a whitening by its name and what it makes of one
root, any other function by its name.
"""

from __future__ import annotations

import hashlib
import math
import zlib

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, is_dataclass
from types import FunctionType
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
from pytensor.graph.traversal import ancestors, toposort
from pytensor.graph.type import Type
from pytensor.tensor.type import TensorType
from scipy.sparse import issparse

from pymc_sgmcmc._version import __version__
from pymc_sgmcmc.disk.on_disk import source_of
from pymc_sgmcmc.disk.source import Source
from pymc_sgmcmc.kernel.options import OwnWhitening
from pymc_sgmcmc.model.minibatch import evaluate
from pymc_sgmcmc.model.recognise import LARGEST_DENSE
from pymc_sgmcmc.model.tensor_model import in_tensors
from pymc_sgmcmc.schedules import Schedule, constant, cyclical, polynomial

# Bytes of an array that are read at once, and at most: a larger one counts by spread blocks
_BLOCK, _MOST_READ = 2**22, 2**31

# Updates whose step sizes tell one schedule from another
_UPDATES = np.unique(np.geomspace(1, 1e6, 64).astype(int)) - 1

# Attributes of a step method that are no options of its own
_OF_EVERY_STEP = {
    "model", "vars", "rng", "tune", "names", "kinds", "blocked", "options", "left_out",
    "stats_dtypes", "stats_dtypes_shapes",
}  # fmt: skip

_PLAIN = bool | int | float | str | np.ndarray | None


def fingerprint(model: Model, steps: Sequence[BlockedStep]) -> dict[str, str]:
    """Return the lines of a run; options count for step methods of this package."""
    lines = {
        "version of pymc_sgmcmc": __version__,
        "version of PyMC": pm.__version__,
        "floatX": str(pytensor.config.floatX),
    }
    for k, step in enumerate(steps):
        names = ", ".join(model.values_to_rvs[value].name for value in step.vars)
        lines[f"step method {k}"] = f"{type(step).__name__} of {names}"
        for name, value in _options(step).items():
            lines[f"{name}= of step method {k}"] = _text(value)
    model = in_tensors(model)
    graphs, random = _graphs(model), set(model.basic_RVs)
    numbers: dict[int, int] = {}  # of arrays, by identity: those of constants hash by their data
    for name, graph in graphs.items():
        lines[f"the model's '{name}'"] = _of_graph(graph, random - {graph[0]}, numbers=numbers)
    for rv in model.basic_RVs:
        if (density := _own_density(rv, random)) is not None:
            lines[f"the density of '{rv.name}'"] = _of_graph([density], random)
            graphs[rv.name].append(density)
    for rv in model.free_RVs:
        lines[f"the transform of '{rv.name}'"] = _of_transform(model, rv, random)
    for name, arrays in _arrays(graphs).items():
        lines[f"the data of '{name}'"] = _digest(*map(_of_array, arrays))
    return lines


def differences(was: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Return in what two runs differ, in words."""
    listed = []
    for name in dict.fromkeys([*was, *now]):
        old, new = was.get(name), now.get(name)
        if old == new:
            continue
        if old is None or new is None:
            listed.append(f"{name} is {'new' if old is None else 'gone'}")
        elif name.startswith("the "):
            listed.append(f"{name} differ" + ("" if "data" in name else "s"))
        else:
            listed.append(f"{name} was {old} and is {new}")
    return listed


def model_parts(model: Model) -> list[Any]:
    """Return all arrays and terms of the model: the same objects as long as it is unchanged."""
    read = [array for arrays in _arrays(_graphs(in_tensors(model))).values() for array in arrays]
    return [*read, *model.basic_RVs, *model.potentials]


def _options(step: BlockedStep) -> dict[str, Any]:
    options = getattr(step, "options", None)
    if options is None:
        return {}
    asked = {f.name: getattr(options, f.name) for f in fields(options)}
    # One argument for the user: a word, or the transforms of some variables
    asked["transforms"] = asked.pop("named_transforms") or asked["transforms"]
    own = {k: x for k, x in vars(step).items() if k not in _OF_EVERY_STEP and k[0] != "_"}
    schedule = asked["step_size"]
    if callable(schedule) and not isinstance(schedule, constant | polynomial | cyclical):
        asked["step_size"] = _step_sizes(schedule)
    if callable(whitening := asked["scale"]):
        asked["scale"] = whitening, _of_root(whitening, step)
    return asked | own


def _step_sizes(schedule: Schedule) -> np.ndarray:
    """Return step sizes of a user's function, as digits that are the same on every machine."""
    sizes = []
    for t in _UPDATES:
        with suppress(Exception):  # a table ends somewhere
            sizes.append(schedule(np.array([t])))
    return np.array(sizes, dtype=np.float32)


def _of_root(whitening: OwnWhitening, step: BlockedStep) -> np.ndarray:
    """Return what a user's whitening makes of one root, as digits that all machines share.

    Of a matrix R only RR' counts.
    """
    # An unknown length counts as 1, and the masses of a simplex as its unconstrained coordinates
    d = sum(math.prod(n or 1 for n in value.type.shape) for value in step.vars)
    of_each, own = 1 + np.arange(d) / d, np.zeros(0)
    root = of_each
    if d <= LARGEST_DENSE:
        root = np.diag(of_each) + np.tril(np.sin(np.outer(of_each, np.arange(d))), -1) / d
    with suppress(Exception):  # it may need the model's own coordinates
        own = np.asarray(whitening(root), dtype=float)
        own = own @ own.T if own.ndim == 2 else own
    return np.round(own, 6) + 0.0


# ----------------------------------------------------------------------------- graphs


def _graphs(model: Model) -> dict[str, list[Variable]]:
    """Return what each variable is computed from, and what was observed of it."""
    observed = {rv: [model.rvs_to_values[rv]] for rv in model.observed_RVs}
    return {x.name: [x, *observed.get(x, [])] for x in [*model.basic_RVs, *model.potentials]}


def _own_density(rv: Variable, random: set[Variable]) -> Variable | None:
    """Return the density of a variable whose distribution, or a part of it, the user wrote."""
    below = ancestors([rv], blockers=random - {rv})
    if any(x.owner is not None and _is_own(x.owner.op) for x in below):
        with suppress(NotImplementedError):  # where it has none
            return pm.logp(rv, rv.type("value"), warn_rvs=False)
    return None


def _of_transform(model: Model, rv: Variable, random: set[Variable]) -> str:
    """Return a text of a variable's transform, and a digest of its graph, which has its bounds."""
    transform = model.rvs_to_transforms[rv]
    if transform is None:
        return "None"
    forward = transform.forward(rv, *rv.owner.inputs)
    # Its arrays are no data of a variable: they count here
    return f"{_text(transform)} {_of_graph([forward], random, inputs=())}"


def _is_own(op: Op) -> bool:
    inner = getattr(op, "fgraph", None)
    return isinstance(op, CustomDistRV | CustomSymbolicDistRV) or (
        inner is not None and any(_is_own(node.op) for node in inner.apply_nodes)
    )


def _of_graph(
    outputs: Sequence[Variable],
    named: Iterable[Variable] = (),
    inputs: Sequence[Variable] | None = None,
    numbers: dict[int, int] | None = None,
) -> str:
    """Return a digest of operations and numbers; named variables stand for themselves.

    The graph inside an operation has ``inputs``, and its arrays count. Elsewhere arrays are data,
    told from each other by the order in which the graphs of a model have them.
    """
    numbers = {} if numbers is None else numbers
    known = {x: _digest("variable", x.name) for x in named}
    known |= {x: _digest("argument", k) for k, x in enumerate(inputs or ())}

    def number(x: Any) -> int:
        return numbers.setdefault(id(x), len(numbers))

    def of(variable: Variable) -> str:
        if variable in known:
            return known[variable]
        kind = variable.type
        data = variable.data if isinstance(variable, Constant) else None
        if not isinstance(kind, TensorType):
            return _digest("input", _text(type(kind)), _text(data))
        if data is not None and (inputs is not None or kind.ndim == 0):
            return _digest("number", _of_array(np.asarray(data)))
        return _digest("array", kind.dtype, kind.ndim, variable.name, number(variable))

    for node in toposort(outputs, blockers=list(known)):
        # What has no inputs reads rows on disk
        own = () if node.inputs else (number(node),)
        operation = _digest(_text(node.op), *own, *map(of, node.inputs))
        known |= {output: _digest(operation, k) for k, output in enumerate(node.outputs)}
    return _digest(*map(of, outputs))


def _text(value: Any) -> str:
    """Return a text that is the same in every process."""
    match value:
        case np.ndarray():
            text = f"array {_of_array(value)[:12]}"
        case list() | tuple() | set() | frozenset():
            parts = map(_text, value)
            ordered = parts if isinstance(value, list | tuple) else sorted(parts)
            text = f"({', '.join(ordered)})"
        case Mapping():
            text = "{" + ", ".join(f"{_text(k)}: {_text(x)}" for k, x in value.items()) + "}"
        case Variable():
            text = _of_graph([value])
        case slice():
            text = f"slice{_text((value.start, value.stop, value.step))}"
        case type() | FunctionType():
            text = f"{value.__module__}.{value.__qualname__}"
        case bool() | int() | float() | str() | bytes() | np.dtype() | np.generic() | None:
            text = repr(value)
        case Type():
            text = str(value)
        case _:
            text = _of_object(value)
    return text


def _of_object(value: Any) -> str:
    """Return a text of an object's class and properties; by default those that are plain."""
    inner = getattr(value, "fgraph", None) if isinstance(value, Op) else None
    graph = "" if inner is None else _of_graph(inner.outputs, inputs=inner.inputs)
    names = getattr(value, "__props__", None) if isinstance(value, Op) else None
    if names is None and is_dataclass(value):
        names = [f.name for f in fields(value)]
    if names is None:
        own = getattr(value, "__dict__", {}) if inner is None else {}
        names = [k for k, x in own.items() if isinstance(x, _PLAIN) and not k.startswith("__")]
    return f"{type(value).__qualname__}{_text({k: getattr(value, k) for k in names})}{graph}"


# ----------------------------------------------------------------------------- data


def _arrays(graphs: Mapping[str, Sequence[Variable]]) -> dict[str, list[Any]]:
    """Return the arrays, or sources on disk, of each variable that no earlier one reads."""
    seen: set[int] = set()  # not of variables, which hash their data
    arrays = {}
    for name, graph in graphs.items():
        new = [x for x in ancestors(graph) if id(x) not in seen]
        seen.update(map(id, new))
        arrays[name] = [array for x in new if (array := _array(x)) is not None]
    return {name: listed for name, listed in arrays.items() if listed}


def _array(variable: Variable) -> Any:
    if not isinstance(variable.type, TensorType):
        return None
    is_array = isinstance(variable, Constant) and variable.type.ndim > 0
    if is_array or isinstance(variable, SharedVariable):
        return evaluate(variable)
    return source_of(variable)


def _of_array(array: Any) -> str:
    """Return a digest of an array or a source."""
    if isinstance(array, Source):
        return _digest(*array.fingerprint())
    if issparse(array):
        parts = [array.data, array.indices, array.indptr]
        return _digest(array.format, array.shape, *map(_of_array, parts))
    rows = np.atleast_1d(array)
    each = max(1, _BLOCK * len(rows) // max(rows.nbytes, 1))
    stride = each * max(1, -(-rows.nbytes // _MOST_READ))
    checksum = 0
    # A cryptographic digest would take several times as long to read the data
    for start in range(0, len(rows), stride):
        block = np.ascontiguousarray(rows[start : start + each])
        checksum = zlib.crc32(block.tobytes(), checksum)
    return _digest(array.dtype, array.shape, checksum)


def _digest(*parts: Any) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        data = str(part).encode()
        digest.update(f"{len(data)} ".encode() + data)
    return digest.hexdigest()
