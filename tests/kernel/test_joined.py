"""Blocks of the data that are taken as one batch."""

import numpy as np
import pymc as pm
import pytensor
import pytest

from helpers.modes import PLAIN
from helpers.posteriors import posterior_of
from pymc_sgmcmc.kernel.program import blocks_to_join
from pymc_sgmcmc.kernel.tables import LARGEST_JOINED

ROWS, BATCH, COUNT = 40, 5, 4
RNG = np.random.default_rng(0)
X, GROUPS = RNG.normal(size=(ROWS, 2)), RNG.integers(3, size=ROWS)
Y = RNG.normal(size=ROWS)


def scaled():
    x, y = pm.Minibatch(X, Y, batch_size=BATCH)
    slopes = pm.Normal("slopes", 0, 1, shape=2)
    pm.Normal("y", x @ slopes, 1, observed=y, total_size=ROWS)


def grouped():
    groups, y = pm.Minibatch(GROUPS, Y > 0, batch_size=BATCH)
    effects = pm.Normal("effects", 0, 1, shape=3)
    pm.Bernoulli("y", logit_p=effects[groups], observed=y, total_size=ROWS)


def two_likelihoods():
    x, y = pm.Minibatch(X[:, 0], Y, batch_size=BATCH)
    mu = pm.Normal("mu", 0, 1)
    pm.Normal("first", mu, 1, observed=x, total_size=ROWS)
    pm.StudentT("second", nu=4, mu=mu + x, sigma=1, observed=y, total_size=ROWS)


def rows_of_two_numbers():
    x = pm.Minibatch(X, batch_size=BATCH)
    mu = pm.Normal("mu", 0, 1, shape=2)
    pm.MvNormal("y", mu, np.eye(2), observed=x, total_size=(ROWS, None))


def scaled_by_hand():
    y = pm.Minibatch(Y, batch_size=BATCH)
    mu = pm.Normal("mu", 0, 1)
    pm.Potential("y", -(ROWS / y.shape[0]) * (y - mu) ** 2 / 2)


def read(build):
    """Return a model's posterior and where it starts."""
    with pm.Model() as model:
        build()
    posterior, phi, _ = posterior_of(model)
    return posterior, phi


@pytest.mark.parametrize(
    "build", [scaled, grouped, two_likelihoods, rows_of_two_numbers, scaled_by_hand]
)
def test_a_joined_batch_is_the_sum_of_its_blocks(build):
    posterior, phi = read(build)
    phi = [x + 0.3 for x in phi]
    joined = posterior.joined(COUNT)
    assert joined is not None
    assert [batch.batch_size for batch in joined.minibatches] == [COUNT * BATCH]
    assert joined.row_weights == posterior.row_weights

    def evaluate(posterior, first, count):
        log_density, base, weights = posterior.weighted()
        [rows], [arrays], [weight] = posterior.rows, posterior.arrays, posterior.row_weights
        function = pytensor.function(
            [*posterior.phi, base, *weights, *rows, *posterior.data],
            log_density, mode=PLAIN, on_unused_input="ignore",
        )  # fmt: skip
        taken = [array[first : first + count] for array in arrays]
        data = posterior.data.values()
        return function(*phi, 0.0, np.full(count, weight), *taken, *data)

    blocks = [evaluate(posterior, k * BATCH, BATCH) for k in range(COUNT)]
    np.testing.assert_allclose(evaluate(joined, 0, COUNT * BATCH), sum(blocks), rtol=1e-12)


def scales_of_each_row_of_a_batch():
    y = pm.Minibatch(Y, batch_size=BATCH)
    pm.Normal("y", pm.Normal("mu", 0, 1), np.arange(1.0, 1 + BATCH), observed=y, total_size=ROWS)


def picked_by_labels():
    """The density of a categorical label counts the rows of a batch from 0."""
    x, label = pm.Minibatch(X, GROUPS.astype("int32"), batch_size=BATCH)
    slopes = pm.Normal("slopes", 0, 1, shape=(2, 3))
    pm.Categorical("label", logit_p=x @ slopes, observed=label, total_size=ROWS)


@pytest.mark.parametrize("build", [scales_of_each_row_of_a_batch, picked_by_labels])
def test_what_is_written_for_a_number_of_rows_is_not_joined(build):
    posterior, _ = read(build)
    assert posterior.joined(COUNT) is None


@pytest.mark.parametrize(
    ("batches", "blocks", "batch_size", "expected"),
    [
        (1, 200, 500, 1),
        (32, 200, 500, 8),
        (24, 200, 500, 8),
        (7, 200, 500, 7),
        (31, 200, 500, 1),
        (6, 200, LARGEST_JOINED, 1),
        # All of the data is one group, and a last group of one block is none of 16
        (17, 17, 10, 17),
        (16, 17, 10, 1),
        (16, 33, 10, 2),
    ],
)
def test_as_many_blocks_are_joined_as_divide_k_and_the_data(batches, blocks, batch_size, expected):
    assert blocks_to_join(batches, blocks, batch_size) == expected
