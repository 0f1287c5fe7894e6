"""Each chain decides by random numbers of its own: R-hat cannot see an error that all share."""

from dataclasses import replace

import numpy as np
import pytest

from helpers.policies import THERMOSTAT
from helpers.surfaces_of_rows import Groups
from pymc_sgmcmc.tuning.exchangeable import has_modes_by_permutation, refuse_stiff
from pymc_sgmcmc.tuning.shared_index import in_blocks
from pymc_sgmcmc.tuning.shared_noise import WhitenedGradients, noise_in_common

D = 120


def in_common(surface, rng):
    ones = np.ones(D)
    gradients = WhitenedGradients(surface, surface.mean, ones / 5, None)
    noise_in_common(gradients, ones, replace(THERMOSTAT, noise_of_many=0.5), [D], rng)


def of_one_index(surface, rng):
    surface.shapes = [(60,), (60,)]
    in_blocks(surface, surface.mean, np.full(D, 0.2), rng)


@pytest.mark.parametrize(
    "decide",
    [
        lambda surface, rng: has_modes_by_permutation(surface, lambda x: [x[:60], x[60:]], rng),
        lambda surface, rng: refuse_stiff(surface, surface.mean, np.full(D, 0.2), rng),
        in_common,
        of_one_index,
    ],
    ids=["modes by permutation", "stiffness", "noise in common", "blocks of one index"],
)
def test_chains_look_at_other_positions_and_batches(decide):
    def seen(rng):
        class Seen(Groups):
            def of_rows(self, points, index, counted):
                found.append((points.copy(), index.copy()))
                return super().of_rows(points, index, counted)

        found = []
        decide(Seen(D, 5, seed=0), rng)
        return found

    one, other = np.random.default_rng(1), np.random.default_rng(2)
    before = one.bit_generator.state
    looks = seen(one), seen(other)
    # None of the numbers that follow are others than without the question
    assert one.bit_generator.state == before
    for (points, rows), (others, other_rows) in zip(*looks, strict=True):
        assert not (np.array_equal(points, others) and np.array_equal(rows, other_rows))
