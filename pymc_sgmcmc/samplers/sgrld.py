"""Riemannian Langevin dynamics of simplexes and positive variables."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor.tensor as pt

from pymc.distributions.distribution import SymbolicRandomVariable
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random.basic import DirichletRV
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.variable import TensorVariable

from pymc_sgmcmc.kernel.blocks import Blocks
from pymc_sgmcmc.kernel.noise import Noise
from pymc_sgmcmc.kernel.policy import Policy
from pymc_sgmcmc.kernel.sampler import Extra, Gradient
from pymc_sgmcmc.kernel.variables import Variables
from pymc_sgmcmc.model.minibatch import evaluate
from pymc_sgmcmc.step.step import SGMCMCStep

_RANDOM = RandomVariable, SymbolicRandomVariable


class SGRLD(SGMCMCStep):
    r"""Stochastic-gradient Riemannian Langevin dynamics (Patterson and Teh, 2013) [1]_.

    A simplex π of K entries is sampled as :math:`\pi = \theta / \sum_k \theta_k` with θ > 0,
    the expanded mean, and the metric 1/θ:

    .. math:: \theta_k \leftarrow \Bigl|\theta_k + h\bigl[\pi_k(\hat g_k - \textstyle\sum_j
       \pi_j \hat g_j) + \pi_k (A - K) - \theta_k + 1\bigr] + \sqrt{2h\theta_k}\,\eta_k\Bigr|,

    with :math:`\hat g_k = \partial \log \hat p / \partial \pi_k` of prior and likelihood, and A
    the sum of a Dirichlet prior's parameters, else K. For variables with one bound, θ is the
    distance from it, elementwise:

    .. math:: \theta \leftarrow |\theta + h(1 - \theta\,\partial\hat U) + \sqrt{2h\theta}\,\eta|.

    The paper's ε is 2h. A baseline, in θ, with ``step_size`` yours to set: the error of the
    distribution function falls like √h only, and draws of Dirichlet(0.1) never become as sparse
    as they should. Prefer :class:`SMLD` for simplexes and :class:`CoRVSGLD` for positive variables.

    Parameters
    ----------
    <options>

    Raises
    ------
    <raises>
    NotImplementedError
        If a variable is neither a simplex nor bounded on one side, or if a bound is another
        variable of this step.

    References
    ----------
    .. [1] Patterson, Teh (2013). Stochastic Gradient Riemannian Langevin Dynamics on the
       Probability Simplex. NeurIPS 26.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_sgmcmc as sg
    >>> with pm.Model():
    ...     p = pm.Dirichlet("p", [2.0, 3.0, 5.0])
    ...     step = sg.SGRLD(step_size=0.001)
    """

    name = "sgrld"

    def __init__(self, vars: Any = None, **options: Any) -> None:
        super().__init__(vars, **options)
        self.require_kinds("simplex", "half-line")
        self._masses = [
            _mass(self._read_model.values_to_rvs[value]) if kind == "simplex" else None
            for value, kind in zip(self._values, self.kinds, strict=True)
        ]

    def policy(self) -> Policy:
        """Return θ itself."""
        return Policy(step_size=0.001, coordinates="identity", whitened=False)

    def initial_extra(
        self, position: list[np.ndarray], rng: np.random.Generator
    ) -> dict[str, list[np.ndarray]]:
        """Sum of θ for each simplex, at its mean A; 1 for positive variables."""
        return {
            "total": [
                np.ones((), x.dtype)
                if mass is None
                else np.broadcast_to(mass, (*x.shape[:-1], 1)).astype(x.dtype)
                for x, mass in zip(position, self._masses, strict=True)
            ]
        }

    def update(
        self, position: Blocks, extra: Extra, gradient: Gradient, step_size: Any, noise: Noise
    ) -> tuple[Blocks, Extra]:
        """One reflected update."""
        variables, slope, eta = gradient.variables, gradient(position), noise.normal()
        low, high = variables.lower(position), variables.upper(position)
        moved, totals = [], []
        rows = zip(position, slope, eta, low, high, extra["total"], self._masses, strict=True)
        for x, g, e, lower, upper, total, mass in rows:
            # Below an upper bound θ grows downwards
            bound = pt.switch(pt.isinf(lower), upper, lower)
            side = pt.switch(pt.isinf(lower), -1, 1).astype(x.dtype)
            if mass is None:
                theta = side * (x - bound)
                drift = 1 - theta * side * g
            else:
                pi, size = x / x.sum(-1, keepdims=True), x.shape[-1]
                theta = pi * total
                along = -pi * (g - (pi * g).sum(-1, keepdims=True))
                drift = along + pi * (mass.astype(x.dtype) - size) - theta + 1
            new = abs(theta + step_size * drift + pt.sqrt(2 * step_size * theta) * e)
            new = pt.maximum(new, _floor(x.dtype))
            summed = total if mass is None else new.sum(-1, keepdims=True)
            moved.append(bound + side * new if mass is None else new / summed)
            totals.append(summed)
        return Blocks(moved), {"total": Blocks(totals)}

    def in_metric(
        self, noise: Blocks, position: Blocks, extra: Extra, variables: Variables
    ) -> Blocks:
        """Return √θ times the noise; of a simplex that of its K − 1 directions."""
        low, high = variables.lower(position), variables.upper(position)
        parts = []
        rows = zip(position, noise, low, high, extra["total"], self._masses, strict=True)
        for x, g, lower, upper, total, mass in rows:
            if mass is None:
                theta = abs(x - pt.switch(pt.isinf(lower), upper, lower))
                part = pt.sqrt(theta) * g
            else:
                pi, size = x / x.sum(-1, keepdims=True), x.shape[-1]
                along = g - (pi * g).sum(-1, keepdims=True)
                part = pt.sqrt(pi * size / ((size - 1) * total)) * along
            parts.append(part.astype(x.dtype))
        return Blocks(parts)


def _floor(dtype: str) -> float:
    """Return a θ whose inverse, times the counts of data, is finite."""
    return 1e-300 if dtype == "float64" else 1e-30


def _mass(rv: TensorVariable) -> np.ndarray:
    """Return A, shaped to go with π: the sum of a Dirichlet's parameters where they are numbers."""
    if isinstance(rv.owner.op, DirichletRV):
        [a] = rv.owner.op.dist_params(rv.owner)
        if not any(isinstance(v.owner and v.owner.op, _RANDOM) for v in ancestors([a])):
            return evaluate(pt.sum(a, axis=-1, keepdims=True)).astype(float)
    return np.full(1, float(rv.type.shape[-1]))
