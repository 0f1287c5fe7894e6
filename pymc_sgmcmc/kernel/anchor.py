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
    """Return ∇U(ψ̄) of the full data at an anchor φ̄, and block estimates with respect to φ.

    With ``blocks`` both are of the likelihood alone and the estimates are stacked; else
    there are no estimates.
    """
    point, known = potential.join(phi), []
    if blocks:
        estimates = potential.blocks_as_batches(point)
        known = potential.split(estimates)
        gradient = estimates.mean(axis=0)
    else:
        [gradient] = potential.full(point[None])[1]
    pulled = whitening.pull_back(potential.split(gradient), whitening.arrays)
    return [np.asarray(g) for g in pulled], known
