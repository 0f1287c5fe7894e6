"""Gradient noise that a thermostat of each coordinate cannot undo."""

import numpy as np
import pymc as pm
import pytest

from scipy.special import betaln

import pymc_sgmcmc as sg

from helpers.grids import moments, weights
from helpers.policies import THERMOSTAT
from helpers.sampling import run
from helpers.surfaces_of_rows import Groups, Noisy, correlated_columns
from helpers.z_scores import STANDARD_ERRORS, assert_right, z_score
from pymc_sgmcmc.kernel.engine import Engine
from pymc_sgmcmc.tuning.directions import Turn
from pymc_sgmcmc.tuning.noise import measured_noise
from pymc_sgmcmc.tuning.shared_noise import (
    SharedNoise,
    WhitenedGradients,
    noise_in_common,
    noise_together,
)

BOUND = THERMOSTAT.noise_of_many


class Spread(Groups):
    """Groups whose rows have an sd that is learned: its logarithm is the last coordinate."""

    def __init__(self, groups, each, seed, batch_size):
        super().__init__(groups, each, seed)
        super(Groups, self).__init__(groups + 1, groups * each, batch_size)

    def of_rows(self, points, index, counted):
        u, g = super().of_rows(points[:, :-1], index, counted)
        precision = np.exp(-2 * points[:, -1])
        n = index.shape[1] if counted is None else counted.sum(axis=1)
        last = n - 2 * u * precision
        return u * precision + n * points[:, -1], np.column_stack([g * precision[:, None], last])


def asked(surface, sd, turn=None, sizes=None, centre=None):
    """Return the answer for batches as they are drawn."""
    rng = np.random.default_rng(1)
    centre = np.zeros(surface.dimension) if centre is None else centre
    g = surface.batch_gradient(np.tile(centre, (4000, 1)), surface.draw_rows(rng, 4000)) * sd
    variance = (g if turn is None else turn.pull_back(g)).var(axis=0)
    sizes = sizes or [surface.dimension]
    gradients = WhitenedGradients(surface, centre, sd, turn)
    return noise_in_common(gradients, variance, THERMOSTAT, sizes, rng)


def test_the_means_of_groups_are_none():
    surface = Groups(600, 20, seed=0)
    assert not asked(surface, np.full(600, 21**-0.5), centre=surface.mean)


@pytest.mark.parametrize(("groups", "expected"), [(1500, True), (60, False)])
def test_a_scale_feels_where_few_batches_have_moved_all_groups(groups, expected):
    each = 20
    surface = Spread(groups, each, 0, groups * each // 50)
    sd = np.append(np.full(groups, (each + 1) ** -0.5), (2 * groups * each) ** -0.5)
    # The directions of 50 batches are few for 1,500 groups
    centre = np.append(surface.mean, 0.0)
    assert asked(surface, sd, sizes=[groups, 1], centre=centre) is expected


def test_a_mean_in_the_place_of_which_is_a_direction_shares_their_noise():
    groups = 599
    sd = np.full(600, 21**-0.5)
    # The last coordinate has a single group's noise; the direction has as much of all others
    direction = np.append(np.full(groups, (0.5 / groups) ** 0.5), 0.5**0.5)[:, None]
    turn = Turn.to(direction, np.array([2.0]), [groups, 1], sd)

    class Silent(Groups):
        def of_rows(self, points, index, counted):
            u, g = super().of_rows(points, index, counted)
            g[:, -1] = 0.0
            return u, g

    silent = Silent(600, 20, seed=0)
    assert asked(silent, sd, turn, [groups, 1], silent.mean)
    assert not asked(silent, sd, None, [groups, 1], silent.mean)


@pytest.mark.parametrize(("slope", "expected"), [(0.0, False), (-0.1, False), (-0.8, True)])
def test_noise_that_grows_along_coordinates(slope, expected):
    class Growing(Noisy):
        def batch(self, points, rows):
            u, g = self.full(points)
            a = self.noise[0][rows[:, 0]]
            return u, g + self.additive * np.exp(slope * points / 2) * a

    surface = Growing(np.full(600, 6.0), np.zeros(600))
    assert asked(surface, np.ones(600)) is expected


@pytest.mark.slow
def test_the_sd_of_rows_beside_thousands_of_groups():
    groups, each, tau = 1500, 20, 0.5
    rng, rows = np.random.default_rng(3), groups * each
    g = rng.permutation(np.repeat(np.arange(groups), each))
    y = 1 + tau * rng.normal(size=groups)[g] + 1.2 * rng.normal(size=rows)
    means = np.bincount(g, y) / each
    within, between = np.sum((y - means[g]) ** 2), np.sum((means - 1) ** 2)
    sigma = np.linspace(1.1, 1.3, 4001)
    of_means = tau**2 + sigma**2 / each
    log = -(rows - groups) * np.log(sigma) - within / (2 * sigma**2) - sigma**2 / 8
    log -= groups / 2 * np.log(of_means) + between / (2 * of_means)
    with pm.Model():
        of, seen = pm.Minibatch(g, y, batch_size=300)
        spread = pm.HalfNormal("sigma", 2)
        theta = pm.Normal("theta", 1, tau, shape=groups)
        pm.Normal("y", theta[of], spread, observed=seen, total_size=rows)
        found = run(sg.MSGNHT())
    assert_right(found.posterior, {"sigma": moments(weights(log), sigma)})


@pytest.mark.slow
def test_the_concentration_of_thousands_of_rare_rates():
    groups, rows, mean_rate = 2000, 8000, 0.03
    rng, g = np.random.default_rng(13), np.repeat(np.arange(groups), 4)
    n = rng.poisson(40, rows) + 1
    chances = rng.beta(60 * mean_rate, 60 * (1 - mean_rate), groups)[g]
    y = rng.binomial(n, chances).astype("int32")
    hits, trials = np.bincount(g, y), np.bincount(g, n)
    kappa = np.linspace(20, 200, 2001)
    a, b = kappa[:, None] * mean_rate, kappa[:, None] * (1 - mean_rate)
    log = np.sum(betaln(a + hits, b + trials - hits) - betaln(a, b), axis=1) - kappa**2 / 2e4
    with pm.Model():
        of, tried, seen = pm.Minibatch(g, n.astype("int32"), y, batch_size=200)
        concentration = pm.HalfNormal("kappa", 100)
        theta = pm.Beta(
            "theta", mean_rate * concentration, (1 - mean_rate) * concentration, shape=groups
        )
        pm.Binomial("y", tried, theta[of], observed=seen, total_size=rows)
        found = run(sg.MSGNHT())
    assert_right(found.posterior, {"kappa": moments(weights(log), kappa)})


@pytest.mark.parametrize(("sampled", "expected"), [(True, True), (False, False)])
@pytest.mark.parametrize("kind", ["rates", "chances", "simplexes"])
def test_noise_grows_along_what_has_a_law_that_is_sampled(kind, sampled, expected):
    with pm.Model() as model:
        a = pm.Exponential("a", 1) if sampled else 1.0
        if kind == "rates":
            pm.Gamma("x", a, 2.0, shape=600)
        elif kind == "chances":
            pm.Beta("x", a, 2.0, shape=600)
        else:
            pm.Dirichlet("x", a * np.ones(3), shape=(300, 3))
        options = sg.MSGNHT().options
    compiled = Engine(model, model.value_vars, options, model.initial_point())
    assert compiled.noise_grows is expected
    assert compiled.shares_noise is expected


DIMENSION, SHARE = 150, 0.4


class Correlated(Noisy):
    """Precision 1 + E of all coordinates but the last, on which E depends, and noise along E."""

    def __init__(self, away, slope, along):
        super().__init__(np.ones(DIMENSION + 1), np.zeros(DIMENSION + 1), rows=600)
        self.away, self.slope = away, slope
        noise = self.noise[0][:, :-1] @ np.linalg.cholesky(np.eye(DIMENSION) + along * away).T
        noise = np.column_stack([noise / noise.std(axis=0), np.zeros(len(noise))])
        self.noise = np.stack([noise, np.zeros_like(noise)])
        self.covariance = np.cov(noise[:, :-1].T, bias=True)

    def full(self, points):
        x, s = points[:, :-1], points[:, -1:]
        g = x + x @ self.away * (1 + self.slope * s)
        last = s[:, 0] + self.slope * np.einsum("ni,ij,nj->n", x, self.away, x) / 2
        return np.zeros(len(points)), np.column_stack([g, last])


def correlated(slope, along):
    rng = np.random.default_rng(4)
    X = rng.standard_normal((2000, DIMENSION))
    X /= np.linalg.norm(X, axis=0)
    return Correlated(X.T @ X - np.eye(DIMENSION), slope, along)


def shared(surface):
    d = DIMENSION + 1
    gradients = WhitenedGradients(surface, np.zeros(d), np.ones(d), None)
    variance = np.append(np.ones(DIMENSION), 0.0)
    share = np.append(np.full(DIMENSION, SHARE), 0.0)
    return SharedNoise(gradients, variance, share, [DIMENSION, 1], np.random.default_rng(5))


@pytest.mark.parametrize("slope", [0.0, 3.0])
def test_errors_and_shifts_are_those_of_first_order(slope):
    surface = correlated(slope, along=1.0)
    errors, shifts = shared(surface).errors_and_shifts()
    hotter = SHARE * (surface.covariance - np.eye(DIMENSION))
    product = surface.away @ hotter
    change = hotter - (product + product.T) / 2
    assert abs(z_score(errors[:, 0], -np.trace(product) / DIMENSION)) < STANDARD_ERRORS
    expected = -np.trace(slope * surface.away @ change) / 2
    if slope:
        assert abs(z_score(shifts[:, 0], expected)) < STANDARD_ERRORS
    else:
        np.testing.assert_allclose(shifts, 0, atol=1e-12)


@pytest.mark.parametrize(
    ("slope", "along", "expected"), [(0.0, 1.0, False), (3.0, 1.0, True), (3.0, 0.0, False)]
)
def test_what_depends_on_widths_is_wrong_where_noise_is_along_curvature(slope, along, expected):
    assert shared(correlated(slope, along)).is_along_curvature() is expected


def ridge():
    """Return rows of a regression, and the mean and sd of its coefficients' sd, by quadrature."""
    rng = np.random.default_rng(5)
    X = rng.normal(size=(3000, 800))
    y = X @ (0.05 * rng.normal(size=800)) + rng.normal(size=3000)
    eigenvalues, vectors = np.linalg.eigh(X.T @ X)
    along = vectors.T @ (X.T @ y)
    s = np.linspace(0.02, 0.1, 4001)
    grown = 1 + s[:, None] ** 2 * eigenvalues
    log = 0.5 * np.sum(along**2 * s[:, None] ** 2 / grown - np.log(grown), axis=1) - s**2 / 2
    return X, y, moments(weights(log), s)


@pytest.mark.slow
def test_the_sd_of_hundreds_of_correlated_coefficients():
    X, y, exact = ridge()
    with pm.Model():
        columns, seen = pm.Minibatch(X, y, batch_size=150)
        scale = pm.HalfNormal("scale", 1)
        beta = pm.Normal("beta", 0, scale, shape=800)
        pm.Normal("y", columns @ beta, 1, observed=seen, total_size=len(y))
        found = run(sg.CoRVSGLD())
    assert_right(found.posterior, {"scale": exact})


def test_noise_of_sums_is_that_of_the_bulk_in_whatever_units():
    """With scale=None the bulk may be a hundred times as narrow as the chain's coordinates."""
    d, rng = 600, np.random.default_rng(3)
    surface, root, bulk = Noisy(np.zeros(d), np.full(d, 0.5)), np.ones(d), np.full(d, 0.01)
    noise = measured_noise(surface, np.zeros(d), root, rng, bulk, many=True)
    gradients = WhitenedGradients(surface, np.zeros(d), root, None)
    assert noise_together(gradients, bulk, noise, rng) == (0, 0)


def test_sums_of_correlated_coordinates_are_noisier_than_each():
    surface, hessian = correlated_columns()
    d = len(hessian)
    axes = {"diagonal": np.diag(hessian) ** -0.5, "apart": np.ones(d)}
    apart = Noisy(np.ones(d), np.full(d, 0.5))
    found = {}
    for kind, of in (("diagonal", surface), ("apart", apart)):
        sd, rng = axes[kind], np.random.default_rng(3)
        noise = measured_noise(of, np.zeros(d), sd, rng, many=True)
        gradients = WhitenedGradients(of, np.zeros(d), sd, None)
        found[kind] = noise_together(gradients, sd, noise, rng)
    assert found["apart"] == (0, 0)
    plain, _ = found["diagonal"]
    # A batch's noise is N / B times the Hessian
    sd = axes["diagonal"]
    largest = np.linalg.eigvalsh(hessian * np.outer(sd, sd))[-1] * surface.rows / 60
    assert 0.6 * largest < plain < 1.2 * largest
