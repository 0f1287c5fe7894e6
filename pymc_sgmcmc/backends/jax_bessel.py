"""Modified Bessel functions of known orders, for JAX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pytensor.graph.basic import Apply, Constant
from scipy.special import gammaln

__all__ = ["scaled_bessel"]

# Of the expansion in 1/x, which is taken from this x and a quarter of the squared order on
_FROM, _TERMS = 40.0, 40

# Of larger orders the power series has thousands of terms for each element
_LARGEST_ORDER = 128


def scaled_bessel(node: Apply) -> Callable[..., Any] | None:
    """Return I_v(x) exp(-|x|) as a function of JAX arrays, None unless v is known, whole and ≤ 128.

    For small x the power series (Abramowitz and Stegun, 1964, 9.6.10), whose terms have one sign,
    so that small values keep their relative precision; for large x the expansion in 1/x (9.7.1).
    """
    order = node.inputs[0]
    if not isinstance(order, Constant):
        return None
    whole = np.asarray(order.data, dtype=float)
    if np.any(whole != np.rint(whole)) or np.any(np.abs(whole) > _LARGEST_ORDER):
        return None
    # Of whole orders the sign does not matter
    v = np.abs(whole)[..., None]
    largest = float(max(v.max(initial=0.0) ** 2 / 4, _FROM))
    # The largest term is near x / 2: those from here on are below the last digit
    k = np.arange(int(1.4 * largest + 3 * np.sqrt(largest) + 30))
    of_series = -gammaln(k + 1) - gammaln(v + k + 1)
    j = np.arange(1, _TERMS)
    of_expansion = np.cumprod(
        np.concatenate([np.ones_like(v), ((2 * j - 1) ** 2 - 4 * v**2) / (8 * j)], axis=-1), axis=-1
    )

    def function(_: Any, x: Any) -> Any:
        import jax.numpy as jnp

        x = jnp.asarray(x)[..., None]
        size, types = jnp.abs(x), x.dtype
        small = jnp.clip(size, 4 * np.finfo(types).tiny, largest)
        powers = jnp.asarray(v + 2 * k, types) * jnp.log(small / 2)
        series = jnp.exp(powers + jnp.asarray(of_series, types) - small).sum(axis=-1)
        large = jnp.maximum(size, largest)
        expansion = (jnp.asarray(of_expansion, types) * large ** -np.arange(_TERMS)).sum(axis=-1)
        expansion = expansion / jnp.sqrt(2 * np.pi * large[..., 0])
        sign = jnp.where((x[..., 0] < 0) & (v[..., 0] % 2 == 1), -1, 1)
        return sign * jnp.where(size[..., 0] < largest, series, expansion)

    return function
