"""Langevin dynamics in Lipschitz-transformed coordinates."""

from pymc_sgmcmc.samplers.langevin import LangevinStep


class CoRVSGLD(LangevinStep):
    r"""Change-of-random-variable SGLD (Yokoi, Otsuka and Sato, 2019) [1]_.

    A bounded variable θ is sampled as φ, θ = f(φ), with a map f whose derivative is bounded:

    .. math:: U(\varphi) = -\log p(\mathrm{data}, f(\varphi)) - \log|\det f'(\varphi)|,
       \qquad \varphi \leftarrow \varphi - h \hat\nabla U(\varphi) + \text{noise}.

    A Lipschitz f does not amplify gradient noise; exp, PyMC's default for positive
    variables, does, and with noisy gradients most chains that use it diverge. The stationary
    density is :math:`e^{-U(\varphi)}`, that of θ the posterior.

    Parameters
    ----------
    <options>
    integrator : {"lm", "euler"}, default "lm"
        "lm" (Leimkuhler and Matthews [2]_): :math:`\text{noise} = \sqrt{h/2}\,(\eta_t +
        \eta_{t+1})`, second order in h. "euler": :math:`\sqrt{2h}\,\eta`, the paper's.

    Raises
    ------
    <raises>

    References
    ----------
    .. [1] Yokoi, Otsuka, Sato (2019). On Transformations in Stochastic Gradient MCMC.
       arXiv:1903.02750.
    .. [2] Leimkuhler, Matthews (2013). Rational construction of stochastic numerical
       methods for molecular sampling. AMRX 2013, 34-56.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_sgmcmc as sg
    >>> with pm.Model():
    ...     rate = pm.Gamma("rate", 2, 1)
    ...     step = sg.CoRVSGLD(step_size=0.05)
    """

    name = "corvsgld"
