"""Small models of the kinds that are written every day, on simulated data.

Each is in the form in which NUTS samples it well, non-centred where a user would need that.
"""

from __future__ import annotations

import warnings

import numpy as np
import pymc as pm
import pytensor.tensor as pt

from pymc.distributions.transforms import ordered
from pymc.exceptions import ImputationWarning
from registry import Registry

from .exact import rows_of_field
from .shrinkage import SHRINKAGE

SMALL = Registry()


@SMALL.add
def varying_intercepts() -> None:
    """Linear regression in 12 groups with varying intercepts."""
    rng = np.random.default_rng(1)
    group = rng.integers(0, 12, 180)
    x = rng.normal(size=180)
    y = rng.normal(1, 0.7, 12)[group] - 0.5 * x + rng.normal(0, 1, 180)
    mu = pm.Normal("mu", 0, 2)
    tau = pm.HalfNormal("tau", 1)
    z = pm.Normal("z", 0, 1, shape=12)
    slope = pm.Normal("slope", 0, 1)
    sigma = pm.HalfNormal("sigma", 2)
    pm.Normal("y", mu + tau * z[group] + slope * x, sigma, observed=y)


@SMALL.add
def varying_slopes() -> None:
    """Intercepts and slopes of 15 groups, correlated, with an LKJ prior."""
    rng = np.random.default_rng(2)
    group = rng.integers(0, 15, 240)
    x = rng.normal(size=240)
    effects = rng.multivariate_normal([0.5, -1], [[0.6, -0.25], [-0.25, 0.3]], 15)[group]
    y = effects[:, 0] + effects[:, 1] * x + rng.normal(0, 0.8, 240)
    chol, _, _ = pm.LKJCholeskyCov("chol", eta=2, n=2, sd_dist=pm.Exponential.dist(1, size=2))
    beta = pm.Normal("beta", 0, 2, shape=2)
    z = pm.Normal("z", 0, 1, shape=(15, 2))
    sigma = pm.Exponential("sigma", 1)
    of_group = beta + z @ chol.T
    pm.Normal("y", of_group[group, 0] + of_group[group, 1] * x, sigma, observed=y)


def answers() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the person and the question of each of 200 answers, and whether it is right."""
    rng = np.random.default_rng(3)
    person, item = np.divmod(np.arange(200), 10)
    logit = 0.4 + rng.normal(0, 1, 20)[person] + rng.normal(0, 0.8, 10)[item]
    return person, item, rng.random(200) < 1 / (1 + np.exp(-logit))


@SMALL.add
def crossed_effects() -> None:
    """Answers of 20 persons to 10 questions, right or wrong: two crossed varying intercepts."""
    person, item, right = answers()
    mu = pm.Normal("mu", 0, 1.5)
    sd_person = pm.HalfNormal("sd_person", 1)
    sd_item = pm.HalfNormal("sd_item", 1)
    z_person = pm.Normal("z_person", 0, 1, shape=20)
    z_item = pm.Normal("z_item", 0, 1, shape=10)
    logit = mu + sd_person * z_person[person] + sd_item * z_item[item]
    pm.Bernoulli("right", logit_p=logit, observed=right)


@SMALL.add
def ordinal_regression() -> None:
    """Ratings from 0 to 4 on three predictors."""
    rng = np.random.default_rng(4)
    x = rng.normal(size=(250, 3))
    latent = x @ [0.8, -0.5, 0.2] + rng.logistic(size=250)
    rating = np.searchsorted([-1.5, -0.3, 0.6, 2], latent)
    beta = pm.Normal("beta", 0, 1, shape=3)
    cuts = pm.Normal("cuts", 0, 2, shape=4, transform=ordered, initval=[-1.5, -0.5, 0.5, 1.5])
    pm.OrderedLogistic("rating", eta=x @ beta, cutpoints=cuts, observed=rating)


@SMALL.add
def weibull_survival() -> None:
    """Times of survival, a third of them censored, on two predictors."""
    rng = np.random.default_rng(5)
    x = np.column_stack([rng.integers(0, 2, 150), rng.normal(size=150)])
    time = np.exp(1 + x @ [0.5, -0.3]) * rng.weibull(1.4, 150)
    end = rng.uniform(1, 8, 150)
    intercept = pm.Normal("intercept", 0, 2)
    beta = pm.Normal("beta", 0, 1, shape=2)
    shape = pm.Gamma("shape", 2, 1)
    survival = pm.Weibull.dist(shape, pt.exp(intercept + x @ beta))
    pm.Censored("time", survival, lower=None, upper=end, observed=np.minimum(time, end))


@SMALL.add
def normal_mixture() -> None:
    """Mixture of two overlapping normals with ordered means."""
    rng = np.random.default_rng(6)
    y = np.where(rng.random(300) < 0.35, rng.normal(-1.5, 0.8, 300), rng.normal(1.5, 1, 300))
    weights = pm.Dirichlet("weights", [2, 2])
    mu = pm.Normal("mu", 0, 3, shape=2, transform=ordered, initval=[-1, 1])
    sigma = pm.Gamma("sigma", 3, 3, shape=2)
    pm.NormalMixture("y", weights, mu, sigma, observed=y)


@SMALL.add
def zero_inflated_poisson() -> None:
    """Counts with too many zeros on one predictor."""
    rng = np.random.default_rng(7)
    x = rng.normal(size=250)
    counts = rng.poisson(np.exp(0.8 + 0.4 * x)) * (rng.random(250) < 0.7)
    psi = pm.Beta("psi", 1, 1)
    intercept = pm.Normal("intercept", 0, 1.5)
    slope = pm.Normal("slope", 0, 1)
    rate = pt.exp(intercept + slope * x)
    pm.ZeroInflatedPoisson("counts", psi, rate, observed=counts)


@SMALL.add
def hurdle_counts() -> None:
    """Overdispersed counts, zero by another law: derivatives of an incomplete beta function."""
    rng = np.random.default_rng(31)
    x = rng.normal(size=250)
    counts = rng.poisson(rng.gamma(2, np.exp(0.8 + 0.4 * x) / 2)) * (rng.random(250) < 0.7)
    psi = pm.Beta("psi", 1, 1)
    intercept = pm.Normal("intercept", 0, 1.5)
    slope = pm.Normal("slope", 0, 1)
    alpha = pm.Gamma("alpha", 2, 1)
    rate = pt.exp(intercept + slope * x)
    pm.HurdleNegativeBinomial("counts", psi, rate, alpha, observed=counts)


@SMALL.add
def latent_gp() -> None:
    """Successes and failures whose log-odds are a Gaussian process in time."""
    rng = np.random.default_rng(8)
    time = np.linspace(0, 10, 50)
    success = rng.random(50) < 1 / (1 + np.exp(-1.5 * np.sin(time)))
    length = pm.InverseGamma("length", 5, 8)
    scale = pm.HalfNormal("scale", 1)
    mean = pm.Normal("mean", 0, 1)
    gp = pm.gp.Latent(cov_func=scale**2 * pm.gp.cov.Matern52(1, length))
    logit = mean + gp.prior("logit", time[:, None])
    pm.Bernoulli("success", logit_p=logit, observed=success)


@SMALL.add
def marginal_process() -> None:
    """Normal rows around a Gaussian process that has been integrated out."""
    x, y = rows_of_field()
    length = pm.InverseGamma("length", 3, 1)
    height = pm.HalfNormal("height", 1)
    gp = pm.gp.Marginal(cov_func=height**2 * pm.gp.cov.Matern32(1, length))
    gp.marginal_likelihood("y", x, y, pm.HalfNormal("sigma", 1))


@SMALL.add
def ar2() -> None:
    """Autoregression of order two."""
    rng = np.random.default_rng(9)
    y = np.zeros(250)
    for t in range(2, 250):
        y[t] = 0.3 + 0.6 * y[t - 1] + 0.2 * y[t - 2] + rng.normal(0, 0.5)
    # The constant, then the two lags
    rho = pm.Normal("rho", 0, 0.5, shape=3)
    sigma = pm.HalfNormal("sigma", 1)
    first = pm.Normal.dist(0, 2, shape=2)
    pm.AR("y", rho, sigma, constant=True, init_dist=first, observed=y[50:])


@SMALL.add
def student_t_regression() -> None:
    """Linear regression with outliers."""
    rng = np.random.default_rng(10)
    x = rng.normal(size=(200, 3))
    y = 1 + x @ [0.5, -1, 0] + 0.7 * rng.standard_t(3, 200)
    intercept = pm.Normal("intercept", 0, 5)
    beta = pm.Normal("beta", 0, 2, shape=3)
    sigma = pm.HalfNormal("sigma", 2)
    nu = pm.Gamma("nu", 2, 0.1)
    pm.StudentT("y", nu=nu, mu=intercept + x @ beta, sigma=sigma, observed=y)


@SMALL.add
def multivariate_normal() -> None:
    """Mean and covariance of four-dimensional data, the correlations with an LKJ prior."""
    rng = np.random.default_rng(11)
    factor = np.tril(rng.normal(0, 0.5, (4, 4)), -1) + np.diag([1, 0.8, 1.2, 0.5])
    y = [1, 0, -1, 2] + rng.normal(size=(120, 4)) @ factor.T
    mu = pm.Normal("mu", 0, 3, shape=4)
    sd = pm.HalfNormal.dist(2, size=4)
    chol, _, _ = pm.LKJCholeskyCov("chol", eta=2, n=4, sd_dist=sd)
    pm.MvNormal("y", mu, chol=chol, observed=y)


@SMALL.add
def beta_binomial() -> None:
    """Success rates of 25 hospitals, scattered around a common one."""
    rng = np.random.default_rng(12)
    trials = rng.integers(8, 60, 25)
    successes = rng.binomial(trials, rng.beta(4, 8, 25))
    mean = pm.Beta("mean", 1, 1)
    concentration = pm.LogNormal("concentration", 2, 1)
    alpha, beta = mean * concentration, (1 - mean) * concentration
    p = pm.Beta("p", alpha, beta, shape=25)
    pm.Binomial("successes", trials, p, observed=successes)


@SMALL.add
def dirichlet_multinomial() -> None:
    """Counts of five species at 20 places, more scattered than multinomial ones."""
    rng = np.random.default_rng(13)
    total = rng.integers(20, 80, 20)
    shares = rng.dirichlet(12 * np.array([0.4, 0.25, 0.2, 0.1, 0.05]), 20)
    counts = np.array([rng.multinomial(n, p) for n, p in zip(total, shares, strict=True)])
    share = pm.Dirichlet("share", np.ones(5))
    concentration = pm.LogNormal("concentration", 2, 1)
    pm.DirichletMultinomial("counts", total, share * concentration, observed=counts)


@SMALL.add
def missing_values() -> None:
    """Linear regression in which 15 values of a predictor are missing and imputed."""
    rng = np.random.default_rng(14)
    x = rng.normal(0.5, 1.2, 120)
    y = 1 + 0.8 * x + rng.normal(0, 0.7, 120)
    missing = np.isin(np.arange(120), rng.choice(120, 15, replace=False))
    mean = pm.Normal("mean", 0, 2)
    sd = pm.HalfNormal("sd", 2)
    intercept = pm.Normal("intercept", 0, 2)
    slope = pm.Normal("slope", 0, 1)
    sigma = pm.HalfNormal("sigma", 1)
    with warnings.catch_warnings(action="ignore", category=ImputationWarning):
        whole = pm.Normal("x", mean, sd, observed=np.ma.masked_array(x, missing))
    pm.Normal("y", intercept + slope * whole, sigma, observed=y)


@SMALL.add
def missing_mediator() -> None:
    """A mediator that is measured in part, a covariate of what is missing in part, too."""
    rng = np.random.default_rng(14)
    x = rng.normal(size=120)
    mediator = 0.8 * x + rng.normal(0, 0.6, 120)
    y = 1.0 + 0.5 * mediator - 0.3 * x + rng.normal(0, 0.4, 120)
    mediator[:12], y[100:] = np.nan, np.nan
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ImputationWarning)
        a, b = pm.Normal("a", 0, 1), pm.Normal("b", 0, 1, shape=3)
        sds = pm.HalfNormal("sds", 1, shape=2)
        between = pm.Normal("mediator", a * x, sds[0], observed=mediator)
        pm.Normal("y", b[0] + b[1] * between + b[2] * x, sds[1], observed=y)


@SMALL.add
def negative_binomial_regression() -> None:
    """Overdispersed counts on three predictors."""
    rng = np.random.default_rng(15)
    x = rng.normal(size=(250, 3))
    mean = np.exp(1 + x @ [0.5, -0.3, 0])
    counts = rng.negative_binomial(2, 2 / (2 + mean))
    intercept = pm.Normal("intercept", 0, 2)
    beta = pm.Normal("beta", 0, 1, shape=3)
    alpha = pm.Exponential("alpha", 0.5)
    rate = pt.exp(intercept + x @ beta)
    pm.NegativeBinomial("counts", mu=rate, alpha=alpha, observed=counts)


@SMALL.add
def local_level() -> None:
    """Wins and losses of a team whose form is a random walk, in terms of its steps."""
    rng = np.random.default_rng(16)
    form = np.cumsum(rng.normal(0, 0.4, 60))
    win = rng.random(60) < 1 / (1 + np.exp(-form))
    start = pm.Normal("start", 0, 1)
    step = pm.HalfNormal("step", 0.5)
    z = pm.Normal("z", 0, 1, shape=60)
    pm.Bernoulli("win", logit_p=start + step * pt.cumsum(z), observed=win)


# The table has their rows here
for name, build in SHRINKAGE.items():
    SMALL[name] = build


@SMALL.add
def gamma_glm() -> None:
    """Costs, positive and skewed, on two predictors with a logarithmic link."""
    rng = np.random.default_rng(19)
    x = np.column_stack([rng.integers(0, 2, 200), rng.normal(size=200)])
    mean = np.exp(2 + x @ [0.4, 0.25])
    cost = rng.gamma(2.5, mean / 2.5)
    intercept = pm.Normal("intercept", 0, 3)
    beta = pm.Normal("beta", 0, 1, shape=2)
    alpha = pm.Exponential("alpha", 0.3)
    rate = alpha / pt.exp(intercept + x @ beta)
    pm.Gamma("cost", alpha=alpha, beta=rate, observed=cost)


@SMALL.add
def laboratories() -> None:
    """Measurements of ten laboratories, with half-Cauchy and inverse-gamma scales."""
    rng = np.random.default_rng(20)
    laboratory = np.repeat(np.arange(10), 4)
    y = rng.normal(20, 1, 10)[laboratory] + rng.normal(0, 2, 40)
    mu = pm.Normal("mu", 20, 5)
    between = pm.HalfCauchy("between", 1)
    within = pm.InverseGamma("within", 3, 8)
    z = pm.Normal("z", 0, 1, shape=10)
    pm.Normal("y", mu + between * z[laboratory], pt.sqrt(within), observed=y)


@SMALL.add
def growth_curves() -> None:
    """Weights of thirty animals on five days: centred, starts far from the data, no mode."""
    rng = np.random.default_rng(21)
    day = np.array([8.0, 15.0, 22.0, 29.0, 36.0]) - 22
    level, slope = rng.normal(242, 14, (30, 1)), rng.normal(6.2, 0.5, (30, 1))
    y = level + slope * day + rng.normal(0, 6, (30, 5))
    mean_level = pm.Normal("mean_level", 0, 100)
    mean_slope = pm.Normal("mean_slope", 0, 100)
    sd_level = pm.HalfNormal("sd_level", 50)
    sd_slope = pm.HalfNormal("sd_slope", 5)
    a = pm.Normal("a", mean_level, sd_level, shape=(30, 1))
    b = pm.Normal("b", mean_slope, sd_slope, shape=(30, 1))
    pm.Normal("y", a + b * day, pm.HalfNormal("sigma", 30), observed=y)


@SMALL.add
def gaussian_process_counts() -> None:
    """Eleven counts whose logarithmic rate is a Gaussian process, with its own two parameters."""
    rng = np.random.default_rng(22)
    x = np.linspace(-10, 10, 11)
    y = rng.poisson(np.exp(2 + 0.8 * np.sin(x / 3)))
    length = pm.Gamma("length", 25, 4)
    height = pm.HalfNormal("height", 2)
    z = pm.Normal("z", 0, 1, shape=11)
    distance = (x[:, None] - x) / length
    covariance = height**2 * pt.exp(-(distance**2) / 2) + 1e-8 * np.eye(11)
    pm.Poisson("y", pt.exp(pt.linalg.cholesky(covariance) @ z), observed=y)


@SMALL.add
def item_response() -> None:
    """Answers of a hundred persons to twenty items, each with a slope and a difficulty."""
    rng = np.random.default_rng(23)
    persons, items = 100, 20
    logit = rng.lognormal(0, 0.5, items) * (rng.normal(size=(persons, 1)) - rng.normal(size=items))
    y = rng.random((persons, items)) < 1 / (1 + np.exp(-logit))
    sd_ability = pm.HalfCauchy("sd_ability", 2)
    ability = pm.Normal("ability", 0, 1, shape=(persons, 1))
    sd_slope = pm.HalfCauchy("sd_slope", 2)
    slope = pm.LogNormal("slope", 0, sd_slope, shape=items)
    mean = pm.Normal("mean", 0, 5)
    sd_difficulty = pm.HalfCauchy("sd_difficulty", 2)
    difficulty = pm.Normal("difficulty", 0, 1, shape=items)
    place = sd_ability * ability - (mean + sd_difficulty * difficulty)
    pm.Bernoulli("y", logit_p=slope * place, observed=y)
