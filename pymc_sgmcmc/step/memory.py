"""What the draws of many parameters will take of memory, told before sampling."""

from __future__ import annotations

import logging

from collections.abc import Sequence

import numpy as np

from pymc.model import Model
from pytensor.tensor.variable import TensorVariable

from pymc_sgmcmc.model.batch_dim import depends_on, rows_of

__all__ = ["parameters", "tell_full_deterministics", "tell_memory"]

_log = logging.getLogger("pymc.sgmcmc")

# Batches in the data, of which a draw's 20 updates take a fifth
_MANY_BATCHES = 100

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


def tell_full_deterministics(model: Model, dim: str, batch_size: int) -> None:
    """Say in the log which deterministics cost a draw far more than its updates."""
    rows = rows_of(model, dim)
    if rows.count < _MANY_BATCHES * batch_size:
        return
    length = model.dim_lengths[dim]
    names = [f"'{d.name}'" for d in model.deterministics if depends_on(d, rows.axes, length)]
    if names:
        _log.warning(
            "PyMC computes %s for all %s rows of '%s' in each draw, and keeps what it computes, "
            "while an update reads %s of them. Pass var_names= of the other variables to "
            "pm.sample, and compute it from the result: pm.compute_deterministics(dt.posterior).",
            ", ".join(names),
            f"{rows.count:,}",
            dim,
            f"{batch_size:,}",
        )


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
