"""Rows of a parquet file, or of a folder of them."""

from __future__ import annotations

import json

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pymc_sgmcmc.disk.source import ChunkedSource, DiskError, needed, reading, state_of


def is_parquet(path: Path) -> bool:
    """Whether it is a parquet file, or a folder that has some."""
    return bool(_files(path)) if path.is_dir() else path.suffix in (".parquet", ".pq")


class ParquetSource(ChunkedSource):
    """Columns of a parquet file, or of all files of a folder in the order of their names.

    A row group is decoded at a time. A name gives an array of one dimension, names one of two; by
    default all columns are read, but for the index of a data frame that pandas wrote.
    """

    def __init__(
        self, path: Path, columns: str | Sequence[str] | None = None, dtype: Any = None
    ) -> None:
        place = path.resolve()
        files = _files(place) if place.is_dir() else [place]
        states = {file: state_of(file) for file in files}
        self._columns = _chosen(columns, _opened(files[0]).schema_arrow)
        # File, number in it and rows of each group
        self._groups: list[tuple[Path, int, int]] = []
        types = []
        for file in files:
            # One at a time: a process may have few files open
            handle = _opened(file)
            types += [_type_of(file, column, handle.schema_arrow) for column in self._columns]
            for k in range(handle.metadata.num_row_groups):
                if rows := handle.metadata.row_group(k).num_rows:
                    self._groups.append((file, k, rows))
        if not self._groups:
            raise ValueError(f"'{path}' has no rows.")
        starts = np.cumsum([0, *(rows for *_, rows in self._groups)])
        width = () if isinstance(columns, str) else (len(self._columns),)
        super().__init__(f"'{path}'", (starts[-1], *width), np.result_type(*types), dtype, starts)
        self.states = states

    def decode(self, k: int) -> np.ndarray:
        """Return the rows of a row group."""
        file, group, _ = self._groups[k]
        self.check(file)
        with reading(f"Row group {group} of '{file}' cannot be read"):
            if file not in self.handles:
                self.handles = {file: _opened(file)}
            table = self.handles[file].read_row_group(
                group, columns=self._columns, use_threads=False
            )
        arrays = []
        for column in self._columns:
            values = table.column(column)
            if values.null_count and self.stored.kind != "f":
                raise DiskError(
                    f"The column '{column}' of '{file}' has {values.null_count} missing values in "
                    f"row group {group}. Fill them in, or leave these rows out."
                )
            arrays.append(np.asarray(values.to_numpy(zero_copy_only=False), dtype=self.stored))
        return arrays[0] if len(self.shape) == 1 else np.stack(arrays, axis=1)

    def fingerprint(self) -> tuple[Any, ...]:
        """Return the names of the columns, too."""
        return *super().fingerprint(), *self._columns


def _opened(file: Path) -> Any:
    parquet = needed("pyarrow.parquet", "parquet needs the package pyarrow")
    with reading(f"'{file}' cannot be read as parquet"):
        return parquet.ParquetFile(file)


def _chosen(columns: str | Sequence[str] | None, schema: Any) -> list[str]:
    """Return the names of the columns that are asked for."""
    known = list(schema.names)
    if columns is None:
        pandas = json.loads((schema.metadata or {}).get(b"pandas", b"{}"))
        index = pandas.get("index_columns", ())
        return [name for name in known if name not in index] or known
    chosen: list[Any] = [columns] if isinstance(columns, str) else list(np.atleast_1d(columns))
    if not all(isinstance(column, str) for column in chosen) or len({*chosen}) < len(chosen):
        raise ValueError(f"columns must be different names, or one, got {columns!r}.")
    if not chosen:
        raise ValueError("columns is empty. Name a column, or leave columns out to read all.")
    return chosen


def _type_of(file: Path, column: str, schema: Any) -> np.dtype[Any]:
    """Return the type of the numbers in a column of a file."""
    if column not in schema.names:
        listed = ", ".join(f"'{name}'" for name in schema.names)
        raise ValueError(f"'{file}' has no column '{column}': it has {listed}.")
    kind = schema.field(column).type
    try:
        dtype = np.dtype(kind.to_pandas_dtype())
    except (NotImplementedError, TypeError):  # of categories and the like
        dtype = np.dtype(object)
    if dtype.kind not in "biuf":
        raise ValueError(
            f"The column '{column}' of '{file}' holds no numbers ({kind}). Choose others with "
            "columns=, or write its categories as whole numbers."
        )
    return dtype


def _files(folder: Path) -> list[Path]:
    return sorted([*folder.glob("*.parquet"), *folder.glob("*.pq")])
