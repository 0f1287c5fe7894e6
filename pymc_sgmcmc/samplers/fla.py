"""Fractional Langevin dynamics."""

from __future__ import annotations

import math

from typing import Any

import numpy as np
import pytensor.tensor as pt

from pymc_sgmcmc.checks import one_of, positive, positive_int, within
from pymc_sgmcmc.kernel.blocks import Blocks, mapped
from pymc_sgmcmc.kernel.estimators import SVRG, ControlVariates
from pymc_sgmcmc.kernel.noise import Noise
from pymc_sgmcmc.kernel.policy import Policy
from pymc_sgmcmc.kernel.sampler import Extra, Gradient
from pymc_sgmcmc.model.own_gradient import has_own_gradient
from pymc_sgmcmc.samplers.riesz import riesz_drift
from pymc_sgmcmc.step.arguments import checked_gradient
from pymc_sgmcmc.step.step import SGMCMCStep


class FLA(SGMCMCStep):
    r"""Fractional Langevin algorithm, from Gaussian to Lévy noise (Şimşekli, 2017) [1]_.

    .. math:: x \leftarrow x - h c_\alpha \hat\nabla U(x) + h^{1/\alpha} L, \qquad
       c_\alpha = \Gamma(\alpha - 1) / \Gamma(\alpha/2)^2,

    with L symmetric α-stable. Its jumps cross barriers that Gaussian noise does not. α = 2 is
    SGLD. For α < 2 the error does **not** vanish with h, and second moments are infinite: on
    N(0, 1) the stationary law is exactly α-stable with
    :math:`\sigma^\alpha = h / (1 - (1 - h c_\alpha)^\alpha)`. Summarise draws by medians and
    quantiles, not by means and sds; do not trust the weights of separate modes.

    Unlike in the paper, updates are tamed: the drift is scaled down, all coordinates
    together, to where no coordinate moves by more than the way back to the centre of the
    posterior, or by ``largest_drift`` where that is longer, and jumps are clipped at
    ``largest_jump``. Untamed, most chains diverge on potentials that grow faster than
    quadratically; on a normal posterior the bound on the drift never acts. The statistic
    ``tamed_updates`` counts the updates in which a bound did.

    Parameters
    ----------
    <options>
    alpha : float, default 1.8
        Tail index α, 1 < α ≤ 2; 1.5 to 2 is recommended.
    largest_drift : float or None, default 1.0
        Largest move of a coordinate by the drift, in sampled coordinates, where the chain is
        nearer to the centre than that; farther out it is the way back. None for no bound.
    largest_jump : float or None, default 100.0
        Largest move of a coordinate by the noise; None for no bound.
    drift : {"gradient", "riesz"}, default "gradient"
        "gradient" is the update above. "riesz" is the paper's first scheme, a truncated
        fractional difference with other coordinates held,

        .. math:: b_i = \delta^{2 - \alpha} \sum_{|k| \le K} g_k\, e^{U(x) - U(x - k\delta e_i)}\,
           \partial_i U(x - k\delta e_i),

        in place of :math:`c_\alpha \partial_i U`, its k = 0 term at δ = 1. It corrects the weights
        of modes that are less than Kδ apart. An update takes (2K + 1) d potentials and gradients:
        for few dimensions and all rows. It grows like :math:`e^U`: ``largest_drift`` bounds it
        everywhere.
    delta : float, optional
        δ, in sampled coordinates, 0.15 by default; with ``drift="riesz"`` only.
    terms : int, optional
        K, 40 by default; with ``drift="riesz"`` only.

    Raises
    ------
    <raises>
    ValueError
        If ``delta`` or ``terms`` come without ``drift="riesz"``, or that with α = 2.
    NotImplementedError
        If the model has a :class:`~pymc_sgmcmc.GradientPotential` and ``drift="riesz"`` is asked
        for.

    References
    ----------
    .. [1] Şimşekli (2017). Fractional Langevin Monte Carlo: Exploring Lévy Driven
       Stochastic Differential Equations for Markov Chain Monte Carlo. ICML.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_sgmcmc as sg
    >>> with pm.Model():
    ...     x = pm.Normal("x")
    ...     step = sg.FLA(step_size=0.05, alpha=1.7)
    """

    name = "fla"

    def __init__(
        self,
        vars: Any = None,
        *,
        alpha: float = 1.8,
        largest_drift: float | None = 1.0,
        largest_jump: float | None = 100.0,
        drift: str = "gradient",
        delta: float | None = None,
        terms: int | None = None,
        **options: Any,
    ) -> None:
        self.alpha = within("alpha", alpha, 1, 2, usual=1.8)
        self.largest_drift = _optional("largest_drift", largest_drift, usual=1.0)
        self.largest_jump = _optional("largest_jump", largest_jump, usual=100.0)
        self.drift = one_of("drift", drift, ("gradient", "riesz"))
        if self.drift == "gradient":
            for name, value in (("delta", delta), ("terms", terms)):
                if value is not None:
                    raise ValueError(
                        f"{name} belongs to drift='riesz'. Pass that, or leave it out."
                    )
        elif self.alpha == 2:
            raise ValueError("drift='riesz' at alpha=2 is the gradient itself: leave drift out.")
        self.delta = positive("delta", 0.15 if delta is None else delta, usual=0.15)
        self.terms = positive_int("terms", 40 if terms is None else terms, usual=40)
        if self.drift == "riesz":
            # Estimates of U know no anchor
            options["gradient"] = _plain(options.get("gradient", "auto"))
        super().__init__(vars, **options)
        if self.drift == "riesz" and has_own_gradient(self._read_model.potentials):
            raise NotImplementedError(
                "drift='riesz' compares potentials, and a sg.GradientPotential of the model has a "
                "gradient alone. Leave drift out."
            )

    def policy(self) -> Policy:
        """Return a first-order policy whose injected noise makes up for no gradient noise.

        At α < 2 there are no temperatures to check.
        """
        normal = self.alpha == 2
        return Policy(
            step_size=0.04,
            widening=0.05,
            per_coordinate=True,
            second_moments=normal,
            isotropic=normal,
            gradients_bounded=False,
        )

    def widening(self, step_size: Any, variance: Any, known: Any) -> Any:
        r"""Return :math:`h c_\alpha \sigma^2 / (2 - h c_\alpha)`, that of the Gaussian part."""
        rate = step_size * self.drift_constant(self.alpha)
        # Steps above 1 are right only where sds are far above 1, and h over their squares small
        return rate * variance / mapped(lambda x: pt.switch(x > 1, 2.0, 2 - x), rate)

    @staticmethod
    def drift_constant(alpha: float) -> float:
        r"""Return :math:`c_\alpha = \Gamma(\alpha - 1) / \Gamma(\alpha/2)^2`."""
        return math.gamma(alpha - 1) / math.gamma(alpha / 2) ** 2

    def update(
        self, position: Blocks, extra: Extra, gradient: Gradient, step_size: Any, noise: Noise
    ) -> tuple[Blocks, Extra]:
        """One tamed update."""
        x, h, alpha = position, step_size, self.alpha
        if self.drift == "riesz":
            signs, logs = riesz_drift(gradient, x, alpha, self.delta, self.terms)
            # It grows like e^U, so that the way back would always be taken at once
            largest: Any = self.largest_drift or np.inf
            drift = gradient.taming.shortened_power(signs, logs + mapped(pt.log, h), largest)
        else:
            drift = h * self.drift_constant(alpha) * gradient(x)
            if self.largest_drift is not None:
                # One coordinate that has jumped must not slow the others on their own ways back
                back = (x - gradient.centre).max_abs()
                drift = gradient.taming.shortened(drift, pt.maximum(self.largest_drift, back))
        jump = h ** (1 / alpha) * noise.stable(alpha)
        if self.largest_jump is not None:
            jump = gradient.taming.clipped(jump, self.largest_jump)
        return x - drift + jump, extra


def _plain(gradient: Any) -> Any:
    """Refuse an anchor; a gradient that was left to tuning is that of a batch."""
    if not isinstance(checked_gradient(gradient), ControlVariates | SVRG):
        return "plain"
    raise ValueError(
        f"drift='riesz' compares potentials, of which gradient={gradient!r} has none. Pass "
        "gradient='plain'."
    )


def _optional(name: str, value: float | None, usual: float) -> float | None:
    return None if value is None else positive(name, value, usual)
