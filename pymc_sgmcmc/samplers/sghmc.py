"""Stochastic-gradient Hamiltonian Monte Carlo."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytensor.tensor as pt

from pytensor.tensor.variable import TensorVariable

from pymc_sgmcmc.checks import one_of, positive
from pymc_sgmcmc.kernel.blocks import Blocks, exp, mapped, sqrt
from pymc_sgmcmc.kernel.noise import Noise
from pymc_sgmcmc.kernel.policy import Policy
from pymc_sgmcmc.kernel.sampler import Extra, Gradient
from pymc_sgmcmc.step.step import SGMCMCStep


class SGHMC(SGMCMCStep):
    r"""Stochastic-gradient Hamiltonian Monte Carlo (Chen, Fox and Guestrin, 2014) [1]_.

    .. math:: dx = p\,dt, \qquad dp = -C p\,dt - \nabla U\,dt + \sqrt{2C}\,dW.

    The stationary density is :math:`e^{-U(x)}` times a standard normal in p. Gradient noise of
    variance σ² heats p as the injected noise does, and the friction cannot tell them apart: the
    update injects :math:`2(C - h\hat\sigma^2/2)_+ h` where tuning has measured
    :math:`\hat\sigma^2`; noise that it does not know of widens the draws by
    :math:`h\sigma^2/(2C)`. Prefer :class:`MSGNHT`, whose friction adapts itself to the noise.

    Parameters
    ----------
    <options>
    integrator : {"ssi", "euler"}, default "ssi"
        "ssi": the symmetric splitting A-B-O-B-A, second order in h, with one gradient an
        update. "euler": first order, for comparison; its error shows in p².
    friction : float, default 1.0
        C, for each unit of time. An update takes h units.

    Raises
    ------
    <raises>

    Notes
    -----
    The step size is a length, as of :class:`MSGNHT`. Further statistic:
    ``kinetic_temperature``, the mean of p², 1 in equilibrium.

    References
    ----------
    .. [1] Chen, Fox, Guestrin (2014). Stochastic Gradient Hamiltonian Monte Carlo. ICML.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_sgmcmc as sg
    >>> with pm.Model():
    ...     x = pm.Normal("x", shape=3)
    ...     step = sg.SGHMC(step_size=0.2)
    """

    name = "sghmc"
    own_statistics = ("kinetic_temperature",)

    def __init__(
        self,
        vars: Any = None,
        *,
        integrator: str = "ssi",
        friction: float = 1.0,
        **options: Any,
    ) -> None:
        self.integrator = one_of("integrator", integrator, ("ssi", "euler"))
        self.friction = positive("friction", friction, usual=1.0)
        super().__init__(vars, **options)

    def policy(self) -> Policy:
        """Return a step that is a length, and noise of which the known part is made up for."""
        second = self.integrator == "ssi"
        return Policy(
            step_size=0.2 if second else 0.05,
            order=2 if second else 1,
            power=1,
            noise=0.5,
            widening=0.15 * self.friction,
            compensates=True,
        )

    def widening(self, step_size: Any, variance: Any, known: Any) -> Any:
        """Return hσ²/(2C), less what is made up for, which is at most the injected noise."""
        made_up = mapped(lambda part: pt.minimum(part, self.friction), step_size * known / 2)
        return (step_size * variance / 2 - made_up) / self.friction

    def initial_extra(
        self, position: list[np.ndarray], rng: np.random.Generator
    ) -> dict[str, list[np.ndarray]]:
        """Momentum p ~ N(0, 1)."""
        return {"momentum": [rng.standard_normal(x.shape).astype(x.dtype) for x in position]}

    def update(
        self, position: Blocks, extra: Extra, gradient: Gradient, step_size: Any, noise: Noise
    ) -> tuple[Blocks, Extra]:
        """One update of the chosen integrator."""
        x, p, h, C = position, extra["momentum"], step_size, self.friction
        missing = mapped(lambda part: pt.maximum(part, 0), C - h * gradient.variance / 2)
        kick = sqrt(2 * h * missing) * noise.normal()
        if self.integrator == "euler":
            x = x + h * p
            p = p - h * gradient(x) - h * C * p + kick
        else:
            x = x + h / 2 * p  # A
            p = exp(-C * h / 2) * p  # B
            p = p - h * gradient(x) + kick  # O
            p = exp(-C * h / 2) * p  # B
            x = x + h / 2 * p  # A
        return x, {"momentum": p}

    def statistics(self, extra: Extra) -> Mapping[str, TensorVariable]:
        """Mean p²."""
        return {"kinetic_temperature": (extra["momentum"] * extra["momentum"]).mean()}
