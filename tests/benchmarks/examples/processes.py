"""Gaussian processes, on made data of the notebooks' shapes."""

from __future__ import annotations

import numpy as np
import pymc as pm
import pytensor.tensor as pt

from .registry import EXAMPLES

GP = "gaussian_processes/"


def _curve(seed: int, n: int = 100) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = np.linspace(0, 10, n)
    return x[:, None], 2 * np.sin(x) + 0.5 * x + rng.normal(0, 0.6, n)


@EXAMPLES.of(GP + "GP-Marginal")
def process_integrated() -> None:
    """100 points, the process integrated out."""
    x, y = _curve(1)
    ell = pm.Gamma("ℓ", alpha=2, beta=1)
    eta = pm.HalfCauchy("η", 5)
    gp = pm.gp.Marginal(cov_func=eta**2 * pm.gp.cov.Matern52(1, ell))
    sigma = pm.HalfCauchy("σ", 5)
    gp.marginal_likelihood("y", X=x, y=y, sigma=sigma)


@EXAMPLES.of(GP + "GP-MeansAndCovs")
def process_of_a_sum() -> None:
    """A linear mean, a periodic and a rational quadratic covariance, 80 points."""
    x, y = _curve(2, 80)
    slope = pm.Normal("slope", 0, 1)
    mean = pm.gp.mean.Linear(coeffs=slope)
    ell = pm.Gamma("ell", 3, 1, shape=2)
    eta = pm.HalfNormal("eta", 2, shape=2)
    cov = eta[0] ** 2 * pm.gp.cov.Periodic(1, period=2 * np.pi, ls=ell[0])
    cov += eta[1] ** 2 * pm.gp.cov.RatQuad(1, alpha=2, ls=ell[1])
    gp = pm.gp.Marginal(mean_func=mean, cov_func=cov)
    sigma = pm.HalfNormal("sigma", 1)
    gp.marginal_likelihood("y", X=x, y=y, sigma=sigma)


@EXAMPLES.of(GP + "GP-Circular")
def process_on_a_circle() -> None:
    """40 angles: a periodic covariance, integrated out."""
    rng = np.random.default_rng(5)
    angle = np.sort(rng.uniform(0, 2 * np.pi, 40))[:, None]
    y = np.sin(2 * angle.ravel()) + rng.normal(0, 0.2, 40)
    eta = pm.HalfNormal("eta", 1)
    ell = pm.Gamma("ell", 4, 4)
    gp = pm.gp.Marginal(cov_func=eta**2 * pm.gp.cov.Periodic(1, period=2 * np.pi, ls=ell))
    sigma = pm.HalfNormal("sigma", 1)
    gp.marginal_likelihood("y", X=angle, y=y, sigma=sigma)


@EXAMPLES.of(GP + "GP-Heteroskedastic")
def process_of_the_noise() -> None:
    """40 places measured four times: mean and logarithm of the noise are processes."""
    rng = np.random.default_rng(6)
    x = np.linspace(0, 1, 40)[:, None]
    sd = np.exp(-1.5 + 2 * x.ravel())
    y = np.sin(6 * x.ravel()) + sd * rng.normal(size=(4, 40))
    ell = pm.InverseGamma("ell", mu=0.3, sigma=0.1, shape=2)
    eta = pm.Gamma("eta", alpha=2, beta=1, shape=2)
    mean = pm.gp.Latent(cov_func=eta[0] ** 2 * pm.gp.cov.ExpQuad(1, ell[0])).prior("mean", X=x)
    noise = pm.gp.Latent(cov_func=eta[1] ** 2 * pm.gp.cov.ExpQuad(1, ell[1])).prior("noise", X=x)
    level = pm.Normal("level", -1, 1)
    pm.Normal("y", mean, pt.exp(level + noise), observed=y)


@EXAMPLES.of(GP + "GP-SparseApprox")
def process_by_inducing_points() -> None:
    """300 points on 20 inducing ones, by the approximation of Titsias."""
    x, y = _curve(8, 300)
    ell = pm.Gamma("ls", alpha=2, beta=1)
    eta = pm.HalfNormal("eta", 5)
    cov = eta**2 * pm.gp.cov.Matern52(1, ell)
    gp = pm.gp.MarginalApprox(cov_func=cov, approx="FITC")
    sigma = pm.HalfNormal("sigma", 5)
    gp.marginal_likelihood("y", X=x, Xu=np.linspace(0, 10, 20)[:, None], y=y, sigma=sigma)


@EXAMPLES.of(GP + "GP-TProcess")
def students_process() -> None:
    """A Student process of 60 points with Poisson counts."""
    rng = np.random.default_rng(9)
    x = np.linspace(0, 10, 60)[:, None]
    y = rng.poisson(np.exp(1 + np.sin(x.ravel())))
    nu = pm.Gamma("nu", 2, 0.1) + 2
    ell = pm.Gamma("ls", 4, 4)
    eta = pm.HalfNormal("eta", 1)
    tp = pm.gp.TP(scale_func=eta**2 * pm.gp.cov.ExpQuad(1, ell), nu=nu)
    f = tp.prior("f", X=x)
    pm.Poisson("y", pt.exp(1 + f), observed=y)


@EXAMPLES.of(GP + "GP-smoothing")
def smoothed_walk() -> None:
    """50 points of a walk whose steps' share of the variance is learned."""
    rng = np.random.default_rng(10)
    y = np.linspace(0, 3, 50) ** 2 / 3 + rng.normal(0, 0.5, 50)
    smoothing = pm.Beta("smoothing", 4, 2)
    z = pm.GaussianRandomWalk(
        "z", mu=0, sigma=pt.sqrt(1 - smoothing), init_dist=pm.Normal.dist(0, 10), steps=49
    )
    pm.Normal("obs", z, pt.sqrt(smoothing), observed=y)


@EXAMPLES.of(GP + "HSGP-Basic")
def process_by_basis() -> None:
    """500 points, 60 functions of a Hilbert space in place of the process."""
    x, y = _curve(11, 500)
    ell = pm.Gamma("ell", alpha=2, beta=1)
    eta = pm.Exponential("eta", 1)
    gp = pm.gp.HSGP(m=[60], c=1.5, cov_func=eta**2 * pm.gp.cov.Matern52(1, ell))
    f = gp.prior("f", X=x)
    sigma = pm.HalfNormal("sigma", 1)
    pm.Normal("y", f, sigma, observed=y)


@EXAMPLES.of(GP + "HSGP-Basic")
def periodic_process_by_basis() -> None:
    """200 points of a periodic process by 20 functions."""
    rng = np.random.default_rng(12)
    x = np.linspace(0, 10, 200)[:, None]
    y = np.exp(np.sin(2 * np.pi * x.ravel() / 3)) + rng.normal(0, 0.3, 200)
    scale = pm.HalfNormal("scale", 1)
    ell = pm.Gamma("ell", 3, 3)
    gp = pm.gp.HSGPPeriodic(m=20, scale=scale, cov_func=pm.gp.cov.Periodic(1, period=3, ls=ell))
    f = gp.prior("f", X=x)
    mu = pm.Normal("mu", 0, 2)
    sigma = pm.HalfNormal("sigma", 1)
    pm.Normal("y", mu + f, sigma, observed=y)


@EXAMPLES.of(GP + "HSGP-Advanced")
def processes_of_groups_by_basis() -> None:
    """Ten curves of 40 points: a common process and one of each, by functions."""
    rng = np.random.default_rng(13)
    x = np.linspace(0, 10, 40)
    y = np.sin(x)[:, None] + 0.4 * np.sin(x[:, None] * rng.uniform(0.5, 2, 10))
    y = y + rng.normal(0, 0.2, y.shape)
    ell = pm.InverseGamma("ell", mu=2, sigma=1, shape=2)
    eta = pm.Exponential("eta", 1, shape=2)
    common = pm.gp.HSGP(m=[20], c=1.5, cov_func=eta[0] ** 2 * pm.gp.cov.ExpQuad(1, ell[0]))
    f = common.prior("f", X=x[:, None])
    own = pm.gp.HSGP(m=[15], c=1.5, cov_func=pm.gp.cov.ExpQuad(1, ell[1]))
    phi, root = own.prior_linearized(x[:, None])
    z = pm.Normal("z", 0, 1, shape=(15, 10))
    sigma = pm.HalfNormal("sigma", 0.5)
    pm.Normal("y", f[:, None] + eta[1] * (phi @ (z * root[:, None])), sigma, observed=y)
