"""Rows of a parquet file, or of a folder of them."""

from __future__ import annotations

import json

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pymc_sgmcmc.disk.dtypes import dtype_read
from pymc_sgmcmc.disk.source import ChunkedSource, DiskError, state_of

__all__ = ["ParquetSource", "is_parquet"]


def is_parquet(path: Path) -> bool:
    """Whether it is a parquet file, or a folder that has some."""
    return path.suffix in (".parquet", ".pq") or (path.is_dir() and bool(_files(path)))


class ParquetSource(ChunkedSource):
    """Columns of a parquet file, or of all files of a folder in the order of their names.

    A row group is decoded at a time. A name gives an array of one dimension, names one of two; by
    default all columns are read, but for the index of a data frame that pandas wrote.
    """

    def __init__(
        self, path: Path, columns: str | Sequence[str] | None = None, dtype: Any = None
    ) -> None:
        self.path = path.resolve()
        files = _files(self.path) if self.path.is_dir() else [self.path]
        self._states = {file: state_of(file) for file in files}
        self._open: dict[Path, Any] = {}
        self._columns = _chosen(path, columns, self._opened(files[0]).schema_arrow)
        groups, types = [], []
        for file in files:
            opened = self._opened(file)
            types += [_type_of(file, column, opened.schema_arrow) for column in self._columns]
            metadata = opened.metadata
            groups += [
                (file, k, metadata.row_group(k).num_rows) for k in range(metadata.num_row_groups)
            ]
        self._groups = [group for group in groups if group[2]]
        starts = np.cumsum([0, *(count for *_, count in self._groups)])
        if len(starts) == 1:
            raise ValueError(f"'{path}' has no rows.")
        stored = np.result_type(*types)
        shape = (starts[-1],) if isinstance(columns, str) else (starts[-1], len(self._columns))
        super().__init__(f"'{path}'", shape, stored, dtype_read(str(path), stored, dtype), starts)

    def _opened(self, file: Path) -> Any:
        if file not in self._open:
            try:
                from pyarrow import parquet
            except ImportError as error:
                raise ImportError(
                    "Reading parquet needs the package pyarrow: pip install 'pymc-sgmcmc[disk]'."
                ) from error
            try:
                self._open[file] = parquet.ParquetFile(file)
            except Exception as error:
                raise DiskError(f"'{file}' cannot be read as parquet: {error}") from error
        return self._open[file]

    def check(self) -> None:
        """Raise where a file was written to since the model was made."""
        for file in self._states:
            self._check(file)

    def _check(self, file: Path) -> None:
        if state_of(file) != self._states[file]:
            raise DiskError(
                f"'{file}' was written to since the model was made. Make the model anew."
            )

    def decode(self, k: int) -> np.ndarray:
        """Return the rows of a row group."""
        file, group, _ = self._groups[k]
        self._check(file)
        try:
            table = self._opened(file).read_row_group(
                group, columns=self._columns, use_threads=False
            )
        except Exception as error:
            raise DiskError(f"Row group {group} of '{file}' cannot be read: {error}") from error
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

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_open": {}}


def _chosen(path: Path, columns: str | Sequence[str] | None, schema: Any) -> list[str]:
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
        found = np.dtype(kind.to_pandas_dtype())
    except (NotImplementedError, TypeError):  # of categories and the like
        found = np.dtype(object)
    if found.kind not in "biuf":
        raise ValueError(
            f"The column '{column}' of '{file}' holds no numbers ({kind}). Choose others with "
            "columns=, or write its categories as whole numbers."
        )
    return found


def _files(folder: Path) -> list[Path]:
    return sorted([*folder.glob("*.parquet"), *folder.glob("*.pq")])
