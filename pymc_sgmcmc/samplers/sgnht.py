"""The stochastic-gradient Nosé-Hoover thermostat, one thermostat for all coordinates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from pytensor.tensor.variable import TensorVariable

from pymc_sgmcmc.checks import one_of, positive
from pymc_sgmcmc.kernel.blocks import Blocks, exp, sqrt
from pymc_sgmcmc.kernel.noise import Noise
from pymc_sgmcmc.kernel.policy import Policy
from pymc_sgmcmc.kernel.sampler import Extra, Gradient
from pymc_sgmcmc.samplers.msgnht import left_by_thermostats
from pymc_sgmcmc.step.step import SGMCMCStep


class SGNHT(SGMCMCStep):
    r"""Stochastic-gradient Nosé-Hoover thermostat (Ding et al., 2014) [1]_.

    Each of the d coordinates x has a momentum p, and all share one thermostat ξ, a number:

    .. math:: dx = p\,dt, \quad dp = -\xi p\,dt - \nabla U\,dt + \sqrt{2D}\,dW, \quad
       d\xi = (p \cdot p / d - 1)\,dt / Q.

    The stationary density is :math:`e^{-U(x)}` times a standard normal in p times a normal in ξ
    with mean D and variance 1/(dQ). Gradient noise of the same variance σ² in all coordinates
    raises that mean by hσ²/2 and is absorbed. Where the variance :math:`\sigma_i^2` differs
    between coordinates, only its mean is: the variance of a coordinate is then wrong by the factor
    :math:`(D + h\sigma_i^2/2) / (D + h\bar\sigma^2/2)`. It is a baseline; prefer
    :class:`MSGNHT`, which has a thermostat for each coordinate.

    Parameters
    ----------
    <options>
    integrator : {"ssi", "euler"}, default "ssi"
        "ssi": the symmetric splitting A-B-O-B-A, second order in h, with one gradient an
        update. "euler": the paper's, first order.
    diffusion : float, default 1.0
        D, injected noise for each unit of time; also the start of ξ.
    thermostat_mass : float, default 1.0
        Q; the paper's is 1.

    Raises
    ------
    <raises>

    Notes
    -----
    The step size is a length, as of :class:`MSGNHT`. Further statistic: ``thermostat``, ξ; its
    mean's excess over D is hσ²/2.

    References
    ----------
    .. [1] Ding, Fang, Babbush, Chen, Skeel, Neven (2014). Bayesian sampling using stochastic
       gradient thermostats. NeurIPS 27.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_sgmcmc as sg
    >>> with pm.Model():
    ...     x = pm.Normal("x", shape=3)
    ...     step = sg.SGNHT(step_size=0.2)
    """

    name = "sgnht"
    own_statistics = ("thermostat",)

    def __init__(
        self,
        vars: Any = None,
        *,
        integrator: str = "ssi",
        diffusion: float = 1.0,
        thermostat_mass: float = 1.0,
        **options: Any,
    ) -> None:
        self.integrator = one_of("integrator", integrator, ("ssi", "euler"))
        self.diffusion = positive("diffusion", diffusion, usual=1.0)
        self.thermostat_mass = positive("thermostat_mass", thermostat_mass, usual=1.0)
        super().__init__(vars, **options)

    def policy(self) -> Policy:
        """Return a step that is a length, and noise that is weak where it is not isotropic."""
        second = self.integrator == "ssi"
        return Policy(
            step_size=0.2 if second else 0.05,
            order=2 if second else 1,
            power=1,
            noise=0.5,
            widening=0.15 * self.diffusion,
            absorbs_noise=True,
        )

    def widening(self, step_size: Any, variance: Any, known: Any) -> Any:
        """Return hσ²/(2D); its mean is absorbed, its differences between coordinates are not."""
        return step_size * variance / (2 * self.diffusion)

    def remaining(self, noise_ratio: float, step_size: float) -> float:
        """Return what a heavy thermostat leaves of noise that is alike in all coordinates."""
        return left_by_thermostats(noise_ratio, self.diffusion * step_size)

    def initial_extra(
        self, position: list[np.ndarray], rng: np.random.Generator
    ) -> dict[str, list[np.ndarray]]:
        """Momentum p ~ N(0, 1) and thermostat ξ = D."""
        return {
            "momentum": [rng.standard_normal(x.shape).astype(x.dtype) for x in position],
            "thermostat": [np.full((), self.diffusion, position[0].dtype)],
        }

    def update(
        self, position: Blocks, extra: Extra, gradient: Gradient, step_size: Any, noise: Noise
    ) -> tuple[Blocks, Extra]:
        """One update of the chosen integrator."""
        x, p, [xi] = position, extra["momentum"], extra["thermostat"]
        h, Q = step_size, self.thermostat_mass
        kick = sqrt(2 * self.diffusion * h) * noise.normal()

        def excess(p: Blocks) -> TensorVariable:
            return (p * p).mean().astype(xi.dtype) - 1

        if self.integrator == "euler":
            p = p - h * gradient(x) - h * (xi * p) + kick
            x = x + h * p
            xi = xi + h / Q * excess(p)
        else:
            x, xi = x + h / 2 * p, xi + h / (2 * Q) * excess(p)  # A
            p = exp(-h / 2 * xi) * p  # B
            p = p - h * gradient(x) + kick  # O
            p = exp(-h / 2 * xi) * p  # B
            x, xi = x + h / 2 * p, xi + h / (2 * Q) * excess(p)  # A
        return x, {"momentum": p, "thermostat": Blocks([xi])}

    def statistics(self, extra: Extra) -> Mapping[str, TensorVariable]:
        """ξ."""
        [xi] = extra["thermostat"]
        return {"thermostat": xi}
