"""SciPy's splines, for JAX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["evaluated"]

# What SciPy's splines do outside their points
_EXTRAPOLATES, _ZEROS, _KEEPS = 0, 1, 3


def evaluated(spline: Any) -> Callable[..., Any] | None:
    """Return a SciPy spline as a function of JAX arrays, None if it raises outside its points."""
    if spline.ext not in (_EXTRAPOLATES, _ZEROS, _KEEPS):
        return None
    knots, _, degree = spline._eval_args
    # Loaded late: few models have a spline
    from scipy.interpolate import PPoly

    coefficients = PPoly.from_spline(spline._eval_args).c
    # The knots at both ends are repeated
    first, last = degree, len(knots) - degree - 2
    lower, upper = knots[first], knots[last + 1]

    def function(x: Any) -> Any:
        import jax.numpy as jnp

        x = jnp.asarray(x)
        places, c = jnp.asarray(knots, x.dtype), jnp.asarray(coefficients, x.dtype)
        inside = (x >= lower) & (x <= upper)
        at = jnp.clip(x, lower, upper) if spline.ext == _KEEPS else x
        k = jnp.clip(jnp.searchsorted(places, at, side="right") - 1, first, last)
        value = jnp.zeros_like(x)
        for row in range(degree + 1):
            value = value * (at - places[k]) + c[row, k]
        return jnp.where(inside, value, 0) if spline.ext == _ZEROS else value

    return function
