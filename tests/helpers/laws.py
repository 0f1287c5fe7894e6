"""Laws that the samplers have or ought to have, exactly."""

import numpy as np

import pymc_sgmcmc as sg

from pymc_sgmcmc.testing import run_chain


def euler_variance(h, noise):
    return (2 + h * noise) / (2 - h)


def lm_variance(h, noise):
    return 1 + h * noise / (2 - h)


def thermostat_variance(h, noise):
    # The thermostat absorbs noise that does not depend on the position
    return 1.0


def sghmc_variance(h, noise):
    """Of the splitting, with friction 1 and noise that the sampler does not know of."""
    return (1 + h * noise / 2) * (h / 2) / np.sinh(h / 2)


def stable_scale(alpha, h):
    """σ of FLA's exact law SαS(σ) on N(0, 1)."""
    c = sg.FLA.drift_constant(alpha)
    return (h / (1 - (1 - h * c) ** alpha)) ** (1 / alpha)


def error_of_cdf(model, step, law, seed, draws=60, burn=12):
    """Largest error of the distribution function over replicates, and its standard error."""
    x = run_chain(model, step, burn=burn, draws=draws, seed=seed)["x"]
    grid = law.ppf(np.linspace(0.1, 0.9, 9))
    below = (x[..., None] < grid).mean(axis=0)
    error = below.mean(axis=0) - law.cdf(grid)
    se = below.std(axis=0, ddof=1) / np.sqrt(below.shape[0])
    k = np.argmax(np.abs(error))
    return error[k], se[k]
