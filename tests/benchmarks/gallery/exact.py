"""Moments of posteriors that have a formula, or one integral, and the rows that they are of."""

from __future__ import annotations

from typing import Any

import numpy as np

from scipy import special, stats

# Mean and standard deviation of each variable
Moments = dict[str, tuple[Any, Any]]

# Normal rows with a conjugate prior: mu | tau ~ N(0, 1 / (WEIGHT tau)), tau ~ Gamma(*GAMMA)
WEIGHT, GAMMA = 0.5, (3, 4)

# Coal-mining disasters in Britain in each year from 1851 to 1961 (Jarrett 1979), but for 1890 and
# 1934, as PyMC's introduction has them; no year has ten
DISASTERS = np.array([*map(int, (
    "454014340633402633545314415534252234213211113001011003103220"
    "1110101000210001102331211112420014000100000100101"
))])  # fmt: skip


def line(centre: float) -> tuple[np.ndarray, np.ndarray]:
    """Return 20,000 rows of a linear regression on a column with this mean."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=20_000)
    x += centre - x.mean()
    return x, 1 - 0.5 * x + rng.normal(0, 2, len(x))


def weighted(mean: np.ndarray, variance: np.ndarray, weight: np.ndarray) -> tuple[float, float]:
    """Return mean and sd of a mixture."""
    weight = weight / weight.sum()
    centre = weight @ mean
    return float(centre), float(np.sqrt(weight @ (variance + (mean - centre) ** 2)))


def linear(centre: float) -> Moments:
    """Given the noise's sd, the coefficients are normal: an integral over it alone."""
    x, y = line(centre)
    design = np.column_stack([np.ones_like(x), x])
    gram, cross = design.T @ design, design.T @ y
    guess = np.std(y - design @ np.linalg.solve(gram, cross))
    s = guess * np.exp(np.linspace(-10, 10, 2001) / np.sqrt(2 * len(x)))
    means, variances, log_weight = [], [], []
    for sd in s:
        covariance = np.linalg.inv(gram / sd**2 + np.eye(2) / 100)
        mean = covariance @ cross / sd**2
        evidence = -len(y) * np.log(sd) - y @ y / (2 * sd**2) + mean @ cross / (2 * sd**2)
        evidence += np.linalg.slogdet(covariance)[1] / 2
        # ds = s d log s
        log_weight.append(evidence + stats.halfnorm(scale=5).logpdf(sd) + np.log(sd))
        means.append(mean)
        variances.append(np.diag(covariance))
    weight = special.softmax(log_weight)
    a, b = zip(np.transpose(means), np.transpose(variances), strict=True)
    return {
        "a": weighted(*a, weight),
        "b": weighted(*b, weight),
        "s": weighted(s, np.zeros_like(s), weight),
    }


def sample() -> np.ndarray:
    """Return twelve normal rows."""
    return np.random.default_rng(4).normal(1.0, 2.0, size=12)


def normal_gamma() -> Moments:
    """Return moments of the normal-gamma distribution that the conjugate prior becomes."""
    y = sample()
    k, a = WEIGHT + len(y), GAMMA[0] + len(y) / 2
    b = GAMMA[1] + (np.sum((y - y.mean()) ** 2) + WEIGHT * len(y) / k * y.mean() ** 2) / 2
    return {
        "mu": (float(y.sum() / k), float(np.sqrt(b / (k * (a - 1))))),
        "tau": (float(a / b), float(np.sqrt(a) / b)),
    }


def change_point() -> Moments:
    """Given the change both rates are gamma: a sum over the years at which it may be.

    The year itself is left out: Metropolis gives a tenth of an effective draw for each of its own.
    """
    y = DISASTERS
    change = np.arange(len(y))
    counts = np.concatenate([[0], np.cumsum(y)[:-1]])
    shapes = np.stack([1 + counts, 1 + y.sum() - counts])
    rates = np.stack([1 + change, 1 + len(y) - change])
    weight = special.softmax(np.sum(special.gammaln(shapes) - shapes * np.log(rates), axis=0))
    early, late = zip(shapes / rates, shapes / rates**2, strict=True)
    return {
        "early": weighted(*early, weight),
        "late": weighted(*late, weight),
    }
