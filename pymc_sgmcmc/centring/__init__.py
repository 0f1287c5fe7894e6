"""Coordinates between the centred and the non-centred writing of hierarchies."""

from pymc_sgmcmc.centring.elements import Centring
from pymc_sgmcmc.centring.informed import (
    Informed,
    InformedCentring,
    InformedLog,
    InformedResidual,
    InformedZeroSum,
)
from pymc_sgmcmc.centring.vectors import VectorCentring, VectorRecentring, lower_factor
from pymc_sgmcmc.centring.walks import WalkCentring
from pymc_sgmcmc.centring.weighted import Weighted

__all__ = [
    "Centring",
    "Informed",
    "InformedCentring",
    "InformedLog",
    "InformedResidual",
    "InformedZeroSum",
    "VectorCentring",
    "VectorRecentring",
    "WalkCentring",
    "Weighted",
    "lower_factor",
]
