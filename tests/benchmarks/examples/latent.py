"""Latent variables, unseen data, areas and criticism, on made data of the notebooks' shapes."""

from __future__ import annotations

import numpy as np
import pymc as pm
import pytensor.tensor as pt

from scipy.special import expit

from .registry import EXAMPLES

CASES = "case_studies/"
CRITICISM = "diagnostics_and_criticism/"
# Of coaching in eight schools
EFFECTS = np.array([28.0, 8, -3, 7, -1, 1, 18, 12])
ERRORS = np.array([15.0, 10, 16, 11, 9, 11, 10, 18])


def _of_two_factors() -> tuple[np.ndarray, pt.TensorVariable, pt.TensorVariable]:
    """Return ten variables of 250 rows, and in a model's context loadings and the noise's sd."""
    rng = np.random.default_rng(9)
    y = rng.normal(size=(250, 2)) @ rng.normal(size=(2, 10)) + 0.5 * rng.normal(size=(250, 10))
    rows, columns = np.tril_indices(10, -1, 2)
    diagonal = pm.HalfNormal("W_diag", 1, shape=2)
    below = pm.Normal("W_below", 0, 1, shape=len(rows))
    w = pt.set_subtensor(pt.zeros((10, 2))[np.arange(2), np.arange(2)], diagonal)
    return y, pt.set_subtensor(w[rows, columns], below), pm.HalfNormal("psi", 1)


@EXAMPLES.of(CASES + "factor_analysis")
def factors() -> None:
    """Ten variables of 250 rows on two factors, the loadings lower triangular, scores sampled."""
    y, w, psi = _of_two_factors()
    scores = pm.Normal("F", 0, 1, shape=(250, 2))
    pm.Normal("y", scores @ w.T, psi, observed=y)


@EXAMPLES.of(CASES + "factor_analysis")
def factors_integrated() -> None:
    """The same with the scores integrated out."""
    y, w, psi = _of_two_factors()
    pm.MvNormal("y", np.zeros(10), cov=w @ w.T + psi**2 * pt.eye(10), observed=y)


@EXAMPLES.of(CASES + "probabilistic_matrix_factorization")
def matrix_factorisation() -> None:
    """Ratings of 60 users and 40 jokes, ten factors."""
    rng = np.random.default_rng(10)
    full = rng.normal(size=(60, 3)) @ rng.normal(size=(3, 40)) + rng.normal(0, 0.5, (60, 40))
    user, joke = np.nonzero(rng.random((60, 40)) < 0.7)
    u = pm.Normal("U", 0, 1, shape=(60, 10))
    v = pm.Normal("V", 0, 1, shape=(40, 10))
    pm.Normal("R", (u[user] * v[joke]).sum(axis=1), 0.5, observed=full[user, joke])


@EXAMPLES.of(CASES + "CFA_SEM")
def confirmatory_factors() -> None:
    """Two correlated factors of three items each, 280 persons, scores sampled."""
    rng = np.random.default_rng(11)
    scores = rng.multivariate_normal([0, 0], [[1, 0.5], [0.5, 1]], 280)
    y = np.repeat(scores, 3, axis=1) * [1, 0.8, 0.9, 1, 1.1, 0.7] + rng.normal(0, 0.5, (280, 6))
    loading = pm.Normal("lambda", 1, 0.5, shape=(2, 2))
    psi = pm.InverseGamma("Psi", 5, 3, shape=6)
    chol, _, _ = pm.LKJCholeskyCov("chol", n=2, eta=2, sd_dist=pm.Exponential.dist(1, size=2))
    ksi = pm.MvNormal("ksi", 0, chol=chol, shape=(280, 2))
    tau = pm.Normal("tau", 0, 1, shape=6)
    full = pt.concatenate([pt.ones((2, 1)), loading], axis=1)
    mean = tau + (ksi[:, :, None] * full).reshape((280, 6))
    pm.Normal("y", mean, psi, observed=y)


@EXAMPLES.of("howto/LKJ")
def covariance_matrix() -> None:
    """Mean and covariance of 10,000 points in the plane."""
    rng = np.random.default_rng(12)
    y = rng.multivariate_normal([1, -2], [[0.5, 0.3], [0.3, 1.2]], 10_000)
    chol, _, _ = pm.LKJCholeskyCov("chol", n=2, eta=2, sd_dist=pm.Exponential.dist(1, size=2))
    mu = pm.Normal("mu", 0, 1.5, shape=2)
    pm.MvNormal("y", mu, chol=chol, observed=y)


@EXAMPLES.of("howto/Missing_Data_Imputation")
def means_with_holes() -> None:
    """Three traits of 330 persons with 10 % holes, imputed by regressions on another."""
    rng = np.random.default_rng(13)
    lmx = rng.normal(5, 1, 330)
    worth = rng.normal(5 + 0.3 * lmx, 1)
    climate = rng.normal(1 + 0.5 * worth, 0.8)
    y = 1 + 0.4 * lmx + 0.3 * climate + rng.normal(0, 0.7, 330)
    hidden = np.ma.masked_array(climate, mask=rng.random(330) < 0.1)
    a = pm.Normal("a", 0, 5, shape=2)
    s = pm.HalfNormal("s", 2)
    filled = pm.Normal("climate", a[0] + a[1] * worth, s, observed=hidden)
    b = pm.Normal("b", 0, 5, shape=3)
    sigma = pm.HalfNormal("sigma", 2)
    pm.Normal("y", b[0] + b[1] * lmx + b[2] * filled, sigma, observed=y)


def _seen_in_bins(law: pt.TensorVariable) -> None:
    """Observe only counts of bins, of 1,500 normals."""
    y = np.random.default_rng(14).normal(-2, 2, 1500)
    cuts = np.array([-3.0, -1.0, 0.0, 1.0])
    counts = np.bincount(np.digitize(y, cuts), minlength=5)
    p = pt.extra_ops.diff(pt.concatenate([[0.0], pt.exp(pm.logcdf(law, cuts)), [1.0]]))
    pm.Multinomial("counts", p=p, n=counts.sum(), observed=counts)


@EXAMPLES.of(CASES + "binning")
def binned_normal() -> None:
    """Only counts of bins of 1,500 normals are seen."""
    mu = pm.Normal("mu", 0, 5)
    sigma = pm.HalfNormal("sigma", 5)
    _seen_in_bins(pm.Normal.dist(mu, sigma))


@EXAMPLES.of(CASES + "binning")
def binned_gumbel() -> None:
    """The same bins by a Gumbel law."""
    mu = pm.Uniform("mu", -20, 20)
    beta = pm.HalfNormal("beta", 10)
    _seen_in_bins(pm.Gumbel.dist(mu, beta))


@EXAMPLES.of(CASES + "GEV")
def extreme_values() -> None:
    """Yearly largest sea levels of 65 years, by a generalised extreme value law."""
    y = 3.87 + 0.2 * np.random.default_rng(15).gumbel(size=65)
    mu = pm.Normal("μ", 3.8, 0.2)
    sigma = pm.HalfNormal("σ", 0.3)
    xi = pm.TruncatedNormal("ξ", 0, 0.2, lower=-0.6, upper=0.6)
    # At ξ = 0 itself the law is Gumbel's
    xi = pt.where(pt.abs(xi) < 1e-6, 1e-6, xi)
    z = 1 + xi * (y - mu) / sigma
    safe = pt.maximum(z, 1e-12)
    logp = -pt.log(sigma) - (1 + 1 / xi) * pt.log(safe) - safe ** (-1 / xi)
    pm.Potential("gev", pt.where(z > 0, logp, -1e3).sum())


@EXAMPLES.of(CASES + "mediation_analysis")
def mediation() -> None:
    """A mediator between two variables, 75 rows, products of slopes as results."""
    rng = np.random.default_rng(16)
    x = rng.normal(size=75)
    m = 0.5 + 0.6 * x + rng.normal(0, 0.5, 75)
    y = 0.2 + 0.5 * m + 0.25 * x + rng.normal(0, 0.5, 75)
    i = pm.Normal("i", 0, 1, shape=2)
    a = pm.Normal("a", 0, 1)
    b = pm.Normal("b", 0, 1)
    c = pm.Normal("cprime", 0, 1)
    sm = pm.HalfNormal("σm", 1)
    sy = pm.HalfNormal("σy", 1)
    pm.Normal("m", i[0] + a * x, sm, observed=m)
    pm.Normal("y", i[1] + b * m + c * x, sy, observed=y)
    pm.Deterministic("indirect effect", a * b)


@EXAMPLES.of(CASES + "reinforcement_learning")
def learning_by_reward() -> None:
    """150 choices of one of two levers, values updated trial by trial in a scan."""
    import pytensor

    rng = np.random.default_rng(17)
    action, q = np.zeros(150, int), np.array([0.5, 0.5])
    reward = np.zeros(150)
    for t in range(150):
        action[t] = rng.random() < expit(5 * (q[1] - q[0]))
        reward[t] = rng.random() < (0.3, 0.7)[action[t]]
        q[action[t]] += 0.3 * (reward[t] - q[action[t]])
    alpha = pm.Beta("alpha", 1, 1)
    beta = pm.HalfNormal("beta", 10)
    start = pt.full((2,), 0.5)
    values, _ = pytensor.scan(
        lambda a, r, q, rate: pt.set_subtensor(q[a], q[a] + rate * (r - q[a])),
        sequences=[pt.as_tensor(action), pt.as_tensor(reward)],
        outputs_info=start, non_sequences=[alpha],
    )  # fmt: skip
    values = pt.concatenate([start[None], values[:-1]])
    pm.Bernoulli("like", logit_p=beta * (values[:, 1] - values[:, 0]), observed=action)


@EXAMPLES.of(CASES + "conditional_autoregressive_priors")
def areas_of_a_car() -> None:
    """Counts of 56 districts by a conditional autoregression of a lattice's neighbours."""
    rng = np.random.default_rng(18)
    row, column = np.divmod(np.arange(56), 8)
    near = (np.abs(row[:, None] - row) + np.abs(column[:, None] - column) == 1).astype(float)
    expected = rng.uniform(1, 40, 56)
    x = rng.uniform(0, 2.4, 56)
    y = rng.poisson(expected * np.exp(-0.3 + 0.4 * x + rng.normal(0, 0.3, 56)))
    b = pm.Normal("beta", 0, 1, shape=2)
    tau = pm.Gamma("tau", 3.3, 1.8)
    alpha = pm.Beta("alpha", 1, 1)
    phi = pm.CAR("phi", mu=np.zeros(56), tau=tau, alpha=alpha, W=near)
    pm.Poisson("y", pt.exp(np.log(expected) + b[0] + b[1] * x + phi), observed=y)


@EXAMPLES.of(CASES + "nyc_bym", coords={"area": np.arange(200)})
def areas_of_an_icar() -> None:
    """200 tracts: structured and free effects of a common scale, mixed by rho."""
    rng = np.random.default_rng(19)
    row, column = np.divmod(np.arange(200), 20)
    near = (np.abs(row[:, None] - row) + np.abs(column[:, None] - column) == 1).astype(int)
    expected = rng.uniform(1, 20, 200)
    y = rng.poisson(expected * np.exp(0.5 * np.sin(row / 3) + rng.normal(0, 0.2, 200)))
    b0 = pm.Normal("beta0", 0, 1)
    theta = pm.Normal("theta", 0, 1, dims="area")
    phi = pm.ICAR("phi", W=near, dims="area")
    sigma = pm.HalfNormal("sigma", 1)
    rho = pm.Beta("rho", 0.5, 0.5)
    mixed = pt.sqrt(1 - rho) * theta + pt.sqrt(rho / 0.7) * phi
    pm.Poisson("y", pt.exp(np.log(expected) + b0 + sigma * mixed), observed=y)


@EXAMPLES.of(CASES + "copula-estimation")
def gaussian_copula() -> None:
    """Correlation of 1,000 pairs after their marginals became normal."""
    rng = np.random.default_rng(20)
    y = rng.multivariate_normal([0, 0], [[1, 0.9], [0.9, 1]], 1000)
    chol, _, _ = pm.LKJCholeskyCov("chol", n=2, eta=2, sd_dist=pm.Exponential.dist(1, size=2))
    pm.MvNormal("y", mu=0, chol=chol, observed=y)


@EXAMPLES.of(CASES + "occupancy")
def occupancy() -> None:
    """200 sites visited three times: occupied or not, detected or not, states summed out."""
    rng = np.random.default_rng(21)
    x = rng.normal(size=200)
    z = rng.random(200) < expit(0.2 + x)
    y = rng.binomial(3, 0.4 * z)
    a = pm.Normal("alpha", 0, 2, shape=2)
    p = pm.Beta("p", 1, 1)
    pm.ZeroInflatedBinomial("y", psi=pm.math.invlogit(a[0] + a[1] * x), n=3, p=p, observed=y)


@EXAMPLES.of(CASES + "reliability_and_calibrated_prediction")
def censored_lifetimes() -> None:
    """Weibull lifetimes of which most are still running."""
    rng = np.random.default_rng(22)
    t, limit = 100 * rng.weibull(2, 400), 60.0
    seen = t < limit
    beta = pm.Normal("beta", 2, 0.5)
    alpha = pm.TruncatedNormal("alpha", 100, 30, lower=20)
    pm.Weibull("seen", alpha=beta, beta=alpha, observed=t[seen])
    left = -(((limit / alpha) ** beta) * (~seen).sum())
    pm.Potential("running", left)


def _growth() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(23)
    person = np.repeat(np.arange(82), 3)
    time = np.tile([0.0, 1.0, 2.0], 82)
    y = rng.normal(0.8, 0.5, 82)[person] + rng.normal(0.2, 0.3, 82)[person] * time
    return person, time, y + rng.normal(0, 0.5, 246)


@EXAMPLES.of("time_series/longitudinal_models", coords={"ids": np.arange(82)})
def growth_intercepts() -> None:
    """Three waves of 82 teenagers: an intercept each."""
    person, time, y = _growth()
    mu = pm.Normal("mu", 0, 1)
    sd = pm.HalfNormal("sd", 1)
    alpha = pm.Normal("alpha", 0, sd, dims="ids")
    slope = pm.Normal("slope", 0, 1)
    sigma = pm.HalfStudentT("sigma", 1, 3)
    pm.Normal("y", mu + alpha[person] + slope * time, sigma, observed=y)


@EXAMPLES.of("time_series/longitudinal_models", coords={"ids": np.arange(82)})
def growth_slopes() -> None:
    """The same with a slope each, correlated."""
    person, time, y = _growth()
    mu = pm.Normal("mu", 0, 1, shape=2)
    chol, _, _ = pm.LKJCholeskyCov("chol", n=2, eta=2, sd_dist=pm.Exponential.dist(1, size=2))
    effect = pm.MvNormal("effect", 0, chol=chol, shape=(82, 2))
    sigma = pm.HalfStudentT("sigma", 1, 3)
    mean = mu[0] + effect[person, 0] + (mu[1] + effect[person, 1]) * time
    pm.Normal("y", mean, sigma, observed=y)


@EXAMPLES.of(CRITICISM + "Diagnosing_biased_Inference_with_Divergences")
def schools_centred() -> None:
    """Eight schools, centred: a funnel."""
    mu = pm.Normal("mu", 0, 5)
    tau = pm.HalfCauchy("tau", 5)
    theta = pm.Normal("theta", mu, tau, shape=8)
    pm.Normal("obs", theta, ERRORS, observed=EFFECTS)


@EXAMPLES.of(CRITICISM + "Diagnosing_biased_Inference_with_Divergences")
def schools_noncentred() -> None:
    """Eight schools, non-centred."""
    mu = pm.Normal("mu", 0, 5)
    tau = pm.HalfCauchy("tau", 5)
    z = pm.Normal("theta_tilde", 0, 1, shape=8)
    theta = pm.Deterministic("theta", mu + tau * z)
    pm.Normal("obs", theta, ERRORS, observed=EFFECTS)


@EXAMPLES.of(CRITICISM + "Bayes_factor")
def coin() -> None:
    """Beta and Bernoulli: a coin of 100 throws."""
    y = np.repeat([1, 0], [50, 50])
    a = pm.Beta("a", 30, 30)
    pm.Bernoulli("yl", a, observed=y)


@EXAMPLES.of(CRITICISM + "model_averaging")
def milk() -> None:
    """Energy of milk of 17 species by two correlated predictors."""
    rng = np.random.default_rng(24)
    neocortex = rng.normal(size=17)
    mass = 0.75 * neocortex + 0.66 * rng.normal(size=17)
    y = 0.6 + 0.6 * neocortex - 0.6 * mass + rng.normal(0, 0.5, 17)
    alpha = pm.Normal("alpha", 0, 1)
    beta = pm.Normal("beta", 0, 1, shape=2)
    sigma = pm.HalfNormal("sigma", 1)
    pm.Normal("kcal", alpha + beta[0] * neocortex + beta[1] * mass, sigma, observed=y)
