"""Coordinates of hierarchies: one conditional-Gaussian map, its structures, and a map by hand."""

from pymc_sgmcmc.centring.coefficients import (
    Coefficients,
    CoefficientsOfOneScale,
    Member,
    information_of_block,
)
from pymc_sgmcmc.centring.elements import Elements, Residuals
from pymc_sgmcmc.centring.fields import Field, FieldPrior
from pymc_sgmcmc.centring.gaussian_map import GaussianMap, Middle, Probe
from pymc_sgmcmc.centring.partial import Centring
from pymc_sgmcmc.centring.vectors import ShortWalk, Vectors
from pymc_sgmcmc.centring.walks import Walk

__all__ = [
    "Centring",
    "Coefficients",
    "CoefficientsOfOneScale",
    "Elements",
    "Field",
    "FieldPrior",
    "GaussianMap",
    "Member",
    "Middle",
    "Probe",
    "Residuals",
    "ShortWalk",
    "Vectors",
    "Walk",
    "information_of_block",
]
