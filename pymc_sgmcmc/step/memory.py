"""What draws take of memory, and which deterministics they leave out, logged before sampling."""

from __future__ import annotations

import logging

from collections.abc import Sequence

import numpy as np

from pymc.model import Model
from pytensor.tensor.variable import TensorVariable

from pymc_sgmcmc.model.row_view import RowView

__all__ = ["left_out", "parameters", "tell_memory"]

_log = logging.getLogger("pymc.sgmcmc")

_DRAWS = 1000
_LARGE = 2**30

# PyMC's arrays with the tuning draws, those of the result, and what is read meanwhile
_COPIES = 2.5


def tell_memory(model: Model, values: Sequence[TensorVariable]) -> None:
    """Say in the log what a thousand draws of a chain take, where that is more than a GiB."""
    size = _DRAWS * sum(_size(model, value) * np.dtype(value.dtype).itemsize for value in values)
    if size < _LARGE:
        return
    gigabytes = size / 1e9
    _log.warning(
        "%s draws of %s take %.3g GB of memory for each chain, and sampling about %g times as "
        "much, deterministics apart. Pass fewer draws= and tune= with a larger thin=, or "
        "var_names= to keep only some variables.",
        f"{_DRAWS:,}",
        ", ".join(model.values_to_rvs[value].name for value in values),
        gigabytes,
        _COPIES,
    )


def left_out(model: Model, dim: str | None) -> frozenset[str]:
    """Return the names of deterministics that depend on all rows of a dim, and log them.

    A draw would take all rows for them, and an update takes a few.
    """
    if dim is None:
        return frozenset()
    view = RowView(model, dim)
    names = [str(d.name) for d in model.deterministics if view.depends_on_rows(d)]
    if names:
        listed = ", ".join(f"'{name}'" for name in names)
        _log.info(
            "The draws leave out %s, computed from all rows: pm.compute_deterministics("
            "dt.posterior) computes it afterwards, and var_names= keeps it in the draws.",
            listed,
        )
    return frozenset(names)


def parameters(model: Model, values: Sequence[TensorVariable]) -> int:
    """Return the number of parameters; those not known without compilation count as none."""
    return sum(_size(model, value) for value in values)


def _size(model: Model, value: TensorVariable) -> int:
    rv = model.values_to_rvs[value]
    shape = list(rv.type.shape)
    dims = model.named_vars_to_dims.get(rv.name, ())
    for k, dim in enumerate(dims):
        length = model.dim_lengths.get(dim)
        if shape[k] is None and length is not None:
            shape[k] = int(length.eval())
    known = [length for length in shape if length is not None]
    return int(np.prod(known, dtype=np.int64)) if len(known) == len(shape) else 0
