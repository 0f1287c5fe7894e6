"""Factorisations of ratings by other means than this package's, and made ratings.

Each of ``gibbs``, ``adam`` and ``advi`` returns draws by name, chains and draws first, of the model
of ``large.py``'s ratings.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["adam", "advi", "gibbs", "made", "products"]

# Of ADVI's updates, about as long as a run of MSGNHT, and draws of what it finds
_UPDATES, _DRAWS = 60_000, 200
_EPOCHS, _BATCH, _RATE = 60, 1_000, 0.01
# Scales that Gibbs sampling finds
_SCALES = {"sd_a": 0.385, "sd_b": 0.492, "sd_factor": 0.411, "sigma": 0.783}


def products(U: np.ndarray, V: np.ndarray, u: np.ndarray, i: np.ndarray) -> np.ndarray:
    """Return the inner products of pairs of rows, a part at a time."""
    found = np.empty(len(u), U.dtype)
    for start in range(0, len(u), 500_000):
        part = slice(start, start + 500_000)
        found[part] = np.einsum("ij,ij->i", U[u[part]], V[i[part]])
    return found


def made(
    users: int, items: int, rank: int, count: int
) -> tuple[tuple[np.ndarray, ...], Callable[[np.ndarray, np.ndarray], np.ndarray], float]:
    """Return users, items and ratings, the mean rating of pairs, and the sd of the noise."""
    rng, noise = np.random.default_rng(5), 0.8
    U = 0.4 * rng.standard_normal((users, rank), dtype="float32")
    V = 0.4 * rng.standard_normal((items, rank), dtype="float32")
    u, i = (rng.integers(0, n, count, dtype="int32") for n in (users, items))

    def truth(u: np.ndarray, i: np.ndarray) -> np.ndarray:
        return np.float32(3.5) + products(U, V, u, i)

    return (u, i, truth(u, i) + noise * rng.standard_normal(count, dtype="float32")), truth, noise


def advi(model: Any) -> dict[str, np.ndarray]:
    """Fit independent normals by PyMC's ADVI, on the same batches, and draw from them."""
    import pymc as pm

    with model:
        fit = pm.fit(
            _UPDATES, obj_optimizer=pm.adam(learning_rate=_RATE), random_seed=1, progressbar=False
        )
        found = fit.sample(_DRAWS, random_seed=1)
    return {name: x.values for name, x in found.posterior.data_vars.items()}


def adam(
    u: np.ndarray, i: np.ndarray, r: np.ndarray, users: int, items: int, rank: int
) -> dict[str, np.ndarray]:
    """Return the mode given the scales, as Adam finds it, and the scale of what it leaves."""
    import jax.numpy as jnp

    from trained import trained

    rng, count = np.random.default_rng(1), len(r)
    shapes = {"mu": (), "a": (users,), "b": (items,), "P": (users, rank), "Q": (items, rank)}
    start = {name: np.asarray(0.1 * rng.normal(size=shape)) for name, shape in shapes.items()}
    prior = {"a": "sd_a", "b": "sd_b", "P": "sd_factor", "Q": "sd_factor"}
    weight = {name: _SCALES["sigma"] ** 2 / _SCALES[scale] ** 2 for name, scale in prior.items()}

    def mean(x: Any, u: Any, i: Any) -> Any:
        return 3.5 + x["mu"] + x["a"][u] + x["b"][i] + (x["P"][u] * x["Q"][i]).sum(axis=1)

    def loss(x: Any, u: Any, i: Any, r: Any) -> Any:
        penalty = sum(w * jnp.sum(x[name] ** 2) for name, w in weight.items())
        return jnp.mean((r - mean(x, u, i)) ** 2) + penalty / count

    [x] = trained(loss, [start], [u, i, r], batch_size=_BATCH, epochs=_EPOCHS, rate=_RATE)
    found = {**_SCALES, **x, "mu": x["mu"] + 3.5, "sigma": np.std(r - mean(x, u, i))}
    return {name: np.asarray(value)[None, None] for name, value in found.items()}


def gibbs(
    u: np.ndarray, i: np.ndarray, r: np.ndarray, users: int, items: int, rank: int
) -> dict[str, np.ndarray]:
    """Sample the factorisation by its normal conditionals, and scales by Metropolis steps."""
    chains = []
    for seed in range(2):
        rng = np.random.default_rng(seed)
        P, Q = (0.1 * rng.normal(size=(n, rank)) for n in (users, items))
        a, b, mu = np.zeros(users), np.zeros(items), 3.5
        sd = {"sd_a": 0.5, "sd_b": 0.5, "sd_factor": 0.3, "sigma": 0.9}
        kept: list[dict[str, Any]] = []
        for sweep in range(600):
            noise = sd["sigma"] ** 2
            dot = (P[u] * Q[i]).sum(axis=1)
            precision = len(r) / noise + 1
            mean = ((r - a[u] - b[i] - dot).sum() / noise + 3.5) / precision
            mu = mean + rng.normal() / np.sqrt(precision)
            a = _effects(u, r - mu - b[i] - dot, users, noise, sd["sd_a"], rng)
            b = _effects(i, r - mu - a[u] - dot, items, noise, sd["sd_b"], rng)
            left = r - mu - a[u] - b[i]
            P = _factors(u, Q[i], left, users, noise, sd["sd_factor"], rng)
            Q = _factors(i, P[u], left, items, noise, sd["sd_factor"], rng)
            left = left - (P[u] * Q[i]).sum(axis=1)
            both = np.concatenate([P.ravel(), Q.ravel()])
            for name, x in (("sigma", left), ("sd_a", a), ("sd_b", b), ("sd_factor", both)):
                sd[name] = _scale(x, sd[name], rng)
            if sweep >= 100:
                kept.append({**sd, "mu": mu, "a": a, "b": b, "P": P, "Q": Q})
        chains.append({name: np.stack([d[name] for d in kept]) for name in kept[0]})
    return {name: np.stack([chain[name] for chain in chains]) for name in chains[0]}


def _effects(
    index: np.ndarray, left: np.ndarray, n: int, noise: float, sd: float, rng: np.random.Generator
) -> np.ndarray:
    precision = np.bincount(index, minlength=n) / noise + 1 / sd**2
    mean = np.bincount(index, left, n) / noise / precision
    return mean + rng.normal(size=n) / np.sqrt(precision)


def _factors(
    index: np.ndarray,
    other: np.ndarray,
    left: np.ndarray,
    n: int,
    noise: float,
    sd: float,
    rng: np.random.Generator,
) -> np.ndarray:
    order = np.argsort(index, kind="stable")
    ends = np.searchsorted(index[order], np.arange(n + 1))
    rank = other.shape[1]
    A, h = np.zeros((n, rank, rank)), np.zeros((n, rank))
    for k in range(n):
        of_k = order[ends[k] : ends[k + 1]]
        A[k], h[k] = other[of_k].T @ other[of_k], other[of_k].T @ left[of_k]
    A = A / noise + np.eye(rank) / sd**2
    L = np.linalg.cholesky(A)
    mean = np.linalg.solve(A, h[..., None] / noise)
    z = rng.normal(size=(n, rank, 1))
    return (mean + np.linalg.solve(L.transpose(0, 2, 1), z))[..., 0]


def _scale(x: np.ndarray, sd: float, rng: np.random.Generator) -> float:
    """Move an sd with a half-normal prior, given what it scales."""
    total, n, v = float(x @ x), len(x), float(np.log(sd))

    def log_density(v: float) -> float:
        return -n * v - total * np.exp(-2 * v) / 2 - np.exp(2 * v) / 2 + v

    for _ in range(10):
        proposed = v + 2.4 * rng.normal() / np.sqrt(2 * n)
        if np.log(rng.random()) < log_density(proposed) - log_density(v):
            v = proposed
    return float(np.exp(v))
