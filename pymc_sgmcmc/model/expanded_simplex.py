"""A simplex from as many coordinates as it has entries, for where no matrix whitens them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor.tensor as pt

from pymc.logprob.transforms import Transform
from pytensor.gradient import disconnected_grad
from pytensor.graph.basic import Variable
from pytensor.tensor.variable import TensorVariable

__all__ = ["ExpandedSimplex", "at_total", "fitted_total"]

_SHARPNESS = 2.0

# Of a softplus: below it is written as an exponential
_LOW = -30.0

# Σ x (1 - x) of a simplex of one large entry, and the least that A is changed by
_LEAST_SPREAD, _LEAST_RATIO = 0.05, 0.5


class ExpandedSimplex(Transform):
    r"""Map of the simplex from the masses of its entries, one coordinate for each.

    .. math:: x_l = m_l / G, \qquad m_l = \tfrac14 r_l^2, \qquad
       r_l = \tfrac12 \log(1 + e^{2 \varphi_l}), \qquad
       G = \sum_l m_l \sim \operatorname{Gamma}(A, 1)

    Nothing depends on the total G, which is independent of x. Where x has a Dirichlet(a) law and A
    is the sum of a, the masses are independent, of the laws Gamma(a_l, 1), as those of a Dirichlet
    prior with the counts of a multinomial are. The K - 1 coordinates of other maps all hold one
    common entry: where it is rare they move together, and only a matrix could whiten that.
    The root r has an sd of 1 where the mass is not small, whatever it is, and a softplus turns what
    is small into a logarithm, so that the curvature of U is bounded. Its sharpness of 2 makes the
    widest law beside the largest curvature narrowest for sparse priors, a = 0.1: 2.3 to 1, for 3.7.

    Parameters
    ----------
    total : TensorVariable
        A > 0 of each simplex, of as many dimensions as x, the last of length 1. Any A leaves the
        law of x as it is.

    Notes
    -----
    The expanded mean of SGRLD [1]_, in other units. ``log_jac_det`` has the law of G in it: it is
    the logarithm of :math:`G^{A-1} e^{-G} / \Gamma(A)` times the Jacobian determinant of G and
    the first K - 1 entries of x.

    References
    ----------
    .. [1] Patterson, Teh (2013). Stochastic Gradient Riemannian Langevin Dynamics on the
       Probability Simplex. NeurIPS 26.
    """

    name = "expanded"
    ndim_supp = 1

    # Of a sparse entry the law is wide towards 0, where U is a line, and has a curvature near 1
    # where rows take to it: a fit sees the one, and steps may not be longer than the other allows
    widest = 1.5

    def __init__(self, total: TensorVariable) -> None:
        self.total = total

    def backward(self, value: Any, *inputs: Variable) -> TensorVariable:
        """Map K real coordinates in the last axis to a simplex of K entries."""
        mass, _ = _shares(*_root(value))
        simplex = mass / pt.sum(mass, axis=-1, keepdims=True)
        # An entry that rounds to 0 is the least normal number
        tiny = np.finfo(simplex.dtype).tiny
        return simplex + pt.switch(simplex < tiny, tiny, 0).astype(simplex.dtype)

    def forward(self, value: Any, *inputs: Variable) -> TensorVariable:
        """Map a simplex of K entries in the last axis to K coordinates, at G = A."""
        value = pt.as_tensor(value)
        root = 2 * pt.sqrt(pt.maximum(value, np.finfo(value.dtype).tiny) * self.total)
        return root + pt.log(-pt.expm1(-_SHARPNESS * root)) / _SHARPNESS

    def log_jac_det(self, value: Any, *inputs: Variable) -> TensorVariable:
        """Return the log determinant of the Jacobian, with the log density of G."""
        root, rest = _root(value)
        # The root of m times the slope of the softplus
        log_slope = pt.log(root / 2) + rest - pt.softplus(-_SHARPNESS * value)
        share, unit = _shares(root, rest)
        log_total = pt.log(pt.sum(share, axis=-1) / 4) + 2 * unit[..., 0]
        A = self.total[..., 0]
        of_total = (A - value.shape[-1]) * log_total - pt.exp(log_total) - pt.gammaln(A)
        return pt.sum(log_slope, axis=-1) + of_total


def _root(value: Any) -> tuple[TensorVariable, TensorVariable]:
    """Return r and s of the root :math:`r e^s`: r is never 0, and s is 0 where the root is not."""
    scaled = _SHARPNESS * pt.as_tensor(value)
    return pt.softplus(pt.maximum(scaled, _LOW)) / _SHARPNESS, pt.minimum(scaled - _LOW, 0)


def _shares(root: TensorVariable, rest: TensorVariable) -> tuple[TensorVariable, TensorVariable]:
    """Return masses in a unit in which not all round to 0, and the logarithm of its root."""
    unit = disconnected_grad(pt.max(rest, axis=-1, keepdims=True))
    return (root * pt.exp(rest - unit)) ** 2, unit


def at_total(position: np.ndarray, old: np.ndarray, new: np.ndarray) -> np.ndarray:
    """Return φ at the same x, the masses growing as their total A does."""
    scaled = _SHARPNESS * _root_of(position) * np.sqrt(new.astype(float) / old)
    moved = (scaled + np.log(-np.expm1(-scaled))) / _SHARPNESS
    return np.asarray(moved, dtype=position.dtype)


def fitted_total(
    total: np.ndarray, position: np.ndarray, above: np.ndarray, below: np.ndarray
) -> np.ndarray:
    r"""Return A with which the masses are as independent as they can be.

    With n counts the roots have the precisions :math:`1 + (1 - x_l) (n + \sum_k a_k - A) / G`, and
    those of independent masses are 1.

    Parameters
    ----------
    total : ndarray
        The present A, shape (..., 1).
    position, above, below : ndarray
        Mean of φ, and one sd above and below it, shape (..., K).
    """
    root, high, low = (_root_of(x) for x in (position, above, below))
    x = root**2 / np.sum(root**2, axis=-1, keepdims=True)
    sd = (high - low) / 2
    # The information is where the mass is; of a single large entry there is nearly none
    beyond = np.sum(x * (1 / sd**2 - 1), axis=-1, keepdims=True)
    spread = np.sum(x * (1 - x), axis=-1, keepdims=True)
    ratio = 1 + beyond / np.maximum(spread, _LEAST_SPREAD)
    return np.asarray(total * np.maximum(ratio, _LEAST_RATIO), dtype=total.dtype)


def _root_of(position: np.ndarray) -> np.ndarray:
    scaled = np.logaddexp(0.0, _SHARPNESS * position.astype(float))
    return np.asarray(np.maximum(scaled, np.finfo(float).tiny) / _SHARPNESS)
