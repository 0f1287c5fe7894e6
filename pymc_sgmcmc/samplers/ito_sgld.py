"""Langevin dynamics of θ in transformed coordinates, by Itô's formula."""

from __future__ import annotations

from typing import Any

from pymc_sgmcmc.kernel.blocks import Blocks, sqrt
from pymc_sgmcmc.kernel.noise import Noise
from pymc_sgmcmc.kernel.policy import Policy
from pymc_sgmcmc.kernel.sampler import Extra, Gradient
from pymc_sgmcmc.kernel.variables import Variables
from pymc_sgmcmc.step.step import SGMCMCStep


class ItoSGLD(SGMCMCStep):
    r"""Langevin dynamics of θ, written in φ by Itô's formula, a baseline [1]_.

    With :math:`\theta = f(\varphi)` and :math:`g = f^{-1}`, the diffusion of θ is that of

    .. math:: \varphi \leftarrow \varphi + h\bigl(-g'(\theta)\,\partial\hat U_\theta(\theta) +
       g''(\theta)\bigr) + \sqrt{2h}\, g'(\theta)\,\eta,

    :math:`U_\theta` the potential in θ. It is exact as h goes to 0, and of no use at any h:
    :math:`g'` grows without bound towards a bound of θ, where the updates become non-finite; they
    are rejected and counted, and a chain that makes no others ends in an error. Nothing is
    tuned. Prefer :class:`CoRVSGLD`, which takes the density to φ and has no such factor.

    Parameters
    ----------
    <options>

    Raises
    ------
    <raises>
    NotImplementedError
        If a variable is neither real, nor positive, nor on an interval, or if a bound is another
        variable of this step.

    References
    ----------
    .. [1] Yokoi, Otsuka, Sato (2019). On Transformations in Stochastic Gradient MCMC.
       arXiv:1903.02750.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_sgmcmc as sg
    >>> with pm.Model():
    ...     x = pm.Gamma("x", 3, 1)
    ...     step = sg.ItoSGLD(step_size=0.001)
    """

    name = "ito_sgld"

    def __init__(self, vars: Any = None, **options: Any) -> None:
        super().__init__(vars, **options)
        self.require_kinds("real", "half-line", "interval")

    def policy(self) -> Policy:
        """Return Lipschitz maps of single elements, with nothing to tune."""
        return Policy(step_size=0.01, whitened=False, tuned=False)

    def update(
        self, position: Blocks, extra: Extra, gradient: Gradient, step_size: Any, noise: Noise
    ) -> tuple[Blocks, Extra]:
        """One Euler update."""
        phi, h = position, step_size
        slope, second = gradient.variables.slope(phi), gradient.variables.second(phi)
        # U(φ) = U_θ(f(φ)) − log f′(φ), and g′ = 1 / f′, g″ = −f″ / f′³
        of_theta = (gradient(phi) + second / slope) / slope
        drift = -of_theta / slope - second / slope**3
        return phi + h * drift + sqrt(2 * h) * noise.normal() / slope, extra

    def in_metric(
        self, noise: Blocks, position: Blocks, extra: Extra, variables: Variables
    ) -> Blocks:
        """Return the noise over f′: that of the gradient in θ."""
        return noise / variables.slope(position)
