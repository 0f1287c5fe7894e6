"""Moments of large logistic regressions, by importance sampling from the Laplace approximation."""

from __future__ import annotations

import json

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

FOLDER = Path(__file__).parents[1] / "references" / "rivals"
PRIOR_SD = 10**0.5
# Draws times rows
WORK, MOST, ROUNDS, SEED = 4e9, 200_000, 3, 1
# Rows that are looked at together
CHUNK = 5_000


@cache
def logistic_rows(n: int, d: int) -> tuple[np.ndarray, np.ndarray]:
    """Return rows as Coullon et al. (2023) make them.

    Coefficients are of the prior, normal with variance 10. The columns are normal with
    correlations r ** abs(i - j); of their r in (-0.4, 0.4) we take 0.3.
    """
    rng = np.random.default_rng(d)
    beta = rng.normal(0, PRIOR_SD, d)
    r = 0.3 ** np.abs(np.subtract.outer(np.arange(d), np.arange(d)))
    factor = np.linalg.cholesky(r).T
    x = np.empty((n, d))
    for k in range(0, n, 10**6):
        part = x[k : k + 10**6]
        part[:] = rng.normal(size=part.shape) @ factor
    y = rng.random(n) < 1 / (1 + np.exp(-x @ beta))
    return x, y


def logistic_moments(n: int, d: int) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Read the moments of ``beta``, which are made where they are not stored."""
    path = FOLDER / f"logistic_{n}_{d}.json"
    if not path.exists():
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(compute(*logistic_rows(n, d)), indent=1) + "\n")
    stored = json.loads(path.read_text())
    return {"beta": (np.array(stored["mean"]), np.array(stored["sd"]))}


def compute(x: np.ndarray, y: np.ndarray) -> dict[str, Any]:
    """Sample the posterior's normal approximation and weight it.

    The proposal's own moments are known: only what the weights add to them is estimated, the
    less the nearer they are to one. Where the weights are uneven the proposal takes the moments
    that were found.
    """
    from arviz_stats.base import array_stats

    mean, covariance = laplace(x, y)
    count = int(min(MOST, max(400, WORK / len(x)))) // 2 * 2
    for _ in range(ROUNDS):
        rng = np.random.default_rng(SEED)
        z = rng.normal(size=(count // 2, len(mean)))
        z = np.concatenate([z, -z])
        # Antithetic draws, of which the first two moments are those of the proposal
        z = z @ np.linalg.cholesky(np.linalg.inv(z.T @ z / len(z)))
        factor = np.linalg.cholesky(covariance)
        beta = mean + z @ factor.T
        log_w = log_posterior(beta, x, y) + (z**2).sum(axis=1) / 2
        w = np.exp(log_w - log_w.max())
        w /= w.sum()
        ess = 1 / (w**2).sum()
        found = mean + factor @ (w @ z)
        second = factor @ (z.T * w) @ z @ factor.T
        shift = found - mean
        covariance_found = second - np.outer(shift, shift)
        if ess > 0.5 * count:
            break
        mean, covariance = found, (covariance_found + covariance_found.T) / 2
    k = float(np.ravel(array_stats.psislw(log_w)[1])[0])
    sd = np.sqrt(np.diag(covariance_found))
    # The error of an sd from what differs from equal weights
    error = np.sqrt((((w * count - 1)[:, None] * (z**2 - 1)) ** 2).mean(axis=0).max())
    return {
        "sampler": "importance sampling from a normal approximation",
        "draws": count,
        "effective": round(float(ess)),
        "psis_k": round(k, 3),
        "sd_relative_error": float(f"{error / 2 / np.sqrt(count):.2g}"),
        "mean": [float(f"{v:.9g}") for v in found],
        "sd": [float(f"{v:.9g}") for v in sd],
    }


def laplace(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the mode and the inverse Hessian, by Newton's steps of bounded length."""
    d = x.shape[1]
    beta = np.zeros(d)
    for _ in range(50):
        gradient, hessian = beta / PRIOR_SD**2, np.eye(d) / PRIOR_SD**2
        for k in range(0, len(x), 100_000):
            rows, seen = x[k : k + 100_000], y[k : k + 100_000]
            p = 1 / (1 + np.exp(-rows @ beta))
            gradient = gradient + rows.T @ (p - seen)
            hessian = hessian + (rows.T * (p * (1 - p))) @ rows
        move = -np.linalg.solve(hessian, gradient)
        beta = beta + move * min(1, 2 / np.abs(move).max())
        if np.abs(gradient @ move) < 1e-16 * len(x):
            break
    return beta, np.linalg.inv(hessian)


def log_posterior(beta: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return log densities of several coefficients, up to a common constant."""
    total = -(beta**2).sum(axis=1) / PRIOR_SD**2 / 2 + beta @ (x.T @ y.astype(float))
    return total - _log_of_both(beta, x)


def _log_of_both(beta: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Sum log(1 + exp(η)) over the rows, in chunks that fit into a cache."""
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_enable_x64", True)

    @jax.jit
    def part(rows: Any, at: Any) -> Any:
        eta = at @ rows.T
        return jnp.sum(jnp.maximum(eta, 0) + jnp.log1p(jnp.exp(-jnp.abs(eta))), axis=1)

    total = np.zeros(len(beta))
    for j in range(0, len(beta), 500):
        at = jnp.asarray(beta[j : j + 500])
        for k in range(0, len(x), CHUNK):
            total[j : j + 500] += np.asarray(part(jnp.asarray(x[k : k + CHUNK]), at))
    return total
