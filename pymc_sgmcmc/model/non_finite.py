"""NaN and infinities in the data of a model, by the name under which the user knows them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

import numpy as np

from pymc.data import MinibatchOp
from pymc.model import Model
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.traversal import ancestors
from pytensor.tensor.type import TensorType
from scipy.sparse import issparse

from pymc_sgmcmc.disk.fetch import rows_at
from pymc_sgmcmc.disk.on_disk import source_of
from pymc_sgmcmc.disk.source import Source
from pymc_sgmcmc.model.minibatch import all_rows, evaluate

__all__ = ["bad_rows", "faults_of_data", "impossible"]


_ROWS = 2**16


def bad_rows(arrays: Sequence[np.ndarray]) -> np.ndarray:
    """Return which rows of arrays of the same length hold NaN or an infinity, shape (N,)."""
    bad = np.zeros(len(arrays[0]), dtype=bool)
    for array in arrays:
        if array.dtype.kind in "fc":
            # A part at a time: a mask of all numbers would take an eighth of the data
            for start in range(0, len(array), _ROWS):
                part = array[start : start + _ROWS]
                bad[start : start + _ROWS] |= ~np.isfinite(part).reshape(len(part), -1).all(axis=1)
    return bad


def faults_of_data(model: Model, names: Collection[str]) -> str:
    """Name the arrays that hold NaN or an infinity, and the remedy."""
    told: dict[str, bool] = {}
    seen: list[Any] = []
    for label, array in _arrays(model, names):
        if any(_same(array, other) for other in seen):
            continue
        seen.append(array)
        fault = _fault(array)
        if fault is not None:
            told[f"{label} {fault}"] = "NaN" in fault
    if not told:
        return ""
    found = "; ".join(told)
    cure = "Leave these rows out, or fill in what is missing."
    if any(told.values()):
        return (
            f"The data are not finite: {found}. {cure} Of an array given to observed= as it is, "
            "without pm.Minibatch, PyMC samples the missing values."
        )
    # A bound can be infinite without fault
    return (
        f"The data are not finite: {found}. {cure} Where they are meant, pass initvals= to "
        "pm.sample with values that the priors and the likelihood allow."
    )


def impossible(model: Model, rv: Any, bad: np.ndarray, count: int) -> str:
    """Name an observed variable's rows without density, of ``count``, by their entries ``bad``."""
    row, *entry = bad[np.lexsort(bad.T[::-1])[0]].tolist()
    seen = evaluate(all_rows(model.rvs_to_values[rv]))
    value: Any = rows_at(seen if len(seen.shape) else seen.reshape(1), row, 1)[0]
    if entry and np.ndim(value) >= len(entry):
        value = value[tuple(entry)]
    rows = len(np.unique(bad[:, 0]))
    return (
        f"The log density of '{rv.name}' is -inf or NaN in {rows} of {count} rows, "
        f"{'the first of them ' * (rows > 1)}row {row} with the value "
        f"{np.asarray(value).tolist()!r:.60}. Correct such rows or leave them out if the "
        "distribution can never have these values: categories count from 0, counts are not "
        "negative, a LogNormal has no zeros. If other values of the parameters allow them, pass "
        "initvals= to pm.sample."
    )


def _fault(array: Any) -> str | None:
    if array.dtype.kind not in "fc":
        return None
    if not array.shape:
        return "is NaN" if np.isnan(array) else None
    parts = array.parts() if isinstance(array, Source) else [array]
    missing = infinite = False
    bad = [np.zeros(0, dtype=bool)]
    for part in parts:
        bad.append(bad_rows([part]))
        missing |= bool(np.isnan(part).any())
        infinite |= bool(np.isinf(part).any())
    rows = np.flatnonzero(np.concatenate(bad))
    if not rows.size:
        return None
    what = " and ".join(["NaN"] * missing + ["inf"] * infinite)
    first = f"the first of them row {rows[0]}" if rows.size > 1 else f"row {rows[0]}"
    return f"has {what} in {rows.size} of {len(array)} rows, {first}"


def _arrays(model: Model, names: Collection[str]) -> Iterator[tuple[str, Any]]:
    """Yield the observed data, then all other data that they depend on, with their labels."""
    variables = [v for v in [*model.basic_RVs, *model.potentials] if v.name in names]
    observed = [rv for rv in variables if rv in model.observed_RVs]
    for rv in observed:
        for leaf in _leaves(model.rvs_to_values[rv]):
            yield _label(leaf, f"the observed array of '{rv.name}'"), evaluate(leaf)
    for variable in variables:
        for leaf in _leaves(variable):
            array = evaluate(leaf)
            label = f"an array of shape {array.shape} on which '{variable.name}' depends"
            if issparse(array):  # one number of each row tells whether all are finite
                array = abs(array).max(axis=1).toarray()
            yield _label(leaf, label), array


def _leaves(graph: Variable) -> list[Variable]:
    """Constants and shared variables of a graph; of a pm.Minibatch only the array that is used."""
    found: dict[Variable, None] = {}
    graphs = [graph]
    while graphs:
        reached = graphs.pop()
        outputs = [
            v
            for v in ancestors([reached])
            if v.owner is not None and isinstance(v.owner.op, MinibatchOp)
        ]
        for v in ancestors([reached], blockers=outputs):
            if v in outputs:
                graphs.append(v.owner.inputs[v.owner.outputs.index(v)])
            elif (isinstance(v, Constant | SharedVariable) or source_of(v)) and isinstance(
                v.type, TensorType
            ):
                found[v] = None
    return list(found)


def _label(leaf: Variable, otherwise: str) -> str:
    if (source := source_of(leaf)) is not None:
        return source.name
    return f"pm.Data '{leaf.name}'" if isinstance(leaf, SharedVariable) else otherwise


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, Source) or isinstance(b, Source):
        return a is b
    return a is b or (
        a.ndim > 0
        and a.shape == b.shape
        and a.strides == b.strides
        and a.__array_interface__["data"] == b.__array_interface__["data"]
    )
