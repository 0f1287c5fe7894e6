"""Generalised linear models, on made data of the notebooks' shapes."""

from __future__ import annotations

import numpy as np
import pymc as pm
import pytensor.tensor as pt

from scipy.special import expit

from .registry import EXAMPLES

GLM = "generalized_linear_models/"


@EXAMPLES.of(GLM + "GLM-linear")
def straight_line() -> None:
    """A line through 200 points."""
    rng = np.random.default_rng(1)
    x = np.linspace(0, 1, 200)
    y = 1 + 2 * x + rng.normal(0, 0.5, 200)
    sigma = pm.HalfCauchy("sigma", 10)
    intercept = pm.Normal("Intercept", 0, 20)
    slope = pm.Normal("slope", 0, 20)
    pm.Normal("y", intercept + slope * x, sigma, observed=y)


@EXAMPLES.of(GLM + "GLM-logistic")
def income_by_age() -> None:
    """High incomes by age, its square, education and hours, of 2,000 persons."""
    rng = np.random.default_rng(2)
    age, educ, hours = (
        rng.uniform(18, 80, 2000),
        rng.integers(1, 17, 2000),
        rng.normal(40, 12, 2000),
    )
    logit = -12 + 0.3 * age - 0.003 * age**2 + 0.3 * educ + 0.03 * hours
    y = rng.random(2000) < expit(logit)
    age, hours, educ = ((v - v.mean()) / v.std() for v in (age, hours, educ))
    beta = pm.Normal("beta", 0, 10, shape=5)
    eta = beta[0] + beta[1] * age + beta[2] * age**2 + beta[3] * educ + beta[4] * hours
    pm.Bernoulli("y", logit_p=eta, observed=y)


@EXAMPLES.of(GLM + "GLM-binomial-regression", coords={"observation": np.arange(100)})
def binomial_regression() -> None:
    """Successes of 20 trials at each of 100 places."""
    rng = np.random.default_rng(3)
    x = rng.uniform(-10, 20, 100)
    y = rng.binomial(20, expit(-2.5 + 0.5 * x))
    x = pm.Data("x", x, dims="observation")
    beta0 = pm.Normal("beta0", 0, 1)
    beta1 = pm.Normal("beta1", 0, 1)
    p = pm.Deterministic("p", pm.math.invlogit(beta0 + beta1 * x), dims="observation")
    pm.Binomial("y", n=20, p=p, observed=y, dims="observation")


@EXAMPLES.of(GLM + "GLM-poisson-regression")
def sneezes() -> None:
    """Counts of 4,000 days by alcohol, antihistamine and both."""
    rng = np.random.default_rng(4)
    alcohol, medicine = np.repeat([0, 1, 0, 1], 1000), np.repeat([1, 1, 0, 0], 1000)
    y = rng.poisson(np.repeat([1, 3, 6, 36], 1000))
    b0 = pm.Normal("intercept", 0, 10)
    b1 = pm.Normal("alcohol", 0, 10)
    b2 = pm.Normal("nomeds", 0, 10)
    b3 = pm.Normal("both", 0, 10)
    eta = b0 + b1 * alcohol + b2 * (1 - medicine) + b3 * alcohol * (1 - medicine)
    pm.Poisson("y", pt.exp(eta), observed=y)


@EXAMPLES.of(GLM + "GLM-negative-binomial-regression")
def sneezes_overdispersed() -> None:
    """The same with negative binomial counts and a learned dispersion."""
    rng = np.random.default_rng(5)
    alcohol, medicine = np.repeat([0, 1, 0, 1], 1000), np.repeat([1, 1, 0, 0], 1000)
    mean = np.repeat([1, 3, 6, 36], 1000)
    y = rng.poisson(rng.gamma(10, mean / 10))
    alpha = pm.Exponential("alpha", 0.5)
    b = pm.Normal("b", 0, 10, shape=4)
    eta = b[0] + b[1] * alcohol + b[2] * (1 - medicine) + b[3] * alcohol * (1 - medicine)
    pm.NegativeBinomial("y", mu=pt.exp(eta), alpha=alpha, observed=y)


@EXAMPLES.of(GLM + "GLM-robust")
def robust_line() -> None:
    """A line with Student's noise through 103 points, of which three are far off."""
    rng = np.random.default_rng(6)
    x = np.linspace(0, 1, 100)
    y = np.append(1 + 2 * x + rng.normal(0, 0.5, 100), [8.0, 6.0, 9.0])
    x = np.append(x, [0.1, 0.15, 0.2])
    intercept = pm.Normal("intercept", 0, 1)
    slope = pm.Normal("slope", 0, 1)
    sigma = pm.HalfNormal("sigma", 1)
    nu = pm.Gamma("nu", 2, 0.1)
    pm.StudentT("y", nu=nu, mu=intercept + slope * x, sigma=sigma, observed=y)


@EXAMPLES.of(GLM + "GLM-robust-heteroscedastic")
def noise_by_a_predictor() -> None:
    """Mean and sd both depend on a predictor; Student's noise."""
    rng = np.random.default_rng(7)
    x = rng.uniform(0, 2, 200)
    y = 1 + x + np.exp(-1 + 0.8 * x) * rng.standard_t(5, 200)
    a = pm.Normal("a", 0, 2, shape=2)
    b = pm.Normal("b", 0, 1, shape=2)
    nu = pm.Exponential("nu_minus_one", 1 / 29) + 1
    pm.StudentT("y", nu=nu, mu=a[0] + a[1] * x, sigma=pt.exp(b[0] + b[1] * x), observed=y)


def _hogg() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(8)
    x = np.sort(rng.uniform(-2, 2, 20))
    sd = rng.uniform(0.1, 0.3, 20)
    y = 0.2 + 0.9 * x + sd * rng.normal(size=20)
    y[[2, 9, 15]] += [3.0, -2.5, 2.0]
    return x, y, sd


@EXAMPLES.of(GLM + "GLM-robust-with-outlier-detection")
def outliers_least_squares() -> None:
    """Twenty points with known errors, ordinary least squares."""
    x, y, sd = _hogg()
    b = pm.Normal("b", 0, 10, shape=2)
    pm.Normal("y", b[0] + b[1] * x, sd, observed=y)


@EXAMPLES.of(GLM + "GLM-robust-with-outlier-detection")
def outliers_student() -> None:
    """The same with Student's noise of a learned degree."""
    x, y, sd = _hogg()
    b = pm.Normal("b", 0, 10, shape=2)
    nu = pm.InverseGamma("nu", 1, 1)
    pm.StudentT("y", nu=nu, mu=b[0] + b[1] * x, sigma=sd, observed=y)


@EXAMPLES.of(GLM + "GLM-robust-with-outlier-detection")
def outliers_detected() -> None:
    """The same, each point an outlier or not: a mixture of two normals by a potential."""
    x, y, sd = _hogg()
    b = pm.Normal("b", 0, 10, shape=2)
    mean = pm.Normal("y_est_out", 0, 10)
    out = pm.HalfNormal("sigma_y_out", 10)
    share = pm.Uniform("frac_outliers", 0, 0.5)
    inlier = pm.logp(pm.Normal.dist(b[0] + b[1] * x, sd), y) + pt.log1p(-share)
    outlier = pm.logp(pm.Normal.dist(mean, sd + out), y) + pt.log(share)
    pm.Potential("y", pt.logaddexp(inlier, outlier).sum())


def _line_with_bounds(kept: float = np.inf) -> tuple[pt.TensorVariable, np.ndarray]:
    """Return the law of a line through those of 200 points that are below a bound, and them."""
    rng = np.random.default_rng(9)
    x = rng.uniform(-10, 10, 200)
    y = x + rng.normal(0, 2, 200)
    x, y = x[np.abs(y) < kept], y[np.abs(y) < kept]
    slope = pm.Normal("slope", 0, 1)
    intercept = pm.Normal("intercept", 0, 1)
    return pm.Normal.dist(slope * x + intercept, pm.HalfNormal("sigma", 1)), y


@EXAMPLES.of(GLM + "GLM-truncated-censored-regression")
def truncated_regression() -> None:
    """Points outside of bounds are missing."""
    normal, y = _line_with_bounds(kept=5)
    pm.Truncated("y", normal, lower=-5, upper=5, observed=y)


@EXAMPLES.of(GLM + "GLM-truncated-censored-regression")
def censored_regression() -> None:
    """Points outside of bounds are set to the bounds."""
    normal, y = _line_with_bounds()
    pm.Censored("y", normal, lower=-5, upper=5, observed=np.clip(y, -5, 5))


@EXAMPLES.of(GLM + "GLM-model-selection")
def polynomial_regression() -> None:
    """A polynomial of degree 5 through 30 points."""
    rng = np.random.default_rng(10)
    x = np.linspace(-1, 1, 30)
    y = 4 - 2 * x + 3 * x**2 + rng.normal(0, 0.6, 30)
    beta = pm.Normal("beta", 0, 10, shape=6)
    sigma = pm.HalfCauchy("sigma", 10)
    pm.Normal("y", np.vander(x, 6, increasing=True) @ beta, sigma, observed=y)


@EXAMPLES.of(
    GLM + "GLM-out-of-sample-predictions", coords={"coeffs": ["Intercept", "x1", "x2", "x1:x2"]}
)
def interaction_of_two() -> None:
    """Two predictors and their product, 250 rows in dims."""
    rng = np.random.default_rng(11)
    x = rng.normal(0, 2, (250, 2))
    columns = np.column_stack([np.ones(250), x, x[:, 0] * x[:, 1]])
    y = rng.random(250) < expit(columns @ [-0.5, 1, -1, 2])
    data = pm.Data("X", columns)
    b = pm.Normal("b", 0, 1, dims="coeffs")
    pm.Bernoulli("y", p=pm.math.invlogit(data @ b), observed=y)


def _ratings() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(12)
    x = rng.normal(size=(200, 2))
    latent = x @ [1.0, -0.6] + rng.logistic(size=200)
    return x, np.digitize(latent, [-2, -0.5, 0.7, 2])


@EXAMPLES.of(GLM + "GLM-ordinal-regression")
def ordered_logistic() -> None:
    """Ratings with ordered normal cut points."""
    x, y = _ratings()
    beta = pm.Normal("beta", 0, 1, shape=2)
    cuts = pm.Normal(
        "cutpoints", 0, 4, shape=4, initval=np.linspace(-2, 2, 4),
        transform=pm.distributions.transforms.ordered,
    )  # fmt: skip
    pm.OrderedLogistic("y", eta=x @ beta, cutpoints=cuts, observed=y)


@EXAMPLES.of(GLM + "GLM-ordinal-regression")
def ordered_probit_on_a_scale() -> None:
    """Ratings by a probit whose inner cut points are sums of a Dirichlet's cells."""
    x, y = _ratings()
    beta = pm.Normal("beta", 0, 1, shape=2)
    simplex = pm.Dirichlet("cuts_unknown", np.ones(3))
    cuts = pt.concatenate([[0.0], pt.cumsum(simplex)]) * 4 - 2
    sigma = pm.Exponential("sigma", 1)
    pm.OrderedProbit("y", eta=x @ beta, cutpoints=cuts, sigma=sigma, observed=y)


@EXAMPLES.of(GLM + "GLM-ordinal-features")
def monotone_feature() -> None:
    """A grade whose steps are cells of a Dirichlet."""
    rng = np.random.default_rng(13)
    grade = rng.integers(0, 6, 150)
    y = 3 + 2 * np.cumsum([0, 0.1, 0.3, 0.2, 0.3, 0.1])[grade] + rng.normal(0, 1, 150)
    b0 = pm.Normal("beta0", 0, 3)
    b1 = pm.Normal("beta1", 0, 3)
    steps = pm.Dirichlet("nu", np.ones(5))
    sigma = pm.HalfNormal("sigma", 2)
    total = pt.concatenate([[0.0], pt.cumsum(steps)])
    pm.Normal("y", b0 + b1 * total[grade], sigma, observed=y)


@EXAMPLES.of(GLM + "GLM-missing-values-in-covariates")
def missing_covariates() -> None:
    """Gaps in a covariate become parameters."""
    rng = np.random.default_rng(14)
    x = rng.normal(size=(40, 2))
    y = -1 + x @ [1, -0.7] + rng.normal(0, 0.6, 40)
    holes = np.ma.masked_array(x, mask=rng.random((40, 2)) < 0.15)
    mu = pm.Normal("xk_mu", 0, 1, shape=2)
    filled = pm.Normal("xk", mu, 1, observed=holes)
    b = pm.Normal("b", 0, 1, shape=3)
    eps = pm.InverseGamma("epsilon", alpha=5, beta=2)
    pm.Normal("y", b[0] + filled @ b[1:], eps, observed=y)


def _choices(seed: int) -> tuple[pt.TensorVariable, np.ndarray]:
    """Return utilities of five systems by their costs, and what 400 households choose."""
    rng = np.random.default_rng(seed)
    ic, oc = rng.gamma(20, 0.3, (400, 5)), rng.gamma(20, 0.15, (400, 5))
    utility = -0.6 * ic - 0.8 * oc + [0.5, 0.2, 0, -0.3, 0.0] + rng.gumbel(size=(400, 5))
    b_ic = pm.Normal("beta_ic", 0, 1)
    b_oc = pm.Normal("beta_oc", 0, 1)
    return b_ic * ic + b_oc * oc, utility.argmax(axis=1)


@EXAMPLES.of(GLM + "GLM-discrete-choice_models")
def choice_of_heating() -> None:
    """400 households choose one of five systems by costs, utilities without intercepts."""
    utility, choice = _choices(15)
    pm.Categorical("choice", logit_p=utility, observed=choice)


@EXAMPLES.of(GLM + "GLM-discrete-choice_models")
def choice_with_intercepts() -> None:
    """The same with intercepts for four of the systems."""
    utility, choice = _choices(16)
    alpha = pm.Normal("alpha", 0, 1, shape=4)
    utility = utility + pt.concatenate([alpha, [0.0]])
    pm.Categorical("choice", p=pm.math.softmax(utility, axis=1), observed=choice)


@EXAMPLES.of(GLM + "GLM-discrete-choice_models")
def choice_with_correlated_intercepts() -> None:
    """Intercepts share a covariance."""
    utility, choice = _choices(17)
    chol, _, _ = pm.LKJCholeskyCov("chol", n=5, eta=2, sd_dist=pm.Exponential.dist(1, size=5))
    alpha = pm.MvNormal("alpha", np.zeros(5), chol=chol)
    pm.Categorical("choice", logit_p=utility + alpha, observed=choice)


@EXAMPLES.of(GLM + "GLM-rolling-regression", coords={"time": np.arange(40)})
def rolling_regression() -> None:
    """Intercept and slope are random walks over 40 periods."""
    rng = np.random.default_rng(18)
    period = np.repeat(np.arange(40), 12)
    x = rng.normal(size=480)
    slope = np.cumsum(rng.normal(0, 0.2, 40))
    y = 0.3 + slope[period] * x + rng.normal(0, 0.5, 480)
    sd = pm.Exponential("sigma_walk", 5, shape=2)
    start = pm.Normal.dist(0, 1)
    alpha = pm.GaussianRandomWalk("alpha", sigma=sd[0], init_dist=start, dims="time")
    beta = pm.GaussianRandomWalk("beta", sigma=sd[1], init_dist=start, dims="time")
    sigma = pm.HalfNormal("sigma", 1)
    pm.Normal("y", alpha[period] + beta[period] * x, sigma, observed=y)


@EXAMPLES.of("howto/spline")
def spline_of_blossoms() -> None:
    """A cubic spline of 17 bases through 800 years."""
    from scipy.interpolate import BSpline

    rng = np.random.default_rng(19)
    year = np.linspace(0, 1, 800)
    knots = np.concatenate([[0] * 3, np.linspace(0, 1, 15), [1] * 3])
    bases = BSpline.design_matrix(np.clip(year, 0, 1 - 1e-9), knots, 3).toarray()
    y = 100 + 5 * np.sin(7 * year) + rng.normal(0, 6, 800)
    a = pm.Normal("a", 100, 5)
    w = pm.Normal("w", 0, 3, size=bases.shape[1])
    sigma = pm.HalfNormal("sigma", 5)
    pm.Normal("D", a + pt.dot(bases, w), sigma, observed=y)


@EXAMPLES.of(GLM + "GLM-ZeroSumNormal", coords={"group": list("abcdef")})
def effects_that_sum_to_zero() -> None:
    """Six groups by deviations that sum to zero."""
    rng = np.random.default_rng(20)
    group = rng.integers(0, 6, 90)
    y = 2 + rng.normal(0, 1, 6)[group] + rng.normal(0, 1, 90)
    mu = pm.Normal("mu", 0, 3)
    sd = pm.HalfNormal("sd", 1)
    effect = pm.ZeroSumNormal("effect", sigma=sd, dims="group")
    sigma = pm.HalfNormal("sigma", 1)
    pm.Normal("y", mu + effect[group], sigma, observed=y)


@EXAMPLES.of("howto/lasso_block_update")
def lasso() -> None:
    """Two nearly equal predictors and Laplace priors."""
    rng = np.random.default_rng(21)
    x = rng.normal(size=(300, 2))
    x[:, 1] = x[:, 0] + 0.1 * x[:, 1]
    y = x[:, 0] + rng.normal(0, 1, 300)
    sigma = pm.Exponential("sigma", 1)
    beta = pm.Laplace("beta", 0, 1, shape=2)
    pm.Normal("y", x @ beta, sigma, observed=y)
