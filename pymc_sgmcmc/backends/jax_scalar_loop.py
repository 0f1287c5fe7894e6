"""PyTensor's loops over numbers, for JAX, over all elements of arrays at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pytensor.scalar.loop import ScalarLoop

__all__ = ["funcified"]


def funcified(op: ScalarLoop) -> Callable[..., Any]:
    """Return the loop as a function of JAX arrays.

    Derivatives of incomplete gamma and beta functions are such loops, over the terms of a series.
    An element whose condition to end is met stays as it is while others go on.
    """
    import jax
    import jax.numpy as jnp

    from pytensor.link.jax.dispatch import jax_funcify

    one = jax_funcify(op.fgraph)
    n = len(op.outputs) - op.is_while
    dtypes = [t.dtype for t in op.outputs_type[:n]]

    def loop(*inputs: Any) -> Any:
        n_steps, *arrays = jnp.broadcast_arrays(*inputs)
        fixed = arrays[n:]

        def goes_on(state: Any) -> Any:
            k, ended, _ = state
            return (k < n_steps) & ~ended

        def step(state: Any) -> Any:
            k, ended, carry = state
            now = goes_on(state)
            found = list(one(*carry, *fixed))
            end = found.pop() if op.is_while else False
            new = [jnp.where(now, x, was) for x, was in zip(found, carry, strict=True)]
            new = [x.astype(was.dtype) for x, was in zip(new, carry, strict=True)]
            return k + 1, jnp.where(now, end, ended), new

        start = [jnp.asarray(x, t) for x, t in zip(arrays[:n], dtypes, strict=True)]
        # To make no step is no failure to end
        ended = jnp.asarray(n_steps <= 0) if op.is_while else jnp.zeros(n_steps.shape, bool)
        _, ended, last = jax.lax.while_loop(
            lambda state: goes_on(state).any(), step, (0, ended, start)
        )
        outputs = [*last, ended] if op.is_while else last
        return tuple(outputs) if len(outputs) > 1 else outputs[0]

    return loop
