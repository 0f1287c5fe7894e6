"""Rows in files of the formats that can be read from disk."""

import numpy as np
import pytest


def write_rows(path, rows):
    """Write rows in the format of the path, in chunks of a hundred; the folder may be new."""
    path.parent.mkdir(exist_ok=True)
    match path.suffix:
        case ".npy":
            np.save(path, rows)
        case ".zarr":
            zarr = pytest.importorskip("zarr")
            zarr.create_array(path, data=rows, chunks=(100,), overwrite=True)
        case ".parquet":
            pa = pytest.importorskip("pyarrow")
            from pyarrow import parquet

            parquet.write_table(pa.table({"x": rows}), path, row_group_size=100)


def columns_of(path):
    """Return what is to be said of the columns of the path."""
    return {"columns": "x"} if path.suffix == ".parquet" else {}
