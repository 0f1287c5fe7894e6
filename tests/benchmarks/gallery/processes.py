"""A smooth curve by a Gaussian process in a basis, of known law given its length and its height."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import pymc as pm

from .conjugate import mixed, of_two
from .exact import Moments
from .hierarchies import HIERARCHIES

__all__ = ["PROCESSES"]

ROWS, BASIS, EDGE, NOISE = 20_000, 15, 1.5, 0.5


FREQUENCY = np.pi * np.arange(1, BASIS + 1) / (2 * EDGE)


def basis_at(x: np.ndarray) -> np.ndarray:
    """Return the eigenfunctions of the Laplacian, shape (N, m)."""
    found: np.ndarray = np.sin(FREQUENCY * (x[:, None] + EDGE)) / EDGE**0.5
    return found


@cache
def rows_of_curve() -> tuple[np.ndarray, np.ndarray]:
    """Return places from -1 to 1 in random order, and what was seen there."""
    rng = np.random.default_rng(3)
    x = rng.permutation(np.linspace(-1, 1, ROWS))
    return x, np.sin(3 * x) + NOISE * rng.normal(size=ROWS)


@HIERARCHIES.add
def curve_of_a_process(batch_size: int = 500) -> pm.Model:
    """Return a Gaussian process in a basis (HSGP), whose length and height are learned."""
    x, y = rows_of_curve()
    with pm.Model() as model:
        length, height = pm.InverseGamma("length", 5, 5), pm.HalfNormal("height", 1)
        process = pm.gp.HSGP(m=[BASIS], L=[EDGE], cov_func=height**2 * pm.gp.cov.ExpQuad(1, length))
        _, power = process.prior_linearized(x[:1, None])
        row, seen = pm.Minibatch(basis_at(x), y, batch_size=batch_size)
        z = pm.Normal("z", 0, 1, shape=BASIS)
        pm.Normal("y", row @ (z * power), NOISE, observed=seen, total_size=ROWS)
    return model


def moments_of_curve() -> Moments:
    """Given length and height the coefficients are normal (Solin and Särkkä 2020)."""
    x, y = rows_of_curve()
    basis = basis_at(x)
    gram, linear = basis.T @ basis / NOISE**2, basis.T @ y / NOISE**2

    def law(at: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        length, height = np.exp(at)
        power = (
            height * (2 * np.pi) ** 0.25 * length**0.5 * np.exp(-((length * FREQUENCY) ** 2) / 4)
        )
        precision = power[:, None] * gram * power + np.eye(BASIS)
        centre = np.linalg.solve(precision, power * linear)
        log = (power * linear @ centre - np.linalg.slogdet(precision)[1]) / 2
        return log, centre, np.diag(np.linalg.inv(precision))

    def log_density(at: np.ndarray) -> float:
        length, height = np.exp(at)
        return float(law(at)[0] - 5 * at[0] - 5 / length - height**2 / 2 + at[1])

    nodes, weight = of_two(log_density, [0, 0])
    laws = [law(at)[1:] for at in nodes]
    length, height = np.exp(nodes).T
    return {
        "length": mixed(weight, length, 0),
        "height": mixed(weight, height, 0),
        "z": mixed(weight, np.array([c for c, _ in laws]), np.array([v for _, v in laws])),
    }


PROCESSES: dict[str, Callable[[], Moments]] = {"curve_of_a_process": moments_of_curve}
