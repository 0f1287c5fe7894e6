"""The full data in blocks."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_sgmcmc as sg

from helpers.laid_out import laid_out
from helpers.minibatched_models import (
    MODELS,
    data,
    reference,
    regression,
    two_batches,
    with_batches,
    without_batches,
)
from helpers.modes import PLAIN
from helpers.posteriors import posterior_of
from pymc_sgmcmc.backends.placing import place
from pymc_sgmcmc.kernel.pair_sums import summed_pairs
from pymc_sgmcmc.kernel.potential import Potential
from pymc_sgmcmc.kernel.whitening import Shear
from pymc_sgmcmc.model.batch_schemes import BATCH_SCHEMES
from pymc_sgmcmc.tuning.shared_index import InBlocks


class FullDensity:
    """Log density and gradient of the full data, as tuning has them."""

    def __init__(self, posterior, backend):
        self.posterior, self.backend = posterior, backend
        mode = {"mode": PLAIN} if backend == "interpreter" else {}
        self.potential = Potential(posterior, backend, mode)
        self.n_blocks = self.potential.n_blocks

    def __call__(self, phi, scales=(), others=()):
        posterior = self.posterior
        tables = [
            laid_out(BATCH_SCHEMES["shuffled"], array, np.random.default_rng(0), batch.batch_size)
            for batch, arrays in zip(posterior.minibatches, posterior.arrays, strict=True)
            for array in arrays
        ]
        fixed = [*scales, *others, *posterior.data.values(), *tables]
        self.potential.set_fixed(place(fixed, self.backend))
        u, gradient = self.potential.full(self.potential.join(phi)[None])
        return -u[0], [-g for g in self.potential.split(gradient[0])]


def full_density(model, choice="model", backend="interpreter"):
    posterior, phi, scales = posterior_of(model, choice)
    return FullDensity(posterior, backend), phi, scales


def joined(blocks):
    return np.concatenate([np.ravel(block) for block in blocks])


@pytest.mark.parametrize(
    ("build", "backend"),
    [(build, "interpreter") for build in MODELS if build is not regression]
    + [(regression, "jax"), pytest.param(two_batches, "numba", marks=pytest.mark.slow)],
    ids=lambda x: x if isinstance(x, str) else x.__name__,
)
def test_sum_over_blocks_is_pymcs_full_log_density(build, backend):
    phi, logp, gradient = reference(build)
    full, *_ = full_density(with_batches(build), backend=backend)
    found, found_gradient = full(phi)
    np.testing.assert_allclose(found, logp, rtol=1e-12)
    largest = abs(gradient).max()
    np.testing.assert_allclose(joined(found_gradient), gradient, rtol=0, atol=1e-12 * largest)


@pytest.mark.parametrize(("rows", "batch_size"), [(5, 5), (5, 1), (7, 3), (8, 7)])
def test_every_row_is_in_one_block(rows, batch_size):
    values = 10.0 ** np.arange(rows)
    with pm.Model() as model:
        y = pm.Minibatch(values, batch_size=batch_size)
        mean = pm.Flat("mean")
        # The log density of a row is its value times the mean
        pm.CustomDist("y", mean, logp=lambda v, m: m * v, observed=y, total_size=rows)
    full, *_ = full_density(model)
    assert full.n_blocks == -(-rows // batch_size)
    log_density, [gradient] = full([np.array(2.0)])
    np.testing.assert_allclose([log_density, gradient], [2 * values.sum(), values.sum()])


def test_blocks_in_lipschitz_coordinates_with_a_variable_of_another_step():
    models = with_batches(two_batches), without_batches(two_batches)
    found = []
    for model in models:
        values = [v for v in model.value_vars if v.name != "mean"]
        posterior, phi, scales = posterior_of(model, values=values)
        full = FullDensity(posterior, "interpreter")
        assert [v.name for v in full.posterior.others] == ["mean"]
        log_density, gradient = full([x + 0.2 for x in phi], scales, [np.array([0.3, -0.2])])
        found.append([log_density, *joined(gradient)])
    np.testing.assert_allclose(found[0], found[1], rtol=1e-11)


def test_terms_on_different_minibatches_are_potentials_of_their_own():
    a, b = data(8, 20, 30)
    with pm.Model() as model:
        mean = pm.Normal("mean")
        x, y = pm.Minibatch(a, batch_size=4), pm.Minibatch(b, batch_size=7)
        pm.Potential("of_x", -20 / 4 * pt.sqr(x - mean))
        pm.Potential("of_y", -30 / 7 * pt.sqr(y - mean))
    density, _ = full_density(model)[0]([np.array(0.5)])
    prior = -(0.5**2 + np.log(2 * np.pi)) / 2
    expected = prior - np.sum((a - 0.5) ** 2) - np.sum((b - 0.5) ** 2)
    assert density == pytest.approx(expected, rel=1e-12)


def test_a_call_reads_no_more_rows_than_fit_into_memory(tmp_path):
    """A call evaluates up to 64 batches, here of 400,000 numbers each."""
    np.save(tmp_path / "x.npy", np.zeros((1000, 4000), dtype="float32"))
    with pm.Model() as model:
        x = pm.Minibatch(sg.on_disk(tmp_path / "x.npy"), batch_size=100)
        pm.Normal("y", pm.Normal("mu"), observed=x, total_size=1000)
    full, *_ = full_density(model)
    assert full.potential._length == 10


@pytest.mark.parametrize("batches", [1, 3])
def test_pairs_in_blocks_are_summed_as_one_by_one(batches):
    """Elements of a vector and of a matrix's columns share an index."""
    rng = np.random.default_rng(2)
    groups, rows = 20, 400
    with pm.Model() as model:
        g, x, y = pm.Minibatch(
            rng.integers(0, groups, rows), rng.normal(size=(rows, 2)), rng.normal(size=rows),
            batch_size=30,
        )  # fmt: skip
        a, b = pm.Normal("a", 0, 2, shape=groups), pm.Normal("b", shape=(groups, 2))
        pm.Normal("y", a[g] + (b[g] * x).sum(axis=1), 1, observed=y, total_size=rows)
    full, phi, _ = full_density(model, backend="jax")
    full(phi)
    potential, d = full.potential, full.potential.dimension
    shear = Shear([((0, -1, 0), (1, -2, 2))])
    blocks = InBlocks(potential, shear, [rng.normal(size=(3, groups))], np.ones(d))
    pairs = 4
    several = [] if batches == 1 else [batches]
    offsets = rng.integers(0, rows, size=(pairs, *several, 1))
    given = rng.normal(size=d), rng.random(d), rng.choice([-1.0, 1.0], size=(pairs, d)), offsets
    found = blocks.pair_sums(*given)
    one_by_one = summed_pairs(blocks.batch_gradient, *given)
    assert found.count == one_by_one.count == pairs
    for name in ("middle", "middle_squared", "change", "change_squared"):
        np.testing.assert_allclose(
            getattr(found, name), getattr(one_by_one, name), rtol=1e-9, atol=1e-9, err_msg=name
        )
