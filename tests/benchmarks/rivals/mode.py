"""The posterior's mode, about which BlackJAX's and NumPyro's control variates expand."""

from __future__ import annotations

from typing import Any

import numpy as np

from .problems import Problem


def mode(problem: Problem) -> dict[str, Any]:
    """Find it by L-BFGS with the gradient of all rows, in chunks of a million."""
    import jax
    import jax.numpy as jnp

    from jax.flatten_util import ravel_pytree
    from scipy.optimize import minimize

    start, back = ravel_pytree({k: jnp.asarray(x) for k, x in problem.start.items()})
    rows = [jnp.asarray(x) for x in problem.rows]

    @jax.jit
    def likelihood(flat: Any, part: Any) -> Any:
        each = jax.vmap(problem.log_likelihood, in_axes=(None, 0))
        return jax.value_and_grad(lambda x: -each(back(x), part).sum())(flat)

    @jax.jit
    def prior(flat: Any) -> Any:
        return jax.value_and_grad(lambda x: -problem.log_prior(back(x)))(flat)

    def objective(flat: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = prior(flat)
        for k in range(0, len(rows[0]), 10**6):
            more, slope = likelihood(flat, [x[k : k + 10**6] for x in rows])
            value, gradient = value + more, gradient + slope
        return float(value), np.asarray(gradient, float)

    found = minimize(objective, np.asarray(start), jac=True, method="L-BFGS-B")
    return back(jnp.asarray(found.x))
