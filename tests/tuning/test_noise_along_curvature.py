"""Gradient noise along directions in which a posterior is narrow or wide."""

import numpy as np
import pymc as pm
import pytest

import pymc_sgmcmc as sg

from helpers.surfaces_of_rows import Noisy
from helpers.z_scores import STANDARD_ERRORS, assert_right, z_score
from pymc_sgmcmc.tuning.chain_gradients import ChainGradients
from pymc_sgmcmc.tuning.noise_along_curvature import errors_and_shifts, misfits

DIMENSION, SHARE = 150, 0.4


class Correlated(Noisy):
    """Precision 1 + E of all coordinates but the last, on which E depends, and noise along E."""

    def __init__(self, away, slope, along):
        super().__init__(np.ones(DIMENSION + 1), np.zeros(DIMENSION + 1), rows=600)
        self.away, self.slope = away, slope
        noise = self.noise[0][:, :-1] @ np.linalg.cholesky(np.eye(DIMENSION) + along * away).T
        noise = np.column_stack([noise / noise.std(axis=0), np.zeros(len(noise))])
        self.noise = np.stack([noise, np.zeros_like(noise)])
        self.covariance = np.cov(noise[:, :-1].T, bias=True)

    def full(self, points):
        x, s = points[:, :-1], points[:, -1:]
        g = x + x @ self.away * (1 + self.slope * s)
        last = s[:, 0] + self.slope * np.einsum("ni,ij,nj->n", x, self.away, x) / 2
        return np.zeros(len(points)), np.column_stack([g, last])


def correlated(slope, along):
    rng = np.random.default_rng(4)
    X = rng.standard_normal((2000, DIMENSION))
    X /= np.linalg.norm(X, axis=0)
    return Correlated(X.T @ X - np.eye(DIMENSION), slope, along)


def arguments(surface):
    d = DIMENSION + 1
    seen = ChainGradients(surface, np.zeros(d), np.ones(d), None)
    variance = np.append(np.ones(DIMENSION), 0.0)
    share = np.append(np.full(DIMENSION, SHARE), 0.0)
    return seen, np.random.default_rng(5), variance, share, [(0, DIMENSION)], np.array([DIMENSION])


@pytest.mark.parametrize("slope", [0.0, 3.0])
def test_errors_and_shifts_are_those_of_first_order(slope):
    surface = correlated(slope, along=1.0)
    errors, shifts = errors_and_shifts(*arguments(surface))
    hotter = SHARE * (surface.covariance - np.eye(DIMENSION))
    product = surface.away @ hotter
    change = hotter - (product + product.T) / 2
    assert abs(z_score(errors[:, 0], -np.trace(product) / DIMENSION)) < STANDARD_ERRORS
    expected = -np.trace(slope * surface.away @ change) / 2
    if slope:
        assert abs(z_score(shifts[:, 0], expected)) < STANDARD_ERRORS
    else:
        np.testing.assert_allclose(shifts, 0, atol=1e-12)


@pytest.mark.parametrize(
    ("slope", "along", "expected"), [(0.0, 1.0, False), (3.0, 1.0, True), (3.0, 0.0, False)]
)
def test_what_depends_on_widths_is_wrong_where_noise_is_along_curvature(slope, along, expected):
    assert misfits(*arguments(correlated(slope, along))) is expected


def ridge():
    """Return rows of a regression, and the mean and sd of its coefficients' sd, by quadrature."""
    rng = np.random.default_rng(5)
    X = rng.normal(size=(3000, 800))
    y = X @ (0.05 * rng.normal(size=800)) + rng.normal(size=3000)
    eigenvalues, vectors = np.linalg.eigh(X.T @ X)
    along = vectors.T @ (X.T @ y)
    s = np.linspace(0.02, 0.1, 4001)
    grown = 1 + s[:, None] ** 2 * eigenvalues
    log = 0.5 * np.sum(along**2 * s[:, None] ** 2 / grown - np.log(grown), axis=1) - s**2 / 2
    weight = np.exp(log - log.max())
    weight /= weight.sum()
    mean = weight @ s
    return X, y, mean, (weight @ (s - mean) ** 2) ** 0.5


@pytest.mark.slow
def test_the_sd_of_hundreds_of_correlated_coefficients():
    X, y, mean, sd = ridge()
    with pm.Model():
        columns, seen = pm.Minibatch(X, y, batch_size=150)
        scale = pm.HalfNormal("scale", 1)
        beta = pm.Normal("beta", 0, scale, shape=800)
        pm.Normal("y", columns @ beta, 1, observed=seen, total_size=len(y))
        found = pm.sample(
            step=sg.CoRVSGLD(), chains=2, cores=1, random_seed=1, progressbar=False,
            compute_convergence_checks=False,
        )  # fmt: skip
    assert_right(found.posterior, {"scale": (mean, sd)})
