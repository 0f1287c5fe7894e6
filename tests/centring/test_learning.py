"""What the maps of hierarchies learn of curvatures and gradients."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest

from pytensor.graph.replace import graph_replace

import pymc_sgmcmc as sg

from helpers.rings import ring
from helpers.sampling import run
from pymc_sgmcmc.backends.interpreting import INTERPRETER
from pymc_sgmcmc.centring.coefficients import information_of_block
from pymc_sgmcmc.centring.elements import Elements
from pymc_sgmcmc.centring.gaussian_map import Middle
from pymc_sgmcmc.centring.information import FieldInformation, WalkInformation, read
from pymc_sgmcmc.centring.walks import Walk
from pymc_sgmcmc.model.affine_use import ModelView
from pymc_sgmcmc.model.recognise import recognised

INFORMATION, SCORE = np.array([0.0, 0.3, 50.0]), np.array([0.0, -2.0, 90.0])


def test_elements_learn_in_coordinates_of_wrong_information():
    """Curvature and mean of φ say which information is right."""
    rng = np.random.default_rng(2)
    wrong = np.stack([np.full(3, 0.5), rng.exponential(2, 3), rng.normal(size=3)])
    spreads = rng.exponential(1, (50, 1)) * np.ones(3)
    curvature = np.mean((1 + INFORMATION * spreads**2) / (1 + wrong[1] * spreads**2), axis=0)
    location, spread = np.array([1.0, -2.0, 0.5]), np.array([0.3, 2.0, 1.0])

    def law(of):
        precision = 1 + of[1] * spread**2
        return spread * (of[2] - of[1] * location) / precision, precision**-0.5

    (shift, width), (mean, _) = law(wrong), law([None, INFORMATION, SCORE])
    middle = Middle((mean - shift) / width, location, spread)
    learned = Elements().with_information(wrong).from_curvature(curvature, spreads, middle)
    np.testing.assert_allclose(learned[1], INFORMATION, rtol=0, atol=1e-12 * INFORMATION.max())
    np.testing.assert_allclose(learned[2], SCORE, rtol=0, atol=1e-10 * SCORE.max())
    ratio = INFORMATION * np.median(spreads, axis=0) ** 2
    np.testing.assert_allclose(learned[0], ratio / (1 + ratio), rtol=1e-12)


@pytest.mark.parametrize("excess", [0.0, 1e-8, -1e-8])
def test_rounding_is_no_information(excess):
    """Where σ falls to nothing z / σ is huge, and at another σ it would be a location."""
    tiny = np.full(1, 1e-9)
    learned = (
        Elements()
        .with_information(np.zeros((3, 1)))
        .from_curvature(
            np.array([1 + excess]), tiny[None], Middle(np.array([1e-7]), np.zeros(1), tiny)
        )
    )
    np.testing.assert_array_equal(learned, 0)


def test_a_block_learns_nothing_of_an_element_without_data():
    arrays = [np.zeros((6, 2)), np.zeros((6,))]
    curvature = np.diag([3.0, 1.0, 2.0])
    scale = np.array([0.5, 1e-200, 1.0])
    learned = information_of_block(arrays, scale, np.ones(3), np.zeros(3), curvature)
    assert [x.shape for x in learned] == [(6, 2), (6,)]
    np.testing.assert_allclose(learned[0][:, 0], [2 / 3, 8, 6, 8, 0, 0])
    np.testing.assert_array_equal(learned[0][:, 1], 0)
    np.testing.assert_allclose(learned[1], [0.5, 1, 2, 0, 0, 1])


# ---------------------------------------------------------------------- walks

LENGTH, MU, SD = 60, 0.05, 0.2


@pytest.fixture(scope="module")
def theta_of():
    """Return a walk as a function of φ, the information, σ and the likelihood's sd."""
    with pm.Model() as model:
        mu, sd = pm.Normal("mu"), pm.HalfNormal("sd")
        x = pm.GaussianRandomWalk("x", mu, sd, init_dist=pm.Normal.dist(0, 2), shape=LENGTH)
    array, phi = pt.tensor(shape=(4, LENGTH)), pt.tensor(shape=(LENGTH,))
    unit = pt.dscalar()
    theta = Walk(unit).with_information(array).backward(phi, *x.owner.inputs)
    at = {model["mu"]: pt.constant(MU), model["sd"]: pt.dscalar()}
    graph = graph_replace([theta], at, strict=False)[0]
    return pytensor.function([phi, array, at[sd], unit], graph, mode=INTERPRETER)


def normal_walk():
    """Return J and g of a likelihood, some values without any, and precision and mean.

    These are given σ and the likelihood's sd.
    """
    rng = np.random.default_rng(2)
    information = rng.exponential(5, LENGTH) * (rng.random(LENGTH) < 0.3)
    information[20:35] = 0
    score = information * rng.normal(2, 1, LENGTH)

    def law(sd, unit=1.0, of_first=1 / 4):
        innovation = np.diff(np.eye(LENGTH), axis=0)
        precision = innovation.T @ innovation / sd**2 + np.diag(information) / unit**2
        precision[0, 0] += of_first
        linear = score / unit**2 + innovation.T @ np.full(LENGTH - 1, MU) / sd**2
        return precision, np.linalg.solve(precision, linear)

    return information, score, law


def learned_of_walk(array, phi, theta_of, law, unit=1.0):
    """Return what the map learns from the gradients of a normal law at φ."""
    map_ = Walk().with_information(array)
    location, spread = np.full(LENGTH, MU / unit), np.full(LENGTH, SD / unit)
    location[0], spread[0] = 0, unit
    middle = Middle(phi, location, spread)
    precision, mean = law
    jacobian = np.array([theta_of(phi + e) - theta_of(phi - e) for e in np.eye(LENGTH)]).T / 2

    def gradient(x):
        return jacobian.T @ precision @ (theta_of(x) - mean)

    move = 0.01 * map_.shift(middle) / unit
    np.testing.assert_allclose(jacobian @ move, 0.01, rtol=1e-9)
    there, opposite = gradient(phi + move), gradient(phi - move)
    change = (there - opposite) / 0.02 * unit
    return map_.from_shift((there + opposite) / 2, change, middle)


def test_walks_learn_in_any_coordinates_and_are_standardised(theta_of):
    information, score, law = normal_walk()
    rng = np.random.default_rng(3)
    other = np.concatenate([[np.full(LENGTH, 0.5)], rng.exponential(1, (3, LENGTH))])
    for array in (np.zeros((4, LENGTH)), other):
        new = learned_of_walk(
            array,
            rng.normal(size=LENGTH),
            lambda x, array=array: theta_of(x, array, SD, 1),
            law(SD),
        )
        learned = read(WalkInformation, new)
        # The prior of the first value counts as what is known of it
        known = information + np.eye(LENGTH)[0] / 4
        np.testing.assert_allclose(learned.of_values, known, rtol=0, atol=1e-9)
        np.testing.assert_allclose(learned.score, score, rtol=0, atol=1e-7)
    for sd, slack in ((SD, 1e-9), (0.7 * SD, 0.5), (1.4 * SD, 0.5)):
        lengths = whitened_lengths(lambda x, sd=sd: theta_of(x, new, sd, 1), law(sd)[0])
        assert lengths.min() > 1 - slack and lengths.max() < 1 + slack


def whitened_lengths(theta_of, precision):
    """Return the eigenvalues of a precision in the coordinates of an affine map."""
    origin = theta_of(np.zeros(LENGTH))
    root = np.transpose([theta_of(e) - origin for e in np.eye(LENGTH)])
    return np.linalg.eigvalsh(root.T @ precision @ root)


@pytest.mark.parametrize("factor", [0.01, 1, 100])
def test_a_walk_is_standardised_whatever_the_sd_of_its_likelihood(theta_of, factor):
    """It is in units of that sd: what was learned at one is right at all with the same ratio."""
    _, _, law = normal_walk()
    unit, start = 0.6, np.random.default_rng(4).normal(size=LENGTH)
    new = learned_of_walk(
        np.zeros((4, LENGTH)),
        start,
        lambda x: theta_of(x, np.zeros((4, LENGTH)), SD, unit),
        law(SD, unit, 1 / unit**2),
        unit,
    )
    sd, unit = factor * SD, factor * unit
    precision, mean = law(sd, unit, 1 / unit**2)
    lengths = whitened_lengths(lambda x: theta_of(x, new, sd, unit), precision)
    np.testing.assert_allclose(lengths, 1, rtol=1e-6)
    if factor == 1:
        np.testing.assert_allclose(theta_of(np.zeros(LENGTH), new, sd, unit), mean, atol=1e-6)


# ---------------------------------------------------------------------- fields

COUNT = 12
W = ring(COUNT)


def test_fields_learn_from_a_common_move():
    with pm.Model() as model:
        car = pm.CAR("x", pm.Normal("mu") * np.arange(COUNT), W, pm.Beta("alpha", 1, 1), 2.0)
        pm.Normal("y", 2 * car, 1, observed=np.zeros(COUNT))
    shapes = {rv: rv.type.shape for rv in model.free_RVs}
    map_ = recognised(ModelView(model, model.free_RVs, shapes))[car]
    rng = np.random.default_rng(4)
    information, score = rng.gamma(1, size=COUNT), rng.normal(size=COUNT)
    s, alpha = 2.0**-0.5, 0.8
    c, at = 2 * s, 2 * 0.3 * np.arange(COUNT)
    array = map_.uniform(0.0, (COUNT,))
    map_ = map_.with_information(array)
    old = read(FieldInformation, array)
    precision = old.of_prior - (alpha - old.alpha) * old.of_neighbours

    def gradient(x):
        z = old.basis @ (x / np.sqrt(precision))
        of_z = map_.of_prior.precision(alpha, s) @ z + c * (information * (at + c * z) - score)
        return old.basis.T @ of_z / np.sqrt(precision)

    x = rng.normal(size=COUNT)
    location = np.stack([at, *np.outer([alpha, s, 0.0], np.ones(COUNT))])
    middle = Middle(x, location, np.full(COUNT, c))
    move = map_.shift(middle)
    change = (gradient(x + move) - gradient(x - move)) / 2
    learned = map_.from_shift(gradient(x), change, middle)
    np.testing.assert_allclose(learned[1], information, rtol=1e-5, atol=1e-8)
    expected = map_.at_place(information, score, c, (alpha, s, 0.0))
    np.testing.assert_allclose(learned[3:7], expected[3:7], rtol=1e-4, atol=1e-7)


# ---------------------------------------------------------------------- walks


@pytest.mark.slow
def test_walks_that_meet_in_a_row_each_learn_their_own_information():
    """Ratings of teams: a match informs a difference, which a move of all teams leaves alone."""
    teams, weeks, noise = 6, 12, 1.6
    rng = np.random.default_rng(1)
    order = np.array([rng.permutation(teams) for _ in range(weeks)])
    home, away = order[:, ::2].ravel(), order[:, 1::2].ravel()
    week = np.repeat(np.arange(weeks), teams // 2)
    y = rng.normal(size=len(week))
    with pm.Model():
        sd = pm.HalfNormal("sd", 0.3)
        start = pm.Normal.dist(0, 1)
        s = pm.GaussianRandomWalk("s", sigma=sd, init_dist=start, shape=(teams, weeks))
        pm.Normal("y", s[home, week] - s[away, week], noise, observed=y)
        step = sg.CoRVSGLD(backend="jax")
        run(step, draws=2, chains=1)
    weights = step.centring_weights["s"]
    # Each team plays once a week: 1/1.6² beside 2/sd², with some of the other team's of chance
    assert weights[:, 1:-1].min() > 0.0
    assert weights[:, 1:-1].mean() > 0.005
