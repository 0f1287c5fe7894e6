"""What control variates must know of their anchor."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pymc_sgmcmc.kernel.potential import Potential
from pymc_sgmcmc.kernel.whitening import Whitening

__all__ = ["gradient_at_anchor"]


def gradient_at_anchor(
    potential: Potential, whitening: Whitening, phi: Sequence[np.ndarray], *, blocks: bool
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Return ∇U of the full data at an anchor, and the estimates of it from single blocks.

    Parameters
    ----------
    potential : Potential
        The potential at the values that the other variables have at the anchor.
    whitening : Whitening
        The map from ψ to φ.
    phi : list of ndarray
        The anchor φ̄.
    blocks : bool
        Whether to return the blocks' estimates. They and ∇U are then of the likelihood alone.

    Returns
    -------
    gradient : list of ndarray
        ∇U(ψ̄), with respect to ψ.
    blocks : list of ndarray
        An estimate from each block with respect to φ, stacked; empty without ``blocks``.
    """
    point, known = potential.join(phi), []
    if blocks:
        estimates = potential.blocks_as_batches(point)
        parts = [potential.split(estimate) for estimate in estimates]
        known = [np.stack(of_one) for of_one in zip(*parts, strict=True)]
        gradient = estimates.mean(axis=0)
    else:
        [gradient] = potential.full(point[None])[1]
    pulled = whitening.pull_back(potential.split(gradient), whitening.arrays)
    return [np.asarray(g) for g in pulled], known
