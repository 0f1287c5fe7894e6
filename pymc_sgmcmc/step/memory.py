"""What the draws of many parameters will take of memory, told before sampling."""

from __future__ import annotations

import logging

from collections.abc import Sequence

import numpy as np

from pymc.model import Model
from pytensor.tensor.variable import TensorVariable

__all__ = ["tell_memory"]

_log = logging.getLogger("pymc.sgmcmc")

_DRAWS = 1000
_LARGE = 2**30

# PyMC's arrays with the tuning draws, those of the result, and what is read meanwhile
_COPIES = 2.5


def tell_memory(model: Model, values: Sequence[TensorVariable]) -> None:
    """Say in the log what a thousand draws of a chain take, where that is more than a GiB."""
    size = _DRAWS * sum(_bytes(model, value) for value in values)
    if size < _LARGE:
        return
    gigabytes = size / 1e9
    _log.warning(
        "%s draws of %s take %.3g GB of memory for each chain, and sampling about %g times as "
        "much, deterministics apart. Pass fewer draws= with a larger thin=, var_names= to keep "
        "only some variables, or trace= of a store on disk to pm.sample.",
        f"{_DRAWS:,}",
        ", ".join(model.values_to_rvs[value].name for value in values),
        gigabytes,
        _COPIES,
    )


def _bytes(model: Model, value: TensorVariable) -> int:
    """Return the size of one draw; what is not known without compilation counts as nothing."""
    rv = model.values_to_rvs[value]
    shape = list(rv.type.shape)
    dims = model.named_vars_to_dims.get(rv.name, ())
    for k, dim in enumerate(dims):
        length = model.dim_lengths.get(dim)
        if shape[k] is None and length is not None:
            shape[k] = int(length.eval())
    known = [length for length in shape if length is not None]
    if len(known) < len(shape):
        return 0
    return int(np.prod(known, dtype=np.int64)) * np.dtype(value.dtype).itemsize
