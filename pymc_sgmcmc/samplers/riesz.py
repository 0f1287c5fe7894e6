"""The drift of fractional Langevin dynamics as a truncated fractional difference."""

from __future__ import annotations

import math

from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt

from pytensor.tensor.variable import TensorVariable

from pymc_sgmcmc.kernel.blocks import Blocks
from pymc_sgmcmc.kernel.ravel import Ravel
from pymc_sgmcmc.kernel.sampler import Gradient


def coefficients(alpha: float, terms: int) -> np.ndarray:
    r"""Return :math:`g_k`, |k| ≤ K = ``terms``, of the centred fractional difference, all positive.

    With γ = α − 2, :math:`g_0 = \Gamma(\alpha - 1) / \Gamma(\alpha/2)^2` and
    :math:`g_{k+1} = g_k (k - \gamma/2) / (k + 1 + \gamma/2)`; :math:`g_{-k} = g_k`.
    """
    half = (alpha - 2) / 2
    g = [math.gamma(alpha - 1) / math.gamma(alpha / 2) ** 2]
    for k in range(terms):
        g.append(g[-1] * (k - half) / (k + 1 + half))
    return np.array([*g[:0:-1], *g])


def riesz_drift(
    gradient: Gradient, position: Blocks, alpha: float, delta: float, terms: int
) -> tuple[Blocks, Blocks]:
    r"""Return signs and logarithms of the drift b of each coordinate, which grows like :math:`e^U`.

    .. math:: b_i = \delta^{2 - \alpha} \sum_{|k| \le K} g_k\, e^{U(x) - U(x - k \delta e_i)}\,
       \partial_i U(x - k \delta e_i)

    It takes (2 K + 1) d potentials and gradients of the same rows.
    """
    ravel = Ravel.of(position.parts)
    dtype = np.result_type(*ravel.dtypes)
    d, count = ravel.size, 2 * terms + 1
    # One row for each coordinate and k: along which coordinate, and how far
    along = np.repeat(np.eye(d, dtype=dtype), count, axis=0)
    far = np.tile(np.arange(-terms, terms + 1, dtype=dtype) * delta, d)

    def parts(flat: TensorVariable) -> Blocks:
        return Blocks(ravel.split(flat))

    def at_shift(unit: TensorVariable, length: TensorVariable) -> list[TensorVariable]:
        shifted = position - parts(unit * length)
        slope = (gradient(shifted) * parts(unit)).sum()
        return [gradient.potential(shifted).astype(dtype), slope.astype(dtype)]

    at_shifts: Any = pytensor.scan(
        at_shift, sequences=[pt.constant(along), pt.constant(far)], return_updates=False
    )
    potentials, slopes = (x.reshape((d, count)) for x in at_shifts)
    here = potentials[:, terms : terms + 1]
    logs = pt.constant(np.log(coefficients(alpha, terms)).astype(dtype)) + here - potentials
    # Where a potential is infinite the density is 0, and so is its share
    logs = pt.switch(pt.isnan(logs), -np.inf, logs)
    largest = pt.max(logs, axis=1, keepdims=True)
    weights = pt.exp(logs - largest)
    total = pt.sum(pt.switch(weights > 0, weights * slopes, 0.0), axis=1)
    size = largest[:, 0] + pt.log(pt.abs(total)) + (2 - alpha) * math.log(delta)
    return parts(pt.sign(total)), parts(size)
