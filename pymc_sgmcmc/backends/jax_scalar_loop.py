"""PyTensor's loops over numbers, for JAX, over all elements of arrays at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pytensor.scalar.loop import ScalarLoop

__all__ = ["funcified"]


def funcified(op: ScalarLoop) -> Callable[..., Any]:
    """Return the loop as a function of JAX arrays.

    Derivatives of incomplete gamma and beta functions are such loops over a series. An element
    stays as it is once its stopping condition holds or it is NaN, while others go on.
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

        def step(state: Any) -> Any:
            k, goes_on, ended, carry = state
            found = list(one(*carry, *fixed))
            end = found.pop() if op.is_while else False
            new = [jnp.where(goes_on, x, was) for x, was in zip(found, carry, strict=True)]
            new = [x.astype(was.dtype) for x, was in zip(new, carry, strict=True)]
            ended = jnp.where(goes_on, end, ended)
            # A NaN stays NaN, and its loop would never end
            lost = sum((jnp.isnan(x) for x in new), start=jnp.zeros_like(ended))
            return k + 1, (k + 1 < n_steps) & ~ended & ~lost, ended, new

        start = [jnp.asarray(x, t) for x, t in zip(arrays[:n], dtypes, strict=True)]
        goes_on = jnp.asarray(n_steps > 0)
        # A loop of no steps has not failed to end
        ended = ~goes_on if op.is_while else jnp.zeros_like(goes_on)
        *_, ended, last = jax.lax.while_loop(
            lambda state: state[1].any(), step, (0, goes_on, ended, start)
        )
        outputs = [*last, ended] if op.is_while else last
        return tuple(outputs) if len(outputs) > 1 else outputs[0]

    return loop
