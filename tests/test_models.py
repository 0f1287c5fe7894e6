"""What PyMC models are made of: each feature in a small model, sampled as a user would."""

import warnings

from itertools import pairwise

import numpy as np
import pymc as pm
import pymc.distributions.transforms as tr
import pytensor
import pytensor.tensor as pt
import pytest

from scipy import stats

import pymc_sgmcmc as sg

from helpers import grids
from helpers.sampling import QUIET
from pymc_sgmcmc.backends.workarounds import interpreted
from pymc_sgmcmc.testing import UNTUNED

# Each function adds its variables to the model in context, and returns the whitening scales,
# about one posterior sd of each variable, and a function that checks the draws.


def data_with_dims(rng):
    X = rng.normal(size=(200, 3))
    Y = X @ [1.0, -2.0, 0.5] + 0.5 * rng.normal(size=200)
    model = pm.modelcontext(None)
    model.add_coords({"row": np.arange(200), "feature": ["a", "b", "c"]})
    x = pm.Data("x", X, dims=("row", "feature"))
    y = pm.Data("y_data", Y, dims="row")
    x, y = pm.Minibatch(x, y, batch_size=50)
    weights = pm.Normal("weights", 0.0, 1.0, dims="feature")
    pm.Normal("y", x @ weights, 0.5, observed=y, total_size=200)

    def check(posterior):
        assert posterior["weights"].dims == ("chain", "draw", "feature")
        assert list(posterior["feature"].values) == ["a", "b", "c"]
        precision = X.T @ X / 0.25 + np.eye(3)
        near(posterior["weights"], np.linalg.solve(precision, X.T @ Y / 0.25), sd=0.035)

    return {"weights": 0.035}, check


def groups_in_a_non_centred_hierarchy(rng):
    group = np.repeat(np.arange(5, dtype=np.int32), 60)
    Y = np.array([-2.0, -1.0, 0.0, 1.0, 2.0])[group] + rng.normal(size=300)
    y, g = pm.Minibatch(Y, group, batch_size=100)
    centre = pm.Normal("centre", 0.0, 2.0)
    spread = pm.HalfNormal("spread", 2.0)
    raw = pm.Normal("raw", 0.0, 1.0, shape=5)
    effect = pm.Deterministic("effect", centre + spread * raw)
    pm.Normal("y", effect[g], 1.0, observed=y, total_size=300)

    def check(posterior):
        assert (posterior["spread"] > 0).all()
        means = [Y[group == k].mean() for k in range(5)]
        near(posterior["effect"], means, sd=0.13, within=1.25)
        rebuilt = posterior["centre"] + posterior["spread"] * posterior["raw"]
        np.testing.assert_allclose(posterior["effect"], rebuilt.transpose("chain", "draw", ...))

    return {"centre": 0.1, "spread": 0.05, "raw": 0.1}, check


def custom_distribution(rng):
    Y = rng.exponential(2.0, size=150)
    y = pm.Minibatch(Y, batch_size=50)
    rate = pm.Gamma("rate", 2.0, 1.0)
    logp = lambda value, rate: pt.log(rate) - rate * value  # noqa: E731
    pm.CustomDist("y", rate, logp=logp, observed=y, total_size=150)
    mean, sd = 152 / (1 + Y.sum()), np.sqrt(152) / (1 + Y.sum())
    return {"rate": 0.08}, lambda posterior: near(posterior["rate"], mean, sd)


def ordered_mixture(rng):
    Y = np.concatenate([rng.normal(-3, 1, size=40), rng.normal(3, 1, size=80)])
    means = pm.Normal("means", [-1.0, 1.0], 10.0, transform=tr.ordered)
    pm.NormalMixture("y", [1 / 3, 2 / 3], means, 1.0, observed=Y)

    def check(posterior):
        assert (posterior["means"].diff("means_dim_0") > 0).all()
        near(posterior["means"], [Y[:40].mean(), Y[40:].mean()], sd=0.14)

    return {"means": np.array([0.15, 0.03])}, check


def lkj_covariance(rng):
    covariance = np.array([[1.0, 0.7], [0.7, 1.0]])
    Y = rng.multivariate_normal([0, 0], covariance, size=300)
    chol, _, _ = pm.LKJCholeskyCov(
        # Without initval PyMC runs a scan in C for the start, and warns where it finds no BLAS
        "chol",
        n=2,
        eta=1.0,
        sd_dist=pm.Exponential.dist(1.0),
        initval=[1.0, 0.0, 1.0],
    )
    pm.MvNormal("y", np.zeros(2), chol=chol, observed=Y)

    def check(posterior):
        correlation = posterior["chol_corr"]
        assert correlation.shape == (1, 50, 2, 2)
        assert (abs(correlation[..., 0, 1]) < 1).all()
        np.testing.assert_allclose(correlation[..., 0, 0], 1.0)
        near(correlation[..., 0, 1], np.corrcoef(Y.T)[0, 1], sd=0.03)
        near(posterior["chol_stds"], np.sqrt(np.mean(Y**2, axis=0)), sd=0.04)

    return {"chol": np.array([0.04, 0.05, 0.04])}, check


def zero_sum(rng):
    group = np.arange(400) % 4
    Y = np.array([1.0, 2.0, -3.0, 0.0])[group] + rng.normal(size=400)
    effect = pm.ZeroSumNormal("effect", 5.0, shape=4)
    pm.Normal("y", effect[group], 1.0, observed=Y)

    def check(posterior):
        np.testing.assert_allclose(posterior["effect"].sum("effect_dim_0"), 0, atol=1e-12)
        means = np.array([Y[group == k].mean() for k in range(4)])
        near(posterior["effect"], means - means.mean(), sd=0.09)

    return {"effect": 0.1}, check


def censored(rng):
    Y = np.minimum(rng.normal(1, 1, size=90), 1.5)
    y = pm.Minibatch(Y, batch_size=40)
    mean = pm.Normal("mean", 0.0, 5.0)
    pm.Censored("y", pm.Normal.dist(mean, 1.0), lower=None, upper=1.5, observed=y, total_size=90)
    below, n_above = Y[Y < 1.5], (Y == 1.5).sum()

    def log_density(m):
        return (
            stats.norm.logpdf(m, 0, 5)
            + stats.norm.logpdf(below[:, None], m, 1).sum(axis=0)
            + n_above * stats.norm.logsf(1.5, m, 1)
        )

    return {"mean": 0.12}, lambda posterior: near(posterior["mean"], *moments(log_density, 0, 2))


def truncated(rng):
    Y = np.abs(rng.normal(0.5, 1, size=80))
    mean = pm.Truncated("mean", pm.Normal.dist(0.0, 1.0), lower=-1.0, upper=2.0)
    pm.Truncated("y", pm.Normal.dist(mean, 1.0), lower=0.0, observed=Y)

    def log_density(m):
        likelihood = stats.norm.logpdf(Y[:, None], m, 1) - stats.norm.logsf(0, m, 1)
        return stats.norm.logpdf(m) + likelihood.sum(axis=0)

    def check(posterior):
        assert (abs(posterior["mean"] - 0.5) < 1.5).all()
        near(posterior["mean"], *moments(log_density, -1, 2))

    return {"mean": 0.3}, check


def bounds_of_another_variable(rng):
    width = pm.Uniform("width", 1.0, 2.0)
    pm.Uniform("x", 0.0, width)

    def check(posterior):
        assert ((posterior["x"] > 0) & (posterior["x"] < posterior["width"])).all()
        near(posterior["x"], 0.75, sd=0.45)

    return {}, check


def latent_gaussian_process(rng):
    points = np.linspace(0, 1, 8)[:, None]
    Y = np.sin(5 * points[:, 0])
    covariance = pm.gp.cov.ExpQuad(1, ls=0.3)
    process = pm.gp.Latent(cov_func=covariance).prior("process", points)
    pm.Normal("y", process, 0.3, observed=Y)

    def check(posterior):
        K = np.exp(-0.5 * (points - points.T) ** 2 / 0.3**2)
        near(posterior["process"], K @ np.linalg.solve(K + 0.09 * np.eye(8), Y), sd=0.2)

    return {"process_rotated_": 0.3}, check


def autoregression(rng):
    Y = np.zeros(200)
    for t in range(1, 200):
        Y[t] = 0.8 * Y[t - 1] + rng.normal()
    rho = pm.Normal("rho", 0.0, 1.0, shape=1)
    pm.AR("y", rho, 1.0, init_dist=pm.Normal.dist(0, 1), observed=Y)
    precision = 1 + Y[:-1] @ Y[:-1]
    mean, sd = Y[:-1] @ Y[1:] / precision, precision**-0.5
    return {"rho": 0.045}, lambda posterior: near(posterior["rho"], mean, sd)


def scan_in_the_likelihood(rng):
    Y = np.cumsum(rng.normal(size=40)) + rng.normal(size=40)
    share = pm.Beta("share", 2.0, 2.0)
    levels = pytensor.scan(
        lambda y, level, share: share * y + (1 - share) * level,
        sequences=[pt.as_tensor(Y[:-1])],
        outputs_info=[pt.as_tensor(Y[0])],
        non_sequences=[share],
        return_updates=False,
    )
    pm.Normal("y", levels, 1.5, observed=Y[1:])

    def log_density(a):
        level, total = Y[0], stats.beta.logpdf(a, 2, 2)
        for before, after in pairwise(Y):
            level = a * before + (1 - a) * level
            total = total + stats.norm.logpdf(after, level, 1.5)
        return total

    return {"share": 0.5}, lambda posterior: near(posterior["share"], *moments(log_density, 0, 1))


def two_observed_and_a_list_of_sizes(rng):
    A, B = rng.normal(1.0, 1.0, size=90), rng.normal(1.0, 2.0, size=(60, 3))
    a, b = pm.Minibatch(A, batch_size=40), pm.Minibatch(B, batch_size=25)
    mean = pm.Normal("mean", 0.0, 1.0)
    pm.Normal("a", mean, 1.0, observed=a, total_size=[90])
    pm.Normal("b", mean, 2.0, observed=b, total_size=[60, None])
    precision = 1 + 90 + 180 / 4
    expected = (A.sum() + B.sum() / 4) / precision
    return {"mean": 0.09}, lambda posterior: near(posterior["mean"], expected, precision**-0.5)


def circle(rng):
    pm.VonMises("angle", 3.0, 4.0, shape=20)

    def check(posterior):
        angle = posterior["angle"].values
        assert (abs(angle) <= np.pi).all()
        # Around 3 the bulk reaches past π, and wraps
        assert (angle > 2).any()
        assert (angle < -2).any()
        assert abs(np.angle(np.exp(1j * (angle - 3.0)).mean())) < 0.3

    return {"angle": 0.5}, check


def imputed(rng):
    # Larger than the constants that stay in the graph
    Y = rng.normal(2, 1, size=100)
    Y[[3, 7]] = np.nan
    mean = pm.Normal("mean", 0.0, 5.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pm.exceptions.ImputationWarning)
        pm.Normal("y", mean, 1.0, observed=Y)
    precision = 1 / 25 + 98
    expected = np.nansum(Y) / precision

    def check(posterior):
        near(posterior["mean"], expected, sd=precision**-0.5)
        near(posterior["y_unobserved"], expected, sd=1.0)
        np.testing.assert_array_equal(posterior["y"][0, 0, [0, 1]], Y[:2])
        np.testing.assert_array_equal(posterior["y"][..., 3], posterior["y_unobserved"][..., 0])

    return {"mean": 0.2}, check


MODELS = [
    data_with_dims,
    groups_in_a_non_centred_hierarchy,
    custom_distribution,
    ordered_mixture,
    lkj_covariance,
    zero_sum,
    censored,
    truncated,
    bounds_of_another_variable,
    latent_gaussian_process,
    autoregression,
    scan_in_the_likelihood,
    two_observed_and_a_list_of_sizes,
    circle,
    imputed,
]


def near(draws, mean, sd, within=0.75):
    """Compare the mean of 50 draws, which has an error of about 0.17 posterior sds."""
    z = (draws.mean(("chain", "draw")).values - mean) / sd
    assert np.all(abs(z) < within), (draws.name, z)


def moments(log_density, lower, upper):
    """Return mean and sd of a density of one variable, on a grid."""
    x = np.linspace(lower, upper, 2001)[1:-1]
    with np.errstate(divide="ignore"):
        return grids.moments(grids.weights(log_density(x)), x)


# Long to compile
LONG = [
    groups_in_a_non_centred_hierarchy,
    scan_in_the_likelihood,
    lkj_covariance,
    truncated,
    zero_sum,
]


def sample(step, **options):
    settings = {"draws": 50, "tune": 50, "chains": 1, "cores": 1, "random_seed": 5, **QUIET}
    return pm.sample(step=step, **{**settings, **options})


@pytest.mark.parametrize(
    ("build", "backend"),
    [
        *((build, "jax") for build in MODELS if build not in LONG),
        *(pytest.param(build, "jax", marks=pytest.mark.slow) for build in LONG),
        *(pytest.param(build, "numba", marks=pytest.mark.slow) for build in LONG[:2]),
    ],
    ids=lambda x: x if isinstance(x, str) else x.__name__,
)
def test_model_is_sampled(build, backend):
    # PyMC compiles what it records in the default mode: numba would take a minute over a dot
    with pm.Model() as model, interpreted():
        scale, check = build(np.random.default_rng(20))
        step = sg.CoRVSGLD(step_size=0.1, backend=backend, **{**UNTUNED, "scale": scale})
        dt = sample(step)
    posterior = dt.posterior
    free = {rv.name for rv in model.free_RVs}
    assert set(posterior.data_vars) == free | {variable.name for variable in model.deterministics}
    for name, draws in posterior.data_vars.items():
        assert np.isfinite(draws).all(), name
        assert name not in free or (draws.std("draw") > 0).all(), name
    assert not dt.sample_stats["diverging"].any()
    for value, last in zip(step.vars, step.chain.values, strict=True):
        # PyMC wraps what it records; the coordinate itself must not drift away either
        assert "circular" not in value.name or (abs(last) <= np.pi).all()
    check(posterior)


# ---------------------------------------------------------------- what is refused


@pytest.mark.parametrize("method", [sg.CoRVSGLD, sg.MSGNHT])
@pytest.mark.parametrize(
    ("add", "message"),
    [
        (lambda y: pm.Potential("pull", -y.sum()), "potential 'pull' depends .*multiplied by"),
        (lambda y: pm.Deterministic("twice", 2 * y), "deterministic 'twice'.*random batch of rows"),
    ],
    ids=["potential", "deterministic"],
)
def test_what_a_batch_may_make_wrong_is_warned_of_by_name(method, add, message):
    with pm.Model():
        y = pm.Minibatch(np.arange(30.0), batch_size=5)
        pm.Normal("y", pm.Normal("mean"), observed=y, total_size=30)
        add(y)
        with pytest.warns(UserWarning, match=message) as caught:
            method(step_size=0.1)
    assert len(caught) == 1
    # The line that made the step, not one inside the package
    assert caught[0].filename == __file__


def censored_gamma():
    """Return a model whose gradient is a loop over the terms of a series, and its exact moments."""
    y = np.minimum(np.random.default_rng(6).gamma(2.0, size=80), 2.5)
    with pm.Model() as model:
        shape = pm.Gamma("shape", 2.0, 1.0)
        pm.Censored("y", pm.Gamma.dist(shape, 1.0), lower=None, upper=2.5, observed=y)

    def log_density(a):
        below = stats.gamma.logpdf(y[y < 2.5][:, None], a).sum(axis=0)
        return stats.gamma.logpdf(a, 2) + below + (y == 2.5).sum() * stats.gamma.logsf(2.5, a)

    return model, moments(log_density, 0, 5)


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["jax", "numba"])
def test_a_gradient_with_a_loop_over_numbers(backend):
    model, exact = censored_gamma()
    with model:
        dt = sample(sg.SGLD(step_size=0.01, backend=backend, **UNTUNED))
    near(dt.posterior["shape"], *exact)
