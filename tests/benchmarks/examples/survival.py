"""Lifetimes, mixtures and nets, on made data of the notebooks' shapes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pymc as pm
import pytensor.tensor as pt

from .registry import EXAMPLES

SURVIVAL = "survival_analysis/"
MIXTURES = "mixture_models/"


def _lifetimes(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(300, 1))
    y = np.exp(1 + 0.5 * x.ravel() + 0.6 * np.log(rng.exponential(size=300)))
    return x.ravel(), np.minimum(y, 6.0), y < 6.0


@EXAMPLES.of(SURVIVAL + "weibull_aft")
def weibull_lifetimes() -> None:
    """Censored Weibull lifetimes: the censored ones' part is a potential."""
    _, y, seen = _lifetimes(2)
    alpha = pt.exp(0.5 * pm.Normal("alpha_sd", 0, 10))
    mu = pm.Normal("mu", 0, 10)
    beta = pt.exp(mu / alpha)
    pm.Weibull("y", alpha=alpha, beta=beta, observed=y[seen])
    pm.Potential("censored", -((y[~seen] / beta) ** alpha).sum())


@EXAMPLES.of(SURVIVAL + "weibull_aft")
def gumbel_lifetimes() -> None:
    """The same on the logarithmic scale."""
    _, y, seen = _lifetimes(2)
    log = np.log(y)
    s = pm.HalfNormal("s", 5)
    gamma = pm.Normal("gamma", 0, 5)
    pm.Gumbel("y", -gamma, s, observed=-log[seen])
    pm.Potential("censored", -pt.exp((log[~seen] - gamma) / s).sum())


def _accelerated(noise: type[pm.Distribution], log_tail: Callable) -> None:
    """A regression of logarithms of censored lifetimes, with the log of P(noise > z)."""
    x, y, seen = _lifetimes(3)
    log = (np.log(y) - np.log(y).mean()) / np.log(y).std()
    beta = pm.Normal("beta", 0, 5, shape=2)
    s = pm.HalfNormal("s", 5)
    eta = beta[0] + beta[1] * x
    noise("y", eta[seen], s, observed=log[seen])
    pm.Potential("censored", log_tail((log[~seen] - eta[~seen]) / s).sum())


@EXAMPLES.of(SURVIVAL + "bayes_param_survival")
def accelerated_weibull() -> None:
    """Logarithms of censored lifetimes with Gumbel noise."""
    _accelerated(pm.Gumbel, lambda z: pt.log1mexp(-pt.exp(-z)))


@EXAMPLES.of(SURVIVAL + "bayes_param_survival")
def accelerated_log_logistic() -> None:
    """The same with logistic noise."""
    _accelerated(pm.Logistic, lambda z: -pt.softplus(z))


@EXAMPLES.of(SURVIVAL + "frailty_models", coords={"month": np.arange(12), "field": np.arange(10)})
def frailties() -> None:
    """Exits of 900 employees in ten fields: a hazard in pieces, Gamma frailties of fields."""
    rng = np.random.default_rng(4)
    field = rng.integers(0, 10, 900)
    x = rng.normal(size=(900, 3))
    frail = rng.gamma(4, 0.25, 10)
    month = np.ceil(rng.exponential(12 / frail[field] / np.exp(x @ [0.3, -0.2, 0.1])))
    last = np.minimum(month, 12).astype(int)
    at_risk = (np.arange(1, 13) <= last[:, None]).astype(float)
    left = np.zeros_like(at_risk)
    left[np.arange(900), last - 1] = month <= 12
    base = pm.Gamma("base", 0.5, 5, dims="month")
    beta = pm.Normal("beta", 0, 1, shape=3)
    frailty = pm.Gamma("frailty", mu=1, sigma=pm.HalfNormal("sd", 0.5), dims="field")
    rate = (frailty[field] * pt.exp(x @ beta))[:, None] * base
    pm.Poisson("obs", pt.maximum(at_risk * rate, 1e-30), observed=left)


@EXAMPLES.of(MIXTURES + "marginalized_gaussian_mixture_model")
def three_normals() -> None:
    """1,000 points of three normals of very different scales, ordered means."""
    rng = np.random.default_rng(5)
    k = rng.choice(3, 1000, p=[0.35, 0.4, 0.25])
    y = rng.normal(np.array([0.0, 2, 5])[k], np.array([0.5, 0.5, 1.0])[k])
    w = pm.Dirichlet("w", np.ones(3))
    mu = pm.Normal(
        "mu", [0, 2, 4], 10, initval=[0.0, 2.0, 5.0],
        transform=pm.distributions.transforms.ordered,
    )  # fmt: skip
    tau = pm.Gamma("tau", 1, 1, shape=3)
    pm.NormalMixture("y", w, mu, tau=tau, observed=y)


@EXAMPLES.of(MIXTURES + "gaussian_mixture_model")
def three_normals_of_one_scale() -> None:
    """500 points of three normals with labels summed out."""
    rng = np.random.default_rng(6)
    y = rng.normal(np.repeat([-5.0, 0.0, 5.0], [166, 166, 168]), [0.5] * 500)
    mu = pm.Normal(
        "μ", 0, 5, shape=3, initval=[-4.0, 0.0, 4.0],
        transform=pm.distributions.transforms.ordered,
    )  # fmt: skip
    sigma = pm.HalfNormal("σ", 1, shape=3)
    w = pm.Dirichlet("w", np.ones(3))
    pm.NormalMixture("x", w, mu, sigma, observed=y)


def _sticks(count: int) -> pt.TensorVariable:
    """Return weights of components by breaking a stick."""
    alpha = pm.Gamma("alpha", 1, 1)
    beta = pm.Beta("beta", 1, alpha, shape=count)
    left = pt.concatenate([[1.0], pt.cumprod(1 - beta)[:-1]])
    return pm.Deterministic("w", beta * left / pt.sum(beta * left))


@EXAMPLES.of(MIXTURES + "dp_mix")
def stick_breaking_of_eruptions() -> None:
    """272 waiting times: 10 sticks, labels summed out, components unordered."""
    rng = np.random.default_rng(7)
    y = np.where(rng.random(272) < 0.36, rng.normal(-1.2, 0.4, 272), rng.normal(0.7, 0.4, 272))
    w = _sticks(10)
    tau = pm.Gamma("tau", 1, 1, shape=10)
    lam = pm.Gamma("lambda_", 10, 1, shape=10)
    mu = pm.Normal("mu", 0, tau=lam * tau, shape=10)
    pm.NormalMixture("obs", w, mu, tau=lam * tau, observed=y)


@EXAMPLES.of(MIXTURES + "dp_mix")
def stick_breaking_of_counts() -> None:
    """300 counts of sunspots: 20 Poisson sticks."""
    rng = np.random.default_rng(8)
    y = rng.poisson(rng.choice([10.0, 50.0, 110.0], 300))
    w = _sticks(20)
    mu = pm.Uniform("mu", 0, 300, shape=20)
    pm.Mixture("obs", w, pm.Poisson.dist(mu), observed=y)


@EXAMPLES.of(MIXTURES + "dependent_density_regression")
def weights_by_a_predictor() -> None:
    """221 points of two regimes: probit sticks whose weights depend on the place."""
    rng = np.random.default_rng(9)
    x = np.linspace(-1.5, 1.5, 221)[:, None]
    y = np.where(x.ravel() < 0, -0.5 * x.ravel(), 1.2 * x.ravel()) + rng.normal(0, 0.3, 221)
    a = pm.Normal("alpha", 0, 1, shape=5)
    b = pm.Normal("beta", 0, 1, shape=5)
    v = 0.5 * (1 + pt.erf((a + b * x) / np.sqrt(2)))
    left = pt.concatenate([pt.ones((221, 1)), pt.cumprod(1 - v, axis=1)[:, :-1]], axis=1)
    w = v * left
    c = pm.Normal("gamma", 0, 3, shape=5)
    d = pm.Normal("delta", 0, 3, shape=5)
    tau = pm.Gamma("tau", 1, 1, shape=5)
    pm.NormalMixture("obs", w / w.sum(axis=1, keepdims=True), c + d * x, tau=tau, observed=y)


def _forests() -> np.ndarray:
    rng = np.random.default_rng(10)
    return np.array([rng.multinomial(50, rng.dirichlet([4, 3, 2, 0.7, 0.3])) for _ in range(10)])


@EXAMPLES.of(MIXTURES + "dirichlet_mixture_of_multinomials", coords={"tree": list("abcde")})
def forests_multinomial() -> None:
    """Five kinds of trees in ten forests of 50: one vector of shares."""
    frac = pm.Dirichlet("frac", np.ones(5), dims="tree")
    pm.Multinomial("counts", n=50, p=frac, observed=_forests())


@EXAMPLES.of(MIXTURES + "dirichlet_mixture_of_multinomials", coords={"tree": list("abcde")})
def forests_overdispersed() -> None:
    """The same with a concentration: Dirichlet-multinomial."""
    frac = pm.Dirichlet("frac", np.ones(5), dims="tree")
    conc = pm.LogNormal("conc", 1, 1)
    pm.DirichletMultinomial("counts", n=50, a=frac * conc, observed=_forests())


@EXAMPLES.of("variational_inference/bayesian_neural_network_advi")
def net_of_two_moons() -> None:
    """500 points of two moons, a net of two hidden layers of five units."""
    rng = np.random.default_rng(11)
    angle, moon = rng.uniform(0, np.pi, 500), rng.integers(0, 2, 500)
    x = np.stack([np.cos(angle) * (1 - 2 * moon) + moon, np.sin(angle) * (1 - 2 * moon)], 1)
    x = (x + rng.normal(0, 0.3, x.shape)) * 1.2
    w1 = pm.Normal("w_in_1", 0, 1, shape=(2, 5))
    w2 = pm.Normal("w_1_2", 0, 1, shape=(5, 5))
    w3 = pm.Normal("w_2_out", 0, 1, shape=5)
    hidden = pt.tanh(pt.tanh(x @ w1) @ w2)
    pm.Bernoulli("out", logit_p=hidden @ w3, observed=moon)


@EXAMPLES.of("variational_inference/GLM-hierarchical-advi-minibatch")
def radon_in_batches(batch: int | None = 100) -> None:
    """919 houses in 85 counties, in minibatches of 100."""
    rng = np.random.default_rng(12)
    county = np.sort(rng.integers(0, 85, 919))
    floor = (rng.random(919) < 0.17).astype(float)
    y = rng.normal(1.5, 0.3, 85)[county] - 0.65 * floor + rng.normal(0, 0.75, 919)
    if batch is not None:
        y, county, floor = pm.Minibatch(y, county, floor, batch_size=batch)
    mu = pm.Normal("mu", 0, 10, shape=2)
    sd = pm.HalfNormal("sd", 1, shape=2)
    a = pm.Normal("a", mu[0], sd[0], shape=85)
    b = pm.Normal("b", mu[1], sd[1], shape=85)
    eps = pm.Uniform("eps", 0, 100)
    pm.Normal(
        "y", a[county] + b[county] * floor, eps, observed=y, total_size=919 if batch else None
    )


@EXAMPLES.of("samplers/SMC2_gaussians")
def two_far_normals() -> None:
    """Two normals in four dimensions, 1 : 9, far from each other."""
    x = pm.Uniform("X", -2, 2, shape=4)
    mu, sd = 0.5, 0.1

    def part(m):
        return -0.5 * pt.sum(((x - m) / sd) ** 2) - 4 * np.log(sd * np.sqrt(2 * np.pi))

    pm.Potential("llk", pt.logaddexp(np.log(0.1) + part(mu), np.log(0.9) + part(-mu)))
