"""Hierarchies in coordinates between the centred and the non-centred writing."""

import pickle
import warnings

from functools import cache

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest

from scipy import integrate, stats

import pymc_sgmcmc as sg

from helpers.grids import moments, weights
from helpers.modes import REWRITTEN
from helpers.sampling import QUIET, run
from helpers.z_scores import STANDARD_ERRORS, assert_right, mean_and_error, means_of_parts
from pymc_sgmcmc.model.coordinates import coordinates_at
from pymc_sgmcmc.model.initial_point import initial_point

METHODS = [sg.CoRVSGLD, sg.MSGNHT]


def funnel(dimension=9):
    with pm.Model() as model:
        v = pm.Normal("v", 0, 3)
        pm.Normal("x", 0, pm.math.exp(v / 2), shape=dimension)
    return model


def share_below(bound):
    """P(x < bound) in the funnel."""

    def integrand(v):
        return stats.norm.pdf(v, 0, 3) * stats.norm.cdf(bound * np.exp(-v / 2))

    return integrate.quad(integrand, -30, 30, points=[0.0])[0]


@cache
def in_a_funnel(method, backend):
    """Return a step, and what it samples."""
    step = method(model=funnel(), backend=backend)
    return step, run(step, keep_warning_stat=True)


@pytest.mark.parametrize("method", METHODS)
def test_neals_funnel(method):
    _, found = in_a_funnel(method, "jax")
    posterior = found.posterior
    # Nothing was said
    assert all(warning is None for warning in found.sample_stats["warning"].values.flat)
    assert_right(posterior, {"v": (0.0, 3.0)})
    x = posterior["x"].values
    for bound in (-1.0, 0.5, 3.0):
        below = means_of_parts((x < bound).astype(float))
        found, error = mean_and_error(below)
        # All elements share one v, so that their mean has no smaller error than one of them
        assert abs(found.mean() - share_below(bound)) < STANDARD_ERRORS * error.mean()


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_a_funnel_of_100(method):
    with funnel(99):
        posterior = run(method()).posterior
    assert_right(posterior, {"v": (0.0, 3.0)})


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_a_funnel_in_a_funnel(method):
    with pm.Model():
        v = pm.Normal("v", 0, 3)
        w = pm.Normal("w", 0, pm.math.exp(v / 4))
        pm.Normal("x", 0, pm.math.exp(w / 4), shape=5)
        posterior = run(method()).posterior
    standardised = posterior["w"] * np.exp(-posterior["v"] / 4)
    assert_right(posterior, {"v": (0.0, 3.0)})
    assert_right({"w": standardised}, {"w": (0.0, 1.0)})


def factor(s):
    return pt.stack([pt.stack([s, 0.0]), pt.stack([0.3 * s, s])])


FUNNELS = {
    "vectors": lambda s: pm.MvNormal("x", np.zeros(2), chol=factor(s), shape=(4, 2)),
    "walk": lambda s: pm.GaussianRandomWalk("x", 0, s, init_dist=pm.Normal.dist(0, 2), shape=9),
    "zero sum": lambda s: pm.ZeroSumNormal("x", s, shape=6),
    "log-normal": lambda s: pm.LogNormal("x", 0, s, shape=5),
    "gamma": lambda s: pm.Gamma("x", 2, 1 / s, shape=5),
    "half-Cauchy": lambda s: pm.HalfCauchy("x", s, shape=5),
    "Weibull": lambda s: pm.Weibull("x", 1.5, s, shape=5),
    "inverse gamma": lambda s: pm.InverseGamma("x", 3, s, shape=5),
}


# One that is quick to compile; the others are slow
QUICK = "log-normal"
FAMILIES = [pytest.param(f, marks=[pytest.mark.slow] * (f != QUICK)) for f in FUNNELS]


@pytest.mark.parametrize("family", FAMILIES)
def test_funnels_of_other_families(family):
    with pm.Model():
        v = pm.Normal("v", 0, 3)
        FUNNELS[family](pm.math.exp(v / 2))
        posterior = run(sg.CoRVSGLD(), chains=1).posterior
    assert_right(posterior, {"v": (0.0, 3.0)})


NOISE = 3.0


def two_way(sizes, seed=0):
    """Normal rows in groups of these sizes: the group's number and the row's value."""
    rng = np.random.default_rng(seed)
    group = np.repeat(np.arange(len(sizes)), sizes)
    y = rng.normal(size=len(sizes))[group] + NOISE * rng.normal(size=len(group))
    return group, y


def exact(group, y, count, scales):
    """Moments of location and group effects for each of these scales, and log p(y | scale)."""
    means = np.bincount(group, y, minlength=len(count)) / np.maximum(count, 1)
    # A mean of n rows is N(mu, scale² + noise² / n); an empty group says nothing
    known = count > 0
    variances = scales[:, None] ** 2 + NOISE**2 / np.where(known, count, 1)
    weights = known / variances
    precision = 1 / 9 + weights.sum(axis=1)
    centre = weights @ means / precision
    density = 0.5 * (
        -np.sum(known * np.log(variances) + weights * means**2, axis=1)
        + centre**2 * precision
        - np.log(precision)
    )
    shrunk = np.where(known, scales[:, None] ** 2 / variances, 0)
    effects = shrunk * means + (1 - shrunk) * centre[:, None]
    spread = (1 - shrunk) * scales[:, None] ** 2 + (1 - shrunk) ** 2 / precision[:, None]
    return (centre, 1 / precision), (effects, spread), density


@pytest.mark.slow
def test_large_groups_are_centred_and_small_ones_are_not():
    """Location, scale and effects of normal groups, the scale by quadrature."""
    sizes = np.array([0, 1, 1, 2, 3, 300, 400, 500, 600, 700])
    group, y = two_way(sizes)
    with pm.Model():
        mu = pm.Normal("mu", 0, 3)
        sd = pm.HalfNormal("sd", 2)
        theta = pm.Normal("theta", mu, sd, shape=len(sizes))
        pm.Normal("y", theta[group], NOISE, observed=y)
        step = sg.CoRVSGLD()
        posterior = run(step).posterior
    assert_shares(step.centring_weights["theta"], sizes)
    assert_right(posterior, mixed_over_scales(group, y, sizes))


def assert_shares(found, sizes):
    """λ / (1 - λ) is nσ² over the variance of a row, here exactly."""
    odds = found / (1 - found)
    assert np.allclose(odds, odds.max() * sizes / sizes.max(), rtol=1e-6)
    assert 0.25 < odds.max() * NOISE**2 / sizes.max() < 4


def mixed_over_scales(group, y, count):
    """Exact means and sds, where the scale has a half-normal prior of 2."""
    grid = np.linspace(1e-3, 8, 4000)
    of_mu, of_theta, density = exact(group, y, count, grid)
    share = weights(density - grid**2 / 8)
    return {
        "mu": moments(share, *of_mu),
        "sd": moments(share, grid),
        "theta": moments(share, *of_theta),
    }


SIZES = np.array([1] * 10 + [2000] * 5)


@pytest.mark.slow
@pytest.mark.parametrize("centred", [True, False])
def test_both_writings_are_the_same_posterior(centred):
    """Groups of mixed size: the exact law, and the same weights, in either writing."""
    group, y = two_way(SIZES)
    with pm.Model():
        rows, seen = pm.Minibatch(group, y, batch_size=200)
        mu, sd = pm.Normal("mu", 0, 3), pm.HalfNormal("sd", 2)
        if centred:
            theta = pm.Normal("theta", mu, sd, shape=len(SIZES))
        else:
            z = pm.Normal("z", 0, 1, shape=len(SIZES))
            theta = pm.Deterministic("theta", mu + sd * z)
        pm.Normal("y", theta[rows], NOISE, observed=seen, total_size=len(y))
        step = sg.CoRVSGLD(backend="jax")
        assert step.centring_weights == {}
        posterior = run(step).posterior
    assert_shares(step.centring_weights["theta" if centred else "z"], SIZES)
    assert_right(posterior, mixed_over_scales(group, y, SIZES))


@pytest.mark.slow
def test_levels_are_chosen_from_the_data_upwards():
    """Many rows tell all of a group, and one group little of a region."""
    rng = np.random.default_rng(1)
    region, group = np.arange(6) // 1, np.repeat(np.arange(6), 400)
    y = 0.3 * rng.normal(size=6)[region][group] + rng.normal(size=6)[group] + rng.normal(size=2400)
    with pm.Model():
        spread = pm.HalfNormal("spread", 1)
        of_region = pm.Normal("of_region", 0, spread, shape=6)
        of_group = pm.Normal("of_group", of_region[region], 1, shape=6)
        pm.Normal("y", of_group[group], 1, observed=y)
        step = sg.CoRVSGLD()
        draws = run(step, chains=1).posterior["spread"]
    assert np.all(step.centring_weights["of_group"] > 0.99)
    # The information of a group is that of one row of variance 1, so that λ / (1 - λ) is σ²
    share = step.centring_weights["of_region"]
    low, high = np.quantile(draws, [0.1, 0.9])
    assert np.all((low**2 < share / (1 - share)) & (share / (1 - share) < high**2))


@pytest.mark.parametrize("weight", [0.0, 0.3, 1.0, np.array([0.0, 0.5, 1.0])])
def test_the_map_and_its_jacobian(weight):
    mean, sd = np.array([1.0, -2.0, 300.0]), np.array([0.1, 5.0, 1e-6])
    rv = pm.Normal.dist(mean, sd)
    phi = np.array([0.7, -1.3, 2.1])
    transform = sg.transforms.Centring(weight)
    theta = transform.backward(phi, *rv.owner.inputs).eval(mode=REWRITTEN)
    expected = mean + sd ** (1 - weight) * (phi - weight * mean)
    assert np.allclose(theta, expected, rtol=1e-14)
    back = transform.forward(theta, *rv.owner.inputs).eval(mode=REWRITTEN)
    assert np.allclose(back, phi, rtol=0, atol=1e-15 * np.max(abs(theta / sd ** (1 - weight))))
    slope = transform.log_jac_det(phi, *rv.owner.inputs).eval(mode=REWRITTEN)
    assert np.allclose(slope, (1 - weight) * np.log(sd))


def test_in_a_model_of_pymc_the_density_is_the_same():
    """φ = (θ − μ) / σ: the log density is that of the non-centred writing."""
    with pm.Model() as centred:
        mu, sd = pm.Normal("mu", 0, 2), pm.HalfNormal("sd", 3)
        theta = pm.Normal("theta", mu, sd, shape=3, transform=sg.transforms.Centring())
        pm.Normal("y", theta, 1, observed=[1.0, 2, 4])
    with pm.Model() as other:
        mu, sd = pm.Normal("mu", 0, 2), pm.HalfNormal("sd", 3)
        z = pm.Normal("z", 0, 1, shape=3)
        pm.Normal("y", mu + sd * z, 1, observed=[1.0, 2, 4])
    point = {"mu": 0.3, "sd_log__": 0.5}
    residual = np.array([0.1, -1, 2])
    a = centred.compile_logp(mode="FAST_COMPILE")({**point, "theta_centring__": residual})
    b = other.compile_logp(mode="FAST_COMPILE")({**point, "z": residual})
    assert np.isclose(a, b, rtol=1e-13)


def test_what_is_left_as_it_is():
    with pm.Model() as model:
        mu = pm.Normal("mu")
        sd = pm.HalfNormal("sd")
        pm.Normal("constant", 0, 1, shape=2)
        pm.Normal("mapped", mu, sd, transform=sg.transforms.Centring(0.5))
        theta = pm.Normal("theta", mu, sd, shape=2)
        pm.Normal("y", theta, 1, observed=[0.0, 1])

        def named(step):
            found, _, _ = coordinates_at(
                model, step.vars, step.options.transforms, model.initial_point(),
                named=step.options.named_transforms, centring=step.options.centring,
            )  # fmt: skip
            return {c.name for c in found if c.weighted}

        assert named(sg.CoRVSGLD()) == {"theta"}
        assert named(sg.CoRVSGLD(step_size=0.1)) == {"theta"}
        assert named(sg.CoRVSGLD(centring=None)) == set()
        # Coordinates as they are, or as the user's scale knows them
        assert named(sg.CoRVSGLD(scale=None)) == named(sg.CoRVSGLD(scale={"mu": 1})) == set()
        by_hand = {"theta": sg.transforms.Centring(0.2)}
        assert named(sg.CoRVSGLD(transforms=by_hand)) == set()
        # Both parents are moved by another step: nothing here to decide between
        assert named(sg.CoRVSGLD([theta])) == set()
        assert named(sg.CoRVSGLD([theta, sd])) == {"theta"}


def test_bad_arguments():
    with pytest.raises(ValueError, match=r"between 0 \(non-centred\) and 1"):
        sg.transforms.Centring(1.5)
    with pm.Model():
        pm.Normal("x")
        with pytest.raises(ValueError, match="centring must be 'auto' or None"):
            sg.CoRVSGLD(centring="non-centred")


def test_the_log_says_what_is_left_as_written(caplog):
    with pm.Model() as model:
        mu, sd = pm.Normal("mu", 0, 2), pm.HalfNormal("sd", 1)
        theta = pm.Normal("theta", mu, sd, shape=3)
        share = pm.Kumaraswamy("share", 2, sd)
        pm.Normal("y", theta + share, 0.1, observed=[1.0, 0.5, 2.0])
        step = sg.CoRVSGLD()
    point = initial_point(model)
    with caplog.at_level("DEBUG", logger="pymc.sgmcmc"):
        for _ in range(2):
            step._engine_at(point).express(point)
    assert caplog.text.count("Hierarchical or standard, and sampled only as written: share.") == 1


def imputed():
    mu, sd = pm.Normal("mu", 0, 2), pm.HalfNormal("sd", 2)
    # PyMC makes variables of what is missing and of what is seen
    seen = np.ma.masked_invalid([1.0, np.nan, 0.5, np.nan, -0.7, 2.0])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theta = pm.Normal("theta", mu, sd, observed=seen)
    pm.Normal("y", theta, 1, observed=[1.2, 0.1, 0.4, -0.3, -0.8, 1.5])


def truncated_scale():
    mu = pm.Normal("mu", 0, 2)
    sd = pm.TruncatedNormal("sd", 1, 1, lower=0.1, upper=3)
    theta = pm.Normal("theta", mu, sd, shape=6)
    pm.Normal("y", theta, 1, observed=[1.2, 0.1, 0.4, -0.3, -0.8, 1.5])


def truncated_elements():
    sd = pm.HalfNormal("sd", 2)
    theta = pm.TruncatedNormal("theta", 0.5, sd, lower=0, shape=6)
    pm.Normal("y", theta, 1, observed=[1.2, 0.1, 0.4, 0.3, 0.8, 1.5])


def one_scale_for_two_families():
    sd = pm.HalfNormal("sd", 2)
    theta = pm.Normal("theta", 0, sd, shape=3)
    rate = pm.LogNormal("rate", 0, sd, shape=3)
    # Seen so well that NUTS finds no funnel
    pm.Normal("y", pt.concatenate([theta, rate]), 0.2, observed=[2.2, 0.3, -1.4, 0.3, 0.8, 2.5])


def fixed_scale():
    mu = pm.Normal("mu", 0, 2)
    theta = pm.Normal("theta", mu, 2, shape=6)
    pm.Normal("y", theta, 1, observed=[1.2, 0.1, 0.4, -0.3, -0.8, 1.5])


@pytest.mark.slow
@pytest.mark.parametrize(
    "build", [imputed, truncated_scale, truncated_elements, one_scale_for_two_families, fixed_scale]
)
def test_odd_hierarchies_are_right(build):
    """Against NUTS of PyMC, with the Monte Carlo errors of both."""
    with pm.Model() as model:
        build()
        ours = run(sg.CoRVSGLD(), draws=2000).posterior
        names = [rv.name for rv in model.free_RVs]
        with pytensor.config.change_flags(mode="NUMBA"):
            nuts = pm.sample(
                3000, tune=2000, chains=2, cores=1, random_seed=1, target_accept=0.95,
                progressbar=False, compute_convergence_checks=False,
            ).posterior  # fmt: skip
    for name in names:
        a, b = (mean_and_error(means_of_parts(p[name].values)) for p in (ours, nuts))
        assert np.all(abs(a[0] - b[0]) < STANDARD_ERRORS * np.hypot(a[1], b[1])), name


@pytest.mark.slow
def test_scales_of_another_step():
    """θ keeps the weights that were chosen for all places of the scale that another step moves."""
    sizes = np.array([1] * 6 + [300] * 6)
    group, y = two_way(sizes)
    with pm.Model():
        mu, sd = pm.Normal("mu", 0, 3), pm.HalfNormal("sd", 2)
        theta = pm.Normal("theta", mu, sd, shape=len(sizes))
        pm.Normal("y", theta[group], NOISE, observed=y)
        steps = [sg.CoRVSGLD([mu, theta]), pm.Slice([sd])]
        posterior = pm.sample(2000, step=steps, random_seed=1, chains=2, **QUIET).posterior
    assert_right(posterior, mixed_over_scales(group, y, sizes))


def test_a_chain_goes_on_where_it_stopped():
    """Weights are part of the chain's state."""
    step, _ = in_a_funnel(sg.CoRVSGLD, "jax")
    state = pickle.loads(pickle.dumps(step.sampling_state))
    other = sg.CoRVSGLD(model=step.model, backend="jax")
    # What is compiled has no state
    other._engine, other.sampling_state = step._engine, state
    last = dict(zip([v.name for v in step.vars], step.chain.values, strict=True))
    ends = []
    for each in (step, other):
        point = dict(last)
        for _ in range(3):
            point, _ = each.step(point)
        ends.append(point)
    assert all(np.array_equal(ends[0][name], ends[1][name]) for name in last)


@pytest.mark.slow
def test_chances_of_normals():
    """As the sd falls a chance of a school of few pupils is the mean's: a funnel."""
    tries = np.array([100, 48, 45, 30, 50, 60, 12])
    hits = np.array([27, 11, 9, 4, 15, 19, 2])
    with pm.Model() as model:
        mu, sd = pm.Normal("mu", 0, 20), pm.HalfNormal("sd", 12)
        pm.Binomial("y", tries, pm.LogitNormal("p", mu, sd, shape=7), observed=hits)
    result = run(sg.CoRVSGLD(model=model, backend="jax"))
    # By quadrature over each school's log odds, on a grid of mean and sd
    nodes, share = np.polynomial.hermite_e.hermegauss(60)
    m, s = np.linspace(-3, 1, 161), np.linspace(0.005, 4, 300)
    x = m[:, None, None] + s[:, None] * nodes
    p, log_p = 1 / (1 + np.exp(-x)), stats.norm.logpdf(m, 0, 20)[:, None] - s**2 / 288
    for n, k in zip(tries, hits, strict=True):
        log_p = log_p + np.log(stats.binom.pmf(k, n, p) @ share)
    weight = weights(log_p)
    exact = {"mu": moments(weight.sum(axis=1), m), "sd": moments(weight.sum(axis=0), s)}
    assert_right(result.posterior, exact)
