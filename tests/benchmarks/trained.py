"""Nets trained by Adam: what draws of a posterior are judged beside."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

__all__ = ["trained"]


def trained(
    loss: Callable[..., Any],
    starts: Iterable[dict[str, np.ndarray]],
    rows: Sequence[np.ndarray],
    *,
    batch_size: int,
    epochs: int,
    rate: float = 1e-3,
    held_out: Sequence[np.ndarray] | None = None,
) -> Iterator[dict[str, np.ndarray]]:
    """Yield the weights that Adam finds from each start.

    Parameters
    ----------
    loss : callable
        Given weights and some rows of each array, the loss of a row, a prior's share included.
    starts : iterable of dict of ndarray
        Weights to begin with.
    rows : sequence of ndarray
        Rows first.
    batch_size, epochs : int
    rate : float
        Adam's learning rate, which falls to 0 like a cosine.
    held_out : sequence of ndarray, optional
        Rows by whose loss the best epoch is chosen; the last one otherwise.
    """
    import jax
    import jax.numpy as jnp
    import optax

    count = len(rows[0]) // batch_size
    rule = optax.adam(optax.cosine_decay_schedule(rate, epochs * count))

    def update(state: Any, index: Any) -> tuple[Any, None]:
        weights, memory, data = state
        gradient = jax.grad(loss)(weights, *(x[index] for x in data))
        moves, memory = rule.update(gradient, memory)
        return (optax.apply_updates(weights, moves), memory, data), None

    @jax.jit
    def epoch(weights: Any, memory: Any, data: Any, order: Any) -> tuple[Any, Any]:
        return jax.lax.scan(update, (weights, memory, data), order)[0][:2]

    judge, data = jax.jit(loss), [jnp.asarray(x) for x in rows]
    for seed, start in enumerate(starts):
        rng = np.random.default_rng(seed)
        weights: Any = {name: jnp.asarray(x) for name, x in start.items()}
        memory, least, best = rule.init(weights), np.inf, weights
        for _ in range(epochs):
            order = rng.permutation(len(rows[0]))[: count * batch_size].reshape(count, batch_size)
            weights, memory = epoch(weights, memory, data, order)
            if held_out is None:
                best = weights
            elif (found := float(judge(weights, *held_out))) < least:
                least, best = found, weights
        yield {name: np.asarray(x) for name, x in best.items()}
