"""Random numbers made in the memory of the device that reads them, where that is not a processor's.

The generator of a chain gives a key for each draw, and JAX makes the numbers of it. To draw them in
the processor's memory and to send them takes several times as long as the rest of a net's update.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from pymc_sgmcmc.backends.workarounds import jax_precision

# Of a key of Threefry, JAX's generator
_WORDS = 2


def drawn_on_device(
    kinds: Sequence[str], rng: np.random.Generator, draws: int, shape: tuple[int, ...], dtype: str
) -> list[Any]:
    """Return random numbers as arrays of JAX, one of shape (draws, *shape) for each kind.

    Normals have float32's precision. The generator yields a key for each kind of each draw, so that
    the numbers of a draw do not depend on how many draws there are.
    """
    keys = rng.integers(2**32, size=(draws, len(kinds), _WORDS), dtype=np.uint32)
    with jax_precision()():
        return [_maker(kind, shape, dtype)(keys[:, i]) for i, kind in enumerate(kinds)]


@cache
def _maker(kind: str, shape: tuple[int, ...], dtype: str) -> Callable[[np.ndarray], Any]:
    import jax

    def normal(key: Any) -> Any:
        return jax.random.normal(key, shape, "float32").astype(dtype)

    def uniform(key: Any) -> Any:
        return jax.random.uniform(key, shape, dtype)

    def exponential(key: Any) -> Any:
        # The stable law divides by it
        tiny = np.finfo(dtype).tiny
        return jax.numpy.maximum(jax.random.exponential(key, shape, dtype), tiny)

    one = {"normal": normal, "uniform": uniform, "exponential": exponential}[kind]

    def all_draws(words: Any) -> Any:
        return jax.vmap(one)(jax.random.wrap_key_data(words, impl="threefry2x32"))

    return jax.jit(all_draws)
