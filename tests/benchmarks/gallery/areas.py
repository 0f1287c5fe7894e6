"""Effects of areas of a map beside normal ones, of known laws given their scales."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import pymc as pm

from scipy import linalg, special
from scipy.spatial import Delaunay

from .conjugate import mixed, of_few
from .exact import Moments
from .hierarchies import HIERARCHIES

__all__ = ["AREAS"]

COUNT, MOST, NOISE = 300, 40, 2.0
# Nodes along the scale, half as many as along the share
LINES = 31
# Of nodes with less weight no law is computed
LEAST_WEIGHT = 1e-6


@cache
def neighbours() -> tuple[np.ndarray, np.ndarray]:
    """Return the places of areas and which are neighbours: those of a triangulation."""
    places = np.random.default_rng(31).uniform(size=(COUNT, 2))
    found = np.zeros((COUNT, COUNT), dtype=int)
    for triangle in Delaunay(places).simplices:
        found[np.ix_(triangle, triangle)] = 1
    np.fill_diagonal(found, 0)
    return places, found


@cache
def structure() -> np.ndarray:
    """Return the precision of the areas' effects without their sum."""
    matrix = neighbours()[1]
    return np.diag(matrix.sum(axis=0)) - matrix


@cache
def typical_variance() -> float:
    """Return the geometric mean of the variances of areas (Riebler et al. 2016)."""
    values, vectors = np.linalg.eigh(structure())
    variances = vectors[:, 1:] ** 2 @ (1 / values[1:])
    return float(np.exp(np.log(variances).mean()))


@cache
def rows_of_areas() -> tuple[np.ndarray, np.ndarray]:
    """Return area and value of each row, one to forty of an area."""
    rng = np.random.default_rng(32)
    places, _ = neighbours()
    area = rng.permutation(np.repeat(np.arange(COUNT), rng.integers(1, MOST + 1, COUNT)))
    smooth = np.sin(5 * places[:, 0]) + np.cos(4 * places[:, 1])
    effect = 0.6 * smooth + 0.4 * rng.normal(size=COUNT)
    return area, 0.5 + effect[area] + NOISE * rng.normal(size=len(area))


@HIERARCHIES.add
def areas_of_a_map(batch_size: int = 200) -> None:
    """Return effects of 300 areas, a learned share of whose variance is smooth over the map."""
    area, y = rows_of_areas()
    a, seen = pm.Minibatch(area, y, batch_size=batch_size)
    sigma, rho = pm.HalfNormal("sigma", 1), pm.Beta("rho", 0.5, 0.5)
    theta, phi = pm.Normal("theta", 0, 1, shape=COUNT), pm.ICAR("phi", W=neighbours()[1])
    smooth = pm.math.sqrt(rho / typical_variance()) * phi
    mixture = pm.math.sqrt(1 - rho) * theta + smooth
    mu = pm.Normal("mu", 0, 1)
    pm.Normal("y", mu + sigma * mixture[a], NOISE, observed=seen, total_size=len(y))


@HIERARCHIES.add
def autoregression_of_areas(batch_size: int = 200) -> None:
    """Return the same rows with effects of ``pm.CAR``, whose dependence is learned."""
    area, y = rows_of_areas()
    a, seen = pm.Minibatch(area, y, batch_size=batch_size)
    tau, alpha = pm.Gamma("tau", 2, 1), pm.Uniform("alpha", 0, 1)
    phi = pm.CAR("phi", np.zeros(COUNT), neighbours()[1], alpha, tau)
    mu = pm.Normal("mu", 0, 1)
    pm.Normal("y", mu + phi[a], NOISE, observed=seen, total_size=len(y))


def means_of_areas() -> tuple[np.ndarray, np.ndarray]:
    """Return the mean of each area's rows, and their variance given its effect."""
    area, y = rows_of_areas()
    count = np.bincount(area)
    return np.bincount(area, y) / count, NOISE**2 / count


def given(covariance: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
    """Return the evidence of effects with this covariance, and what predicts others by them.

    The second is the Cholesky factor L of C, the covariance of the areas' means, with mu in it,
    and the third is L⁻¹ times these means.
    """
    mean, variance = means_of_areas()
    factor = np.linalg.cholesky(covariance + 1 + np.diag(variance))
    solved = linalg.solve_triangular(factor, mean, lower=True)
    return -np.log(np.diag(factor)).sum() - solved @ solved / 2, factor, solved


def predicted(
    cross: np.ndarray, prior: np.ndarray, factor: np.ndarray, solved: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return means and variances of what has these covariances with the areas' means."""
    along = linalg.solve_triangular(factor, cross.T, lower=True)
    return solved @ along, prior - np.sum(along**2, axis=0)


def mixed_laws(laws: list, weight: np.ndarray) -> list:
    """Return mean and sd of each variable, of its laws at all nodes."""
    return [
        mixed(weight, np.array([m for m, _ in of]), np.array([v for _, v in of]))
        for of in zip(*laws, strict=True)
    ]


def moments_of_map() -> Moments:
    """Given scale and share all effects are normal."""
    # As pm.ICAR has it, the mean of all effects has an sd of 0.001
    smooth = np.linalg.inv(structure() + (1e-3 * COUNT) ** -2.0)

    def parts(at: np.ndarray) -> tuple[float, float]:
        sigma, rho = np.exp(at[0]), special.expit(at[1])
        return sigma * np.sqrt(1 - rho), sigma * np.sqrt(rho / typical_variance())

    def log_density(at: np.ndarray) -> float:
        own, of_map = parts(at)
        evidence, *_ = given(own**2 * np.eye(COUNT) + of_map**2 * smooth)
        sigma, rho = np.exp(at[0]), special.expit(at[1])
        return evidence - sigma**2 / 2 + at[0] + (np.log(rho) + np.log1p(-rho)) / 2

    def laws(at: np.ndarray) -> list:
        own, of_map = parts(at)
        _, *how = given(own**2 * np.eye(COUNT) + of_map**2 * smooth)
        return [
            predicted(own * np.eye(COUNT), np.ones(COUNT), *how),
            predicted(of_map * smooth, np.diag(smooth), *how),
            predicted(np.ones((1, COUNT)), np.ones(1), *how),
        ]

    # The prior has much of the share near 1, far out in its log odds
    axes = np.linspace(-1.1, 0, LINES), np.linspace(-3, 14, 2 * LINES)
    nodes = np.stack(np.meshgrid(*axes), axis=-1).reshape(-1, 2)
    weight = special.softmax([log_density(x) for x in nodes])
    theta, phi, mu = mixed_laws([laws(x) for x in nodes[weight > LEAST_WEIGHT]], _kept(weight))
    return {
        "sigma": mixed(weight, np.exp(nodes[:, 0]), 0),
        "rho": mixed(weight, special.expit(nodes[:, 1]), 0),
        "theta": theta,
        "phi": phi,
        "mu": (mu[0][0], mu[1][0]),
    }


def moments_of_autoregression() -> Moments:
    """Given precision and dependence all effects are normal."""
    matrix = neighbours()[1]

    def covariance(at: np.ndarray) -> np.ndarray:
        alpha = special.expit(at[1])
        return np.linalg.inv(np.diag(matrix.sum(axis=0)) - alpha * matrix) / np.exp(at[0])

    def log_density(at: np.ndarray) -> float:
        alpha = special.expit(at[1])
        evidence, *_ = given(covariance(at))
        return evidence + 2 * at[0] - np.exp(at[0]) + np.log(alpha) + np.log1p(-alpha)

    def laws(at: np.ndarray) -> list:
        of_areas = covariance(at)
        _, *how = given(of_areas)
        return [
            predicted(of_areas, np.diag(of_areas), *how),
            predicted(np.ones((1, COUNT)), np.ones(1), *how),
        ]

    nodes, weight = of_few(log_density, [0, 2])
    phi, mu = mixed_laws([laws(x) for x in nodes[weight > LEAST_WEIGHT]], _kept(weight))
    return {
        "tau": mixed(weight, np.exp(nodes[:, 0]), 0),
        "alpha": mixed(weight, special.expit(nodes[:, 1]), 0),
        "phi": phi,
        "mu": (mu[0][0], mu[1][0]),
    }


def _kept(weight: np.ndarray) -> np.ndarray:
    kept = weight[weight > LEAST_WEIGHT]
    return kept / kept.sum()


AREAS: dict[str, Callable[[], Moments]] = {
    "areas_of_a_map": moments_of_map,
    "autoregression_of_areas": moments_of_autoregression,
}
