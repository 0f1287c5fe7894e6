"""Stochastic-gradient MCMC for PyMC models, as step methods."""

from pymc_sgmcmc import diagnostics, transforms
from pymc_sgmcmc._version import __version__
from pymc_sgmcmc.disk.on_disk import on_disk
from pymc_sgmcmc.disk.shuffle import shuffle_to_disk
from pymc_sgmcmc.disk.source import DiskError
from pymc_sgmcmc.kernel.blocks import Blocks, exp, sqrt
from pymc_sgmcmc.kernel.estimators import SVRG, ControlVariates, Plain
from pymc_sgmcmc.kernel.noise import Noise
from pymc_sgmcmc.kernel.policy import Policy
from pymc_sgmcmc.model.full_data import full_data
from pymc_sgmcmc.model.own_gradient import GradientPotential
from pymc_sgmcmc.samplers.corvsgld import CoRVSGLD
from pymc_sgmcmc.samplers.fla import FLA
from pymc_sgmcmc.samplers.ito_sgld import ItoSGLD
from pymc_sgmcmc.samplers.mirror_sgld import MirrorSGLD
from pymc_sgmcmc.samplers.msgnht import MSGNHT
from pymc_sgmcmc.samplers.sghmc import SGHMC
from pymc_sgmcmc.samplers.sgld import SGLD
from pymc_sgmcmc.samplers.sgnht import SGNHT
from pymc_sgmcmc.samplers.sgrld import SGRLD
from pymc_sgmcmc.samplers.smld import SMLD
from pymc_sgmcmc.schedules import constant, cyclical, polynomial
from pymc_sgmcmc.step.registry import register
from pymc_sgmcmc.step.step import SGMCMCStep
from pymc_sgmcmc.store.checkpoint import checkpoint

__all__ = [
    "FLA",
    "MSGNHT",
    "SGHMC",
    "SGLD",
    "SGNHT",
    "SGRLD",
    "SMLD",
    "SVRG",
    "Blocks",
    "CoRVSGLD",
    "ControlVariates",
    "DiskError",
    "GradientPotential",
    "ItoSGLD",
    "MirrorSGLD",
    "Noise",
    "Plain",
    "Policy",
    "SGMCMCStep",
    "__version__",
    "checkpoint",
    "constant",
    "cyclical",
    "diagnostics",
    "exp",
    "full_data",
    "on_disk",
    "polynomial",
    "shuffle_to_disk",
    "sqrt",
    "transforms",
]

register(CoRVSGLD, FLA, MSGNHT, SMLD, SGLD, SGHMC, SGNHT, SGRLD, MirrorSGLD, ItoSGLD)
