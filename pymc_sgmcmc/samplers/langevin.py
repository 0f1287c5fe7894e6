"""The integrators of the Langevin diffusion that several methods share."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor.tensor as pt

from pymc_sgmcmc.checks import one_of
from pymc_sgmcmc.kernel.blocks import Blocks, mapped, sqrt
from pymc_sgmcmc.kernel.noise import Noise
from pymc_sgmcmc.kernel.policy import Policy
from pymc_sgmcmc.kernel.sampler import Extra, Gradient
from pymc_sgmcmc.step.step import SGMCMCStep


class LangevinStep(SGMCMCStep):
    r"""Langevin dynamics with a choice of integrator.

    ``"euler"`` is :math:`x \leftarrow x - h \hat g + \sqrt{2h}\, \eta_t`. ``"lm"``, of
    Leimkuhler and Matthews [1]_, is :math:`x \leftarrow x - h \hat g + \sqrt{h/2}\,
    (\eta_t + \eta_{t+1})`: each noise is used twice, at no further cost, and the stationary
    law is right to second order in h, on a Gaussian exactly so.

    References
    ----------
    .. [1] Leimkuhler, Matthews (2013). Rational construction of stochastic numerical
       methods for molecular sampling. AMRX 2013, 34-56.
    """

    def __init__(self, vars: Any = None, *, integrator: str = "lm", **options: Any) -> None:
        self.integrator = one_of("integrator", integrator, ("lm", "euler"))
        super().__init__(vars, **options)

    def policy(self) -> Policy:
        """Return second order and a five times longer step for "lm", first order for "euler"."""
        second = self.integrator == "lm"
        return Policy(
            step_size=0.2 if second else 0.04,
            order=2 if second else 1,
            per_coordinate=True,
            compensates=True,
        )

    def initial_extra(
        self, position: list[np.ndarray], rng: np.random.Generator
    ) -> dict[str, list[np.ndarray]]:
        """η of the update before the first."""
        if self.integrator == "euler":
            return {}
        return {"eta": [rng.standard_normal(x.shape).astype(x.dtype) for x in position]}

    def update(
        self, position: Blocks, extra: Extra, gradient: Gradient, step_size: Any, noise: Noise
    ) -> tuple[Blocks, Extra]:
        """One update of the chosen integrator."""
        x, h = position, step_size
        injected = h * (1 - self._made_up(h, gradient.variance))
        return self.moved(x - h * gradient(x), extra, injected, noise.normal())

    def moved(self, x: Blocks, extra: Extra, h: Any, eta: Blocks) -> tuple[Blocks, Extra]:
        """Add the noise of a step h to x, which the drift has moved."""
        if self.integrator == "euler":
            return x + sqrt(2 * h) * eta, {}
        return x + sqrt(h / 2) * (extra["eta"] + eta), {"eta": eta}

    def widening(self, step_size: Any, variance: Any, known: Any) -> Any:
        """Return hσ²/2 for "euler", hσ²/(2 − h) for "lm", less what is made up for."""
        return self._share(step_size, variance) - self._made_up(step_size, known)

    def _made_up(self, h: Any, known: Any) -> Any:
        """Return the share of the injected noise that is left out, at most all of it."""
        return mapped(lambda part: pt.minimum(part, 1.0), self._share(h, known))

    def _share(self, h: Any, variance: Any) -> Any:
        """Return what a gradient's noise adds to variances, as a share of them."""
        rest: Any = 2
        if self.integrator == "lm":
            # Steps above 1 are right only where sds are far above 1, and h over their squares small
            rest = mapped(lambda x: pt.switch(x > 1, 2.0, 2 - x), h)
        return h * variance / rest
