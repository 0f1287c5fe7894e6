"""Langevin dynamics in θ itself, reflected at its bounds."""

from __future__ import annotations

from typing import Any

import pytensor.tensor as pt

from pytensor.tensor.variable import TensorVariable

from pymc_sgmcmc.checks import one_of
from pymc_sgmcmc.kernel.blocks import Blocks, sqrt
from pymc_sgmcmc.kernel.noise import Noise
from pymc_sgmcmc.kernel.policy import Policy
from pymc_sgmcmc.kernel.sampler import Extra, Gradient
from pymc_sgmcmc.step.step import SGMCMCStep


class MirrorSGLD(SGMCMCStep):
    r"""Langevin dynamics with the mirroring trick, a baseline (Patterson and Teh, 2013) [1]_.

    .. math:: \theta \leftarrow R\bigl(\theta - h \hat\nabla U(\theta) +
       \sqrt{2h}\,\eta\bigr),

    where R reflects θ at its bounds: :math:`|\theta|` for positive variables; on [a, b], with
    w = b − a and :math:`u = (\theta - a) \bmod 2w`, :math:`a + w - |u - w|` [2]_. In θ there are no
    scales to be found, so that ``step_size`` is yours; unbounded variables take plain Langevin
    steps. The law is right, as h goes to 0, where the density is bounded at the bound. Where it is
    not, as that of Beta(0.5, 0.5), the law is wrong **whatever h is** (an sd of 0.287 for 0.354):
    such a model is refused. Prefer :class:`CoRVSGLD`.

    Parameters
    ----------
    <options>
    unbounded : {"refuse", "allow"}, default "refuse"
        What to do with a density that grows without end towards a bound.

    Raises
    ------
    <raises>
    NotImplementedError
        If a variable is neither real, nor positive, nor on an interval, or if a bound is another
        variable of this step.
    pymc.exceptions.SamplingError
        While sampling, if the density is unbounded at a bound.

    References
    ----------
    .. [1] Patterson, Teh (2013). Stochastic Gradient Riemannian Langevin Dynamics on the
       Probability Simplex. NeurIPS 26.
    .. [2] Yokoi, Otsuka, Sato (2019). On Transformations in Stochastic Gradient MCMC.
       arXiv:1903.02750.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_sgmcmc as sg
    >>> with pm.Model():
    ...     x = pm.HalfNormal("x")
    ...     step = sg.MirrorSGLD(step_size=0.001)
    """

    name = "mirror_sgld"

    def __init__(self, vars: Any = None, *, unbounded: str = "refuse", **options: Any) -> None:
        self.unbounded = one_of("unbounded", unbounded, ("refuse", "allow"))
        super().__init__(vars, **options)
        self.require_kinds("real", "half-line", "interval")

    def policy(self) -> Policy:
        """Return θ itself, reflected."""
        return Policy(
            step_size=0.01,
            coordinates="identity",
            whitened=False,
            reflects=self.unbounded == "refuse",
        )

    def update(
        self, position: Blocks, extra: Extra, gradient: Gradient, step_size: Any, noise: Noise
    ) -> tuple[Blocks, Extra]:
        """One Euler update, reflected."""
        theta, h, variables = position, step_size, gradient.variables
        low, high = variables.lower(theta), variables.upper(theta)
        moved = theta - h * gradient(theta) + sqrt(2 * h) * noise.normal()
        return moved.map(_reflected, low, high), extra


def _reflected(x: TensorVariable, low: TensorVariable, high: TensorVariable) -> TensorVariable:
    has_low, has_high = ~pt.isinf(low), ~pt.isinf(high)
    width = pt.switch(has_low & has_high, high - low, 1.0)
    a = pt.switch(has_low, low, 0.0)
    on_interval = a + width - abs((x - a) % (2 * width) - width)
    one_sided = pt.switch(has_low, low + abs(x - low), high - abs(high - x))
    bounded = pt.switch(has_low & has_high, on_interval, one_sided)
    return pt.switch(has_low | has_high, bounded, x)
