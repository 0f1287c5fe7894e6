"""Minibatches: found in a model's graph, lifted out of it, and drawn."""

from __future__ import annotations

import os
import warnings

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import gcd
from typing import Any, Protocol

import numpy as np
import pytensor

from pymc.data import MinibatchOp
from pymc.model import Model
from pymc.variational.minibatch_rv import MinibatchRandomVariable
from pytensor.compile.mode import Mode
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.traversal import ancestors
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.type_other import NoneConst
from pytensor.tensor.variable import TensorVariable
from scipy.sparse import issparse

from pymc_sgmcmc.disk.fetch import warn_of_order
from pymc_sgmcmc.disk.on_disk import MOST_ROWS, RowsOnDisk, source_of
from pymc_sgmcmc.disk.source import Source, aligned

__all__ = [
    "BATCH_SCHEMES",
    "BatchScheme",
    "Minibatch",
    "all_rows",
    "check_minibatches",
    "check_total_size",
    "find_minibatches",
]

_DRAWS = "its pm.Minibatch draws from"

# Warnings name the user's line
_PACKAGE = (os.path.dirname(os.path.dirname(__file__)),)


@dataclass(frozen=True, eq=False)
class Minibatch:
    """One ``pm.Minibatch`` call: rows of several arrays, always drawn together."""

    stream: Variable  # PyMC's random stream of the call, shared by all its clones in a graph
    sources: tuple[TensorVariable, ...]  # the full arrays in the model
    batch_size: int  # B

    def arrays(self) -> list[Any]:
        """Return the full arrays; where one is on disk, sources of all of them."""
        return aligned([evaluate(source) for source in self.sources])


def _minibatch_nodes(graphs: Iterable[Variable]) -> list[Any]:
    nodes: dict[Any, None] = {}
    for variable in ancestors(list(graphs)):
        node = variable.owner
        if node is not None and isinstance(node.op, MinibatchOp):
            nodes[node] = None
    return list(nodes)


def evaluate(source: Variable) -> Any:
    """Return the value of a graph without free inputs, uncompiled; of rows on disk the source.

    That of a sparse constant or shared variable is the sparse matrix.
    """
    if isinstance(source, Constant):
        return source.data if issparse(source.data) else np.asarray(source.data)
    if isinstance(source, SharedVariable):
        value = source.get_value(borrow=True)
        return value if issparse(value) else np.asarray(value)
    rows = source_of(source)
    if rows is not None:
        return rows
    _refuse_computed(source)
    # Interpreted: a process that only reads the model starts no compiler
    return np.asarray(pytensor.function([], source, mode=Mode("py", "fast_compile"))())


def _refuse_computed(source: Variable) -> None:
    for variable in ancestors([source]):
        if isinstance(of_disk := source_of(variable), Source):
            raise ValueError(
                f"The rows of {of_disk.name} are changed before pm.Minibatch draws from them, for "
                "which all of them would be read. Pass sg.on_disk(...) to pm.Minibatch as it is, "
                "and compute with the batch."
            )


def find_minibatches(graphs: Iterable[Variable]) -> list[Minibatch]:
    """Find every ``pm.Minibatch`` call under ``graphs``, each once."""
    found: dict[Variable, Minibatch] = {}
    for node in _minibatch_nodes(graphs):
        *sources, stream = node.inputs
        batch_size = node.outputs[0].type.shape[0]
        found.setdefault(stream, Minibatch(stream, tuple(sources), int(batch_size)))
    return list(found.values())


def full_arrays(graphs: Iterable[Variable]) -> dict[Variable, Variable]:
    """Map each batch under ``graphs`` to the array that it is drawn from."""
    return {
        output: source
        for node in _minibatch_nodes(graphs)
        for output, source in zip(node.outputs, node.inputs[:-1], strict=False)
    }


def replace_minibatches(
    graphs: Sequence[Variable], minibatches: Sequence[Minibatch], rows: Sequence[Sequence[Any]]
) -> dict[Variable, Variable]:
    """Map every batch tensor under ``graphs`` to the step's own input for these rows."""
    positions = {minibatch.stream: i for i, minibatch in enumerate(minibatches)}
    return {
        output: rows[positions[node.inputs[-1]]][j]
        for node in _minibatch_nodes(graphs)
        for j, output in enumerate(node.outputs[:-1])
    }


def all_rows(value: Any) -> Variable:
    """Return the observed array, before a cast by PyMC, of a value that may be a batch."""
    while value.owner and isinstance(value.owner.op, Elemwise) and len(value.owner.inputs) == 1:
        value = value.owner.inputs[0]
    batches = find_minibatches([value])
    found = replace_minibatches([value], batches, [batch.sources for batch in batches])
    # Of batches along another axis than the first the rows are moved there
    moved = value.owner.inputs[0] if value.owner and value.owner.inputs else value
    array: Variable = found.get(value, found.get(moved, value))
    return array


def check_minibatches(model: Model) -> list[Minibatch]:
    """Return every ``pm.Minibatch`` call of a model; raise or warn where a density is wrong."""
    for rv in model.free_RVs:
        if find_minibatches([rv]):
            raise NotImplementedError(
                f"The unobserved variable '{rv.name}' depends on a pm.Minibatch: its meaning "
                "would change with every batch. Give it the shape of the full data and index "
                "it with a minibatched index."
            )
    values = [model.rvs_to_values[rv] for rv in model.observed_RVs]
    for rv, value in zip(model.observed_RVs, values, strict=True):
        _check_likelihood(rv, value, find_minibatches([rv, value]))
    minibatches = find_minibatches([*model.observed_RVs, *values, *model.potentials])
    for minibatch in minibatches:
        _check_rows(minibatch)
    _refuse_whole_rows(model)
    for minibatch in minibatches:
        warn_of_order(minibatch.arrays(), minibatch.batch_size, _PACKAGE)
    for potential in model.potentials:
        # A term with a known gradient only is marked by its operation, one of batch_dim by a tag
        known = any(
            getattr(of, "scales_with_data", False)
            for of in (potential.owner and potential.owner.op, potential.tag)
        )
        found = find_minibatches([potential])
        if len(found) > 1:
            raise ValueError(
                f"The potential '{potential.name}' draws its rows from {len(found)} pm.Minibatch "
                "calls, whose rows are not aligned. Draw all arrays of one term in one call: "
                "x, y = pm.Minibatch(x, y, batch_size=...). If it is the sum of several terms, "
                "write a pm.Potential for each."
            )
        if found and not known:
            warnings.warn(
                f"The potential '{potential.name}' depends on a pm.Minibatch. How it scales with "
                "the data cannot be known: it must already be multiplied by "
                "(rows of the data) / (rows of the batch).",
                UserWarning,
                skip_file_prefixes=_PACKAGE,
            )
    for deterministic in model.deterministics:
        if find_minibatches([deterministic]):
            warnings.warn(
                f"The deterministic '{deterministic.name}' depends on a pm.Minibatch: it records "
                "values for a random batch of rows, another one in each draw. Leave it out by "
                "pm.sample(var_names=...), and compute it after sampling for all rows: "
                "pm.compute_deterministics in sg.full_data(model).",
                UserWarning,
                skip_file_prefixes=_PACKAGE,
            )
    return minibatches


def axis_of_rows(rv: TensorVariable) -> int | None:
    """Return the axis along which an observed variable is scaled to more rows than it has."""
    if not isinstance(rv.owner.op, MinibatchRandomVariable):
        return None
    sizes = rv.owner.inputs[1:]
    return next((k for k, size in enumerate(sizes) if not NoneConst.equals(size)), None)


def _check_likelihood(rv: TensorVariable, value: Variable, found: list[Minibatch]) -> None:
    axis = axis_of_rows(rv)
    if not found:
        if axis is not None:
            _check_size(rv, axis, "it has all of its", evaluate(value).shape[axis])
        return
    if axis is None:
        raise ValueError(
            f"The observed variable '{rv.name}' uses a pm.Minibatch without the size of the "
            "full data, so that its likelihood would count one batch only. Pass "
            "total_size=<number of rows> to it."
        )
    if len(found) > 1:
        raise ValueError(
            f"The observed variable '{rv.name}' draws its rows from {len(found)} pm.Minibatch "
            "calls, whose rows are not aligned. Draw all its arrays in one call: "
            "x, y = pm.Minibatch(x, y, batch_size=...)."
        )
    _check_size(rv, axis, _DRAWS, len(evaluate(found[0].sources[0])))


def _check_size(rv: TensorVariable, axis: int, which: str, rows: int) -> None:
    total_size = rv.owner.inputs[1 + axis]
    if any(source_of(x) is not None for x in ancestors([total_size])):
        return
    check_total_size(f"The observed variable '{rv.name}'", int(evaluate(total_size)), rows, which)


def check_total_size(what: str, total_size: int, rows: int, which: str = _DRAWS) -> None:
    """Refuse a likelihood of no rows, and warn where it is scaled to a wrong number of rows."""
    if total_size < 1:
        raise ValueError(
            f"{what} has total_size={total_size}. Pass the number of its rows, {rows}."
        )
    if total_size != rows:
        warnings.warn(
            f"{what} has total_size={total_size}, but {which} {rows} rows: the likelihood counts "
            f"{total_size / rows:.3g} times what they say. Pass total_size={rows}, or, if "
            "pm.set_data changes the number of rows, total_size=[data.shape[0]] with the pm.Data.",
            UserWarning,
            skip_file_prefixes=_PACKAGE,
        )


def _refuse_whole_rows(model: Model) -> None:
    """Refuse rows on disk that are used without a minibatch."""
    drawn = {output for node in _minibatch_nodes(_graphs(model)) for output in node.outputs}
    for variable in ancestors(_graphs(model), blockers=drawn):
        if variable not in drawn and variable.owner and isinstance(variable.owner.op, RowsOnDisk):
            raise ValueError(
                f"The rows of {variable.owner.op.source.name} are used as a whole, for which all "
                "of them would be read. Draw batches of them: x, y = pm.Minibatch("
                "sg.on_disk(...), sg.on_disk(...), batch_size=...)."
            )


def _graphs(model: Model) -> list[Variable]:
    return [*model.basic_RVs, *model.rvs_to_values.values(), *model.potentials]


def _check_rows(minibatch: Minibatch) -> None:
    if minibatch.batch_size < 1:
        raise ValueError(
            f"A pm.Minibatch has batch_size={minibatch.batch_size}. Pass the number of its rows, "
            "such as 500."
        )
    rows = [len(evaluate(source)) for source in minibatch.sources]
    if len(set(rows)) > 1:
        raise ValueError(
            f"A pm.Minibatch draws from arrays of different lengths, {rows}: pass arrays with "
            "the same number of rows."
        )
    if rows[0] > MOST_ROWS:
        raise ValueError(
            f"A pm.Minibatch draws from {rows[0]} rows, more than 2^31 - 1. Divide them among "
            "several likelihoods, each with a pm.Minibatch of its own."
        )
    if minibatch.batch_size > rows[0]:
        raise ValueError(
            f"The batch_size={minibatch.batch_size} of a pm.Minibatch is larger than its data "
            f"of {rows[0]} rows. Choose a smaller batch_size, or leave pm.Minibatch out to "
            "sample with the full gradient."
        )


def _row_numbers(rng: np.random.Generator, rows: int, size: int | tuple[int, int]) -> np.ndarray:
    # rng.integers takes 7 µs for its checks alone, this one in all; uniform to 2^-53
    return (rng.random(size) * rows).astype(np.int32)


class BatchScheme(Protocol):
    """How the rows of a batch are chosen."""

    contiguous: bool
    """Whether a batch is a block of rows at an offset, or a set of row indices."""
    independent: bool
    """Whether the batches of an update are independent of those of the others."""

    def draw(
        self, rng: np.random.Generator, rows: int, batch_size: int, updates: int, batches: int = 1
    ) -> np.ndarray:
        """Draw batches of shape (updates, batches, ...), or (updates, ...) for one in each."""

    def follow(
        self,
        rng: np.random.Generator,
        rows: int,
        batch_size: int,
        updates: int,
        batches: int,
        left: np.ndarray,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Draw the batches of the chain's next updates.

        ``left`` is the rest of the last plan, empty at first and for schemes without plans; the new
        rest is returned with the batches.
        """

    def aside(
        self,
        rng: np.random.Generator,
        rows: int,
        batch_size: int,
        updates: int,
        batches: int,
        left: np.ndarray,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Draw batches for measurements, which no update uses; as :meth:`follow`."""

    def of_blocks(self, size: int) -> BatchScheme:
        """Return the scheme for blocks of ``size`` rows in place of rows."""

    def variance_ratio(self, rows: int, batch_size: int, batches: int) -> float:
        """Return the variance of the mean of ``batches`` batches over that of one block of rows."""


class _Independent(ABC):
    """A scheme without a plan: every batch is independent of those before."""

    independent = True

    @abstractmethod
    def draw(
        self, rng: np.random.Generator, rows: int, batch_size: int, updates: int, batches: int = 1
    ) -> np.ndarray:
        """Draw batches as :class:`BatchScheme` says."""

    def follow(
        self,
        rng: np.random.Generator,
        rows: int,
        batch_size: int,
        updates: int,
        batches: int,
        left: np.ndarray,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Draw batches that are independent of all others."""
        return self.draw(rng, rows, batch_size, updates, batches), left

    aside = follow

    def of_blocks(self, size: int) -> Any:
        """Return the scheme itself, which takes blocks as it takes rows."""
        return self


class Shuffled(_Independent):
    """A contiguous block of once-permuted rows at a random offset, wrapping round.

    Its gradient has the noise of sampling without replacement, and no rows are gathered.
    """

    contiguous = True

    def draw(
        self, rng: np.random.Generator, rows: int, batch_size: int, updates: int, batches: int = 1
    ) -> np.ndarray:
        """Return offsets, shape (updates,) or (updates, batches).

        Several batches are neighbours, which share rows only once all rows are used: together they
        have the noise of one batch of their joint size.
        """
        first = _row_numbers(rng, rows, updates)
        if batches == 1:
            return first
        steps = np.arange(batches, dtype=np.int64) * batch_size
        return ((first[:, None] + steps) % rows).astype(np.int32)

    def variance_ratio(self, rows: int, batch_size: int, batches: int) -> float:
        """Return the variance of the mean of ``batches`` batches over that of one block of rows.

        K B rows laid round N count each row equally often, except r extra rows chosen at random,
        with a variance of r (1 - r/N).
        """
        if batch_size >= rows:
            return 0.0
        blocks = rows / batch_size
        remainder = batches * batch_size % rows / batch_size
        alone = (1 - remainder / blocks) / (1 - 1 / blocks)
        return remainder / batches * alone / batches


class Random(_Independent):
    """``pm.Minibatch``'s own scheme: rows drawn with replacement."""

    contiguous = False

    def draw(
        self, rng: np.random.Generator, rows: int, batch_size: int, updates: int, batches: int = 1
    ) -> np.ndarray:
        """Return row indices, shape (updates, batch_size) or (updates, batches, batch_size)."""
        drawn = _row_numbers(rng, rows, (updates * batches, batch_size))
        return drawn if batches == 1 else drawn.reshape(updates, batches, batch_size)

    def variance_ratio(self, rows: int, batch_size: int, batches: int) -> float:
        """Return the variance of the mean of ``batches`` batches over that of one block of rows."""
        # Which is drawn without replacement
        return (rows - 1) / (max(rows - batch_size, 1) * batches)


class Sweep(Shuffled):
    """Sweeps over blocks of the rows: each block once, in random order from a random offset.

    The errors of one sweep's batches cancel: with m = N/B blocks and step size h, about hm/3 of the
    gradient noise remains. ``symmetric`` repeats each sweep backwards: Paulin, Whalley, Chada,
    Leimkuhler (2024). Sampling from Bayesian neural network posteriors with symmetric minibatch
    splitting Langevin dynamics.
    """

    independent = False

    def __init__(self, *, symmetric: bool) -> None:
        self._symmetric = symmetric

    def follow(
        self,
        rng: np.random.Generator,
        rows: int,
        batch_size: int,
        updates: int,
        batches: int,
        left: np.ndarray,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Draw the batches of the next updates: ``left`` of the last sweep, then new ones."""
        parts, count = [left], len(left)
        while count < updates * batches:
            parts.append(self._sweep(rng, rows, batch_size))
            count += len(parts[-1])
        starts = np.concatenate(parts)
        drawn, left = np.split(starts, [updates * batches])
        return (drawn if batches == 1 else drawn.reshape(updates, batches)), left

    def _sweep(self, rng: np.random.Generator, rows: int, batch_size: int) -> np.ndarray:
        """Return the offsets of a sweep."""
        blocks = -(-rows // batch_size)
        first = _row_numbers(rng, rows, 1).astype(np.int64)
        starts = ((first + batch_size * rng.permutation(blocks)) % rows).astype(np.int32)
        return np.concatenate([starts, starts[::-1]]) if self._symmetric else starts

    def variance_ratio(self, rows: int, batch_size: int, batches: int) -> float:
        """Return the variance of the mean of ``batches`` batches over that of one block of rows.

        K batches are the last a blocks of one sweep, whole sweeps, whose errors cancel, and the
        first b of another; a of m blocks have a variance of a (1 - a/m), averaged over all a.
        """
        blocks = -(-rows // batch_size)
        if blocks == 1:
            return 0.0
        last = np.arange(0, blocks, gcd(batches, blocks))
        first = np.minimum(last, batches)
        rest = (batches - first) % blocks
        sums = sum(part * (1 - part / blocks) for part in (first, rest))
        return float(np.mean(sums)) / batches**2 / (1 - 1 / blocks)


BATCH_SCHEMES: dict[str, BatchScheme] = {
    "shuffled": Shuffled(),
    "random": Random(),
    "sweep": Sweep(symmetric=False),
    "symmetric": Sweep(symmetric=True),
}
