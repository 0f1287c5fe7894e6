"""Coordinates between the centred and the non-centred parametrization of hierarchies."""

from pymc_sgmcmc.centring.elements import Centring
from pymc_sgmcmc.centring.informed import (
    Informed,
    InformedCentring,
    InformedLog,
    InformedLogit,
    InformedResidual,
    InformedZeroSum,
)
from pymc_sgmcmc.centring.informed_coefficients import (
    Coefficients,
    InformedCoefficients,
    told_of_block,
)
from pymc_sgmcmc.centring.informed_fields import FieldPrior, InformedField
from pymc_sgmcmc.centring.informed_walks import InformedWalk
from pymc_sgmcmc.centring.nearest_normals import log_odds_of_beta, logarithm_of
from pymc_sgmcmc.centring.one_scale import CoefficientsOfOneScale
from pymc_sgmcmc.centring.roots import InformedRoot
from pymc_sgmcmc.centring.vectors import VectorCentring, VectorRecentring, lower_factor
from pymc_sgmcmc.centring.walks import WalkCentring
from pymc_sgmcmc.centring.weighted import Weighted

__all__ = [
    "Centring",
    "Coefficients",
    "CoefficientsOfOneScale",
    "FieldPrior",
    "Informed",
    "InformedCentring",
    "InformedCoefficients",
    "InformedField",
    "InformedLog",
    "InformedLogit",
    "InformedResidual",
    "InformedRoot",
    "InformedWalk",
    "InformedZeroSum",
    "VectorCentring",
    "VectorRecentring",
    "WalkCentring",
    "Weighted",
    "log_odds_of_beta",
    "logarithm_of",
    "lower_factor",
    "told_of_block",
]
