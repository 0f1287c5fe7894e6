"""Smooth curves by Gaussian processes in a basis, of known law given their lengths and heights."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pymc as pm

from scipy.special import ive

from .conjugate import mixed, of_few
from .exact import Moments
from .hierarchies import HIERARCHIES

__all__ = ["PROCESSES"]

ROWS, BASIS, EDGE, NOISE = 20_000, 15, 1.5, 0.5
# Of the intercept beside two curves; nodes for each of their four lengths and heights
LEVEL, NODES = 2.0, 11

# Cosines of a periodic process; it has one sine less
HARMONICS = 10

FREQUENCY = np.pi * np.arange(1, BASIS + 1) / (2 * EDGE)


def basis_at(x: np.ndarray) -> np.ndarray:
    """Return the eigenfunctions of the Laplacian, shape (N, m)."""
    found: np.ndarray = np.sin(FREQUENCY * (x[:, None] + EDGE)) / EDGE**0.5
    return found


def power_of(length: Any, height: Any) -> Any:
    """Return the sds of the coefficients."""
    process = pm.gp.HSGP(m=[BASIS], L=[EDGE], cov_func=height**2 * pm.gp.cov.ExpQuad(1, length))
    return process.prior_linearized(np.array([[-1.0], [1.0]]))[1]


def power_at(length: float, height: float) -> np.ndarray:
    """Return the same of numbers (Solin and Särkkä 2020)."""
    falling = np.exp(-((length * FREQUENCY) ** 2) / 4)
    found: np.ndarray = height * (2 * np.pi) ** 0.25 * length**0.5 * falling
    return found


@cache
def rows_of_curve() -> tuple[np.ndarray, np.ndarray]:
    """Return places from -1 to 1 in random order, and what was seen there."""
    rng = np.random.default_rng(3)
    x = rng.permutation(np.linspace(-1, 1, ROWS))
    return x, np.sin(3 * x) + NOISE * rng.normal(size=ROWS)


@HIERARCHIES.add
def curve_of_a_process(batch_size: int = 500) -> None:
    """Return a Gaussian process in a basis (HSGP), whose length and height are learned."""
    x, y = rows_of_curve()
    length, height = pm.InverseGamma("length", 5, 5), pm.HalfNormal("height", 1)
    row, seen = pm.Minibatch(basis_at(x), y, batch_size=batch_size)
    z = pm.Normal("z", 0, 1, shape=BASIS)
    mean = row @ (z * power_of(length, height))
    pm.Normal("y", mean, NOISE, observed=seen, total_size=ROWS)


@cache
def rows_of_curves() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return places of two curves, and what was seen of a level and their sum."""
    rng = np.random.default_rng(5)
    x, w = rng.uniform(-1, 1, (2, ROWS))
    return x, w, 1 + np.sin(3 * x) + 0.5 * np.cos(5 * w) + NOISE * rng.normal(size=ROWS)


@HIERARCHIES.add
def sum_of_processes(batch_size: int = 500) -> None:
    """Return an intercept and two such processes, of which the data tell the sum."""
    x, w, y = rows_of_curves()
    bases = np.hstack([basis_at(x), basis_at(w)])
    row, seen = pm.Minibatch(bases, y, batch_size=batch_size)
    mean = pm.Normal("level", 0, LEVEL)
    for k in range(2):
        length, height = pm.InverseGamma(f"length_{k}", 5, 5), pm.HalfNormal(f"height_{k}", 1)
        z = pm.Normal(f"z_{k}", 0, 1, shape=BASIS)
        basis = row[:, k * BASIS : (k + 1) * BASIS]
        mean = mean + basis @ (z * power_of(length, height))
    pm.Normal("y", mean, NOISE, observed=seen, total_size=ROWS)


@cache
def rows_of_season() -> tuple[np.ndarray, np.ndarray]:
    """Return times of ten periods, and what was seen of a level and a season."""
    rng = np.random.default_rng(6)
    x = rng.uniform(0, 10, ROWS)
    season = np.sin(2 * np.pi * x) + 0.5 * np.cos(6 * np.pi * x)
    return x, 0.5 + season + NOISE * rng.normal(size=ROWS)


def season_at(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return cosines and sines, shapes (N, m) and (N, m - 1)."""
    angle = 2 * np.pi * x[:, None] * np.arange(HARMONICS)
    return np.cos(angle), np.sin(angle[:, 1:])


def seasonal_at(length: float, height: float) -> np.ndarray:
    """Return what multiplies the coefficients of cosines and sines, as PyMC has it."""
    order = np.concatenate([np.arange(HARMONICS), np.arange(1, HARMONICS)])
    found: np.ndarray = height * np.where(order, 2, 1) * ive(order, length**-2.0)
    return found


@HIERARCHIES.add
def periodic_process(batch_size: int = 500) -> None:
    """Return an intercept and a periodic process (HSGPPeriodic), as PyMC's documentation has it."""
    x, y = rows_of_season()
    level = pm.Normal("level", 0, LEVEL)
    length, height = pm.InverseGamma("length", 5, 5), pm.HalfNormal("height", 1)
    cos, sin, seen = pm.Minibatch(*season_at(x), y, batch_size=batch_size)
    process = pm.gp.HSGPPeriodic(
        m=HARMONICS, scale=height, cov_func=pm.gp.cov.Periodic(1, period=1, ls=length)
    )
    power = process.prior_linearized(np.array([[0.0], [1.0]]))[1]
    z = pm.Normal("z", 0, 1, shape=2 * HARMONICS - 1)
    mean = cos @ (power * z[:HARMONICS]) + sin @ (power[1:] * z[HARMONICS:])
    pm.Normal("y", level + mean, NOISE, observed=seen, total_size=ROWS)


Scales = Callable[[np.ndarray], np.ndarray]


def moments_of(basis: np.ndarray, y: np.ndarray, scales: Scales, curves: int, count: int) -> tuple:
    """Return nodes of lengths and heights, their weights, and means and variances of coefficients.

    Given lengths and heights the coefficients are normal, as the data are. Lengths and heights
    alternate, as logarithms.
    """
    gram, linear = basis.T @ basis / NOISE**2, basis.T @ y / NOISE**2

    def law(at: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        scale = scales(np.exp(at))
        precision = scale[:, None] * gram * scale + np.eye(len(scale))
        centre = np.linalg.solve(precision, scale * linear)
        log = (scale * linear @ centre - np.linalg.slogdet(precision)[1]) / 2
        return log, centre, np.diag(np.linalg.inv(precision))

    def log_density(at: np.ndarray) -> float:
        length, height = np.exp(at[::2]), np.exp(at[1::2])
        prior = -5 * at[::2] - 5 / length - height**2 / 2 + at[1::2]
        return float(law(at)[0] + prior.sum())

    nodes, weight = of_few(log_density, [0.0] * (2 * curves), count)
    laws = [law(at)[1:] for at in nodes]
    means, variances = (np.array(part) for part in zip(*laws, strict=True))
    return np.exp(nodes), weight, means, variances


def moments_of_curve() -> Moments:
    """Return those of the curve's length, height and coefficients."""
    x, y = rows_of_curve()
    nodes, weight, means, variances = moments_of(basis_at(x), y, lambda at: power_at(*at), 1, 41)
    return {
        "length": mixed(weight, nodes[:, 0], 0),
        "height": mixed(weight, nodes[:, 1], 0),
        "z": mixed(weight, means, variances),
    }


def moments_of_sum() -> Moments:
    """Return those of the level and of two curves."""
    x, w, y = rows_of_curves()

    def scales(at: np.ndarray) -> np.ndarray:
        return np.concatenate([[LEVEL], power_at(*at[:2]), power_at(*at[2:])])

    basis = np.hstack([np.ones((ROWS, 1)), basis_at(x), basis_at(w)])
    nodes, weight, means, variances = moments_of(basis, y, scales, 2, NODES)
    found = {"level": mixed(weight, LEVEL * means[:, 0], LEVEL**2 * variances[:, 0])}
    for k in range(2):
        part = slice(1 + k * BASIS, 1 + (k + 1) * BASIS)
        found[f"length_{k}"] = mixed(weight, nodes[:, 2 * k], 0)
        found[f"height_{k}"] = mixed(weight, nodes[:, 2 * k + 1], 0)
        found[f"z_{k}"] = mixed(weight, means[:, part], variances[:, part])
    return found


def moments_of_season() -> Moments:
    """Return those of the level and of the periodic process."""
    x, y = rows_of_season()

    def scales(at: np.ndarray) -> np.ndarray:
        return np.concatenate([[LEVEL], seasonal_at(*at)])

    basis = np.hstack([np.ones((ROWS, 1)), *season_at(x)])
    nodes, weight, means, variances = moments_of(basis, y, scales, 1, 81)
    return {
        "level": mixed(weight, LEVEL * means[:, 0], LEVEL**2 * variances[:, 0]),
        "length": mixed(weight, nodes[:, 0], 0),
        "height": mixed(weight, nodes[:, 1], 0),
        "z": mixed(weight, means[:, 1:], variances[:, 1:]),
    }


PROCESSES: dict[str, Callable[[], Moments]] = {
    "curve_of_a_process": moments_of_curve,
    "periodic_process": moments_of_season,
    "sum_of_processes": moments_of_sum,
}
