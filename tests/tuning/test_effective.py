"""Effective draws of many coordinates are ArviZ's, coordinate by coordinate."""

from __future__ import annotations

import numpy as np
import pytest

from arviz_stats.base.array import array_stats

from pymc_sgmcmc.tuning.effective import effective_draws


@pytest.mark.parametrize("draws", [4, 5, 11, 500, 501])
def test_effective_draws_are_those_of_arviz(draws):
    rng = np.random.default_rng(1)
    # From antithetic to nearly standing still
    memory = rng.uniform(-0.99, 0.999, size=100)
    psi = np.zeros((draws, 100))
    for t in range(1, draws):
        psi[t] = memory * psi[t - 1] + rng.normal(size=100)
    psi[:, 0] = 3.0
    psi[:, 1] = np.round(psi[:, 1])
    psi[:, 2] = np.arange(draws)
    psi[:, 3] = np.resize([1.0, -1.0], draws)
    psi[0, 4] = np.nan
    psi[1, 5] = np.inf
    with np.errstate(all="ignore"):
        expected = array_stats.ess(psi[None], chain_axis=0, draw_axis=1, method="bulk")
    np.testing.assert_allclose(effective_draws(psi)[:5], np.asarray(expected)[:5], rtol=1e-10)
    np.testing.assert_allclose(effective_draws(psi)[6:], np.asarray(expected)[6:], rtol=1e-10)
    assert np.isnan(effective_draws(psi)[5])


def test_there_may_be_no_coordinates_and_too_few_draws():
    assert effective_draws(np.empty((500, 0))).shape == (0,)
    assert np.isnan(effective_draws(np.zeros((3, 2)))).all()
