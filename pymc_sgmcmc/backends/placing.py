"""Arrays where a backend reads them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from pymc_sgmcmc.backends.errors import named
from pymc_sgmcmc.backends.workarounds import jax_precision

# Bytes; arrays that begin elsewhere are copied by JAX at every call
ALIGNMENT = 64


def place(arrays: Sequence[Any], backend: str) -> list[Any]:
    """Put arrays where the backend reads them without a copy at every call."""
    if backend == "jax":
        with jax_precision()(), named(backend):
            return [on_device(array) for array in arrays]
    # For a read-only or strided array numba would compile again
    return [np.require(array, array.dtype, ["C", "A", "W"]) for array in arrays]


def on_device(array: Any) -> Any:
    """Put an array where JAX reads it; raise OverflowError where that would cut numbers off."""
    import jax

    placed = jax.device_put(array)
    if array.dtype.kind in "iu" and placed.dtype != array.dtype and array.size:
        limits = np.iinfo(placed.dtype)
        for x in (array.min(), array.max()):
            if not limits.min <= x <= limits.max:
                raise OverflowError(
                    f"in single precision its whole numbers end at {limits.max:,}, and the data "
                    f"have {x:,}; write these data as floats"
                )
    return placed


def on_processor(backend: str) -> bool:
    """Whether a backend computes in the processor's memory, as all do but JAX on a GPU.

    For JAX this starts it.
    """
    if backend != "jax":
        return True
    import jax

    chosen = jax.config.jax_default_device  # a device, or a platform's name
    platform = jax.default_backend() if chosen is None else getattr(chosen, "platform", chosen)
    return bool(platform == "cpu")


def every(array: Any, stride: int) -> Any:
    """Return each ``stride``-th element, chosen where the array is."""
    if isinstance(array, np.ndarray | np.generic):
        return array.reshape(-1)[::stride]
    return _strided()(array, stride)


@cache
def _strided() -> Callable[[Any, int], Any]:
    import jax

    return jax.jit(lambda array, stride: array.reshape(-1)[::stride], static_argnums=1)


def is_in_place(placed: Any, array: np.ndarray) -> bool:
    """Whether a backend reads an array in place, so that it sees later changes."""
    if isinstance(placed, np.ndarray):
        return np.shares_memory(placed, array)
    [device] = placed.devices()
    return bool(device.platform == "cpu" and placed.unsafe_buffer_pointer() == array.ctypes.data)


def aligned(shape: Sequence[int], dtype: Any) -> np.ndarray:
    """Return an empty array that JAX on CPUs reads in place.

    It may be refilled once results computed from it have been waited for.
    """
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    memory = np.empty(size + ALIGNMENT, dtype=np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + size].view(dtype).reshape(shape)
