"""Mirrored Langevin dynamics."""

from dataclasses import replace

from pymc_sgmcmc.kernel.policy import Policy
from pymc_sgmcmc.samplers.langevin import LangevinStep

__all__ = ["SMLD"]


class SMLD(LangevinStep):
    r"""Stochastic mirrored Langevin dynamics (Hsieh et al., 2018) [1]_.

    A constrained variable x is sampled in the dual coordinates of a mirror map h,
    :math:`y = \nabla h(x)`, where Langevin dynamics runs on

    .. math:: W(y) = V(\nabla h^*(y)) + \log\det \nabla^2 h(\nabla h^*(y)), \qquad
       y \leftarrow y - \tau \hat\nabla W(y) + \text{noise},

    with V the potential of x and τ the step size. The maps: on the simplex the entropic one,
    :math:`y_l = \log x_l - \log x_{d+1}`; on an interval the logit; for positive variables
    the logarithm; unbounded variables stay as they are. The stationary density of x is
    :math:`e^{-V}`. Use it for simplexes; for positive variables with noisy gradients prefer
    :class:`CoRVSGLD`, whose maps do not amplify the noise.

    Parameters
    ----------
    <options>
    integrator : {"lm", "euler"}, default "lm"
        "lm" (Leimkuhler and Matthews [2]_), second order in the step size, or "euler", the
        paper's.

    References
    ----------
    .. [1] Hsieh, Kavis, Rolland, Cevher (2018). Mirrored Langevin Dynamics. NeurIPS 31.
    .. [2] Leimkuhler, Matthews (2013). Rational construction of stochastic numerical
       methods for molecular sampling. AMRX 2013, 34-56.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_sgmcmc as sg
    >>> with pm.Model():
    ...     p = pm.Dirichlet("p", [2.0, 3.0, 5.0])
    ...     step = sg.SMLD(step_size=0.05)
    """

    name = "smld"

    def policy(self) -> Policy:
        """Return the policy of Langevin methods, in mirror coordinates."""
        return replace(super().policy(), coordinates="mirror")
