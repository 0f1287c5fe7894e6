"""Mirrored Langevin dynamics."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytensor.tensor as pt

from pytensor.tensor.variable import TensorVariable

from pymc_sgmcmc.checks import one_of
from pymc_sgmcmc.kernel.blocks import Blocks
from pymc_sgmcmc.kernel.noise import Noise
from pymc_sgmcmc.kernel.policy import Policy
from pymc_sgmcmc.kernel.sampler import Extra, Gradient
from pymc_sgmcmc.samplers.langevin import LangevinStep


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
    :class:`CoRVSGLD`, whose maps do not amplify the noise. Unless ``scale`` is None or a dict,
    Dirichlet variables are sampled as the masses of their entries, one coordinate for each, whether
    or not ``step_size`` is given, and gamma variables of a shape below 1 as one such mass: these
    are nearly normal where a law is sparse, as logarithms are not.

    Parameters
    ----------
    <options>
    integrator : {"lm", "euler"}, default "lm"
        "lm" (Leimkuhler and Matthews [2]_), second order in the step size, or "euler", the
        paper's.
    exp : {"exact", "linear"}, default "exact"
        "linear" is the paper's SMLD-approximate, for reproduction only: on simplexes
        :math:`e^y` is replaced by :math:`\max(10^{-3}, 1 + y)`, which gives sds that are 23 to
        36 % too large. Nothing is tuned then, nor whitened.

    Raises
    ------
    <raises>

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

    def __init__(self, vars: Any = None, *, exp: str = "exact", **options: Any) -> None:
        self.exp = one_of("exp", exp, ("exact", "linear"))
        super().__init__(vars, **options)

    def policy(self) -> Policy:
        """Return the policy of Langevin methods, in mirror coordinates."""
        policy = replace(super().policy(), coordinates="mirror")
        return policy if self.exp == "exact" else replace(policy, whitened=False, tuned=False)

    def initial_extra(
        self, position: list[np.ndarray], rng: np.random.Generator
    ) -> dict[str, list[np.ndarray]]:
        """Further state of the integrator; with the linear map the dual y, of which x is made."""
        extra = super().initial_extra(position, rng)
        if self.exp == "linear":
            blocks = zip(position, self.kinds, strict=True)
            extra["dual"] = [np.expm1(x) if kind == "simplex" else x for x, kind in blocks]
        return extra

    def update(
        self, position: Blocks, extra: Extra, gradient: Gradient, step_size: Any, noise: Noise
    ) -> tuple[Blocks, Extra]:
        """One update; with the linear map of y, at the x that the map gives it."""
        if self.exp == "exact":
            return super().update(position, extra, gradient, step_size, noise)
        # log e(y) in place of y makes softmax the linear map, and ∇W what the paper has
        y, h = extra["dual"], step_size
        y, extra = self.moved(y - h * gradient(position), extra, h, noise.normal())
        blocks = zip(y, self.kinds, strict=True)
        x = Blocks(_log_linear(part) if kind == "simplex" else part for part, kind in blocks)
        return x, {**extra, "dual": y}


def _log_linear(y: TensorVariable) -> TensorVariable:
    # At 0 the gradient of a sparse prior would be 0 · ∞
    return pt.log(pt.maximum(1 + y, 1e-3))
