"""Posteriors of posteriordb for ``SUITE``: time series, processes, equations and rates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt

from .posteriordb import data, of_suite


def scanned(step: Callable[..., Any], first: Any, sequences: Any, constants: Any) -> Any:
    """Return the first value and those that follow from it, one for each row."""
    rest = pytensor.scan(
        step, sequences=sequences, outputs_info=first, non_sequences=constants, return_updates=False
    )
    return pt.concatenate([pt.shape_padleft(first), rest])


@of_suite("arma-arma11")
def arma11() -> None:
    """ARMA(1, 1); the error before the first observation is 0, the observation before it ``mu``."""
    y = data("arma-arma11")["y"]

    def following(before: Any, nu: Any, mu: Any, phi: Any, theta: Any) -> Any:
        return mu + phi * before + theta * (before - nu)

    mu = pm.Normal("mu", 0, 10)
    phi = pm.Normal("phi", 0, 2)
    theta = pm.Normal("theta", 0, 2)
    sigma = pm.HalfCauchy("sigma", 2.5)
    nu = scanned(following, mu + phi * mu, pt.constant(y[:-1]), [mu, phi, theta])
    pm.Normal("y", nu, sigma, observed=y)


@of_suite("garch-garch11")
def garch11() -> None:
    """GARCH(1, 1); flat on all stationary pairs of ``alpha1`` and ``beta1``."""
    d = data("garch-garch11")

    def following(square: Any, variance: Any, alpha0: Any, alpha1: Any, beta1: Any) -> Any:
        return alpha0 + alpha1 * square + beta1 * variance

    mu = pm.Flat("mu")
    alpha0 = pm.HalfFlat("alpha0")
    shares = pm.Dirichlet("shares", np.ones(3))
    alpha1 = pm.Deterministic("alpha1", shares[0])
    beta1 = pm.Deterministic("beta1", shares[1])
    first = pt.constant(np.square(d["sigma1"]))
    squares = pt.square(d["y"][:-1] - mu)
    variance = scanned(following, first, squares, [alpha0, alpha1, beta1])
    pm.Normal("y", mu, pt.sqrt(variance), observed=d["y"])


def quadratic() -> Any:
    """Return the covariance of a smooth process, whose height and length are learned."""
    rho = pm.Gamma("rho", 25, 4)
    alpha = pm.HalfNormal("alpha", 2)
    return alpha**2 * pm.gp.cov.ExpQuad(1, ls=rho)


@of_suite("gp_pois_regr-gp_pois_regr")
def gp_pois_regr() -> None:
    """Counts whose log-rate is a Gaussian process, non-centred."""
    d = data("gp_pois_regr-gp_pois_regr")
    process = pm.gp.Latent(cov_func=quadratic())
    f = process.prior("f", d["x"][:, None].astype(float), jitter=1e-10)
    pm.Poisson("k", pt.exp(f), observed=d["k"])


@of_suite("gp_pois_regr-gp_regr")
def gp_regr() -> None:
    """Gaussian process with noise, of which ``sigma`` is the variance."""
    d = data("gp_pois_regr-gp_regr")
    process = pm.gp.Marginal(cov_func=quadratic())
    sigma = pm.HalfNormal("sigma", 1)
    x = d["x"][:, None].astype(float)
    process.marginal_likelihood("y", x, d["y"], sigma=pt.sqrt(sigma), jitter=0)


def trials(name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return shocks (1) or none of dogs, and how many avoided and got before each trial."""
    y = data(name)["y"]
    before = np.arange(y.shape[1])
    shocks = np.cumsum(y, axis=1) - y
    return y, before - shocks, shocks


@of_suite("dogs-dogs")
def dogs() -> None:
    """Logistic regression of a shock on avoided and suffered ones."""
    y, avoided, shocks = trials("dogs-dogs")
    beta = pm.Normal("beta", 0, 100, shape=3)
    pm.Bernoulli("y", logit_p=beta[0] + beta[1] * avoided + beta[2] * shocks, observed=y)


@of_suite("dogs-dogs_log")
def dogs_log() -> None:
    """The same without an intercept and with known signs; of data with a dog of no shocks."""
    y, avoided, shocks = trials("dogs-dogs_log")
    beta = pm.Uniform("beta", [-100, 0], [0, 100])
    pm.Bernoulli("y", logit_p=beta[0] * avoided + beta[1] * shocks, observed=y)


@of_suite("dogs-dogs_hierarchical")
def dogs_hierarchical() -> None:
    """Each avoided or suffered shock multiplies the probability of the next."""
    y, avoided, shocks = trials("dogs-dogs_hierarchical")
    a = pm.Uniform("a", 0, 1)
    b = pm.Uniform("b", 0, 1)
    # All were shocked at the first trial, as is sure; there the derivative would be NaN
    p = a ** shocks[:, 1:] * b ** avoided[:, 1:]
    pm.Bernoulli("y", p, observed=y[:, 1:])


def runge_kutta(
    rate: Callable[..., Any], constants: list[Any], start: Any, times: np.ndarray, parts: int
) -> Any:
    """Solve an equation from time 0 at equidistant times, in so many steps from one to the next.

    ``rate`` takes time, state and the constants and returns the derivative; the method is of order
    four.
    """
    h = float(times[0]) / parts

    def step(t: Any, z: Any, *constants: Any) -> Any:
        k1 = rate(t, z, *constants)
        k2 = rate(t + h / 2, z + h / 2 * k1, *constants)
        k3 = rate(t + h / 2, z + h / 2 * k2, *constants)
        k4 = rate(t + h, z + h * k3, *constants)
        return z + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)

    path = pytensor.scan(
        step,
        sequences=pt.constant(h * np.arange(len(times) * parts)),
        outputs_info=start,
        non_sequences=constants,
        return_updates=False,
    )
    return path[parts - 1 :: parts]


@of_suite("hudson_lynx_hare-lotka_volterra")
def lotka_volterra() -> None:
    """Hares and lynxes by the equations of Lotka and Volterra, with log-normal errors."""
    d = data("hudson_lynx_hare-lotka_volterra")

    def rate(_: Any, z: Any, theta: Any) -> Any:
        prey, predator = z[0], z[1]
        born, eaten = theta[0] - theta[1] * predator, theta[3] * prey - theta[2]
        return pt.stack([born * prey, eaten * predator])

    theta = pm.TruncatedNormal("theta", [1, 0.05, 1, 0.05], [0.5, 0.05, 0.5, 0.05], lower=0)
    z_init = pm.LogNormal("z_init", np.log(10), 1, shape=2)
    sigma = pm.LogNormal("sigma", -1, 1, shape=2)
    z = runge_kutta(rate, [theta], z_init, d["ts"], 5)
    pm.LogNormal("y_init", pt.log(z_init), sigma, observed=d["y_init"])
    pm.LogNormal("y", pt.log(z), sigma, observed=d["y"])


@of_suite("one_comp_mm_elim_abs-one_comp_mm_elim_abs")
def one_comp_mm_elim_abs() -> None:
    """Concentration of a drug that is absorbed, and eliminated at a rate that saturates.

    ``K_m`` and ``V_m`` have no finite variance, so that an sd of theirs is a matter of chance.
    """
    d = data("one_comp_mm_elim_abs-one_comp_mm_elim_abs")
    dose, volume = float(d["D"]), float(d["V"])

    def rate(t: Any, c: Any, k_a: Any, K_m: Any, V_m: Any) -> Any:
        return pt.exp(-k_a * t) * dose * k_a / volume - V_m / volume * c / (K_m + c)

    k_a = pm.HalfCauchy("k_a", 1)
    K_m = pm.HalfCauchy("K_m", 1)
    V_m = pm.HalfCauchy("V_m", 1)
    sigma = pm.HalfCauchy("sigma", 1)
    c = runge_kutta(rate, [k_a, K_m, V_m], pt.constant(0.0), d["times"], 5)
    pm.LogNormal("C_hat", pt.log(c), sigma, observed=d["C_hat"])


@of_suite("M0_data-M0_model")
def M0() -> None:
    """Captures of animals, of which some may not exist: data are augmented."""
    d = data("M0_data-M0_model")
    omega = pm.Uniform("omega", 0, 1)
    p = pm.Uniform("p", 0, 1)
    pm.ZeroInflatedBinomial("s", omega, d["T"], p, observed=d["y"].sum(axis=1))


@of_suite("Rate_1_data-Rate_1_model")
def rate_1() -> None:
    """A binomial rate."""
    d = data("Rate_1_data-Rate_1_model")
    theta = pm.Beta("theta", 1, 1)
    pm.Binomial("k", d["n"], theta, observed=d["k"])


@of_suite("Rate_2_data-Rate_2_model")
def rate_2() -> None:
    """Two binomial rates."""
    d = data("Rate_2_data-Rate_2_model")
    theta1 = pm.Beta("theta1", 1, 1)
    theta2 = pm.Beta("theta2", 1, 1)
    pm.Binomial("k1", d["n1"], theta1, observed=d["k1"])
    pm.Binomial("k2", d["n2"], theta2, observed=d["k2"])


def common_rate(name: str) -> None:
    """Return the model of one rate of two counts."""
    d = data(name)
    theta = pm.Beta("theta", 1, 1)
    pm.Binomial("k1", d["n1"], theta, observed=d["k1"])
    pm.Binomial("k2", d["n2"], theta, observed=d["k2"])


@of_suite("Rate_3_data-Rate_3_model")
def rate_3() -> None:
    """One rate of two counts."""
    common_rate("Rate_3_data-Rate_3_model")


@of_suite("Rate_4_data-Rate_4_model")
def rate_4() -> None:
    """A binomial rate, and another of which nothing is seen."""
    d = data("Rate_4_data-Rate_4_model")
    theta = pm.Beta("theta", 1, 1)
    pm.Beta("thetaprior", 1, 1)
    pm.Binomial("k", d["n"], theta, observed=d["k"])


@of_suite("Rate_5_data-Rate_5_model")
def rate_5() -> None:
    """One rate of two counts that contradict it."""
    common_rate("Rate_5_data-Rate_5_model")


def of_beta(hits: int, all_of_them: int) -> tuple[float, float]:
    """Return mean and sd of a rate that was uniform before."""
    mean = (hits + 1) / (all_of_them + 2)
    return mean, (mean * (1 - mean) / (all_of_them + 3)) ** 0.5


def moments_of_rates() -> dict[str, dict[str, tuple[float, float]]]:
    """Return what is known of the binomial rates."""
    one, two, three, four, five = (data(f"Rate_{i}_data-Rate_{i}_model") for i in range(1, 6))
    return {
        "rate_1": {"theta": of_beta(one["k"], one["n"])},
        "rate_2": {f"theta{i}": of_beta(two[f"k{i}"], two[f"n{i}"]) for i in (1, 2)},
        "rate_3": {"theta": of_beta(three["k1"] + three["k2"], three["n1"] + three["n2"])},
        "rate_4": {"theta": of_beta(four["k"], four["n"]), "thetaprior": of_beta(0, 0)},
        "rate_5": {"theta": of_beta(five["k1"] + five["k2"], five["n1"] + five["n2"])},
    }


@of_suite("mcycle_gp-accel_gp")
def accel_gp() -> None:
    """Acceleration in a crash: processes in a basis of the mean and of the log-deviation."""
    d = data("mcycle_gp-accel_gp")
    # Times are scaled to a range of one and centred, on an interval of 3/2 to both sides
    x, edge = d["times"] / np.ptp(d["times"]), 1.5
    x = x - x.mean()

    def curve(end: str, size: int) -> Any:
        height = pm.HalfStudentT(f"sdgp{end}", nu=3, sigma=36)
        length = pm.InverseGamma(f"lscale{end}", 1.124909, 0.0177)
        z = pm.Normal(f"zgp{end}", 0, 1, shape=size)
        frequency = np.pi * np.arange(1, size + 1) / (2 * edge)
        basis = np.sin(frequency * (x[:, None] + edge)) / edge**0.5
        fall = pt.exp(-((length * frequency) ** 2) / 4)
        return basis @ (height * (2 * np.pi) ** 0.25 * pt.sqrt(length) * fall * z)

    mu = pm.StudentT("Intercept", 3, mu=-13, sigma=36) + curve("_1", int(d["NBgp_1"]))
    level = pm.StudentT("Intercept_sigma", 3, mu=0, sigma=10)
    log_sigma = level + curve("_sigma_1", int(d["NBgp_sigma_1"]))
    pm.Normal("Y", mu, pt.exp(log_sigma), observed=d["Y"])
