"""Time series and differential equations, on made data of the notebooks' shapes."""

from __future__ import annotations

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt

from .registry import EXAMPLES

SERIES = "time_series/"


@EXAMPLES.of(SERIES + "AR")
def autoregression_of_one() -> None:
    """An autoregression of order one with a drift, 1,000 values."""
    rng = np.random.default_rng(1)
    y = np.zeros(1000)
    for t in range(1, 1000):
        y[t] = 0.3 + 0.8 * y[t - 1] + rng.normal()
    theta = pm.Normal("theta", 0, 1, shape=2)
    tau = pm.Exponential("tau", 0.5)
    start = pm.Normal.dist(0, 10, size=1)
    pm.AR("y", rho=theta, tau=tau, init_dist=start, constant=True, observed=y)


@EXAMPLES.of(SERIES + "AR")
def autoregression_of_two() -> None:
    """Of order two, 500 values."""
    rng = np.random.default_rng(2)
    y = np.zeros(500)
    for t in range(2, 500):
        y[t] = 0.7 * y[t - 1] - 0.3 * y[t - 2] + rng.normal()
    rho = pm.Normal("rho", 0, 1, shape=2)
    sigma = pm.HalfNormal("sigma", 3)
    start = pm.Normal.dist(0, 10, size=2)
    pm.AR("y", rho=rho, sigma=sigma, init_dist=start, observed=y)


@EXAMPLES.of(SERIES + "Air_passengers-Prophet_with_Bayesian_workflow", check_bounds=False)
def passengers() -> None:
    """144 months: a line, and a yearly season of ten Fourier terms that multiplies it."""
    rng = np.random.default_rng(3)
    t = np.arange(144) / 144
    season = 2 * np.pi * np.outer(np.arange(144) / 12, np.arange(1, 11))
    columns = np.hstack([np.sin(season), np.cos(season)])
    y = (0.2 + 0.7 * t) * (1 + 0.2 * np.sin(2 * np.pi * np.arange(144) / 12))
    y = y + rng.normal(0, 0.02, 144)
    alpha = pm.Normal("α", 0, 0.5)
    beta = pm.Normal("β", 0, 0.5)
    fourier = pm.Normal("β_fourier", 0, 0.1, shape=20)
    sigma = pm.HalfNormal("σ", 0.1)
    trend = alpha + beta * t
    pm.Normal("likelihood", trend * (1 + columns @ fourier), sigma, observed=y)


@EXAMPLES.of(SERIES + "Euler-Maruyama_and_SDEs")
def linear_diffusion() -> None:
    """200 noisy values of an Ornstein-Uhlenbeck process whose path is sampled."""
    rng = np.random.default_rng(5)
    dt, x = 0.1, np.zeros(200)
    for t in range(1, 200):
        x[t] = x[t - 1] - 0.78 * x[t - 1] * dt + np.sqrt(dt * 5) * rng.normal()
    y = x + rng.normal(0, 0.5, 200)
    lam = pm.HalfNormal("lam", 1)
    path = pm.EulerMaruyama(
        "xh", dt=dt, sde_fn=lambda x, lam: (-lam * x, np.sqrt(5.0)), sde_pars=(lam,), shape=200
    )
    pm.Normal("zh", path, 0.5, observed=y)


@EXAMPLES.of(SERIES + "MvGaussianRandomWalk_demo")
def walks_in_three_dimensions() -> None:
    """Correlated walks of intercept and slope of three series, 300 times in 6 sections."""
    rng = np.random.default_rng(6)
    t, section = np.arange(300), np.arange(300) // 50
    y = rng.normal(size=(300, 3)) + np.cumsum(rng.normal(0, 1, (6, 3)), axis=0)[section]
    sds = pm.HalfCauchy.dist(0.25, size=3)
    chol_a, _, _ = pm.LKJCholeskyCov("chol_a", n=3, eta=2, sd_dist=sds)
    chol_b, _, _ = pm.LKJCholeskyCov("chol_b", n=3, eta=2, sd_dist=sds)
    z = pm.Normal("z", 0, 1, shape=(2, 6, 3))
    alpha = pt.cumsum(z[0] @ chol_a.T, axis=0)
    beta = pt.cumsum(z[1] @ chol_b.T, axis=0)
    sigma = pm.HalfNormal("sigma", 1)
    mean = alpha[section] + beta[section] * (t[:, None] / 300)
    pm.Normal("y", mean, sigma, observed=y)


@EXAMPLES.of(SERIES + "Time_Series_Generative_Graph")
def autoregression_by_scan() -> None:
    """An autoregression of order two whose density a scan writes, 100 values."""
    rng = np.random.default_rng(7)
    y = np.zeros(100)
    for t in range(2, 100):
        y[t] = 0.9 * y[t - 1] - 0.2 * y[t - 2] + 0.3 * rng.normal()
    rho = pm.Normal("rho", 0, 0.2, shape=2)
    sigma = pm.HalfNormal("sigma", 0.2)

    def step(now, last, before, rho, sigma):
        z = (now - last * rho[0] - before * rho[1]) / sigma
        return -0.5 * z**2 - pt.log(sigma)

    values, _ = pytensor.scan(
        step,
        sequences=[pt.as_tensor(y[2:]), pt.as_tensor(y[1:-1]), pt.as_tensor(y[:-2])],
        non_sequences=[rho, sigma],
    )
    pm.Potential("y", values.sum())


@EXAMPLES.of(SERIES + "bayesian_var_model")
def vector_autoregression() -> None:
    """Two series of 150 values, two lags, correlated noise."""
    rng = np.random.default_rng(8)
    y = np.zeros((150, 2))
    for t in range(2, 150):
        y[t] = (
            [2.0, 1.0] + y[t - 1] @ [[0.4, 0.1], [-0.2, 0.3]] + 0.1 * y[t - 2] + rng.normal(size=2)
        )
    lags = np.hstack([y[1:-1], y[:-2]])
    coefficients = pm.Normal("lag_coefs", 0, 10, shape=(4, 2))
    alpha = pm.Normal("alpha", 0, 10, shape=2)
    chol, _, _ = pm.LKJCholeskyCov("chol", n=2, eta=1, sd_dist=pm.Exponential.dist(1, size=2))
    pm.MvNormal("obs", alpha + lags @ coefficients, chol=chol, observed=y[2:])


@EXAMPLES.of(SERIES + "bayesian_var_model", coords={"country": list("abc")})
def vector_autoregressions_of_countries() -> None:
    """Three countries' coefficients from a common normal."""
    rng = np.random.default_rng(9)
    mu = pm.Normal("mu", 0, 0.5, shape=(2, 2))
    sd = pm.InverseGamma("sd", 3, 0.5)
    z = pm.Normal("z", 0, 1, shape=(3, 2, 2))
    alpha = pm.Normal("alpha", 0, 1, shape=(3, 2))
    for k in range(3):
        y = np.zeros((60, 2))
        for t in range(1, 60):
            y[t] = 0.5 + y[t - 1] @ [[0.4, 0.1], [0.0, 0.3]] + rng.normal(0, 0.5, 2)
        sigma = pm.HalfNormal(f"sigma_{k}", 1, shape=2)
        pm.Normal(f"y_{k}", alpha[k] + y[:-1] @ (mu + sd * z[k]), sigma, observed=y[1:])


@EXAMPLES.of("case_studies/stochastic_volatility")
def stochastic_volatility() -> None:
    """Returns of 400 days, the logarithm of their scale a walk."""
    rng = np.random.default_rng(10)
    y = rng.standard_t(10, 400) * 0.01 * np.exp(np.cumsum(rng.normal(0, 0.08, 400)))
    step = pm.Exponential("step_size", 10)
    start = pm.Normal.dist(0, 100)
    v = pm.GaussianRandomWalk("volatility", sigma=step, init_dist=start, steps=399)
    nu = pm.Exponential("nu", 0.1)
    pm.StudentT("returns", nu=nu, lam=pt.exp(-2 * v), observed=y)


@EXAMPLES.of("case_studies/ssm_hurricane_tracking")
def tracked_positions() -> None:
    """60 noisy positions of a body with constant velocity: a state space with sampled states."""
    rng = np.random.default_rng(11)
    velocity = 1 + np.cumsum(rng.normal(0, 0.1, 60))
    y = np.cumsum(velocity) + rng.normal(0, 0.5, 60)
    q = pm.HalfNormal("q", 0.5)
    r = pm.HalfNormal("r", 1)
    v = pm.GaussianRandomWalk("v", sigma=q, init_dist=pm.Normal.dist(1, 1), steps=59)
    x0 = pm.Normal("x0", 0, 2)
    pm.Normal("y", x0 + pt.cumsum(v), r, observed=y)


def _euler(rate, start, n: int, dt: float, *parameters):
    """Return the path of a differential equation by Runge and Kutta's fourth order, (n, d)."""

    def step(y, *p):
        k1 = rate(y, *p)
        k2 = rate(y + dt / 2 * k1, *p)
        k3 = rate(y + dt / 2 * k2, *p)
        k4 = rate(y + dt * k3, *p)
        return y + dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4)

    path, _ = pytensor.scan(step, outputs_info=start, non_sequences=parameters, n_steps=n)
    return pt.concatenate([start[None], path])


@EXAMPLES.of("ode_models/ODE_Lotka_Volterra_multiple_ways")
def lynx_and_hare() -> None:
    """21 years of two species, the equation solved in a scan of PyTensor."""
    rng = np.random.default_rng(12)
    years = np.arange(21)
    hare = 34 + 24 * np.sin(years * 0.62) + rng.normal(0, 3, 21)
    lynx = 25 + 18 * np.sin(years * 0.62 - 1.6) + rng.normal(0, 3, 21)
    p = [
        pm.TruncatedNormal(name, mu, sd, lower=0, initval=mu)
        for name, mu, sd in (
            ("alpha", 0.55, 0.1), ("beta", 0.028, 0.01), ("gamma", 0.84, 0.1),
            ("delta", 0.026, 0.01),
        )
    ]  # fmt: skip
    start = pt.stack([
        pm.TruncatedNormal("xt0", 34, 5, lower=0, initval=34),
        pm.TruncatedNormal("yt0", 6, 5, lower=0, initval=6),
    ])  # fmt: skip
    sigma = pm.HalfNormal("sigma", 10)

    def rate(y, a, b, c, d):
        return pt.stack([a * y[0] - b * y[0] * y[1], -c * y[1] + d * y[0] * y[1]])

    path = _euler(rate, start, 200, 0.1, *p)[::10]
    pm.Normal("y", path, sigma, observed=np.stack([hare, lynx], 1))


@EXAMPLES.of("ode_models/ODE_API_introduction")
def falling_body() -> None:
    """Speed of a body with drag, 20 times; the equation's solution in closed form."""
    rng = np.random.default_rng(13)
    t = np.arange(0.5, 10.5, 0.5)
    y = 9.8 / 0.4 * (1 - np.exp(-0.4 * t)) + rng.normal(0, 1, 20)
    gamma = pm.LogNormal("gamma", 0, 1)
    g = pm.LogNormal("g", np.log(10), 0.1)
    sigma = pm.HalfCauchy("sigma", 1)
    pm.Normal("y", g / gamma * (1 - pt.exp(-gamma * t)), sigma, observed=y)


@EXAMPLES.of("ode_models/ODE_API_introduction")
def epidemic() -> None:
    """Susceptible and infected shares of 20 days, solved in a scan."""
    rng = np.random.default_rng(14)
    s, i, rows = 0.99, 0.01, []
    for k in range(200):
        if k % 10 == 0:
            rows.append([s, i])
        s, i = s - 0.1 * 1.6 * s * i / 1.0, i + 0.1 * (1.6 * s * i - 0.6 * i)
    y = np.array(rows) * rng.lognormal(0, 0.1, (20, 2))
    sigma = pm.HalfCauchy("sigma", 1, shape=2)
    lam = pm.LogNormal("lambda", np.log(3), np.log(2), initval=0.6)
    r0 = pm.LogNormal("R0", np.log(2), np.log(2), initval=2.0)

    def rate(y, beta, lam):
        new = beta * y[0] * y[1]
        return pt.stack([-new, new - lam * y[1]])

    path = _euler(rate, pt.as_tensor([0.99, 0.01]), 190, 0.1, r0 * lam, lam)[::10]
    pm.LogNormal("Y", pt.log(pt.maximum(path, 1e-8)), sigma, observed=y)


@EXAMPLES.of("case_studies/wrapping_jax_function")
def hidden_markov() -> None:
    """Three states whose 200 emissions are normal, the states summed out in a scan."""
    rng = np.random.default_rng(15)
    state, y = 0, []
    for _ in range(200):
        state = rng.choice(3, p=[[0.9, 0.05, 0.05], [0.05, 0.9, 0.05], [0.05, 0.05, 0.9]][state])
        y.append(rng.normal([-2, 0, 2][state], 1))
    mu = pm.Normal(
        "emission", [-1, 0, 1], 2, initval=[-1.0, 0.0, 1.0],
        transform=pm.distributions.transforms.ordered,
    )  # fmt: skip
    p = pm.Dirichlet("p_transition", np.ones((3, 3)) + 5 * np.eye(3))
    emitted = pm.logp(pm.Normal.dist(mu, 1.0), np.array(y)[:, None])

    def step(now, alpha, p):
        return now + pt.logsumexp(alpha[:, None] + pt.log(p), axis=0)

    alpha, _ = pytensor.scan(
        step, sequences=[emitted[1:]], outputs_info=emitted[0] - np.log(3), non_sequences=[p]
    )
    pm.Potential("y", pt.logsumexp(alpha[-1]))
