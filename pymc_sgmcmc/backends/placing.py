"""Arrays where a backend reads them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pymc_sgmcmc.backends.workarounds import jax_precision

__all__ = ["place"]


def place(arrays: Sequence[Any], backend: str) -> list[Any]:
    """Put arrays where the backend reads them without a copy at every call."""
    if backend == "jax":
        import jax

        with jax_precision()():
            return [jax.device_put(array) for array in arrays]
    # A read-only or strided array would make numba compile anew
    return [np.require(array, array.dtype, ["C", "A", "W"]) for array in arrays]
