"""The surfaces on which tuning is tested."""

import numpy as np

from helpers.surfaces_of_rows import Means, logistic
from pymc_sgmcmc.tuning.surface import mean_gradients


def test_blocks_and_batches_of_these_surfaces_agree():
    for surface in (logistic(rows=203), Means(np.random.default_rng(0).normal(size=(203, 5)), 50)):
        x = np.random.default_rng(1).normal(size=(1, 5))
        _, g = surface.full(x)
        blocks = [surface.block(x, k) for k in range(surface.n_blocks)]
        np.testing.assert_allclose(sum(blocks), g)
        offsets = np.arange(203)[:, None]
        batches = surface.batch(np.repeat(x, 203, axis=0), offsets)
        np.testing.assert_allclose(batches[1].mean(axis=0), g[0])


def test_gradients_of_many_batches_are_averaged_a_part_at_a_time(monkeypatch):
    """Of thousands of effects those of all batches at once would take gigabytes."""
    surface, sizes = logistic(rows=400, batch_size=10), []
    points, rows = np.random.default_rng(0).normal(size=(4, 5)), np.arange(30)[:, None]
    whole = mean_gradients(surface, points, rows)
    gradient = surface.batch_gradient
    surface.batch_gradient = lambda x, rows: (sizes.append(x.size), gradient(x, rows))[1]
    monkeypatch.setattr("pymc_sgmcmc.tuning.surface.MOST_NUMBERS", 7 * points.size)
    np.testing.assert_allclose(mean_gradients(surface, points, rows), whole)
    assert sizes == [140, 140, 140, 140, 40]
