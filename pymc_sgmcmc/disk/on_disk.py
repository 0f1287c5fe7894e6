"""Rows on disk as a variable of a model."""

from __future__ import annotations

import logging
import os
import weakref

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytensor.tensor as pt

from pymc.model import modelcontext
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.op import Op
from pytensor.tensor.variable import TensorVariable

from pymc_sgmcmc.checks import a_path
from pymc_sgmcmc.disk.npy import NpySource
from pymc_sgmcmc.disk.parquet import ParquetSource, is_parquet
from pymc_sgmcmc.disk.source import DiskError, Source
from pymc_sgmcmc.disk.zarr import ZarrSource, is_zarr

_log = logging.getLogger("pymc.sgmcmc")

# Offsets of batches are 32-bit integers
MOST_ROWS = 2**31 - 1

# Rows of at most so many bytes are copied into a result's observed_data
_MOST_OBSERVED = 2**27


class RowsVariable(TensorVariable):
    """All rows of a source, which are evaluated on their own only where they are few.

    PyMC evaluates what was observed to store it with the draws, several times over with its
    coordinates.
    """

    def eval(self, *arguments: Any, **options: Any) -> Any:
        """Return the rows, or raise what PyMC takes as a reason to leave them out of its result."""
        source = source_of(self)
        if source is None:  # a copy in another graph
            return super().eval(*arguments, **options)
        size = source.size * source.dtype.itemsize
        if size <= _MOST_OBSERVED:
            try:
                return source.whole()
            except DiskError as error:
                _log.warning("'%s' is left out of observed_data: %s", self.name, error)
                raise TypeError(str(error)) from error
        why = (
            f"'{self.name}' is left out of observed_data: the rows of {source.name} would take "
            f"{size / 1e9:.3g} GB and stay on disk."
        )
        _log.info(why)
        raise TypeError(f"{why} Read some of them, as with numpy.load(path, mmap_mode='r').")


class _Key:
    """A weak reference to a source: PyTensor's caches keep operations for ever."""

    def __init__(self, source: Source) -> None:
        self.source = weakref.ref(source)

    def __reduce__(self) -> Any:
        return _Key, (self.source(),)


class RowsOnDisk(Op):
    """Stands for all rows of a source in a graph, without reading them.

    Samplers of this package read the source. Where a graph is compiled as it stands, a large
    ``.npy`` file is mapped into memory and all else is read whole.
    """

    __props__ = ("key",)

    def __init__(self, source: Source) -> None:
        self.key = _Key(source)

    @property
    def source(self) -> Source:
        """The source, which lives as long as a variable that stands for it."""
        source = self.key.source()
        assert source is not None
        return source

    def __str__(self) -> str:
        return f"RowsOnDisk({self.source.name})"

    def make_node(self, *inputs: Variable) -> Apply:
        """Return a node without inputs, whose shape is known."""
        kind = pt.tensor(dtype=str(self.source.dtype), shape=self.source.shape).type
        variable = RowsVariable(kind, None)
        variable.tag.source = self.source
        return Apply(self, [], [variable])

    def do_constant_folding(self, fgraph: Any, node: Apply) -> bool:
        """Refuse to become a constant of the graph, which would be read and hashed."""
        return False

    def infer_shape(self, node: Apply, input_shapes: Any) -> list[Any]:
        """Return the shape, for which nothing is read."""
        return [tuple(pt.constant(n, dtype="int64") for n in self.source.shape)]

    def perform(self, node: Apply, inputs: Any, output_storage: Any) -> None:
        """Read all rows."""
        output_storage[0][0] = self.source.whole()


def on_disk(
    path: str | os.PathLike[str],
    *,
    columns: str | Sequence[str] | None = None,
    dtype: Any = None,
    name: str | None = None,
    dims: str | Sequence[str | None] | None = None,
) -> TensorVariable:
    """Rows of a file that is larger than memory, for ``pm.Minibatch`` or ``batch_dim=``.

    Nothing is read but the shape. While the model is sampled a thread reads the batches of the
    coming updates, so that rows take the same memory however many there are. They must be in
    random order: :func:`shuffle_to_disk` brings them into one. What was observed is left out of
    the result's ``observed_data`` where it takes more than 128 MiB; PyMC warns of that.

    Parameters
    ----------
    path : str or path
        A ``.npy`` file, a zarr array (the folder of the array, inside a store or alone), a parquet
        file, or a folder of parquet files. ``.npy`` is read fastest: of the others whole chunks
        or row groups are decoded.
    columns : str or sequence of str, optional
        Of parquet: one name for an array of one dimension, several for one of two. By default all
        columns, in their order, but for the index of a data frame that pandas wrote.
    dtype : str or dtype, optional
        As which numbers are read. By default floats become ``floatX`` and whole numbers
        ``int32``, as of ``pm.Data``.
    name : str, optional
        By default the file's without its ending.
    dims : str or sequence of str, optional
        As of ``pm.Data``, inside a model: a step with ``batch_size=`` and ``batch_dim=`` then draws
        its rows. An axis whose dim is None gets one of its own.

    Returns
    -------
    TensorVariable
        Of the shape of the array, rows first.

    Raises
    ------
    FileNotFoundError
        If there is nothing at ``path``.
    ValueError
        If what is there is of another kind, holds no numbers or no rows, or has more rows than
        2³¹ − 1; if there are more or fewer ``dims`` than axes.
    TypeError
        If ``path``, ``name`` or ``dims`` are of another kind, or ``dims`` given outside a model.
    DiskError
        If a file cannot be read.
    ImportError
        If the package that reads zarr or parquet is not installed.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_sgmcmc as sg
    >>> folder = getfixture("tmp_path")
    >>> rng = np.random.default_rng(1)
    >>> np.save(folder / "x.npy", rng.normal(size=(1000, 3)).astype("float32"))
    >>> np.save(folder / "y.npy", rng.normal(size=1000).astype("float32"))
    >>> with pm.Model() as model:
    ...     x, y = pm.Minibatch(
    ...         sg.on_disk(folder / "x.npy"), sg.on_disk(folder / "y.npy"), batch_size=100
    ...     )
    ...     beta = pm.Normal("beta", shape=3)
    ...     pm.Normal("y", x @ beta, observed=y, total_size=1000)
    ...     step = sg.MSGNHT()
    y
    """
    if not isinstance(name, str | None):
        raise TypeError(f"name must be a word, such as 'x', got {name!r}.")
    listed = (dims,) if isinstance(dims, str | None) else dims
    if not isinstance(listed, list | tuple) or not all(isinstance(x, str | None) for x in listed):
        raise TypeError(f"dims must be a word, or a list of words, such as 'obs', got {dims!r}.")
    source = opened(path, columns=columns, dtype=dtype)
    variable: Any = RowsOnDisk(source).make_node().outputs[0]
    variable.name = name or Path(path).stem
    if dims is not None:
        _register(variable, tuple(listed))
    return variable


def _register(variable: TensorVariable, dims: tuple[str | None, ...]) -> None:
    """Give dims to a variable of the model that is written."""
    try:
        model = modelcontext(None)
    except TypeError:
        raise TypeError(
            f"dims={dims} are of a model: call sg.on_disk inside a 'with pm.Model():' block."
        ) from None
    if len(dims) != variable.ndim:
        raise ValueError(
            f"dims={dims} are {len(dims)}, but the rows of '{variable.name}' have shape "
            f"{variable.type.shape}: give a dim, or None, for each axis."
        )
    variable.name = model.name_for(variable.name)
    # PyMC cannot copy a model that has a dim None
    dims = tuple(dim or f"{variable.name}_dim_{axis}" for axis, dim in enumerate(dims))
    for dim, length in zip(dims, variable.type.shape, strict=True):
        if dim not in model.dim_lengths:
            model.add_coord(dim, length=length)
        elif (known := int(model.dim_lengths[dim].eval(mode="FAST_COMPILE"))) != length:
            raise ValueError(
                f"'{variable.name}' has {length} along the dim '{dim}', whose coords have {known}. "
                "Pass another dim, or coords of that length."
            )
    # Not as data of the model, which PyMC copies into the result's constant_data
    model.add_named_variable(variable, dims=dims)


def opened(
    path: str | os.PathLike[str], *, columns: str | Sequence[str] | None = None, dtype: Any = None
) -> Source:
    """Return the source of a path, whatever it holds; arguments as of :func:`on_disk`."""
    if not isinstance(path, str | os.PathLike):
        raise TypeError(
            f"The path of a file or folder is needed, got {type(path).__name__}. Arrays in memory "
            "are given to pm.Minibatch, or pm.Data, as they are."
        )
    place = a_path("path", path, "a file or folder, such as 'x.npy'")
    if not place.exists():
        raise FileNotFoundError(f"There is no file or folder '{path}'.")
    source: Source
    if place.suffix == ".npy" and place.is_file():
        source = NpySource(place, dtype)
    elif place.is_dir() and is_zarr(place):
        source = ZarrSource(place, dtype)
    elif is_parquet(place):
        source = ParquetSource(place, columns, dtype)
    else:
        raise ValueError(
            f"'{path}' is neither a .npy file, nor the folder of a zarr array, nor parquet. "
            "Write the rows as one of these."
        )
    if columns is not None and not isinstance(source, ParquetSource):
        raise ValueError(f"columns={columns!r} are of parquet only, and '{path}' is none.")
    if not source.shape or not source.size:
        raise ValueError(f"'{path}' has no rows of numbers: its shape is {source.shape}.")
    if len(source) > MOST_ROWS:
        raise ValueError(f"'{path}' has {len(source)} rows, more than 2^31 - 1. Divide it.")
    return source


def source_of(variable: Variable) -> Source | None:
    """Return the source that a variable stands for, if it does."""
    node = variable.owner
    return node.op.source if node is not None and isinstance(node.op, RowsOnDisk) else None
