"""Hierarchies in coordinates between the centred and the non-centred writing."""

import pickle

import numpy as np
import pymc as pm
import pytest

from scipy import integrate, stats

import pymc_sgmcmc as sg

from helpers.backends import BOTH
from helpers.sampling import run
from helpers.z_scores import STANDARD_ERRORS, assert_right, mean_and_error, means_of_parts
from pymc_sgmcmc.model.coordinates import coordinates_at

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


def weights(step):
    """λ of the variables that have one."""
    fitted = [c for c in step._engine.posterior.coordinates if c.scale is not None]
    scales = step.sampling_state.chain.scales
    return {c.name: lam for c, lam in zip(fitted, scales, strict=True) if c.weighted}


@BOTH
@pytest.mark.parametrize("method", METHODS)
def test_neals_funnel(method, backend):
    with funnel():
        posterior = run(method(backend=backend)).posterior
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


@pytest.mark.parametrize("method", [sg.CoRVSGLD, pytest.param(sg.MSGNHT, marks=pytest.mark.slow)])
def test_a_funnel_in_a_funnel(method):
    with pm.Model():
        v = pm.Normal("v", 0, 3)
        w = pm.Normal("w", 0, pm.math.exp(v / 4))
        pm.Normal("x", 0, pm.math.exp(w / 4), shape=5)
        posterior = run(method()).posterior
    standardised = posterior["w"] * np.exp(-posterior["v"] / 4)
    assert_right(posterior, {"v": (0.0, 3.0)})
    assert_right({"w": standardised}, {"w": (0.0, 1.0)})


def two_way(sizes, seed=0):
    """Normal rows in groups of these sizes, and the exact law given scales of 1."""
    rng = np.random.default_rng(seed)
    group = np.repeat(np.arange(len(sizes)), sizes)
    y = rng.normal(size=len(sizes))[group] + rng.normal(size=len(group))
    return group, y


def test_large_groups_are_centred_and_small_ones_are_not():
    sizes = [0, 1, 1, 2, 3, 300, 400, 500, 600, 700]
    group, y = two_way(sizes)
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 3)
        sd = pm.HalfNormal("sd", 2)
        theta = pm.Normal("theta", mu, sd, shape=len(sizes))
        pm.Normal("y", theta[group], 1, observed=y)
        step = sg.CoRVSGLD()
        posterior = run(step, chains=1).posterior
    assert np.array_equal(weights(step)["theta"], [0] * 5 + [1] * 5)
    with model:
        other = run(sg.CoRVSGLD(centring=None), chains=1, seed=2).posterior
    for name in ("mu", "sd", "theta"):
        a, b = (mean_and_error(means_of_parts(p[name].values)) for p in (posterior, other))
        assert np.all(abs(a[0] - b[0]) < 5 * np.hypot(a[1], b[1]))


def test_minibatched_groups_of_mixed_size():
    """The location of normal groups with known scales has an exact posterior."""
    sizes = [3] * 10 + [2000] * 5
    group, y = two_way(sizes)
    with pm.Model():
        rows, seen = pm.Minibatch(group, y, batch_size=200)
        mu = pm.Normal("mu", 0, 3)
        theta = pm.Normal("theta", mu, 1, shape=len(sizes))
        pm.Normal("y", theta[rows], 1, observed=seen, total_size=len(y))
        step = sg.CoRVSGLD()
        posterior = run(step).posterior
    assert np.array_equal(weights(step)["theta"], [0] * 10 + [1] * 5)
    count = np.array(sizes)
    means = np.bincount(group, y) / count
    # Group means are N(mu, 1 + 1/n)
    precision = 1 / 9 + np.sum(1 / (1 + 1 / count))
    centre = np.sum(means / (1 + 1 / count)) / precision
    shrunk = count / (1 + count)
    of_group = shrunk * means + (1 - shrunk) * centre
    sds = np.sqrt(1 / (1 + count) + (1 - shrunk) ** 2 / precision)
    assert_right(posterior, {"mu": (centre, precision**-0.5), "theta": (of_group, sds)})


def test_levels_are_chosen_from_the_data_upwards():
    """Many rows a group, few groups a region: groups are centred, regions are not."""
    rng = np.random.default_rng(1)
    region, group = np.arange(6) // 1, np.repeat(np.arange(6), 400)
    y = 0.3 * rng.normal(size=6)[region][group] + rng.normal(size=6)[group] + rng.normal(size=2400)
    with pm.Model():
        spread = pm.HalfNormal("spread", 1)
        of_region = pm.Normal("of_region", 0, spread, shape=6)
        of_group = pm.Normal("of_group", of_region[region], 1, shape=6)
        pm.Normal("y", of_group[group], 1, observed=y)
        step = sg.CoRVSGLD()
        run(step, chains=1, draws=100)
    assert np.all(weights(step)["of_group"] == 1)
    assert np.all(weights(step)["of_region"] == 0)


@pytest.mark.parametrize("weight", [0.0, 0.3, 1.0, np.array([0.0, 0.5, 1.0])])
def test_the_map_and_its_jacobian(weight):
    mean, sd = np.array([1.0, -2.0, 300.0]), np.array([0.1, 5.0, 1e-6])
    rv = pm.Normal.dist(mean, sd)
    phi = np.array([0.7, -1.3, 2.1])
    transform = sg.transforms.Centring(weight)
    theta = transform.backward(phi, *rv.owner.inputs).eval()
    expected = mean + sd ** (1 - weight) * (phi - weight * mean)
    assert np.allclose(theta, expected, rtol=1e-14)
    back = transform.forward(theta, *rv.owner.inputs).eval()
    assert np.allclose(back, phi, rtol=0, atol=1e-15 * np.max(abs(theta / sd ** (1 - weight))))
    slope = transform.log_jac_det(phi, *rv.owner.inputs).eval()
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
                centring=step.options.centring,
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
        with pytest.raises(ValueError, match="centring must be one of 'auto'"):
            sg.CoRVSGLD(centring="non-centred")


def test_a_chain_goes_on_where_it_stopped():
    """Weights are part of the chain's state."""
    with funnel():
        step = sg.CoRVSGLD()
        draws = run(step, draws=5, chains=1).posterior
        state = pickle.loads(pickle.dumps(step.sampling_state))
        last = {name: draws[name].values[0, -1] for name in ("v", "x")}
        other = sg.CoRVSGLD()
        other.sampling_state = state
        ends = []
        for each in (step, other):
            point = dict(last)
            for _ in range(3):
                point, _ = each.step(point)
            ends.append(point)
    assert all(np.array_equal(ends[0][name], ends[1][name]) for name in last)
