"""Coordinates between the centred and the non-centred writing of hierarchies."""

from pymc_sgmcmc.centring.elements import Centring, LogCentring, Recentring
from pymc_sgmcmc.centring.vectors import VectorCentring, VectorRecentring, lower_factor
from pymc_sgmcmc.centring.walks import WalkCentring
from pymc_sgmcmc.centring.weighted import Weighted
from pymc_sgmcmc.centring.zero_sum import ZeroSumCentring

__all__ = [
    "Centring",
    "LogCentring",
    "Recentring",
    "VectorCentring",
    "VectorRecentring",
    "WalkCentring",
    "Weighted",
    "ZeroSumCentring",
    "lower_factor",
]
