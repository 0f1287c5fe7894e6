r"""Estimators of the potential's gradient from minibatches.

:math:`\hat g(\psi)` is the gradient that one batch gives, unbiased for :math:`\nabla U(\psi)`;
every estimator averages K of them. With an anchor :math:`\bar\psi`, whose full gradient is
known, the estimate is :math:`\hat g(\psi) - \hat g(\bar\psi) + \nabla U(\bar\psi)`, both from the
same rows [1]_: what the batch has in common at both places cancels.

.. [1] Baker, Fearnhead, Fox, Nemeth (2019). Control variates for stochastic gradient MCMC.
   Statistics and Computing 29, 599-615.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytensor
import pytensor.tensor as pt

from pytensor.tensor.variable import TensorVariable

from pymc_sgmcmc.arguments import positive_int
from pymc_sgmcmc.batch_density import BatchDensity
from pymc_sgmcmc.blocks import Blocks
from pymc_sgmcmc.graphs import substitute
from pymc_sgmcmc.whitening import Whitening

__all__ = ["SVRG", "ControlVariates", "Estimator", "Plain"]


@dataclass(frozen=True)
class Plain:
    """The gradient of a batch as it is."""


@dataclass(frozen=True)
class ControlVariates:
    """The anchor is a fixed point in the bulk of the posterior, found while tuning [1]_.

    They pay where the posterior is narrow: with d parameters and batches of B rows the noise
    has a variance of about d/B in whitened coordinates, against N/B of plain gradients. With
    full batches they change nothing.

    References
    ----------
    .. [1] Baker, Fearnhead, Fox, Nemeth (2019). Control variates for stochastic gradient
       MCMC. Statistics and Computing 29, 599-615.

    Examples
    --------
    >>> ControlVariates()
    ControlVariates()
    """


@dataclass(frozen=True)
class SVRG:
    """The anchor is the chain's own position, taken anew every ``refresh`` updates [1]_.

    Each refresh costs one pass over the full data. It serves where the posterior has no
    centre that is good for all of it.

    Parameters
    ----------
    refresh : int
        Updates between two anchors, rounded up to whole draws.

    Raises
    ------
    ValueError
        If ``refresh`` is not a positive integer.

    References
    ----------
    .. [1] Dubey, Reddi, Williamson, Poczos, Smola, Xing (2016). Variance reduction in
       stochastic gradient Langevin dynamics. NeurIPS 29.

    Examples
    --------
    >>> SVRG(refresh=500)
    SVRG(refresh=500)
    """

    refresh: int = 1000

    def __post_init__(self) -> None:
        positive_int("SVRG's refresh", self.refresh, usual=1000)


class Estimator:
    """Graphs of an estimate of ∇U with respect to ψ.

    Parameters
    ----------
    density : BatchDensity
        The posterior and its batches.
    whitening : Whitening
        The map from ψ to φ.
    psi : list of TensorVariable
        A position, for its shapes.
    anchored : bool
        Whether there is an anchor.
    blocks : int
        Blocks of the data whose gradients at the anchor are known; 0 where they are computed
        with each batch. A batch is then one of the blocks, and an estimate costs half.
    batches : int
        K.

    Attributes
    ----------
    rows : list of TensorVariable
        For each minibatch the rows of K batches; the first dimension is K unless it is 1.
    fixed : list of TensorVariable
        All further inputs, in the order whitening, anchor φ̄, ∇U(ψ̄), the density's; where there
        are blocks, their gradients in place of φ̄, and ∇U without what depends on no rows.
    """

    def __init__(
        self,
        density: BatchDensity,
        whitening: Whitening,
        psi: Sequence[TensorVariable],
        *,
        anchored: bool,
        blocks: int = 0,
        batches: int = 1,
    ) -> None:
        self._density = density
        self._whitening = whitening
        self._batches = batches
        one = density.rows()
        self.rows = one if batches == 1 else [
            pt.tensor(x.name, dtype=x.dtype, shape=(batches, *x.type.shape)) for x in one
        ]  # fmt: skip
        self._blocks = blocks
        # φ̄, or the estimates there of all blocks
        self._anchor = [
            pt.tensor(f"anchor_{i}", dtype=x.dtype, shape=(*[blocks] * (blocks > 0), *x.type.shape))
            for i, x in enumerate(density.posterior.phi)
            if anchored
        ]
        self._anchor_gradient = [
            pt.tensor(f"anchor_gradient_{i}", dtype=x.dtype, shape=x.type.shape)
            for i, x in enumerate(psi)
            if anchored
        ]
        self.fixed = [
            *whitening.symbols,
            *self._anchor,
            *self._anchor_gradient,
            *density.fixed,
        ]

    @property
    def log_density(self) -> TensorVariable:
        """What a batch says of the log density, for :meth:`at`."""
        return self._density.log_density

    def to_phi(self, psi: Sequence[TensorVariable]) -> list[TensorVariable]:
        """Return φ of ψ."""
        return self._whitening.to_phi(psi, self._whitening.symbols)

    def at(
        self, graphs: list[TensorVariable], psi: Sequence[TensorVariable], rows: Sequence[Any]
    ) -> list[TensorVariable]:
        """Return graphs of the posterior at ψ, for the first of K batches."""
        if self._batches > 1:
            rows = [x[0] for x in rows]
        return self._density.at(graphs, self.to_phi(psi), rows)

    def __call__(self, psi: Sequence[TensorVariable], rows: Sequence[TensorVariable]) -> Blocks:
        """Return the estimate at ψ from these rows."""
        phi = self.to_phi(psi)
        mean = self._mean(phi, rows) if self._batches > 1 else self._one(phi, rows)
        if self._blocks:
            base = self._density.base_gradient(phi)
            mean = [g + b for g, b in zip(mean, base, strict=True)]
        gradient = Blocks(self._whitening.pull_back(mean, self._whitening.symbols))
        return gradient + Blocks(self._anchor_gradient) if self._anchor else gradient

    def _one(
        self, phi: Sequence[TensorVariable], rows: Sequence[TensorVariable]
    ) -> list[TensorVariable]:
        gradient = self._density.gradient(phi, rows)
        if not self._anchor:
            return gradient
        at_anchor = (
            [known[rows[0]] for known in self._anchor]
            if self._blocks
            else self._density.gradient(self._anchor, rows)
        )
        return [g - a for g, a in zip(gradient, at_anchor, strict=True)]

    def _mean(
        self, phi: Sequence[TensorVariable], rows: Sequence[TensorVariable]
    ) -> list[TensorVariable]:
        """Mean over K batches, one after the other: memory for one is enough."""
        one = self._density.rows("one")
        here = [pt.tensor(f"here_{i}", dtype=x.dtype, shape=x.type.shape)
                for i, x in enumerate(self._density.posterior.phi)]  # fmt: skip
        total = [x.clone() for x in here]
        added = [t + g for t, g in zip(total, self._one(here, one), strict=True)]
        fixed = [*here, *self._anchor, *self._density.fixed]
        sums = pytensor.scan(
            lambda *inner: substitute(added, dict(zip([*one, *total, *fixed], inner, strict=True))),
            sequences=list(rows),
            outputs_info=[pt.zeros_like(x) for x in phi],
            non_sequences=[*phi, *self._anchor, *self._density.fixed],
            n_steps=self._batches,
            return_list=True,
            return_updates=False,
            strict=True,
        )
        return [s[-1] / self._batches for s in sums]
