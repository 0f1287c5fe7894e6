"""The lectures of Statistical Rethinking and three how-tos, on made data of their shapes."""

from __future__ import annotations

import numpy as np
import pymc as pm
import pytensor.tensor as pt

from scipy.special import expit

from .registry import EXAMPLES

LECTURES = "statistical_rethinking_lectures/"
HOWTO = "howto/"


@EXAMPLES.of(LECTURES + "03_Linear_Models_Causal_Inference")
def heights() -> None:
    """Weights of 350 adults by height, a LogNormal slope."""
    rng = np.random.default_rng(9)
    h = rng.normal(155, 8, 350)
    w = 45 + 0.6 * (h - 155) + rng.normal(0, 4, 350)
    a = pm.Normal("alpha", 60, 10)
    b = pm.LogNormal("beta", 0, 1)
    sigma = pm.Uniform("sigma", 0, 10)
    pm.Normal("W", a + b * (h - h.mean()), sigma, observed=w)


@EXAMPLES.of(LECTURES + "04_Categories_Curves")
def heights_of_sexes() -> None:
    """Height and weight of both sexes, two equations at once."""
    rng = np.random.default_rng(10)
    s = rng.integers(0, 2, 350)
    h = rng.normal(np.array([150.0, 160.0])[s], 6)
    w = np.array([42.0, 47.0])[s] + 0.6 * (h - 155) + rng.normal(0, 4, 350)
    top = pm.Normal("h", 160, 10, shape=2)
    tau = pm.Uniform("tau", 0, 10)
    pm.Normal("H", top[s], tau, observed=h)
    a = pm.Normal("alpha", 60, 10, shape=2)
    b = pm.LogNormal("beta", 0, 1, shape=2)
    sigma = pm.Uniform("sigma", 0, 10)
    pm.Normal("W", a[s] + b[s] * (h - 155), sigma, observed=w)


@EXAMPLES.of(LECTURES + "05_Elemental_Confounds")
def divorces() -> None:
    """Divorce rates of 50 states by age at marriage and marriage rate."""
    rng = np.random.default_rng(11)
    age = rng.normal(size=50)
    rate = -0.7 * age + 0.7 * rng.normal(size=50)
    y = -0.6 * age + 0.8 * rng.normal(size=50)
    a = pm.Normal("a", 0, 0.2)
    b = pm.Normal("b", 0, 0.5, shape=2)
    sigma = pm.Exponential("sigma", 1)
    pm.Normal("D", a + b[0] * rate + b[1] * age, sigma, observed=y)


@EXAMPLES.of(LECTURES + "07_Fitting_Over_Under")
def brains() -> None:
    """Seven brains by mass, a polynomial of degree three and the logarithm of the scale."""
    mass = np.array([37.0, 35.5, 34.5, 41.5, 55.5, 61.0, 53.5])
    y = np.array([438.0, 452, 612, 521, 752, 871, 1350]) / 1350
    x = (mass - mass.mean()) / mass.std()
    a = pm.Normal("a", 0.5, 1)
    b = pm.Normal("b", 0, 10, shape=3)
    log_sigma = pm.Normal("log_sigma", 0, 1)
    mean = a + b[0] * x + b[1] * x**2 + b[2] * x**3
    pm.Normal("brain", mean, pt.exp(log_sigma), observed=y)


@EXAMPLES.of(LECTURES + "09_Modeling_Events", coords={"gender": ["F", "M"], "dept": list("ABCDEF")})
def admissions() -> None:
    """Admissions of twelve cells of department and gender."""
    rng = np.random.default_rng(12)
    gender, dept = np.tile([0, 1], 6), np.repeat(np.arange(6), 2)
    n = rng.integers(25, 800, 12)
    y = rng.binomial(n, expit(np.array([0.6, 0.5, -0.6, -0.7, -1.1, -2.7])[dept]))
    alpha = pm.Normal("alpha", 0, 1, dims=("gender", "dept"))
    pm.Binomial("A", n=n, logit_p=alpha[gender, dept], observed=y)


@EXAMPLES.of(LECTURES + "10_Counts_Hidden_Confounds")
def oceanic_tools() -> None:
    """Tools of ten societies by population and contact, Poisson."""
    rng = np.random.default_rng(13)
    p = rng.normal(size=10)
    contact = np.array([0, 0, 0, 1, 1, 1, 0, 1, 0, 1])
    y = rng.poisson(np.exp(3.2 + 0.4 * p + 0.2 * contact))
    a = pm.Normal("alpha", 3, 0.5, shape=2)
    b = pm.Normal("beta", 0, 0.2, shape=2)
    pm.Poisson("T", pt.exp(a[contact] + b[contact] * p), observed=y)


@EXAMPLES.of(LECTURES + "10_Counts_Hidden_Confounds")
def oceanic_tools_by_innovation() -> None:
    """The same by a scientific law: innovation over loss."""
    rng = np.random.default_rng(14)
    p = np.exp(rng.normal(8, 1.5, 10))
    contact = np.array([0, 0, 0, 1, 1, 1, 0, 1, 0, 1])
    y = rng.poisson(1.5 * p**0.3)
    eta = pm.Exponential("eta", 1)
    alpha = pm.Normal("alpha", 1, 1, shape=2)
    beta = pm.Exponential("beta", 1, shape=2)
    rate = pt.exp(alpha[contact]) * p ** beta[contact] / eta
    pm.Poisson("T", rate, observed=y)


@EXAMPLES.of(LECTURES + "11_Ordered_Categories")
def trolleys() -> None:
    """Answers on a scale of seven in 1,500 stories by three treatments."""
    rng = np.random.default_rng(15)
    x = rng.integers(0, 2, (1500, 3))
    y = np.digitize(
        x @ [-0.6, -0.7, -0.5] + rng.logistic(size=1500), [-2.8, -2, -1.5, -0.5, 0.2, 1]
    )
    b = pm.Normal("b", 0, 0.5, shape=3)
    cuts = pm.Normal(
        "alpha", 0, 1, shape=6, initval=np.arange(6) - 2.5,
        transform=pm.distributions.transforms.ordered,
    )  # fmt: skip
    pm.OrderedLogistic("R", cutpoints=cuts, eta=x @ b, observed=y)


@EXAMPLES.of(LECTURES + "12_Multilevel_Models")
def reed_frogs() -> None:
    """Survivors of 48 tanks."""
    rng = np.random.default_rng(16)
    n = np.repeat([10, 25, 35], 16)
    y = rng.binomial(n, expit(rng.normal(1.3, 1.6, 48)))
    mean = pm.Normal("alpha_bar", 0, 1.5)
    sd = pm.Exponential("sigma", 1)
    alpha = pm.Normal("alpha", mean, sd, shape=48)
    pm.Binomial("S", n=n, logit_p=alpha, observed=y)


@EXAMPLES.of(LECTURES + "13_Multilevel_Adventures")
def chimpanzees() -> None:
    """504 pulls of seven actors in six blocks with four treatments, non-centred."""
    rng = np.random.default_rng(17)
    actor, block, treatment = (rng.integers(0, k, 504) for k in (7, 6, 4))
    y = rng.random(504) < expit(rng.normal(0, 1.5, 7)[actor] + 0.3 * (treatment % 2))
    a_bar = pm.Normal("a_bar", 0, 1.5)
    sd = pm.Exponential("sd", 1, shape=2)
    z = pm.Normal("z", 0, 1, shape=7)
    x = pm.Normal("x", 0, 1, shape=6)
    b = pm.Normal("b", 0, 0.5, shape=4)
    eta = a_bar + sd[0] * z[actor] + sd[1] * x[block] + b[treatment]
    pm.Bernoulli("P", logit_p=eta, observed=y)


@EXAMPLES.of(LECTURES + "14_Correlated_Features")
def contraception() -> None:
    """1,934 women in 61 districts: correlated effects of district and of living in a town."""
    rng = np.random.default_rng(18)
    district = rng.integers(0, 61, 1934)
    urban = (rng.random(1934) < 0.3).astype(float)
    y = rng.random(1934) < expit(-0.7 + rng.normal(0, 0.5, 61)[district] + 0.7 * urban)
    mu = pm.Normal("mu", 0, 1, shape=2)
    chol, _, _ = pm.LKJCholeskyCov("chol", n=2, eta=4, sd_dist=pm.Exponential.dist(1, size=2))
    z = pm.Normal("z", 0, 1, shape=(61, 2))
    v = mu + z @ chol.T
    pm.Bernoulli("C", logit_p=v[district, 0] + v[district, 1] * urban, observed=y)


@EXAMPLES.of(LECTURES + "15_Social_Networks")
def gifts() -> None:
    """Gifts between 300 pairs: correlated ties in both directions."""
    rng = np.random.default_rng(19)
    t = rng.multivariate_normal([0, 0], [[1, 0.4], [0.4, 1]], 300)
    y = rng.poisson(np.exp(0.3 + t))
    alpha = pm.Normal("alpha", 0, 1)
    sd = pm.Exponential("sigma_T", 1)
    rho = pm.LKJCorr("rho_T", eta=2, n=2)
    rho = rho[0, 1] if rho.ndim == 2 else rho[0]
    z = pm.Normal("z", 0, 1, shape=(300, 2))
    one = sd * z[:, 0]
    two = sd * (rho * z[:, 0] + pt.sqrt(1 - rho**2) * z[:, 1])
    pm.Poisson("G", pt.exp(alpha + pt.stack([one, two], axis=1)), observed=y)


@EXAMPLES.of(LECTURES + "16_Gaussian_Processes")
def islands() -> None:
    """Tools of ten islands with a covariance by distance."""
    rng = np.random.default_rng(20)
    place = rng.uniform(0, 5, (10, 2))
    d2 = ((place[:, None] - place) ** 2).sum(-1)
    p = np.exp(rng.normal(8, 1.5, 10))
    y = rng.poisson(1.5 * p**0.3)
    eta2 = pm.Exponential("eta2", 2)
    rho2 = pm.Exponential("rho2", 0.5)
    k = eta2 * pt.exp(-rho2 * d2) + 0.01 * np.eye(10)
    z = pm.Normal("z", 0, 1, shape=10)
    alpha = pt.dot(pt.linalg.cholesky(k), z)
    a, b, g = pm.Exponential("a", 1), pm.Exponential("b", 1), pm.Exponential("g", 1)
    pm.Poisson("T", a * p**b / g * pt.exp(alpha), observed=y)


@EXAMPLES.of(LECTURES + "16_Gaussian_Processes")
def primates() -> None:
    """Brain sizes of 150 species with a phylogenetic covariance."""
    rng = np.random.default_rng(21)
    place = np.sort(rng.uniform(0, 1, 150))
    d = np.abs(place[:, None] - place)
    x = rng.normal(size=(150, 2))
    y = x @ [0.1, 0.8] + np.linalg.cholesky(0.1 * np.exp(-3 * d) + 0.01 * np.eye(150)) @ rng.normal(
        size=150
    )
    a = pm.Normal("alpha", 0, 1)
    b = pm.Normal("beta", 0, 0.5, shape=2)
    eta2 = pm.TruncatedNormal("eta2", 1, 0.25, lower=0.001)
    rho = pm.TruncatedNormal("rho", 3, 0.25, lower=0.001)
    k = eta2 * pt.exp(-rho * d) + 0.01 * np.eye(150)
    pm.MvNormal("B", a + x @ b, cov=k, observed=y)


@EXAMPLES.of(LECTURES + "17_Measurement_and_Misclassification")
def divorces_measured_with_error() -> None:
    """50 states' rates with known errors, of the answer and of a predictor."""
    rng = np.random.default_rng(22)
    age = rng.normal(size=50)
    m = -0.7 * age + 0.7 * rng.normal(size=50)
    d = -0.6 * age + 0.5 * rng.normal(size=50)
    d_sd, m_sd = rng.uniform(0.1, 0.6, 50), rng.uniform(0.1, 0.8, 50)
    d_seen, m_seen = rng.normal(d, d_sd), rng.normal(m, m_sd)
    am = pm.Normal("am", 0, [0.2, 0.5])
    tau = pm.Exponential("tau", 1)
    m_true = pm.Normal("M", am[0] + am[1] * age, tau, shape=50)
    pm.Normal("M_seen", m_true, m_sd, observed=m_seen)
    b = pm.Normal("b", 0, [0.2, 0.5, 0.5])
    sigma = pm.Exponential("sigma", 1)
    d_true = pm.Normal("D", b[0] + b[1] * age + b[2] * m_true, sigma, shape=50)
    pm.Normal("D_seen", d_true, d_sd, observed=d_seen)


@EXAMPLES.of(LECTURES + "18_Missing_Data")
def primates_with_holes() -> None:
    """150 species, a predictor and group sizes with holes that are imputed."""
    rng = np.random.default_rng(23)
    mass = rng.normal(size=150)
    group = 0.6 * mass + 0.8 * rng.normal(size=150)
    y = 0.8 * mass + 0.1 * group + 0.3 * rng.normal(size=150)
    holes = np.ma.masked_array(group, mask=rng.random(150) < 0.2)
    ag = pm.Normal("aG", 0, 1)
    bmg = pm.Normal("bMG", 0, 0.5)
    tau = pm.Exponential("tau", 1)
    g = pm.Normal("G", ag + bmg * mass, tau, observed=holes)
    a = pm.Normal("a", 0, 1)
    b = pm.Normal("b", 0, 0.5, shape=2)
    sigma = pm.Exponential("sigma", 1)
    pm.Normal("B", a + b[0] * g + b[1] * mass, sigma, observed=y)


@EXAMPLES.of(LECTURES + "19_Generalized_Linear_Madness")
def cylinders() -> None:
    """Weight by the volume of a cylinder: a power of height, LogNormal."""
    rng = np.random.default_rng(24)
    h = rng.uniform(0.4, 1.2, 500)
    w = rng.lognormal(np.log(np.pi * 5.7 * 0.25**2 * h**3), 0.2)
    p = pm.Beta("p", 25, 50)
    k = pm.Exponential("k", 0.5)
    sigma = pm.Exponential("sigma", 1)
    pm.LogNormal("W", pt.log(np.pi * k * p**2 * h**3), sigma, observed=w)


@EXAMPLES.of(LECTURES + "19_Generalized_Linear_Madness")
def boxes() -> None:
    """Choices of 629 children: five strategies in unknown shares, summed out."""
    rng = np.random.default_rng(25)
    first = rng.integers(0, 2, 629)
    p = np.array([0.25, 0.25, 0.15, 0.2, 0.15])
    table = np.array([[0, 0, 1], [1, 0, 0], [0, 1, 0], [1 / 3] * 3, [0, 0, 0]], float)
    rows = np.where(np.arange(629)[:, None] >= 0, table[None, :, :].repeat(629, 0)[:, 0], 0)
    laws = np.repeat(table[None], 629, axis=0)
    laws[:, 4] = np.where(first[:, None] == 1, [0, 0, 1], [0, 1, 0])
    y = np.array([rng.choice(3, p=laws[i, rng.choice(5, p=p)]) for i in range(len(rows))])
    shares = pm.Dirichlet("p", np.full(5, 4.0))
    seen = laws[np.arange(629), :, y]
    pm.Potential("y", pt.log(seen @ shares).sum())


@EXAMPLES.of(HOWTO + "hypothesis_testing", coords={"days": list("abcd")})
def rope() -> None:
    """Mean and sd of 300 tips on four days."""
    rng = np.random.default_rng(26)
    day = rng.integers(0, 4, 300)
    y = rng.gamma(4, 0.7, 300) + 0.1 * day
    mu = pm.HalfNormal("μ", 5, dims="days")
    sigma = pm.HalfNormal("σ", 1, dims="days")
    pm.Gamma("y", mu=mu[day], sigma=sigma[day], observed=y)


@EXAMPLES.of(HOWTO + "updating_priors")
def priors_from_draws() -> None:
    """Priors that interpolate a histogram of earlier draws."""
    rng = np.random.default_rng(27)
    x = rng.normal(size=(2, 100))
    y = 5 + x[0] + 2.5 * x[1] + rng.normal(0, 1, 100)
    b = [
        pm.Interpolated(name, grid := np.linspace(m - 3, m + 3, 200),
                        np.exp(-((grid - m) ** 2) / 0.5))
        for name, m in (("alpha", 4.8), ("beta0", 1.1), ("beta1", 2.4))
    ]  # fmt: skip
    pm.Normal("Y_obs", b[0] + b[1] * x[0] + b[2] * x[1], 1, observed=y)


@EXAMPLES.of(HOWTO + "sampling_compound_step")
def two_kinds_of_variables() -> None:
    """A continuous rate beside a discrete one that another step moves."""
    rng = np.random.default_rng(28)
    y = np.concatenate([rng.poisson(3, 45), rng.poisson(1, 65)])
    switch = pm.DiscreteUniform("switchpoint", 0, 109)
    early = pm.Exponential("early_rate", 1)
    late = pm.Exponential("late_rate", 1)
    pm.Poisson("disasters", pt.switch(switch > np.arange(110), early, late), observed=y)
