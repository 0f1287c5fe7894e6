"""Targets of Inference Gym whose moments it knows, written as a user of PyMC would write them.

Each has its name there (Sountsov, Radul and contributors, 2020), and its variables have theirs. Its
moments are a formula, or those of many draws of Stan that Inference Gym stores.
"""

from __future__ import annotations

import json

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt

from registry import Builder, Registry, Writer

FOLDER = Path(__file__).parents[2] / "data" / "inference_gym"
# Mean, standard deviation and the mean's Monte Carlo error of each variable
Truth = dict[str, tuple[Any, Any, Any]]
GYM = Registry()
# Of each target, its moments
TRUTHS: dict[str, Callable[[], Truth]] = {}


def gym_reference(name: str) -> Truth:
    """Return what is known of a target."""
    return TRUTHS[name]()


def stored(name: str) -> Callable[[], Truth]:
    """Return a function that reads moments."""
    keys = "mean", "sd", "mcse_mean"

    def read() -> Truth:
        found = json.loads((FOLDER / "truth" / f"{name}.json").read_text())
        return {variable: tuple(values[key] for key in keys) for variable, values in found.items()}

    return read


def target(truth: str | Callable[[], Truth] = "") -> Callable[[Writer], Builder]:
    """Register the model of a target, whose moments are in the file of this name, or its own."""

    def register(write: Writer) -> Builder:
        name = write.__name__
        TRUTHS[name] = truth if callable(truth) else stored(truth or name)
        return GYM.add(write)

    return register


@cache
def data(name: str) -> dict[str, np.ndarray]:
    """Return data, with NaN for what is missing."""
    file = FOLDER / f"{name}.npz"
    if file.exists():
        with np.load(file) as arrays:
            return dict(arrays)
    found = json.loads((FOLDER / f"{name}.json").read_text())
    arrays = {key: np.array(value) for key, value in found.items()}
    return {key: x.astype(float) if x.dtype == object else x for key, x in arrays.items()}


@target(lambda: {"x0": (0.0, 10.0, 0.0), "x1": (0.0, np.sqrt(19), 0.0)})
def banana() -> None:
    """Normal whose second element is bent along the first."""
    x0 = pm.Normal("x0", 0, 10)
    pm.Normal("x1", 0.03 * (x0**2 - 100), 1)


# Of the others the sd is that of few draws far out: 2,000 independent draws do not tell it
@target(lambda: {"x0": (0.0, 3.0, 0.0)})
def neals_funnel() -> None:
    """Neal's funnel in ten dimensions."""
    x0 = pm.Normal("x0", 0, 3)
    pm.Normal("x", 0, pt.exp(x0 / 2), shape=9)


@cache
def ill_conditioned_covariance() -> np.ndarray:
    """Return a covariance with random axes, and eigenvalues from the inverse gamma distribution."""
    rng = np.random.RandomState(10)
    eigenvalues = 1 / np.sort(rng.gamma(0.5, 1, 100))
    q, r = np.linalg.qr(rng.randn(100, 100))
    q *= np.sign(np.diag(r))
    found: np.ndarray = (q * eigenvalues) @ q.T
    return found


@target(lambda: {"x": (np.zeros(100), np.sqrt(np.diag(ill_conditioned_covariance())), 0.0)})
def ill_conditioned_gaussian() -> None:
    """Normal in 100 dimensions."""
    pm.MvNormal("x", np.zeros(100), ill_conditioned_covariance())


def quartic(x: Any, y: Any) -> Any:
    """Return what is measured of the two elements."""
    return y**2 + 3 * x**2 * (x**2 - 1)


def moments_of_quartic() -> Truth:
    """Both means are zero by symmetry; the sds are sums over a grid."""
    x = y = np.linspace(-3, 3, 3001)
    log = -((1 - quartic(x[:, None], y)) ** 2) / (2 * 0.1**2) - (x[:, None] ** 2 + y**2) / 2
    weight = np.exp(log) / np.exp(log).sum()
    sd = np.sqrt([weight.sum(1) @ x**2, weight.sum(0) @ y**2])
    return {"theta": (np.zeros(2), sd, np.zeros(2))}


@target(moments_of_quartic)
def non_identifiable_quartic_measurement_model() -> None:
    """Two normals of which a polynomial was measured: a closed curve with four modes."""
    theta = pm.Normal("theta", 0, 1, shape=2)
    pm.Normal("y", quartic(theta[0], theta[1]), 0.1, observed=1.0)


@target()
def eight_schools() -> None:
    """Coaching in eight schools, centred, with a normal log scale."""
    effects = np.array([28.0, 8, -3, 7, -1, 1, 18, 12])
    sds = np.array([15.0, 10, 16, 11, 9, 11, 10, 18])
    mean = pm.Normal("avg_effect", 0, 10)
    log_sd = pm.Normal("log_stddev", 5, 1)
    school = pm.Normal("school_effects", mean, pt.exp(log_sd), shape=8)
    pm.Normal("treatment_effects", school, sds, observed=effects)


def german_credit() -> tuple[np.ndarray, np.ndarray]:
    """Return standardised predictors, with a column of ones at the end, and who was a bad risk."""
    d = data("german_credit")
    x = (d["X"] - d["X"].mean(0)) / d["X"].std(0)
    return np.column_stack([x, np.ones(len(x))]), d["y"].astype("int32")


@target()
def german_credit_numeric_logistic_regression() -> None:
    """Logistic regression of 1,000 credits."""
    x, y = german_credit()
    weights = pm.Normal("weights", 0, 1, shape=25)
    pm.Bernoulli("y", logit_p=x @ weights, observed=y)


@target()
def german_credit_numeric_probit_regression() -> None:
    """Probit regression of the same."""
    x, y = german_credit()
    weights = pm.Normal("weights", 0, 1, shape=25)
    pm.Bernoulli("y", p=pm.math.invprobit(x @ weights), observed=y)


@target()
def german_credit_numeric_sparse_logistic_regression() -> None:
    """Logistic regression of the same, whose prior shrinks most weights to nothing."""
    x, y = german_credit()
    unscaled = pm.Normal("unscaled_weights", 0, 1, shape=25)
    local = pm.Gamma("local_scales", 0.5, 0.5, shape=25)
    scale = pm.Gamma("global_scale", 0.5, 0.5)
    pm.Bernoulli("y", logit_p=x @ (unscaled * local * scale), observed=y)


def radon(state: str, *, halfnormal: bool) -> None:
    """Return a model of radon in houses, by floor, county, its uranium and its mean floor."""
    d = data(f"radon_{state}")
    county, floor = d["county"], d["floor"].astype(float)
    mean_floor = np.bincount(county, floor) / np.bincount(county)
    log_uranium = np.log(d["uranium_of_county"])
    # What was below the least that is measured
    log_radon = np.log(np.where(d["radon"] > 0, d["radon"], 0.1))
    x = np.column_stack([log_uranium[county], floor, mean_floor[county]])

    def scale(name: str) -> Any:
        return pm.HalfNormal(name, 1) if halfnormal else pm.Uniform(name, 0, 100)

    mean, sd = pm.Normal("county_effect_mean", 0, 1), scale("county_effect_scale")
    effect = pm.Normal("county_effect", mean, sd, shape=len(mean_floor))
    weight = pm.Normal("weight", 0, 1, shape=3)
    noise = scale("log_radon_scale")
    pm.Normal("log_radon", x @ weight + effect[county], noise, observed=log_radon)


@target()
def radon_contextual_effects_indiana() -> None:
    """Radon in 1,851 houses of 91 counties, with uniform scales."""
    radon("indiana", halfnormal=False)


@target()
def radon_contextual_effects_indiana_halfnormal() -> None:
    """The same with half-normal scales."""
    radon("indiana", halfnormal=True)


@target()
def radon_contextual_effects_minnesota() -> None:
    """Radon in 919 houses of 85 counties, with uniform scales."""
    radon("minnesota", halfnormal=False)


@target()
def radon_contextual_effects_minnesota_halfnormal() -> None:
    """The same with half-normal scales."""
    radon("minnesota", halfnormal=True)


@target()
def synthetic_item_response_theory() -> None:
    """Answers of 400 students to about 75 of 100 questions each, right or wrong."""
    right = data("item_response_theory")["right"]
    # -1 is a question that was not asked
    student, question = np.nonzero(right >= 0)
    mean = pm.Normal("mean_student_ability", 0.75, 1)
    ability = pm.Normal("centered_student_ability", 0, 1, shape=400)
    difficulty = pm.Normal("question_difficulty", 0, 1, shape=100)
    logit = mean + ability[student] - difficulty[question]
    pm.Bernoulli("right", logit_p=logit, observed=right[student, question])


def brownian_motion(innovation: Any, noise: Any, values: np.ndarray) -> None:
    """Add a random walk and what was seen of it."""
    seen = np.flatnonzero(np.isfinite(values))
    start = pm.Normal.dist(0, innovation)
    locs = pm.GaussianRandomWalk("locs", sigma=innovation, init_dist=start, shape=len(values))
    pm.Normal("observed_locs", locs[seen], noise, observed=values[seen])


@target()
def brownian_motion_missing_middle_observations() -> None:
    """Random walk of 30 steps, of which 20 were seen."""
    d = data("brownian_motion")
    scales = float(d["innovation_noise_scale"]), float(d["observation_noise_scale"])
    brownian_motion(*scales, d["observed_locs"])


def moments_of_walk() -> Truth:
    """Given both scales the walk is normal: a sum over a grid of them, as logarithms.

    The moments that Inference Gym stores are up to 0.26 sds from these.
    """
    values = data("brownian_motion")["observed_locs"]
    seen = np.isfinite(values)
    differences = np.eye(len(values)) - np.eye(len(values), k=-1)
    innovation, noise = np.exp(np.mgrid[-5.5:0.5:61j, -7:0:71j].reshape(2, -1))
    precision = (
        differences.T @ differences / innovation[:, None, None] ** 2
        + np.diag(seen) / noise[:, None, None] ** 2
    )
    linear = np.where(seen, values, 0) / noise[:, None] ** 2
    covariance = np.linalg.inv(precision)
    mean = np.einsum("nij,nj->ni", covariance, linear)
    log = (np.sum(mean * linear, axis=1) - np.linalg.slogdet(precision)[1]) / 2
    log -= np.nansum(values**2) / noise**2 / 2 + (np.log(innovation) ** 2 + np.log(noise) ** 2) / 8
    log -= len(values) * np.log(innovation) + seen.sum() * np.log(noise)
    weight = np.exp(log - log.max())
    weight /= weight.sum()

    def moments(x: np.ndarray, variance: Any = 0.0) -> tuple[Any, Any, Any]:
        centre = weight @ x
        return centre, np.sqrt(weight @ ((x - centre) ** 2 + variance)), np.zeros_like(centre)

    return {
        "innovation_noise_scale": moments(innovation),
        "observation_noise_scale": moments(noise),
        "locs": moments(mean, np.diagonal(covariance, axis1=1, axis2=2)),
    }


@target(moments_of_walk)
def brownian_motion_unknown_scales_missing_middle_observations() -> None:
    """The same with unknown scales."""
    innovation = pm.LogNormal("innovation_noise_scale", 0, 2)
    noise = pm.LogNormal("observation_noise_scale", 0, 2)
    brownian_motion(innovation, noise, data("brownian_motion")["observed_locs"])


def lorenz_bridge(innovation: Any, noise: Any) -> None:
    """Add a Lorenz system in steps of Euler's method, with noise, and what was seen of it."""
    d = data("convection_lorenz_bridge")
    step, values = float(d["step_size"]), d["observed_values"]
    seen = np.flatnonzero(np.isfinite(values))
    latents = pm.Flat("latents", shape=(len(values), 3))
    x, y, z = (latents[:-1, k] for k in range(3))
    drift = pt.stack([10 * (y - x), x * (28 - z) - y, x * y - 8 / 3 * z], axis=1)
    following = pm.Normal.dist(latents[:-1] + step * drift, np.sqrt(step) * innovation)
    pm.Potential("start", pm.logp(pm.Normal.dist(0, 1), latents[0]))
    pm.Potential("steps", pm.logp(following, latents[1:]))
    pm.Normal("observed_values", latents[seen, 0], noise, observed=values[seen])


@target()
def convection_lorenz_bridge() -> None:
    """Lorenz system of 30 steps, of whose first coordinate 20 were seen."""
    d = data("convection_lorenz_bridge")
    lorenz_bridge(float(d["innovation_scale"]), float(d["observation_scale"]))


@target()
def convection_lorenz_bridge_unknown_scales() -> None:
    """The same with unknown scales."""
    innovation = pm.LogNormal("innovation_scale", -1, 1)
    lorenz_bridge(innovation, pm.LogNormal("observation_scale", -1, 1))


def sp500_returns() -> np.ndarray:
    """Return the last 100 returns of the S&P 500, less their mean."""
    returns = np.diff(data("sp500")["closing_prices"])[-100:]
    found: np.ndarray = returns - returns.mean()
    return found


def autoregression(innovations: Any, persistence: Any, length: int) -> Any:
    """Return a stationary autoregression of order one, the sums twice as long at each step."""
    first = innovations[:1] / pt.sqrt(1 - persistence**2)
    values, lag, power = pt.concatenate([first, innovations[1:]]), 1, persistence
    while lag < length:
        values = values + power * pt.concatenate([pt.zeros(lag), values[:-lag]])
        lag, power = 2 * lag, power**2
    return values


def volatility(returns: np.ndarray, *, centred: bool) -> None:
    """Return a model of returns whose log variance is an autoregression."""
    length = len(returns)
    beta = pm.Beta("beta", 20, 1.5)
    persistence = pm.Deterministic("persistence_of_volatility", 2 * beta - 1)
    mean = pm.Cauchy("mean_log_volatility", 0, 5)
    scale = pm.HalfCauchy("white_noise_shock_scale", 2)
    if centred:
        start = pm.Normal.dist(mean, scale / pt.sqrt(1 - persistence**2))
        rho = pt.stack([mean * (1 - persistence), persistence])
        log = pm.AR("log_volatility", rho, scale, constant=True, init_dist=start, shape=length)
    else:
        z = pm.Normal("std_log_volatility", 0, 1, shape=length)
        walk = scale * autoregression(z, persistence, length)
        log = pm.Deterministic("log_volatility", mean + walk)
    pm.Normal("returns", 0, pt.exp(log / 2), observed=returns)


@target()
def stochastic_volatility_sp500_small() -> None:
    """Volatility of 100 days of returns, centred."""
    volatility(sp500_returns(), centred=True)


@target("stochastic_volatility_sp500_small")
def vectorized_stochastic_volatility_sp500_small() -> None:
    """The same, non-centred."""
    volatility(sp500_returns(), centred=False)
