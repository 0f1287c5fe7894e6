r"""Estimators of the potential's gradient from minibatches.

:math:`\hat g(\psi)` is the gradient that one batch gives, unbiased for :math:`\nabla U(\psi)`;
every estimator averages K of them. With an anchor :math:`\bar\psi`, whose full gradient is
known, the estimate is :math:`\hat g(\psi) - \hat g(\bar\psi) + \nabla U(\bar\psi)`, both from the
same rows [1]_: what the batch has in common at both places cancels.

.. [1] Baker, Fearnhead, Fox, Nemeth (2019). Control variates for stochastic gradient MCMC.
   Statistics and Computing 29, 599-615.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytensor
import pytensor.tensor as pt

from pytensor.tensor.variable import TensorVariable

from pymc_sgmcmc.backends.once import computed_once
from pymc_sgmcmc.checks import positive_int
from pymc_sgmcmc.kernel.blocks import Blocks
from pymc_sgmcmc.kernel.groups import Groups
from pymc_sgmcmc.kernel.loop import along, looped, unchanged
from pymc_sgmcmc.kernel.whitening import Whitening
from pymc_sgmcmc.model.batch_density import BatchDensity


@dataclass(frozen=True)
class Plain:
    """The gradient of a batch as it is; ``gradient="plain"`` means the same."""


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
    refresh : int, default 1000
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


GradientChoice = Plain | ControlVariates | SVRG
"""What a user can choose."""


def inputs_of(density: BatchDensity) -> Groups:
    """Return the symbols of what a density reads beside position and rows."""
    posterior = density.posterior
    return Groups(
        scales=posterior.scales,
        others=posterior.others,
        data=list(posterior.data),
        tables=[table for group in density.tables for table in group],
    )


class Estimator:
    """Graphs of an estimate of ∇U with respect to ψ, the mean over ``batches`` batches.

    With ``blocks`` > 0 a batch is one of as many blocks of the data whose gradients at the anchor
    are stored, which halves the cost of an estimate.
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
        self.posterior = posterior = density.posterior
        self.whitening = whitening
        self._batches = batches
        self._blocks = blocks
        self.inputs = inputs = Groups(
            whitening=whitening.symbols,
            # φ̄, or the estimates of all blocks there
            anchor=named("anchor", posterior.phi, blocks) if anchored else [],
            # ∇U(ψ̄), with blocks of the likelihood alone
            anchor_gradient=named("anchor_gradient", psi) if anchored else [],
            # Estimates of blocks know the others' values already
            anchor_others=[
                x.clone(name=f"anchor_{x.name}")
                for x in posterior.others
                if anchored and not blocks
            ],
            **inputs_of(density),
        )
        self._anchor, self._anchor_others = inputs["anchor"], inputs["anchor_others"]

    def new_rows(self) -> list[TensorVariable]:
        """Return new symbols for the inputs of K batches, K the first dimension unless 1."""
        one = self._density.rows()
        return one if self._batches == 1 else along(one, self._batches)

    @property
    def log_density(self) -> TensorVariable:
        """The estimate of the log density from one batch, for :meth:`at`."""
        return self._density.log_density

    def to_phi(self, psi: Sequence[TensorVariable]) -> list[TensorVariable]:
        """Return φ of ψ."""
        phi = self.whitening.to_phi(psi, self.whitening.symbols)
        return computed_once(phi, self._density.backend)

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
        mean = self._one(phi, rows) if self._batches == 1 else self._mean_gradient(phi, rows)
        if self._blocks:
            base = self._density.base_gradient(phi)
            mean = [g + b for g, b in zip(mean, base, strict=True)]
        gradient = Blocks(self.whitening.pull_back(mean, self.whitening.symbols))
        return gradient + Blocks(self.inputs["anchor_gradient"]) if self._anchor else gradient

    def potential(
        self, psi: Sequence[TensorVariable], rows: Sequence[TensorVariable]
    ) -> TensorVariable:
        """Return the estimate of U at ψ from these rows."""
        phi = self.to_phi(psi)

        def of_one(x: Sequence[TensorVariable], one: Sequence[TensorVariable]) -> Any:
            return self._density.at([-self._density.log_density], x, one)

        if self._batches == 1:
            [value] = of_one(phi, rows)
        else:
            [value] = self._mean(of_one, phi, rows, [pt.zeros((), self._density.log_density.dtype)])
        return value

    def _one(
        self, phi: Sequence[TensorVariable], rows: Sequence[TensorVariable]
    ) -> list[TensorVariable]:
        gradient = self._density.gradient(phi, rows)
        if not self._anchor:
            return gradient
        at_anchor = (
            [of_block[rows[0]] for of_block in self._anchor]
            if self._blocks
            else self._density.gradient(self._anchor, rows, self._anchor_others)
        )
        return [g - a for g, a in zip(gradient, at_anchor, strict=True)]

    def _mean_gradient(
        self, phi: Sequence[TensorVariable], rows: Sequence[TensorVariable]
    ) -> list[TensorVariable]:
        """Mean of :meth:`_one` over K batches, with graphs that batches share computed once."""
        density, others = self._density, self._anchor_others
        # For each batch the loop returns adjoints at φ, followed by adjoints at the anchor, or by
        # the batch's stored gradient there
        here = density.shared(phi)
        there = density.shared(self._anchor, others) if self._anchor and not self._blocks else []
        stored = self._anchor if self._blocks else []
        smooth = [[s for s in shared if s.dtype.startswith("float")] for shared in (here, there)]

        def of_one(shared: Sequence[TensorVariable], one: Sequence[TensorVariable]) -> Any:
            adjoints = density.adjoints(shared[: len(here)], one)
            if there:
                adjoints += density.adjoints(shared[len(here) :], one, others)
            return adjoints + [of_block[one[0]] for of_block in stored]

        like = [
            *(pt.zeros_like(s, dtype=pytensor.config.floatX) for part in smooth for s in part),
            *map(pt.zeros_like, phi[: len(stored)]),
        ]
        mean = self._mean(of_one, [*here, *there], rows, like, [*stored, *others])
        n = len(smooth[0])
        gradient = density.pull_back(mean[:n], phi)
        if not self._anchor:
            return gradient
        at_anchor = mean[n:] if stored else density.pull_back(mean[n:], self._anchor, others)
        return [g - a for g, a in zip(gradient, at_anchor, strict=True)]

    def _mean(
        self,
        of_one: Callable[..., list[TensorVariable]],
        shared: Sequence[TensorVariable],
        rows: Sequence[TensorVariable],
        zeros: Sequence[TensorVariable],
        further: Sequence[TensorVariable] = (),
    ) -> list[TensorVariable]:
        """Mean over K batches, one after the other, with the memory of one."""
        one = self._density.rows("one")
        inner = [s.type(f"inner_{i}") for i, s in enumerate(shared)]
        total = [x.type() for x in zeros]
        added = [t + g for t, g in zip(total, of_one(inner, one), strict=True)]
        sums = looped(
            added,
            dict(zip(one, rows, strict=True)),
            dict(zip(total, zeros, strict=True)),
            dict(zip(inner, shared, strict=True)) | unchanged([*further, *self._density.fixed]),
            self._density.backend,
        )
        return [s / self._batches for s in sums]


def named(name: str, like: Sequence[TensorVariable], several: int = 0) -> list[TensorVariable]:
    """Return new symbols like others, ``several`` of each along a new first dimension."""
    first = (several,) if several else ()
    return [
        pt.tensor(f"{name}_{i}", dtype=x.dtype, shape=(*first, *x.type.shape))
        for i, x in enumerate(like)
    ]
