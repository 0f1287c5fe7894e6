"""Moments of posteriors that have a formula, or one integral, and the rows that they are of."""

from __future__ import annotations

from typing import Any

import numpy as np

from scipy import special, stats
from scipy.interpolate import BSpline

# Mean and standard deviation of each variable
Moments = dict[str, tuple[Any, Any]]

# Normal rows with a conjugate prior: mu | tau ~ N(0, 1 / (WEIGHT tau)), tau ~ Gamma(*GAMMA)
WEIGHT, GAMMA = 0.5, (3, 4)

NOISE_OF_SPLINE = 0.3

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
    return {"early": weighted(*early, weight), "late": weighted(*late, weight)}


def rows_of_trend() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return times, those of 20 changes of the slope, which come before, the season's waves, y."""
    rng = np.random.default_rng(35)
    t, changes = np.linspace(0, 1, 1000), np.linspace(0, 0.8, 20)
    after = (t[:, None] > changes).astype(float)
    angle = 8 * np.pi * t[:, None] * np.arange(1, 6)
    season = np.hstack([np.sin(angle), np.cos(angle)])
    bends = rng.normal(0, 0.3, 20)
    y = (0.5 + after @ bends) * t - after @ (changes * bends)
    return t, changes, after, season, y + season @ rng.normal(0, 0.1, 10) + rng.normal(0, 0.1, 1000)


def trend() -> Moments:
    """Given its scale and the noise's sd, all effects are normal: an integral over these two."""
    t, changes, after, season, y = rows_of_trend()
    design = np.column_stack([t, np.ones_like(t), after * (t[:, None] - changes), season])
    gram, cross = design.T @ design, design.T @ y
    precision = np.ones(len(cross))
    of_bends = slice(2, 2 + len(changes))
    grid = np.exp(np.linspace(-16, 2.5, 500))
    sds = 0.1 * np.exp(np.linspace(-0.12, 0.12, 41))
    scale, sigma = (of_each.ravel() for of_each in np.meshgrid(grid, sds, indexing="ij"))
    means, variances, log_weight = [], [], []
    for s, sd in zip(scale, sigma, strict=True):
        precision[of_bends] = s**-2
        covariance = np.linalg.inv(gram / sd**2 + np.diag(precision))
        mean = covariance @ cross / sd**2
        evidence = -len(y) * np.log(sd) - y @ y / (2 * sd**2) + mean @ cross / (2 * sd**2)
        evidence += (np.linalg.slogdet(covariance)[1] + np.log(precision).sum()) / 2
        prior = stats.expon(scale=1 / 2).logpdf(s) + stats.halfnorm(scale=0.5).logpdf(sd)
        # ds = s d log s
        log_weight.append(evidence + prior + np.log(s * sd))
        means.append(mean)
        variances.append(np.diag(covariance))
    weight = special.softmax(log_weight)
    effects = zip(np.transpose(means), np.transpose(variances), strict=True)
    mean, sd = np.transpose([weighted(*effect, weight) for effect in effects])
    parts = {"slope": 0, "level": 1, "delta": of_bends, "beta": slice(of_bends.stop, None)}
    return {
        **{name: (mean[at].tolist(), sd[at].tolist()) for name, at in parts.items()},
        "scale": weighted(scale, np.zeros_like(scale), weight),
        "sigma": weighted(sigma, np.zeros_like(sigma), weight),
    }


def rows_of_spline() -> tuple[np.ndarray, np.ndarray]:
    """Return a basis of cubic splines at 1,000 places, shape (N, 20), and what was seen there."""
    rng = np.random.default_rng(37)
    x = np.linspace(0, 1, 1000, endpoint=False)
    knots = np.concatenate([np.zeros(3), np.linspace(0, 1, 18), np.ones(3)])
    curve = np.sin(6 * x) + 0.5 * np.sin(20 * x) * (x > 0.5)
    basis = BSpline.design_matrix(x, knots, 3).toarray()
    return basis, curve + rng.normal(0, NOISE_OF_SPLINE, 1000)


def penalised_spline() -> Moments:
    """Given the scale all else is normal: an integral over it alone."""
    basis, y = rows_of_spline()
    d = basis.shape[1]
    # Of level and slope, and of z
    straight = basis @ np.column_stack([np.ones(d), np.arange(d)])
    bent = basis[:, 2:] @ np.tril(np.ones((d - 2, d - 2))).cumsum(axis=0)
    scales = np.exp(np.linspace(-6, 2, 1001))
    means, variances, log_weight = [], [], []
    for scale in scales:
        design = np.column_stack([straight, scale * bent]) / NOISE_OF_SPLINE
        precision = design.T @ design + np.diag([1 / 4, *np.ones(d - 1)])
        covariance = np.linalg.inv(precision)
        cross = design.T @ y / NOISE_OF_SPLINE
        means.append(covariance @ cross)
        variances.append(np.diag(covariance))
        evidence = (cross @ means[-1] + np.linalg.slogdet(covariance)[1]) / 2
        log_weight.append(evidence + stats.halfnorm.logpdf(scale) + np.log(scale))
    weight = special.softmax(log_weight)
    effects = zip(np.transpose(means), np.transpose(variances), strict=True)
    mean, sd = np.transpose([weighted(*effect, weight) for effect in effects])
    parts = {"level": 0, "slope": 1, "z": slice(2, None)}
    return {
        **{name: (mean[at].tolist(), sd[at].tolist()) for name, at in parts.items()},
        "scale": weighted(scales, np.zeros_like(scales), weight),
    }


def rows_of_field() -> tuple[np.ndarray, np.ndarray]:
    """Return 30 places, shape (N, 1), and what was seen there."""
    rng = np.random.default_rng(3)
    x = np.sort(rng.uniform(-2, 2, 30))
    return x[:, None], np.sin(2 * x) + rng.normal(0, 0.3, 30)


def marginal_process() -> Moments:
    """An integral over length, height and noise; a length's covariances have common axes."""
    x, y = rows_of_field()
    grids = [np.exp(np.linspace(low, high, 61)) for low, high in ((-3, 3), (-3, 1.5), (-2.5, 0.5))]
    _, heights, sds = np.meshgrid([1], *grids[1:], indexing="ij")
    log_weight = []
    for length in grids[0]:
        distances = np.sqrt(3) * np.abs(x - x.T) / length
        values, axes = np.linalg.eigh((1 + distances) * np.exp(-distances))
        variances = heights[..., None] ** 2 * values + sds[..., None] ** 2
        evidence = -np.sum((axes.T @ y) ** 2 / variances + np.log(variances), axis=-1) / 2
        log_weight.append(evidence + stats.invgamma(3).logpdf(length) + np.log(length))
    density = np.concatenate(log_weight) + np.log(heights * sds)
    density += stats.halfnorm.logpdf(heights) + stats.halfnorm.logpdf(sds)
    weight = special.softmax(density)
    return {
        name: weighted(grid, np.zeros_like(grid), weight.sum(axis=others))
        for name, grid, others in zip(
            ("length", "height", "sigma"), grids, ((1, 2), (0, 2), (0, 1)), strict=True
        )
    }
