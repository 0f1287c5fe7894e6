"""The multivariate stochastic-gradient Nosé-Hoover thermostat."""

from __future__ import annotations

import math

from collections.abc import Mapping
from typing import Any

import numpy as np

from pytensor.tensor.variable import TensorVariable

from pymc_sgmcmc.checks import one_of, positive
from pymc_sgmcmc.kernel.blocks import Blocks, exp, sqrt
from pymc_sgmcmc.kernel.noise import Noise
from pymc_sgmcmc.kernel.policy import Policy
from pymc_sgmcmc.kernel.sampler import Extra, Gradient
from pymc_sgmcmc.step.step import SGMCMCStep


class MSGNHT(SGMCMCStep):
    r"""Multivariate stochastic-gradient Nosé-Hoover thermostat (Li et al., 2016) [1]_.

    Each coordinate x has a momentum p and a thermostat ξ, all elementwise:

    .. math:: dx = p\,dt, \quad dp = -\xi p\,dt - \nabla U\,dt + \sqrt{2D}\,dW, \quad
       d\xi = (p^2 - 1)\,dt / Q.

    The thermostat settles where p has unit variance and so absorbs gradient noise of unknown
    strength. The stationary density is :math:`e^{-U(x)}` times a standard normal in p times
    a normal in ξ with mean D + hσ²/2.

    Parameters
    ----------
    <options>
    integrator : {"ssi", "euler"}, default "ssi"
        "ssi": the symmetric splitting A-B-O-B-A, second order in h, with one gradient an
        update. "euler": first order, for comparison.
    diffusion : float, default 1.0
        D, injected noise for each unit of time; also the start of ξ.
    thermostat_mass : float, default 10.0
        Q; the paper's is 1. A heavier thermostat absorbs gradient noise that varies with the
        position.

    Raises
    ------
    <raises>

    Notes
    -----
    The step size is a length, unlike that of Langevin methods, which is a squared one: at
    most 0.3 posterior sds, and at most 2/σ² where the gradient noise σ² is strong. Further
    statistic: ``thermostat``, the mean of ξ; its excess over D is hσ²/2. E p² = 1 at every
    step size, so that a kinetic temperature says nothing. A scale that very many effects share is
    sensitive to the error of the step: with 20,000 effects of two rows each its posterior moves by
    half an sd at a step size of 0.2, and by an eighth at 0.1.

    References
    ----------
    .. [1] Li, Chen, Fan, Carin (2016). High-Order Stochastic Gradient Thermostats for
       Bayesian Learning of Deep Models. AAAI.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_sgmcmc as sg
    >>> with pm.Model():
    ...     x = pm.Normal("x", shape=3)
    ...     step = sg.MSGNHT(step_size=0.2)
    """

    name = "msgnht"
    own_statistics = ("thermostat",)

    def __init__(
        self,
        vars: Any = None,
        *,
        integrator: str = "ssi",
        diffusion: float = 1.0,
        thermostat_mass: float = 10.0,
        **options: Any,
    ) -> None:
        self.integrator = one_of("integrator", integrator, ("ssi", "euler"))
        self.diffusion = positive("diffusion", diffusion, usual=1.0)
        self.thermostat_mass = positive("thermostat_mass", thermostat_mass, usual=10.0)
        super().__init__(vars, **options)

    def policy(self) -> Policy:
        """Return one step size for all coordinates: the thermostat absorbs the noise."""
        second = self.integrator == "ssi"
        return Policy(
            step_size=0.2 if second else 0.05,
            order=2 if second else 1,
            power=1,
            noise=6.0,
            noise_of_many=24.0,
            widening=None,
            absorbs_noise=True,
        )

    def widening(self, step_size: Any, variance: Any, known: Any) -> Any:
        """Return hσ²/(2D), the relative excess of the thermostat; positions widen far less."""
        return step_size * variance / (2 * self.diffusion)

    def remaining(self, noise_ratio: float, step_size: float) -> float:
        """Return what heavy thermostats leave: :func:`left_by_thermostats`."""
        return left_by_thermostats(noise_ratio, self.diffusion * step_size)

    def initial_extra(
        self, position: list[np.ndarray], rng: np.random.Generator
    ) -> dict[str, list[np.ndarray]]:
        """Momentum p ~ N(0, 1) and thermostat ξ = D."""
        return {
            "momentum": [rng.standard_normal(x.shape).astype(x.dtype) for x in position],
            "thermostat": [np.full(x.shape, self.diffusion, x.dtype) for x in position],
        }

    def update(
        self, position: Blocks, extra: Extra, gradient: Gradient, step_size: Any, noise: Noise
    ) -> tuple[Blocks, Extra]:
        """One update of the chosen integrator."""
        x, p, xi = position, extra["momentum"], extra["thermostat"]
        h, Q = step_size, self.thermostat_mass
        kick = sqrt(2 * self.diffusion * h) * noise.normal()
        if self.integrator == "euler":
            x = x + h * p
            p = p - h * gradient(x) - h * (xi * p) + kick
            xi = xi + h / Q * (p * p - 1)
        else:
            x, xi = x + h / 2 * p, xi + h / (2 * Q) * (p * p - 1)  # A
            p = exp(-h / 2 * xi) * p  # B
            p = p - h * gradient(x) + kick  # O
            p = exp(-h / 2 * xi) * p  # B
            x, xi = x + h / 2 * p, xi + h / (2 * Q) * (p * p - 1)  # A
        return x, {"momentum": p, "thermostat": xi}

    def statistics(self, extra: Extra) -> Mapping[str, TensorVariable]:
        """Mean thermostat."""
        return {"thermostat": extra["thermostat"].mean()}


def left_by_thermostats(noise_ratio: float, friction: float) -> float:
    r"""Return the excess of a variance through noise, of hD and the relative excess of friction.

    With friction hξ = u of a thermostat that hardly varies, the splitting's variance of a normal
    x is :math:`\cosh(u/2) - h^2/4`, and the mean kinetic energy fixes :math:`\sinh u` at hD
    + h²σ²/2, up to terms of h³.
    """
    cosh = [math.sqrt((1 + math.hypot(1, s)) / 2) for s in (friction * (1 + noise_ratio), friction)]
    return cosh[0] - cosh[1]
