"""Mixed with PyMC's own step methods, on models whose exact answers are known."""

import arviz as az
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

from pymc.sampling.mcmc import assign_step_methods
from pymc.step_methods import STEP_METHODS
from scipy import integrate, stats

import pymc_sgmcmc as sg

from helpers.conjugate import location_and_precision
from helpers.operations import NoGradient
from helpers.sampling import run
from helpers.steps import start
from helpers.z_scores import STANDARD_ERRORS, assert_right, mean_and_error, means_of_parts
from pymc_sgmcmc.testing import UNTUNED


def sample(model, step, draws=2500):
    return run(step, draws, model=model, tune=100).posterior


def assert_mean(draws, exact, bias=0.0):
    """Compare a mean with the exact one: 4 Monte-Carlo standard errors and the known bias."""
    error = 4 * float(az.mcse(draws, method="mean")) + bias
    assert abs(float(draws.mean()) - exact) < error, (float(draws.mean()), exact, error)


# ----------------------------------------------------------------------------- truth


@pytest.mark.slow
def test_with_binary_metropolis():
    # y_i ~ N(beta + 2 z_i, 1): given z, beta is normal with a precision that no z changes
    y = np.array([0.3, 1.1, 2.4, 3.0])
    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 2)
        z = pm.Bernoulli("z", 0.4, shape=4)
        pm.Normal("y", beta + 2 * z, 1, observed=y)

    configurations = np.stack(np.meshgrid(*[[0, 1]] * 4), axis=-1).reshape(-1, 4)
    log_weights, centres = [], []
    precision = 1 / 4 + len(y)
    for configuration in configurations:
        covariance = np.eye(4) + 4
        evidence = stats.multivariate_normal(2.0 * configuration, covariance).logpdf(y)
        log_weights.append(evidence + stats.bernoulli(0.4).logpmf(configuration).sum())
        centres.append(np.sum(y - 2 * configuration) / precision)
    weights = np.exp(log_weights - np.logaddexp.reduce(log_weights))
    centres = np.array(centres)
    mean = weights @ centres

    h = 0.2
    step = [
        sg.CoRVSGLD(
            [beta],
            step_size=h,
            backend="jax",
            model=model,
            **{**UNTUNED, "scale": {"beta": precision**-0.5}},
        ),
        pm.BinaryMetropolis([z], model=model),
    ]
    posterior = sample(model, step)
    # On a normal density "lm" is exact, but for the noise that it keeps from the update before z
    # moved: h/2 of the move of the centre, which the other 19 updates contract by 1 - h each
    bias = h / 2 * np.ptp(centres) * (1 - h) ** 19
    assert_mean(posterior["beta"], mean, bias)
    assert_mean(
        (posterior["beta"] - mean) ** 2,
        1 / precision + weights @ (centres - mean) ** 2,
        2 * bias * np.ptp(centres),
    )
    for i in range(4):
        assert_mean(posterior["z"][..., i], weights @ configurations[:, i], bias)


def test_with_slice():
    model, exact = location_and_precision(np.random.default_rng(4).normal(1.0, 2.0, size=12))
    # Given tau, the precision of mu is 12.5 tau: "lm" is exact for its normal density
    h = 0.2 / (12.5 * exact["tau"][0])
    step = [
        sg.CoRVSGLD([model["mu"]], step_size=h, backend="jax", model=model, **UNTUNED),
        pm.Slice([model["tau"]], model=model),
    ]
    assert_right(sample(model, step), exact, slack=0)


@pytest.mark.slow
def test_with_a_bound_that_another_step_moves():
    # x is uniform on (0, 1 + 2 z): a new z moves the x that belongs to an unchanged coordinate
    with pm.Model() as model:
        z = pm.Bernoulli("z", 0.5)
        x = pm.Uniform("x", 0, 1 + 2 * z)
        pm.Normal("y", x, 0.6, observed=0.8)

    def moment(power, width):
        density = lambda x: x**power * stats.norm(x, 0.6).pdf(0.8) / width  # noqa: E731
        return integrate.quad(density, 0, width)[0]

    mass, first, second = (np.array([moment(power, 1), moment(power, 3)]) for power in range(3))
    mean = first.sum() / mass.sum()

    h = 0.1
    step = [
        sg.CoRVSGLD([x], step_size=h, backend="jax", model=model, **UNTUNED),
        pm.BinaryMetropolis([z], model=model),
    ]
    posterior = sample(model, step, draws=4000)
    # The error of "lm" is of second order: at most h² of a standard deviation
    sd = np.sqrt(second.sum() / mass.sum() - mean**2)
    assert_mean(posterior["x"], mean, h**2 * sd)
    assert_mean((posterior["x"] - mean) ** 2, sd**2, 2 * h**2 * sd**2)
    assert_mean(posterior["z"], mass[1] / mass.sum(), h**2)
    assert np.all(posterior["x"] < 1 + 2 * posterior["z"])


def test_effects_stay_where_another_step_changes_their_scale():
    """In coordinates that measure them in that scale, too."""
    with pm.Model():
        sd = pm.HalfNormal("sd")
        theta = pm.Normal("theta", 0, sd, shape=3, initval=[1.0, -2.0, 3.0])
        step = sg.CoRVSGLD(
            [theta],
            step_size=1e-14,
            transforms={"theta": sg.transforms.Centring()},
            backend="jax",
            **UNTUNED,
        )
    point, _ = step.step(start(step, 0, 10))
    for log_sd in (1.0, -2.0):
        before = point["theta"]
        point, _ = step.step({**point, "sd_log__": np.array(log_sd)})
        np.testing.assert_allclose(point["theta"], before, rtol=0, atol=1e-4)


def test_beside_exact_draws_of_the_scales_of_effects():
    """From draws of tau ~ Gamma(a, b), theta | tau ~ N(0, 1 / tau): their law stays what it is."""
    a, b, h, columns = 2.0, 2.0, 0.02, 1000
    with pm.Model():
        tau = pm.Gamma("tau", a, b, shape=columns)
        theta = pm.Normal("theta", 0, tau=tau, shape=(4, columns))
        step = sg.SGLD(
            [theta],
            step_size=h,
            transforms={"theta": sg.transforms.Centring()},
            backend="jax",
            **{**UNTUNED, "thin": 1},
        )
    point, _ = step.step(start(step))
    rng = np.random.default_rng(0)
    drawn = rng.gamma(a, 1 / b, columns)
    point["theta"] = rng.normal(0, drawn**-0.5, (4, columns))
    for _ in range(40):
        point["tau_log__"] = np.log(drawn)
        point, _ = step.step(point)
        drawn = rng.gamma(a + 2, 1 / (b + np.sum(point["theta"] ** 2, axis=0) / 2))
    law = stats.loggamma(a, loc=-np.log(b))
    for power, exact in ((1, 0.0), (2, law.var())):
        mean, error = mean_and_error((np.log(drawn) - law.mean()) ** power)
        # The variance of Euler's scheme is at most h / 2 too large
        assert abs(mean - exact) < STANDARD_ERRORS * error + h


@pytest.mark.slow
def test_with_slice_for_the_scales_of_effects_that_are_not_centred():
    """Without data: in the step's coordinates all is standard normal, whatever the scales."""
    with pm.Model() as model:
        mu, sd = pm.Normal("mu", shape=10), pm.LogNormal("sd", 0, 0.4, shape=10)
        theta = pm.Normal("theta", mu, sd, shape=(4, 10))
        step = sg.CoRVSGLD([mu, theta], thin=1, backend="jax")
        steps = [step, pm.Slice([sd])]
    posterior = sample(model, steps, draws=2000)
    assert np.all(step.centring_weights["theta"] < 0.5)
    for z in (posterior["mu"].values, np.log(posterior["sd"].values) / 0.4):
        for power, exact in ((1, 0.0), (2, 1.0)):
            found, error = mean_and_error(means_of_parts((z**power).mean(axis=2)))
            assert error < 0.05 * power
            # "lm" keeps noise from before the scales moved: effects are some 2 % too narrow
            assert abs(found - exact) < 0.1 * power + STANDARD_ERRORS * error


@pytest.mark.slow
def test_two_of_ours_share_a_model():
    # One step for each variable of a correlated pair: a Gibbs sampler
    covariance = np.array([[1.0, 0.6], [0.6, 1.0]])
    with pm.Model() as model:
        x = pm.Normal("x")
        y = pm.Normal("y", 0.6 * x, 0.8)
        steps = [
            sg.CoRVSGLD([y], step_size=0.1, backend="jax", **UNTUNED),
            sg.MSGNHT([x], step_size=0.1, backend="jax", **UNTUNED),
        ]
    posterior = sample(model, steps)
    for name in ("x", "y"):
        assert_mean(posterior[name], 0)
        # The thermostat's error is of second order in the step size over the conditional sd
        assert_mean(posterior[name] ** 2, 1, (0.1 / 0.8) ** 2)
    assert_mean(posterior["x"] * posterior["y"], covariance[0, 1], (0.1 / 0.8) ** 2)


# ----------------------------------------------------------------------------- no preference


def normal():
    with pm.Model() as model:
        pm.Normal("x", shape=3)
    return model


def bounded():
    with pm.Model() as model:
        sigma = pm.HalfNormal("sigma")
        pm.Uniform("u", 0, sigma)
        pm.Beta("p", 2, 2)
        pm.Dirichlet("w", np.ones(3))
        pm.VonMises("angle", 0, 1)
        pm.LKJCholeskyCov("chol", n=2, eta=1, sd_dist=pm.HalfNormal.dist())
    return model


def discrete():
    with pm.Model() as model:
        pm.Bernoulli("b", 0.5)
        pm.Poisson("n", 3)
        pm.Categorical("c", [0.2, 0.3, 0.5])
        pm.DiscreteUniform("u", 0, 9)
    return model


def black_box():
    with pm.Model() as model:
        x = pm.Normal("x")
        pm.Normal("free")
        pm.Normal("y", NoGradient()(x), observed=1.0)
    return model


def mixed():
    with pm.Model() as model:
        z = pm.Bernoulli("z", 0.5, shape=2)
        mu = pm.Normal("mu", pt.as_tensor([0.0, 1.0])[z])
        sigma = pm.HalfNormal("sigma")
        pm.Normal("y", mu, sigma, observed=[0.1, 0.2])
    return model


def minibatched():
    with pm.Model() as model:
        y = pm.Minibatch(np.arange(20.0), batch_size=5)
        pm.Normal("y", pm.Normal("x"), observed=y, total_size=20)
    return model


@pytest.mark.parametrize("make", [normal, bounded, discrete, black_box, mixed, minibatched])
def test_importing_changes_no_choice_of_pymc(make):
    model = make()
    ours = {method for method in STEP_METHODS if issubclass(method, sg.SGMCMCStep)}
    assert {sg.CoRVSGLD, sg.FLA, sg.MSGNHT, sg.SMLD, sg.SGLD} < ours
    without = [method for method in STEP_METHODS if method not in ours]
    expected = assign_step_methods(model, methods=without)
    assert assign_step_methods(model) == expected
    # Nor does their place in the list
    assert assign_step_methods(model, methods=[*ours, *without]) == expected


def test_registered_once():
    assert len(STEP_METHODS) == len(set(STEP_METHODS))
    before = list(STEP_METHODS)
    sg.register(sg.CoRVSGLD)
    assert before == STEP_METHODS
    assert all(method.name for method in STEP_METHODS)
    assert len({method.name for method in STEP_METHODS}) == len(STEP_METHODS)


def test_pymc_can_construct_ours_by_itself():
    # As it constructs what it chooses: options come by the name of the step method
    with pm.Model() as model:
        pm.Normal("x")
        pm.HalfNormal("s")
    _, chosen = assign_step_methods(model, methods=[sg.MSGNHT])
    step = pm.sampling.mcmc.instantiate_steppers(
        model, [], chosen, step_kwargs={"msgnht": {"step_size": 0.1, **UNTUNED}}, compile_kwargs={}
    )
    assert isinstance(step, sg.MSGNHT)
    assert [value.name for value in step.vars] == ["x", "s_log__"]


def test_one_step_for_each_variable():
    with pm.Model() as model:
        pm.Normal("x")
        pm.HalfNormal("s")
        step = sg.SGLD(step_size=0.1, blocked=False, **UNTUNED)
    assert [[value.name for value in method.vars] for method in step.methods] == [
        ["x"],
        ["s_log__"],
    ]
    assert all(method.model is model for method in step.methods)


@pytest.mark.slow
def test_of_what_other_steps_move_only_coordinates_that_depend_on_it_follow():
    """A simplex has masses, whose total PyMC's values have not."""
    with pm.Model():
        mu, tau = pm.Normal("mu"), pm.HalfNormal("tau")
        effects, shares = pm.Normal("e", mu, tau, shape=3), pm.Dirichlet("p", np.full(4, 0.1))
        pm.Normal("y", effects, 1, observed=np.array([-1.0, 0.0, 2.0]))
        step = sg.CoRVSGLD([mu, effects, shares], backend="jax")
    point, _ = step.step(start(step, 1, 5))
    before = step._runner.phi()
    step._follow(step._runner, {**point, "tau_log__": point["tau_log__"] + 1})
    _, of_effects, of_shares = step._runner.phi()
    np.testing.assert_allclose(of_shares, before[2], rtol=1e-9)
    assert not np.allclose(of_effects, before[1])
