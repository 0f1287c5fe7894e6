"""Groups, items and rates, on made data of the notebooks' shapes."""

from __future__ import annotations

import numpy as np
import pymc as pm
import pytensor.tensor as pt

from scipy.special import expit
from scipy.stats import norm

from .registry import EXAMPLES

CASES = "case_studies/"
GLM = "generalized_linear_models/"


@EXAMPLES.of(CASES + "BEST")
def difference_of_two_groups() -> None:
    """Student's means and scales of two groups of some 45 persons."""
    rng = np.random.default_rng(1)
    y = rng.standard_t(4, 89) * 1.5 + np.repeat([101.5, 100.3], [47, 42])
    mean = pm.Normal("mean", y.mean(), y.std() * 2, shape=2)
    sd = pm.Uniform("sd", 1, 10, shape=2)
    nu = pm.Exponential("nu_minus_one", 1 / 29) + 1
    for k, part in enumerate((y[:47], y[47:])):
        pm.StudentT(f"y{k}", nu=nu, mu=mean[k], lam=sd[k] ** -2, observed=part)
    pm.Deterministic("difference", mean[0] - mean[1])


@EXAMPLES.of(CASES + "hierarchical_partial_pooling")
def batting_averages() -> None:
    """18 players of 45 at-bats: Betas of a Pareto-like concentration."""
    rng = np.random.default_rng(2)
    hits = rng.binomial(45, rng.beta(20, 55, 18))
    phi = pm.Uniform("phi", 0, 1)
    kappa = pm.Deterministic("kappa", pt.exp(pm.Exponential("kappa_log", 1.5)))
    theta = pm.Beta("theta", phi * kappa, (1 - phi) * kappa, shape=18)
    pm.Binomial("y", n=45, p=theta, observed=hits)


@EXAMPLES.of(GLM + "GLM-hierarchical-binomial-model")
def rat_tumours() -> None:
    """71 experiments with rats, Beta rates, a potential for the prior of their two parameters."""
    rng = np.random.default_rng(3)
    n = rng.integers(10, 52, 71)
    y = rng.binomial(n, rng.beta(2.3, 14, 71))
    ab = pm.HalfNormal("ab", 10, shape=2)
    pm.Potential("p(a, b)", -2.5 * pt.log(ab.sum()))
    theta = pm.Beta("theta", ab[0], ab[1], shape=71)
    pm.Binomial("y", n=n, p=theta, observed=y)


def _radon() -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(4)
    county = np.sort(rng.integers(0, 85, 919))
    floor = (rng.random(919) < 0.17).astype(float)
    uranium = rng.normal(0, 0.4, 85)
    level = 1.5 + 0.7 * uranium + rng.normal(0, 0.3, 85)
    y = level[county] - 0.65 * floor + rng.normal(0, 0.75, 919)
    return county, floor, uranium, y


@EXAMPLES.of(CASES + "multilevel_modeling")
def radon_pooled() -> None:
    """919 houses, no counties."""
    _, floor, _, y = _radon()
    alpha = pm.Normal("alpha", 0, 10)
    beta = pm.Normal("beta", 0, 10)
    sigma = pm.Exponential("sigma", 5)
    pm.Normal("y", alpha + beta * floor, sigma, observed=y)


@EXAMPLES.of(CASES + "multilevel_modeling")
def radon_unpooled() -> None:
    """919 houses in 85 counties that share nothing."""
    county, floor, _, y = _radon()
    alpha = pm.Normal("alpha", 0, 10, shape=85)
    beta = pm.Normal("beta", 0, 10)
    sigma = pm.Exponential("sigma", 1)
    pm.Normal("y", alpha[county] + beta * floor, sigma, observed=y)


@EXAMPLES.of(CASES + "multilevel_modeling")
def radon_partially_pooled() -> None:
    """Intercepts of counties from a common normal, centred."""
    county, floor, _, y = _radon()
    mu = pm.Normal("mu_a", 0, 10)
    sd = pm.Exponential("sigma_a", 1)
    alpha = pm.Normal("alpha", mu, sd, shape=85)
    beta = pm.Normal("beta", 0, 10)
    sigma = pm.Exponential("sigma", 5)
    pm.Normal("y", alpha[county] + beta * floor, sigma, observed=y)


@EXAMPLES.of(CASES + "multilevel_modeling")
def radon_slopes_too() -> None:
    """Independent intercepts and slopes of counties, non-centred."""
    county, floor, _, y = _radon()
    mu = pm.Normal("mu", 0, 5, shape=2)
    sd = pm.Exponential("sd", 1, shape=2)
    z = pm.Normal("z", 0, 1, shape=(85, 2))
    effect = mu + z * sd
    sigma = pm.Exponential("sigma", 1)
    pm.Normal("y", effect[county, 0] + effect[county, 1] * floor, sigma, observed=y)


@EXAMPLES.of(CASES + "multilevel_modeling")
def radon_covariance() -> None:
    """Correlated intercepts and slopes by an LKJ prior."""
    county, floor, _, y = _radon()
    chol, _, _ = pm.LKJCholeskyCov("chol", n=2, eta=2, sd_dist=pm.Exponential.dist(0.5, size=2))
    mu = pm.Normal("mu", 0, 5, shape=2)
    z = pm.Normal("z", 0, 1, shape=(2, 85))
    effect = mu[:, None] + pt.dot(chol, z)
    sigma = pm.Exponential("sigma", 1)
    pm.Normal("y", effect[0, county] + effect[1, county] * floor, sigma, observed=y)


@EXAMPLES.of(CASES + "multilevel_modeling", coords={"county": np.arange(85)})
def radon_with_uranium() -> None:
    """County intercepts on the county's uranium and its mean of floors."""
    county, floor, uranium, y = _radon()
    mean_floor = np.bincount(county, floor, 85) / np.maximum(np.bincount(county, minlength=85), 1)
    g = pm.Normal("g", 0, 10, shape=3)
    sd = pm.Exponential("sigma_a", 1)
    z = pm.Normal("z", 0, 1, dims="county")
    alpha = pm.Deterministic(
        "alpha", g[0] + g[1] * uranium + g[2] * mean_floor + z * sd, dims="county"
    )
    beta = pm.Normal("beta", 0, 1)
    sigma = pm.Uniform("sigma", 0, 100)
    pm.Normal("y", alpha[county] + beta * floor, sigma, observed=y)


@EXAMPLES.of(CASES + "item_response_nba", coords={"i": np.arange(60), "j": np.arange(60)})
def item_response() -> None:
    """Fouls of 60 disadvantaged and 60 committing players in 2,000 plays."""
    rng = np.random.default_rng(5)
    i, j = rng.integers(0, 60, (2, 2000))
    eta = rng.normal(0, 0.8, 60)[i] - rng.normal(0, 0.5, 60)[j]
    y = rng.random(2000) < expit(eta)
    mu = pm.Normal("mu_theta", 0, 100)
    sd = pm.HalfCauchy("sigma", 2.5, shape=2)
    theta = mu + sd[0] * pm.Normal("z_theta", 0, 1, dims="i")
    b = sd[1] * pm.Normal("z_b", 0, 1, dims="j")
    pm.Bernoulli("y", p=pm.math.sigmoid(theta[i] - b[j]), observed=y)


@EXAMPLES.of(CASES + "rugby_analytics", coords={"team": np.arange(6)})
def rugby() -> None:
    """Points of 60 matches of six teams: attack and defence, less their means."""
    rng = np.random.default_rng(6)
    home, away = np.array([(a, b) for a in range(6) for b in range(6) if a != b] * 2).T
    attack, defence = rng.normal(0, 0.2, (2, 6))
    y_home = rng.poisson(np.exp(3.1 + attack[home] + defence[away]))
    y_away = rng.poisson(np.exp(2.9 + attack[away] + defence[home]))
    advantage = pm.Normal("home", 0, 1)
    intercept = pm.Normal("intercept", 3, 1)
    sd = pm.HalfNormal("sd", 2, shape=2)
    a = pm.Normal("atts_star", 0, sd[0], dims="team")
    d = pm.Normal("defs_star", 0, sd[1], dims="team")
    a, d = a - a.mean(), d - d.mean()
    pm.Poisson("home_points", pt.exp(intercept + advantage + a[home] + d[away]), observed=y_home)
    pm.Poisson("away_points", pt.exp(intercept + a[away] + d[home]), observed=y_away)


@EXAMPLES.of(CASES + "bayesian_ab_testing_introduction")
def two_rates() -> None:
    """Conversions of two pages, Beta priors."""
    theta = pm.Beta("theta", 100.0, 100.0, shape=2)
    pm.Binomial("y", n=[4000, 4000], p=theta, observed=[930, 1010])
    pm.Deterministic("uplift", theta[1] / theta[0] - 1)


@EXAMPLES.of(CASES + "bayesian_ab_testing_introduction")
def value_of_visitors() -> None:
    """Conversions and revenue of three pages: Beta, Binomial and Gamma."""
    theta = pm.Beta("theta", 5000, 5000, shape=3)
    lam = pm.Gamma("lam", 9000, 900, shape=3)
    bought = np.array([520, 480, 560])
    pm.Binomial("converted", n=1000, p=theta, observed=bought)
    pm.Gamma("revenue", alpha=bought, beta=lam, observed=bought / [9.8, 10.4, 10.1])
    pm.Deterministic("value", theta / lam)


def _putts() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    distance = np.arange(2, 21)
    n = np.linspace(1443, 152, 19).astype(int)
    return distance, n, np.random.default_rng(7).binomial(n, 0.95 * np.exp(-0.09 * (distance - 2)))


@EXAMPLES.of(CASES + "putting_workflow")
def putting_logistic() -> None:
    """Putts of 19 distances, a logistic line."""
    distance, n, y = _putts()
    a = pm.Normal("a", 0, 1)
    b = pm.Normal("b", 0, 1)
    pm.Binomial("success", n=n, p=pm.math.invlogit(a * distance + b), observed=y)


@EXAMPLES.of(CASES + "putting_workflow")
def putting_by_angle() -> None:
    """The same by the hole's angle and the player's precision."""
    distance, n, y = _putts()
    angle = np.arcsin((4.25 - 1.68) / 2 / 12 / distance)
    sd = pm.HalfNormal("variance_of_shot", 1)
    p = 2 * (0.5 + 0.5 * pt.erf(angle / sd / np.sqrt(2))) - 1
    pm.Binomial("success", n=n, p=p, observed=y)


@EXAMPLES.of(CASES + "putting_workflow")
def putting_by_angle_and_distance() -> None:
    """31 distances, angle and length of a shot, and an overdispersion."""
    rng = np.random.default_rng(8)
    distance = np.linspace(0.3, 75, 31)
    n = np.linspace(40_000, 3000, 31).astype(int)
    angle = np.arcsin(np.clip((4.25 - 1.68) / 2 / 12 / np.maximum(distance, 0.3), 0, 1))
    length = norm.cdf(2 / (0.08 * (distance + 1))) - norm.cdf(-1 / (0.08 * (distance + 1)))
    y = rng.binomial(n, (2 * norm.cdf(angle / 0.026) - 1) * length)
    s_angle = pm.HalfNormal("variance_of_shot", 1)
    s_length = pm.HalfNormal("variance_of_distance", 1)
    dispersion = pm.HalfNormal("dispersion", 1)
    cdf = lambda x: 0.5 + 0.5 * pt.erf(x / np.sqrt(2))  # noqa: E731
    straight = 2 * cdf(angle / s_angle) - 1
    scale = s_length * (distance + 1)
    reached = cdf(2 / scale) - cdf(-1 / scale)
    pm.Normal("share", straight * reached, pt.sqrt(1 / n + dispersion**2), observed=y / n)
