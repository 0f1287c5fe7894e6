"""Which regime a fit leads to, and on what terms noise is accepted there."""

import numpy as np
import pytest

from helpers.policies import LM, THERMOSTAT
from pymc_sgmcmc.tuning.regimes import Regime, regime_of


@pytest.mark.parametrize(
    ("root", "exchangeable", "regime"),
    [
        (np.eye(3), False, Regime()),
        (np.eye(3), True, Regime(exchangeable=True)),
        # No matrix was found
        (np.ones(3), False, Regime(diagonal=True)),
        (np.ones(3), True, Regime(diagonal=True, exchangeable=True)),
        (np.ones(513), False, Regime(diagonal=True)),
        (np.ones(513), True, Regime(diagonal=True, exchangeable=True)),
    ],
)
def test_the_regime_of_a_fit(root, exchangeable, regime):
    assert regime_of(root, exchangeable=exchangeable) == regime


def test_noise_that_coordinates_share_is_bounded_more():
    alone, shared, rates = (
        Regime(diagonal=True).noise_terms(THERMOSTAT, [600], **kind)
        for kind in ({}, {"shared": True}, {"shared": True, "grows": True})
    )
    assert rates.bound < shared.bound < alone.bound
    assert rates.factor == shared.factor == 0.5 < alone.factor
    # A method that measures the noise along its chain corrects what an anchor seems to help
    assert Regime(diagonal=True).noise_terms(LM, [600]).doubt == shared.doubt == 1 < alone.doubt


def test_a_scale_among_thousands_of_coordinates_counts_unless_they_can_be_exchanged():
    variance = np.append(np.ones(600), 50.0)
    of = {
        regime: regime.noise_terms(LM, [600, 1], shared=True).most_of(variance)
        for regime in (Regime(), Regime(diagonal=True), Regime(diagonal=True, exchangeable=True))
    }
    assert list(of.values()) == [50, 50, 1]
