"""Directions that thousands of parameters share with a few others."""

import numpy as np
import pymc as pm
import pytest

import pymc_sgmcmc as sg

from helpers.sampling import run
from helpers.surfaces import Gaussian
from helpers.surfaces_of_rows import correlated_columns
from helpers.z_scores import assert_right
from pymc_sgmcmc.tuning.directions import Turn, shared_directions

RNG = np.random.default_rng(0)
GROUPS, ITEMS, EACH = 400, 150, 8


def crossed(covariate=None):
    """The precision of mu, two effects, and perhaps a slope on a covariate of the groups."""
    rng = np.random.default_rng(1)
    g, i = np.repeat(np.arange(GROUPS), EACH), rng.integers(ITEMS, size=GROUPS * EACH)
    sizes = [1, GROUPS, ITEMS, *[1] * (covariate is not None)]
    design = np.zeros((len(g), sum(sizes)))
    design[:, 0] = 1
    design[np.arange(len(g)), 1 + g] = 1
    design[np.arange(len(g)), 1 + GROUPS + i] = 1
    if covariate is not None:
        design[:, -1] = covariate[g]
    prior = np.ones(sum(sizes))
    prior[0] = 0.01
    return design.T @ design + np.diag(prior), sizes


def extremes(surface, sd, turn):
    """Least and largest eigenvalue of the precision in the turned coordinates."""
    root = sd[:, None] * turn(np.eye(len(sd))).T if turn is not None else np.diag(sd)
    w = np.linalg.eigvalsh(root.T @ surface.matrix @ root)
    return w[0], w[-1]


def test_circles_share_no_directions():
    surface = Gaussian(np.zeros(600), np.eye(600))
    surface.circular = np.full(600, True)
    centre, turn = shared_directions(
        surface, np.zeros(600), np.ones(600), [600], np.random.default_rng(0)
    )
    assert turn is None
    np.testing.assert_array_equal(centre, 0)


def test_a_turn_is_orthogonal_and_makes_directions_coordinates():
    U = np.linalg.qr(RNG.normal(size=(60, 3)))[0]
    turn = Turn.to(U, np.array([10.0, 0.5, 3.0]), [1, 39, 20], np.ones(60))
    Q = (turn(np.eye(60)) / turn.lengths[:, None]).T
    np.testing.assert_allclose(Q.T @ Q, np.eye(60), atol=1e-12)
    assert len(turn.coordinates) == 3
    along = np.abs(Q[:, turn.coordinates].T @ U)
    np.testing.assert_allclose(np.sort(along.max(axis=0)), 1, atol=1e-12)
    # One coordinate for each, with its length
    for k, length in enumerate([10.0, 0.5, 3.0]):
        assert turn.lengths[turn.coordinates[along[:, k].argmax()]] == length


def test_a_gradient_is_pulled_back_by_the_transpose():
    U = np.linalg.qr(RNG.normal(size=(20, 2)))[0]
    turn = Turn.to(U, np.array([4.0, 0.5]), [20], np.ones(20))
    L = turn(np.eye(20)).T
    g = RNG.normal(size=(5, 20))
    np.testing.assert_allclose(turn.pull_back(g), g @ L, atol=1e-12)


def test_variables_without_a_part_are_left_as_they_are():
    U = np.zeros((30, 1))
    U[:10] = 10**-0.5
    parts = Turn.to(U, np.array([3.0]), [10, 20], np.ones(30)).parts([10, 20])
    assert [part.shape for part in parts] == [(4, 10), (0, 20)]


def test_a_small_variable_keeps_its_coordinate_where_directions_are_a_part_of_it():
    U = np.zeros((201, 1))
    U[0], U[1:] = 0.5, (0.75 / 200) ** 0.5
    turn = Turn.to(U, np.array([5.0]), [1, 200], np.ones(201))
    assert turn.coordinates[0] > 0
    U[0], U[1:] = 0.9, ((1 - 0.81) / 200) ** 0.5
    assert Turn.to(U, np.array([5.0]), [1, 200], np.ones(201)).coordinates[0] == 0


def test_the_place_is_that_of_an_element_like_most():
    U, sd = np.full((100, 1), 0.1), np.linspace(1, 2, 100)
    U[49:51] = 0.2
    U /= np.linalg.norm(U)
    assert Turn.to(U, np.array([5.0]), [100], sd).coordinates[0] in (48, 51)


@pytest.mark.parametrize("slope", [False, True])
def test_an_intercept_beside_two_effects_has_curvature_near_one_everywhere(slope):
    covariate = np.random.default_rng(2).normal(size=GROUPS) if slope else None
    precision, sizes = crossed(covariate)
    surface = Gaussian(RNG.normal(size=len(precision)), precision)
    sd = np.diag(precision) ** -0.5
    before = extremes(surface, sd, None)
    start = surface.mean + sd * RNG.normal(size=len(sd))
    start[0] += 100 * sd[0]
    centre, turn = shared_directions(surface, start, sd, sizes, np.random.default_rng(3))
    low, high = extremes(surface, sd, turn)
    assert before[0] < 0.03 and before[1] > 2.5
    # What is left is the coupling of single groups with single items
    assert low > 0.4 and high < 2.2
    # Of its own sd in these coordinates, seven of the fitted ones, a small part
    assert abs((centre - surface.mean)[0] / sd[0]) < 2


def test_independent_coordinates_are_left_alone():
    precision = np.diag(RNG.uniform(1, 100, size=600))
    surface = Gaussian(np.zeros(600), precision)
    sd = np.diag(precision) ** -0.5
    centre, turn = shared_directions(surface, sd, sd, [1, 599], np.random.default_rng(0))
    assert turn is None
    np.testing.assert_array_equal(centre, sd)


def test_directions_of_small_variables_alone_have_places_of_their_own():
    U = np.zeros((600, 2))
    U[:10, 0], U[:10, 1] = 0.1**0.5, 0.1**0.5 * np.repeat([1, -1], 5)
    turn = Turn.to(U, np.array([5.0, 2.0]), [10, 590], np.ones(600))
    Q = (turn(np.eye(600)) / turn.lengths[:, None]).T
    np.testing.assert_allclose(Q.T @ Q, np.eye(600), atol=1e-12)
    assert len(turn.coordinates) == 2


def test_a_density_that_is_not_finite_around_is_left_alone():
    surface = Gaussian(np.zeros(600), np.eye(600))
    surface.full = lambda points: (np.full(len(points), np.nan), np.full(points.shape, np.nan))
    centre, sd = np.zeros(600), np.ones(600)
    found, turn = shared_directions(surface, centre, sd, [1, 599], np.random.default_rng(0))
    assert turn is None and found is centre


@pytest.mark.slow
def test_an_intercept_beside_two_effects_is_right():
    rng = np.random.default_rng(4)
    g, i = np.repeat(np.arange(GROUPS), 25), rng.integers(ITEMS, size=25 * GROUPS)
    y = 1 + rng.normal(size=GROUPS)[g] + rng.normal(0, 0.5, ITEMS)[i] + rng.normal(size=len(g))
    design = np.zeros((len(g), 1 + GROUPS + ITEMS))
    design[np.arange(len(g))[:, None], np.stack([0 * g, 1 + g, 1 + GROUPS + i], axis=1)] = 1
    prior = np.repeat([1 / 25, 1, 4], [1, GROUPS, ITEMS])
    covariance = np.linalg.inv(design.T @ design + np.diag(prior))
    mean, sd = covariance @ design.T @ y, np.sqrt(np.diag(covariance))
    with pm.Model():
        rows = pm.Minibatch(g, i, y, batch_size=250)
        mu = pm.Normal("mu", 0, 5)
        a, b = pm.Normal("a", 0, 1, shape=GROUPS), pm.Normal("b", 0, 0.5, shape=ITEMS)
        pm.Normal("y", mu + a[rows[0]] + b[rows[1]], 1, observed=rows[2], total_size=len(y))
        found = run(sg.CoRVSGLD(backend="jax"))
    ends = {"mu": 0, "a": slice(1, 11), "b": slice(1 + GROUPS, 11 + GROUPS)}
    posterior = {name: found.posterior[name][..., :10] if name != "mu" else found.posterior[name]
                 for name in ends}  # fmt: skip
    assert_right(posterior, {name: (mean[k], sd[k]) for name, k in ends.items()})


def test_what_lies_on_a_circle_takes_no_part():
    precision, sizes = crossed()
    surface = Gaussian(np.zeros(len(precision)), precision)
    surface.circular = np.zeros(len(precision), dtype=bool)
    surface.circular[0] = True
    sd = np.diag(precision) ** -0.5
    _, turn = shared_directions(surface, np.zeros(len(sd)), sd, sizes, np.random.default_rng(0))
    if turn is not None:
        assert not turn.away[0].any() and turn.lengths[0] == 1


@pytest.mark.slow
def test_a_mean_of_slopes_on_which_no_row_depends():
    rng, groups, rows = np.random.default_rng(5), 250, 7500
    chol = np.linalg.cholesky([[1, 0.2, -0.06], [0.2, 0.25, 0], [-0.06, 0, 0.09]])
    g = np.repeat(np.arange(groups), rows // groups)
    X = np.column_stack([np.ones(rows), rng.normal(size=(rows, 2))])
    effects = np.array([1, -0.5, 0.3]) + rng.normal(size=(groups, 3)) @ chol.T
    y = np.sum(effects[g] * X, axis=1) + rng.normal(size=rows)
    # Exact: effects are the first coordinates, their means the last three
    inverse = np.linalg.inv(chol @ chol.T)
    shift = np.zeros(3 * groups + 3)
    precision = np.kron(np.eye(groups + 1), inverse)
    precision[-3:, -3:] = groups * inverse + np.eye(3) / 4
    precision[:-3, -3:] = np.tile(-inverse, (groups, 1))
    precision[-3:, :-3] = precision[:-3, -3:].T
    for k in range(groups):
        own, of = slice(3 * k, 3 * k + 3), g == k
        precision[own, own] += X[of].T @ X[of]
        shift[own] = X[of].T @ y[of]
    covariance = np.linalg.inv(precision)
    mean, sd = covariance @ shift, np.sqrt(np.diag(covariance))
    with pm.Model():
        groups_of, design, seen = pm.Minibatch(g, X, y, batch_size=250)
        mu = pm.Normal("mu", 0, 2, shape=3)
        b = pm.MvNormal("b", mu, chol=chol, shape=(groups, 3))
        effect = pm.math.sum(b[groups_of] * design, axis=1)
        pm.Normal("y", effect, 1, observed=seen, total_size=rows)
        found = run(sg.MSGNHT())
    exact = {"mu": (mean[-3:], sd[-3:]), "b": (mean[:30].reshape(10, 3), sd[:30].reshape(10, 3))}
    assert_right({"mu": found.posterior["mu"], "b": found.posterior["b"][..., :10, :]}, exact)
    assert int(found.sample_stats["batches"].max()) < 16


def test_correlated_columns_are_found_by_the_noise_of_their_rows():
    """Of six factors five are in no common move, nor in the responses to it."""
    surface, hessian = correlated_columns()
    d = len(hessian)
    sd = np.diag(hessian) ** -0.5
    assert np.linalg.eigvalsh(hessian * np.outer(sd, sd))[-6] > 5
    _, turn = shared_directions(surface, np.zeros(d), sd, [d], np.random.default_rng(0))
    assert len(turn.coordinates) >= 6
    root = sd[:, None] * turn(np.eye(d)).T
    assert np.linalg.eigvalsh(root.T @ hessian @ root)[-1] < 2


@pytest.mark.slow
@pytest.mark.parametrize("method", [sg.CoRVSGLD, sg.MSGNHT])
def test_sums_of_hundreds_of_correlated_coefficients_are_right(method):
    """Along the 30 narrowest directions variances were twice the exact ones."""
    rng = np.random.default_rng(0)
    rows, columns, factors = 20_000, 600, 30
    loads = rng.normal(size=(factors, columns)) * (0.8 / factors) ** 0.5
    x = rng.normal(size=(rows, factors)) @ loads + 0.2**0.5 * rng.normal(size=(rows, columns))
    y = x @ rng.normal(0, 0.1, columns) + rng.normal(size=rows)
    with pm.Model():
        beta = pm.Normal("beta", 0, 10, shape=columns)
        pm.Normal("y", pm.math.dot(x, beta), 1, observed=y)
        draws = run(method(thin=60, backend="jax"), draws=500).posterior["beta"].values
    precision, vectors = np.linalg.eigh(x.T @ x + 0.01 * np.eye(columns))
    along = (draws @ vectors[:, -factors:]) * precision[-factors:] ** 0.5
    # Most of 1,000 draws are effective: an error of 5 % in each, and 1 % in the mean of 30
    assert along.var(axis=(0, 1)).mean() == pytest.approx(1, abs=0.1)
    assert along.var(axis=(0, 1)).max() < 1.4
