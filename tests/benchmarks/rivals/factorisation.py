"""Ratings as products of factors, of MAMBA's experiments; its moments by exact conditionals."""

from __future__ import annotations

import sys

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pymc as pm

from .course import Course
from .exact import FOLDER

RANK, PRECISION, SHAPE, RATE = 20, 3.0, 4.0, 5.0
SWEEPS, BURN_IN = 2_000, 500
FILE = FOLDER / "factorisation.npz"
REPRODUCTIONS = Path(__file__).parents[3] / "notebooks" / "reproductions"


@cache
def rows() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return users, films and centred ratings: 80,000 of MovieLens 100K."""
    sys.path.insert(0, str(REPRODUCTIONS))
    import datasets

    user, item, rating, name = datasets.ratings()
    if name != "MovieLens 100K":
        raise FileNotFoundError("MovieLens 100K is not here: make datasets")
    chosen = np.random.default_rng(0).permutation(len(user))[:80_000]
    rating = rating[chosen] - rating[chosen].mean()
    return user[chosen].astype("int32"), item[chosen].astype("int32"), rating


def sizes() -> dict[str, int]:
    """Return the numbers of users and films."""
    return {"U": 943, "V": 1682}


def model(batch_size: int | None) -> pm.Model:
    """Return the model of Coullon et al. (2023), section 4."""
    data = rows()
    i, j, r = data if batch_size is None else pm.Minibatch(*data, batch_size=batch_size)
    with pm.Model() as built:
        factors = []
        for name, n in sizes().items():
            precision = pm.Gamma(f"lambda_{name}", SHAPE, RATE, shape=RANK)
            sd = precision**-0.5
            mu = pm.Normal(f"mu_{name}", 0, sd)
            factors.append(pm.Normal(name, mu, sd, shape=(n, RANK)))
        mean = (factors[0][i] * factors[1][j]).sum(axis=1)
        total_size = None if batch_size is None else len(data[2])
        pm.Normal("r", mean, PRECISION**-0.5, observed=r, total_size=total_size)
    return built


def priors(at: dict[str, Any]) -> dict[str, Any]:
    """Return the priors, of NumPyro."""
    import numpyro.distributions as dist

    found: dict[str, Any] = {}
    for name, n in sizes().items():
        sd = at[f"lambda_{name}"] ** -0.5
        found[f"lambda_{name}"] = dist.Gamma(SHAPE, RATE).expand([RANK])
        found[f"mu_{name}"] = dist.Normal(0, sd)
        found[name] = dist.Normal(at[f"mu_{name}"], sd).expand([n, RANK])
    return found


def law(at: dict[str, Any], i: Any, j: Any) -> Any:
    """Return the law of ratings, of NumPyro."""
    import numpyro.distributions as dist

    return dist.Normal((at["U"][i] * at["V"][j]).sum(axis=-1), PRECISION**-0.5)


def moments() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Read the moments of the factors and their means, which are made where not stored."""
    if not FILE.exists():
        FILE.parent.mkdir(exist_ok=True)
        np.savez_compressed(FILE, **compute(0))
    with np.load(FILE) as stored:
        names = "U", "V", "mu_U", "mu_V"
        return {
            n: (stored[f"{n}_mean"].astype(float), stored[f"{n}_sd"].astype(float)) for n in names
        }


def again(seed: int, clock: Any) -> Course:
    """Sample by exact conditionals anew, as a method beside the others."""
    # The seed of the stored moments is 0
    assert seed != 0
    course = Course(draws=SWEEPS)
    clock.start()
    found = compute(seed)
    mean, sd = (
        np.concatenate([found[f"{name}_{kind}"].astype(float).ravel() for name in moments()])
        for kind in ("mean", "sd")
    )
    course.add(clock.seconds(), mean, sd)
    return course


def compute(seed: int, sweeps: int = SWEEPS) -> dict[str, np.ndarray]:
    """Sample by exact conditionals, and return means and sds."""
    rng = np.random.default_rng(seed)
    data = rows()
    sides = {}
    for name, index, other in (("U", 0, 1), ("V", 1, 0)):
        order = np.argsort(data[index], kind="stable")
        ends = np.searchsorted(data[index][order], np.arange(sizes()[name] + 1))
        sides[name] = ends, data[other][order], data[2][order]
    at = {name: 0.1 * rng.normal(size=(n, RANK)) for name, n in sizes().items()}
    sums: dict[str, list[Any]] = {}
    for sweep in range(BURN_IN + sweeps):
        for name, other in (("U", "V"), ("V", "U")):
            x, n = at[name], sizes()[name]
            precision = at.get(f"lambda_{name}", np.ones(RANK))
            mu = x.sum(axis=0) / (n + 1) + rng.normal(size=RANK) / np.sqrt(precision * (n + 1))
            rate = RATE + (((x - mu) ** 2).sum(axis=0) + mu**2) / 2
            precision = rng.gamma(SHAPE + (n + 1) / 2, 1 / rate)
            at[f"lambda_{name}"], at[f"mu_{name}"] = precision, mu
            z = rng.normal(size=x.shape)
            at[name] = _compiled()(*sides[name], at[other], mu, precision, z)
        if sweep >= BURN_IN:
            for name in ("U", "V", "mu_U", "mu_V"):
                total = sums.setdefault(name, [0.0, 0.0])
                total[0], total[1] = total[0] + at[name], total[1] + at[name] ** 2
    found = {}
    for name, (first, second) in sums.items():
        mean = first / sweeps
        found[f"{name}_mean"] = mean.astype("float16")
        found[f"{name}_sd"] = np.sqrt(second / sweeps - mean**2).astype("float16")
    return found


@cache
def _compiled() -> Any:
    """Compile the draw of all factors of one side, given the other side's."""
    from numba import njit

    @njit
    def factors(ends: Any, index: Any, r: Any, other: Any, mu: Any, precision: Any, z: Any) -> Any:
        new = np.empty_like(z)
        for k in range(len(z)):
            of_k = other[index[ends[k] : ends[k + 1]]]
            a = PRECISION * (of_k.T @ of_k) + np.diag(precision)
            h = PRECISION * (of_k.T @ r[ends[k] : ends[k + 1]]) + precision * mu
            factor = np.linalg.cholesky(a)
            new[k] = np.linalg.solve(factor.T, np.linalg.solve(factor, h) + z[k])
        return new

    return factors
