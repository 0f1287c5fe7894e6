"""Stochastic-gradient Langevin dynamics."""

from __future__ import annotations

from typing import Any

from pymc_sgmcmc.kernel.blocks import Blocks, sqrt
from pymc_sgmcmc.kernel.noise import Noise
from pymc_sgmcmc.kernel.sampler import Extra, Gradient
from pymc_sgmcmc.step.step import SGMCMCStep


class SGLD(SGMCMCStep):
    r"""Stochastic-gradient Langevin dynamics (Welling and Teh, 2011) [1]_.

    .. math:: x \leftarrow x - h \hat\nabla U(x) + \sqrt{2h}\, \eta, \qquad \eta \sim N(0, I),

    the Euler scheme of the Langevin diffusion, whose stationary density is
    :math:`e^{-U(x)}`. On a standard normal density with gradient noise of variance σ² its
    variance is :math:`2 / (2 - h) \cdot (1 + h\sigma^2/2)` to leading order. It is the
    baseline and the simplest file to copy; prefer :class:`CoRVSGLD`.

    Parameters
    ----------
    <options>

    Raises
    ------
    <raises>

    References
    ----------
    .. [1] Welling, Teh (2011). Bayesian learning via stochastic gradient Langevin
       dynamics. ICML.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_sgmcmc as sg
    >>> with pm.Model():
    ...     x = pm.Normal("x")
    ...     step = sg.SGLD(step_size=0.05)
    """

    name = "sgld"

    def update(
        self, position: Blocks, extra: Extra, gradient: Gradient, step_size: Any, noise: Noise
    ) -> tuple[Blocks, Extra]:
        """One Euler update."""
        x, h = position, step_size
        return x - h * gradient(x) + sqrt(2 * h) * noise.normal(), extra
