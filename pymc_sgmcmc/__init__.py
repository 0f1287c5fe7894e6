"""Stochastic-gradient MCMC for PyMC models, as step methods."""

from pymc_sgmcmc import transforms
from pymc_sgmcmc._version import __version__
from pymc_sgmcmc.blocks import Blocks, exp, sqrt
from pymc_sgmcmc.noise import Noise
from pymc_sgmcmc.registry import register
from pymc_sgmcmc.samplers.corvsgld import CoRVSGLD
from pymc_sgmcmc.samplers.fla import FLA
from pymc_sgmcmc.samplers.msgnht import MSGNHT
from pymc_sgmcmc.samplers.sgld import SGLD
from pymc_sgmcmc.samplers.smld import SMLD
from pymc_sgmcmc.step import SGMCMCStep
from pymc_sgmcmc.tuning.schedules import constant, polynomial

__all__ = [
    "FLA",
    "MSGNHT",
    "SGLD",
    "SMLD",
    "Blocks",
    "CoRVSGLD",
    "Noise",
    "SGMCMCStep",
    "__version__",
    "constant",
    "exp",
    "polynomial",
    "sqrt",
    "transforms",
]

register(CoRVSGLD, FLA, MSGNHT, SMLD, SGLD)
