"""The surfaces on which tuning is tested."""

import numpy as np

from helpers.surfaces_of_rows import Means, logistic


def test_blocks_and_batches_of_these_surfaces_agree():
    for surface in (logistic(rows=203), Means(np.random.default_rng(0).normal(size=(203, 5)), 50)):
        x = np.random.default_rng(1).normal(size=(1, 5))
        _, g = surface.full(x)
        blocks = [surface.block(x, k) for k in range(surface.n_blocks)]
        np.testing.assert_allclose(sum(blocks), g)
        offsets = np.arange(203)[:, None]
        batches = surface.batch(np.repeat(x, 203, axis=0), offsets)
        np.testing.assert_allclose(batches[1].mean(axis=0), g[0])
