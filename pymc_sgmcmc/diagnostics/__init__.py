"""What R-hat and effective sample sizes do not see: bias, and the noise that makes it."""

from pymc_sgmcmc.diagnostics.halving import bias_report
from pymc_sgmcmc.diagnostics.noise_report import gradient_noise
from pymc_sgmcmc.diagnostics.plots import plot_bias, plot_temperature, plot_tuning
from pymc_sgmcmc.diagnostics.stein import ksd, stein_thinning

__all__ = [
    "bias_report",
    "gradient_noise",
    "ksd",
    "plot_bias",
    "plot_temperature",
    "plot_tuning",
    "stein_thinning",
]
