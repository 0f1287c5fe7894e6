"""Hamiltonian Monte Carlo on all rows, for a log density written in JAX: what is exact of a net.

It takes a hundred gradients of all rows for a draw, for which a net's benchmark needs a GPU.
"""

from __future__ import annotations

import time

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

# Trajectories of each chain: to get there and to choose the step size, then those that count
BURN_IN, DRAWS, KEPT_EVERY = 150, 400, 4
ACCEPTED, GAIN = 0.8, 0.5
# Beyond it a trajectory is cut, which only a bad step size needs
LONGEST = 1_000


def sampled_by_hmc(
    potential: Callable[[Any, Any], Any],
    data: list[np.ndarray],
    starts: list[Mapping[str, np.ndarray]],
    *,
    path: float,
) -> tuple[list[dict[str, np.ndarray]], float]:
    """Return draws of all chains, one chain after the other, and the rate of acceptance.

    Parameters
    ----------
    potential : callable
        U of the weights, a dict, and of the data.
    data : list of ndarray
        All rows.
    starts : list of dict
        Of each chain.
    path : float
        Mean length of a trajectory, in units of the weights.
    """
    import jax
    import jax.numpy as jnp

    from jax.flatten_util import ravel_pytree

    _, as_weights = ravel_pytree(dict(starts[0]))
    rows = [jnp.asarray(x) for x in data]

    def one(w: Any, rows: Any) -> Any:
        return potential(as_weights(w), rows)

    both = jax.vmap(jax.value_and_grad(one), (0, None))

    @jax.jit
    def trajectory(key: Any, w: Any, h: Any, steps: Any, rows: Any) -> Any:
        key, for_momentum, for_choice = jax.random.split(key, 3)
        p = jax.random.normal(for_momentum, w.shape, w.dtype)
        u, g = both(w, rows)

        def leapfrog(_: Any, state: Any) -> Any:
            w, p, _, g = state
            p = p - h / 2 * g
            w = w + h * p
            u, g = both(w, rows)
            return w, p - h / 2 * g, u, g

        w_new, p_new, u_new, _ = jax.lax.fori_loop(0, steps, leapfrog, (w, p, u, g))
        change = u_new - u + ((p_new - p) * (p_new + p)).sum(axis=1) / 2
        accept = jnp.exp(jnp.minimum(0.0, -change))
        accept = jnp.where(jnp.isfinite(accept), accept, 0.0)
        taken = jax.random.uniform(for_choice, accept.shape) < accept
        return key, jnp.where(taken[:, None], w_new, w), accept.mean()

    rng, key, begun = np.random.default_rng(0), jax.random.key(0), time.perf_counter()
    w = jnp.stack([ravel_pytree(dict(start))[0] for start in starts])
    kept, rates, h = [], [], path / 200
    with jax.default_matmul_precision("highest"):
        for n in range(BURN_IN + DRAWS):
            steps = max(1, round(path / h * rng.uniform(0.6, 1.4)))
            key, w, rate = trajectory(key, w, h, min(steps, LONGEST), rows)
            if n % 50 == 0:
                passed = time.perf_counter() - begun
                print(f"{n}: {passed:.0f} s, {steps} steps, accepted {float(rate):.2f}", flush=True)
            if n < BURN_IN:
                h *= float(np.exp(GAIN * (float(rate) - ACCEPTED) / (1 + n / 20)))
                continue
            rates.append(float(rate))
            if n % KEPT_EVERY == 0:
                kept.append(np.asarray(w))
    draws = [
        {name: np.asarray(x) for name, x in as_weights(of[c]).items()}
        for c in range(len(starts))
        for of in kept
    ]
    return draws, float(np.mean(rates))
