"""Few groups in few batches: the sd of their effects is near 0, where one batch says little."""

import numpy as np
import pytest

import pymc_sgmcmc as sg

from helpers.gallery import BENCHMARKS
from helpers.sampling import run
from helpers.z_scores import STANDARD_ERRORS, mean_and_error, means_of_parts

LEVELS = np.array([0.1, 0.5, 0.9, 0.95])


@pytest.mark.slow
def test_each_chain_is_right(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    from gallery.hierarchies import few_groups, sds_of_few_groups

    sd, weight, *_ = sds_of_few_groups()
    quantiles = np.interp(LEVELS, np.cumsum(weight), sd)
    with few_groups(batch_size=None):
        result = run(sg.CoRVSGLD(batch_size=100), chains=6)
    for chain in result.posterior["sd"].values:
        share, error = mean_and_error(means_of_parts(chain[None, :, None] < quantiles))
        assert np.all(np.abs(share - LEVELS) < STANDARD_ERRORS * error), (share, error)
