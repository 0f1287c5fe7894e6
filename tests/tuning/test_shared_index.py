"""Elements of several variables that share an index are whitened together."""

import numpy as np
import pymc as pm
import pytest

import pymc_sgmcmc as sg

from helpers.sampling import run
from helpers.surfaces import Exact, Gaussian, away_from_identity
from helpers.surfaces_of_rows import Means
from helpers.z_scores import assert_right
from pymc_sgmcmc.kernel.whitening import Shear
from pymc_sgmcmc.tuning.noise import measured_noise
from pymc_sgmcmc.tuning.remembered import Remembered
from pymc_sgmcmc.tuning.shared_index import InBlocks, fitted_in_blocks, in_blocks

GROUPS = 300


def pairs(correlation, shapes, seed=0):
    """A normal law of a mean and of two variables, whose elements of one index are correlated."""
    rng = np.random.default_rng(seed)
    block = np.array([[1, correlation], [correlation, 1]])
    precision = np.diag(np.ones(1 + 2 * GROUPS))
    numbers = np.arange(1, 1 + 2 * GROUPS)
    if shapes[1] == (GROUPS, 2):
        index = numbers.reshape(GROUPS, 2).T
    else:
        index = numbers.reshape(2, GROUPS)
    for i, j in index.T:
        precision[np.ix_([i, j], [i, j])] = block
    units = 10.0 ** rng.uniform(-1, 1, size=len(precision))
    surface = Gaussian(rng.normal(size=len(precision)), precision * np.outer(units, units))
    surface.shapes = shapes
    return surface


SHAPES_OF_VECTORS = [(), (GROUPS,), (GROUPS,)]
SHAPES = pytest.mark.parametrize(
    "shapes",
    [SHAPES_OF_VECTORS, [(), (GROUPS, 2)], [(), (2, GROUPS)]],
    ids=["two vectors", "columns", "rows"],
)


@SHAPES
def test_blocks_have_curvature_one(shapes):
    surface = pairs(0.97, shapes)
    sd = np.diag(surface.matrix) ** -0.5
    found = in_blocks(surface, surface.mean, sd, np.random.default_rng(0))
    d = surface.dimension
    root = found.whole(np.diag(found.sd)).T
    assert away_from_identity(root.T @ surface.matrix @ root) < 1.001
    assert away_from_identity((surface.matrix * sd) * sd[:, None]) > 30
    np.testing.assert_allclose(found.inward(found.whole(np.eye(d))), np.eye(d), atol=1e-9)
    # The gradient is that of the potential as a function of the new coordinates
    x, move = np.random.default_rng(1).normal(size=(2, d))
    ahead, behind = found.full(np.stack([x + 1e-4 * move, x - 1e-4 * move]))[0]
    slope = found.full(x[None])[1][0] @ move
    np.testing.assert_allclose((ahead - behind) / 2e-4, slope, rtol=1e-6)


@SHAPES
def test_weak_correlations_are_left(shapes):
    surface = pairs(0.2, shapes)
    assert (
        in_blocks(surface, surface.mean, np.diag(surface.matrix) ** -0.5, np.random.default_rng(0))
        is None
    )


def test_what_all_elements_have_in_common_makes_no_blocks():
    surface = pairs(0.0, [(), (GROUPS,), (GROUPS,)])
    # As of two effects of one mean: each element is coupled with all of the other variable
    surface.matrix = np.eye(601) + 1 / 601
    assert in_blocks(surface, surface.mean, np.ones(601), np.random.default_rng(0)) is None


def test_couplings_of_other_indices_are_no_blocks():
    """Columns of a regression have something in common: signs alike in all patterns are chance."""
    rng, rows = np.random.default_rng(0), 3000
    common = rng.normal(size=(rows, 1))
    X = 0.5**0.5 * (common + rng.normal(size=(rows, GROUPS)))
    treated = rng.integers(0, 2, rows)
    design = np.concatenate([X, treated[:, None] * X], axis=1)
    matrix = np.eye(1 + 2 * GROUPS)
    matrix[1:, 1:] += design.T @ design
    surface = Gaussian(np.zeros(len(matrix)), matrix)
    surface.shapes = [(), (GROUPS,), (GROUPS,)]
    sd = np.diag(matrix) ** -0.5
    widest = np.linalg.eigvalsh((matrix * sd) * sd[:, None]).max()
    for seed in range(20):
        found = in_blocks(surface, surface.mean, sd, np.random.default_rng(seed))
        if found is not None:
            root = found.whole(np.diag(found.sd)).T
            assert np.linalg.eigvalsh(root.T @ matrix @ root).max() < 3 * widest


@pytest.mark.parametrize("last", [True, False])
def test_more_variables_than_a_block_holds(last):
    """The variables that are correlated may be declared after eight others."""
    first = pairs(0.97, SHAPES_OF_VECTORS).matrix
    apart = np.eye(8 * GROUPS)
    zero = np.zeros((len(first), len(apart)))
    matrix, shapes = np.block([[first, zero], [zero.T, apart]]), [(GROUPS,)] * 8
    if last:
        matrix, shapes = np.block([[apart, zero.T], [zero, first]]), [*shapes, *SHAPES_OF_VECTORS]
    else:
        shapes = [*SHAPES_OF_VECTORS, *shapes]
    surface = Gaussian(np.zeros(len(matrix)), matrix)
    surface.shapes = shapes
    found = in_blocks(surface, surface.mean, np.diag(matrix) ** -0.5, np.random.default_rng(0))
    root = found.whole(np.diag(found.sd)).T
    assert away_from_identity(root.T @ matrix @ root) < 1.001


def test_a_circle_is_no_part_of_a_block():
    surface = pairs(0.97, [(), (GROUPS,), (GROUPS,)])
    surface.circular[1] = True
    assert in_blocks(surface, surface.mean, np.ones(601), np.random.default_rng(0)) is None


class Lines(Exact):
    """Lines y = a_j + b_j x of groups, x far from 0, of unit noise, centred.

    a_j ~ N(0, s²) and b_j ~ N(0, r²); the position is (log s, log r, a, b).
    """

    def __init__(self, rows=20):
        super().__init__(2 + 2 * GROUPS)
        rng = np.random.default_rng(3)
        self.shapes = [(), (), (GROUPS,), (GROUPS,)]
        self.unbounded[:2] = False
        self.x = rng.normal(5, 1, size=(GROUPS, rows))
        a, b = rng.normal(size=(GROUPS, 1)), 0.5 * rng.normal(size=(GROUPS, 1))
        self.log_scales = np.log([a.std(), b.std()])
        self.y = a + b * self.x + rng.normal(size=self.x.shape)

    def potential(self, points):
        scales, a, b = points[:, :2], points[:, 2 : 2 + GROUPS], points[:, 2 + GROUPS :]
        inverse = np.exp(-2 * scales)
        miss = a[:, :, None] + b[:, :, None] * self.x - self.y
        squares = np.stack([np.sum(a**2, axis=1), np.sum(b**2, axis=1)], axis=1)
        u = np.sum(miss**2, axis=(1, 2)) / 2 + np.sum(inverse * squares, axis=1) / 2
        u += np.sum((GROUPS - 1) * scales + np.exp(2 * scales) / 8, axis=1)
        of_scales = GROUPS - 1 - inverse * squares + np.exp(2 * scales) / 4
        of_a = miss.sum(axis=2) + a * inverse[:, :1]
        of_b = np.sum(miss * self.x, axis=2) + b * inverse[:, 1:]
        return u, np.column_stack([of_scales, of_a, of_b])


def test_a_scale_does_not_fall_where_pairs_are_correlated():
    """Independent normals take a group's intercept for far better known than it is."""
    surface, rng = Lines(), np.random.default_rng(0)
    found, _ = fitted_in_blocks(surface, np.zeros(surface.dimension), rng, patient=True)
    # The sd of log s given the effects' estimates is about 0.07
    np.testing.assert_allclose(found[:2], surface.log_scales, atol=0.15)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["CoRVSGLD", "MSGNHT"])
def test_intercepts_and_slopes_on_a_covariate_that_is_not_centred(method, caplog):
    rng, groups, rows = np.random.default_rng(5), 300, 20
    g, x = np.repeat(np.arange(groups), rows), rng.normal(5, 1, size=groups * rows)
    a, b = 1 + rng.normal(size=groups), 0.5 * rng.normal(size=groups)
    y = a[g] + b[g] * x + rng.normal(size=len(g))
    # Exact, for known scales: both means are the last coordinates
    prior = np.diag(np.repeat([1, 4], groups))
    of_mean = np.kron(np.eye(2), np.ones((groups, 1)))
    precision = np.block([[prior, -prior @ of_mean], [(-prior @ of_mean).T, np.zeros((2, 2))]])
    precision[-2:, -2:] = of_mean.T @ prior @ of_mean + np.eye(2) / 25
    design = np.zeros((len(g), 2 * groups + 2))
    design[np.arange(len(g)), g], design[np.arange(len(g)), groups + g] = 1, x
    covariance = np.linalg.inv(precision + design.T @ design)
    mean, sd = covariance @ design.T @ y, np.sqrt(np.diag(covariance))
    with pm.Model():
        i, covariate, seen = pm.Minibatch(g, x, y, batch_size=500)
        mu, nu = pm.Normal("mu", 0, 5), pm.Normal("nu", 0, 5)
        a = pm.Normal("a", mu, 1, shape=groups)
        b = pm.Normal("b", nu, 0.5, shape=groups)
        pm.Normal("y", a[i] + b[i] * covariate, 1, observed=seen, total_size=len(y))
        with caplog.at_level("INFO", logger="pymc.sgmcmc"):
            found = run(getattr(sg, method)(backend="jax"))
    assert "While tuning" not in caplog.text
    ends = {"a": slice(0, 10), "b": slice(groups, groups + 10), "mu": -2, "nu": -1}
    posterior = {k: found.posterior[k][..., :10] if k in "ab" else found.posterior[k] for k in ends}
    assert_right(posterior, {name: (mean[k], sd[k]) for name, k in ends.items()})


def test_blocks_of_a_mean_over_places():
    """Beside other steps: blocks are found there, and what places differ in is no noise."""
    exact = pairs(0.97, SHAPES_OF_VECTORS)
    sd, rng = np.diag(exact.matrix) ** -0.5, np.random.default_rng(0)
    places = np.stack([exact.mean, exact.mean + sd])
    found = in_blocks(Remembered([exact, exact], lambda: places), exact.mean, sd, rng)
    np.testing.assert_allclose(found.remembered.places(), found.inward(places))
    index = np.arange(400).reshape(2, 200)
    data = rng.normal(size=(800, index.size))
    views = [Means(data, 40), Means(data + 1, 40)]
    for view in views:
        view.shapes = [(200,), (200,)]
    centre, ones = data.mean(axis=0), np.ones(index.size)
    at = np.tile(centre, (2, 1))
    noise = []
    for surface in (views[0], Remembered(views, lambda: at)):
        shear = Shear([((0, -1, 0), (1, -1, 0))])
        blocks = InBlocks(surface, shear, [np.full((1, 200), 0.7)], ones)
        x = blocks.inward(centre[None])[0]
        noise.append(measured_noise(blocks, x, ones, np.random.default_rng(1), many=True).plain)
    # Each from 512 batches or a few passes: a tenth
    for of_blocks in index:
        np.testing.assert_allclose(noise[1][of_blocks].mean(), noise[0][of_blocks].mean(), rtol=0.1)
