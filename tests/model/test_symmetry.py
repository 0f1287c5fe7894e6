"""Permutations of units, and widths of priors."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

from pymc_sgmcmc.model.coordinates import coordinates_at
from pymc_sgmcmc.model.properties import prior_widths
from pymc_sgmcmc.model.symmetry import has_permutable_units

rng = np.random.default_rng(0)
X, y = rng.normal(size=(40, 3)), rng.normal(size=40)


def net():
    W, b = pm.Normal("W", shape=(3, 5)), pm.Normal("b", shape=5)
    V = pm.Normal("V", shape=5)
    pm.Normal("y", pm.math.tanh(X @ W + b) @ V, observed=y)


def net_of_dead_units():
    W, V = pm.Normal("W", shape=(3, 5)), pm.Normal("V", shape=5)
    pm.Normal("y", pt.maximum((X - 100) @ W, 0) @ V, observed=y)


def net_of_rates():
    W, V = pm.Normal("W", shape=(3, 5)), pm.Normal("V", shape=5)
    pm.Poisson("y", pt.exp(pt.tanh(X @ W) @ V), observed=np.ones(40, int))


def deep_net():
    W = pm.Normal("W", shape=(3, 4))
    V, c = pm.Normal("V", shape=(4, 4)), pm.Normal("c", shape=4)
    u = pm.Normal("u", shape=4)
    pm.Normal("y", pm.math.tanh(pm.math.tanh(X @ W) @ V + c) @ u, observed=y)


def factors():
    U, V = pm.Normal("U", shape=(10, 4)), pm.Normal("V", shape=(7, 4))
    user, item = rng.integers(0, 10, 40), rng.integers(0, 7, 40)
    pm.Normal("y", (U[user] * V[item]).sum(axis=1), observed=y)


def varying_slopes():
    group = rng.integers(0, 8, 40)
    mu, slopes = pm.Normal("mu", shape=3), pm.Normal("slopes", shape=(8, 3))
    pm.Normal("y", ((mu + slopes)[group] * X).sum(axis=1), observed=y)


def groups_of_which_few_have_rows():
    group = rng.integers(50, 60, 40)
    intercept, slopes = pm.Normal("intercept", shape=500), pm.Normal("slopes", shape=(500, 3))
    pm.Normal("y", intercept[group] + (slopes[group] * X).sum(axis=1), observed=y)


def new_groups():
    group, mu, scale = rng.integers(0, 4, 40), pm.Normal("mu"), pm.HalfNormal("scale")
    a, slopes = pm.Normal("a", mu, scale, shape=4), pm.Normal("slopes", mu, scale, shape=(4, 3))
    pm.Normal("new", mu, scale, shape=6)
    pm.Normal("new_slopes", mu, scale, shape=(6, 2))
    pm.Normal("y", a[group] + (slopes[group] * X).sum(axis=1), observed=y)


def net_with_fixed_units():
    W, V = pm.Normal("W", shape=(3, 5)), pm.Normal("V", shape=5)
    slopes = np.linspace(1, 2, 5)
    pm.Normal("y", pm.math.tanh(X @ W * slopes) @ V, observed=y)


def convolution():
    # Four filters, seen at three places each by the layer that follows
    filters, out = pm.Normal("filters", shape=(4, 2)), pm.Normal("out", shape=(12, 2))
    near = np.lib.stride_tricks.sliding_window_view(np.c_[X, y], 2, axis=1)
    seen = pm.math.tanh(near @ filters.T).transpose((0, 2, 1)).reshape((len(y), 12))
    pm.Normal("y", seen @ out, observed=X[:, :2])


def places_of_one_matrix():
    # Twelve elements that are four times three, without a layer before
    slopes, scale = pm.Normal("slopes", shape=(12, 2)), pm.Normal("scale", shape=4)
    pm.Normal("y", np.tile(X, 4) @ slopes * scale[:2] + scale[2:], observed=X[:, :2])


@pytest.mark.parametrize(
    ("build", "permutable"),
    [
        (net, True),
        (net_of_dead_units, True),
        (net_of_rates, True),
        (deep_net, True),
        (factors, True),
        (varying_slopes, False),
        (groups_of_which_few_have_rows, False),
        (new_groups, False),
        (net_with_fixed_units, False),
        (convolution, True),
        (places_of_one_matrix, False),
    ],
)
def test_units_that_can_be_exchanged_are_found(build, permutable):
    with pm.Model() as model:
        build()
    gradient = model.compile_dlogp()
    start = model.initial_point()
    shapes = {v.name: start[v.name].shape for v in model.value_vars}
    cuts = np.cumsum([np.prod(s, dtype=int) for s in shapes.values()])[:-1]

    def flat_gradient(flat):
        parts = np.split(flat, cuts)
        point = {n: p.reshape(s) for (n, s), p in zip(shapes.items(), parts, strict=True)}
        return -gradient(point)

    position = [rng.normal(size=s) for s in shapes.values()]
    assert has_permutable_units(flat_gradient, position) == permutable


def test_hundreds_of_vectors_are_no_units():
    """Their sets are counted in millions, in minutes."""
    assert not has_permutable_units(lambda x: x, [np.zeros(4)] * 300)


def test_widths_are_those_of_prior_draws():
    with pm.Model() as model:
        pm.Normal("W", 3, 0.1, shape=(50, 40))
        pm.StudentT("heavy", nu=1, sigma=2, shape=2000)
        pm.HalfNormal("s", 5)
    coordinates, _, _ = coordinates_at(model, model.value_vars, "lipschitz", model.initial_point())
    w, heavy, s = prior_widths(coordinates, 1)
    # Medians of 16,000 distances have standard errors of about 1.2 %
    assert w == pytest.approx(0.1, rel=0.05)
    assert heavy == pytest.approx(4 * 1.4826 / np.sqrt(2), rel=0.05)
    assert s == 1


def test_the_width_of_a_prior_that_cannot_be_drawn_is_1():
    with pm.Model() as model:
        pm.Flat("flat", shape=3)
        pm.Normal("W", model["flat"].sum(), 0.1)
        pm.CustomDist("own", logp=lambda x: -(x**2))
        pm.Normal("x", 0, 7, shape=2000)
    coordinates, _, _ = coordinates_at(model, model.value_vars, "lipschitz", model.initial_point())
    *undrawn, x = prior_widths(coordinates, 1)
    assert undrawn == [1, 1, 1]
    assert x == pytest.approx(7, rel=0.05)


def test_gradients_whose_squares_overflow_are_compared():
    def gradient(x):
        return 1e200 * (x + x.sum())

    position = [np.arange(6.0).reshape(2, 3), np.arange(3.0)]
    assert has_permutable_units(gradient, position)


def test_classes_that_a_batch_lacks_are_no_units():
    """Two classes without rows in a batch can be exchanged there, and not on all rows."""
    rows, classes = 4000, 40
    X = 5 + rng.normal(size=(rows, 3))
    y = (0.3 * (X - 5) @ rng.normal(size=(3, classes)) + rng.gumbel(size=(rows, classes))).argmax(1)
    found = []
    for seed in range(60):
        draw = np.random.default_rng(seed)
        start = draw.normal(size=4 * classes)
        few = draw.choice(rows, 60, replace=False)

        def gradient(flat, rows):
            W, b = flat[: 3 * classes].reshape(3, classes), flat[3 * classes :]
            eta = X[rows] @ W + b
            p = np.exp(eta - eta.max(axis=1, keepdims=True))
            p /= p.sum(axis=1, keepdims=True)
            p[np.arange(len(p)), y[rows]] -= 1
            return flat + np.concatenate([(X[rows].T @ p).ravel(), p.sum(axis=0)])

        position = [start[: 3 * classes].reshape(3, classes), start[3 * classes :]]
        of_batch = lambda x, rows=few: gradient(x, rows)  # noqa: E731
        of_all = lambda x: gradient(x, slice(None))  # noqa: E731
        found.append([has_permutable_units(of_batch, position, x) for x in (None, of_all)])
    alone, beside_all = np.mean(found, axis=0)
    assert alone > 0
    assert beside_all == 0
