"""The beginning of the first search for the bulk."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pymc_sgmcmc.kernel.engine import Engine
from pymc_sgmcmc.kernel.options import LARGEST_DENSE
from pymc_sgmcmc.tuning.centre import with_weight
from pymc_sgmcmc.tuning.density import Density
from pymc_sgmcmc.tuning.nearness import has_modes_by_permutation
from pymc_sgmcmc.tuning.surface import Surface
from pymc_sgmcmc.tuning.writing import Writing

__all__ = ["beginning"]


def beginning(
    density: Density, model: Engine, rng: np.random.Generator, *, permutes: bool = True
) -> tuple[Sequence[np.ndarray], np.ndarray, Surface, dict[str, Any]]:
    """Return φ, a jittered start of shape (d,), the surface and options of :func:`find_bulk`.

    The density, compiled at a single place, is put into the coordinates of the beginning.
    """
    # A scale that multiplies thousands of random effects falls to 0; in centred coordinates the
    # data determine the effects first
    many = float(model.dimension > LARGEST_DENSE)
    phi = density.rewritten(density.places[-1].phi, with_weight(model, density.scales, many))
    start, surface = density.jittered_start(phi), density.surface()
    permutable = permutes and has_modes_by_permutation(surface, density.views[0].split, rng)
    how: dict[str, Any] = {"permutable": permutable, "others": density.more_starts(phi)}
    # The data determine one factor of a product only as well as the other
    if not permutable and model.weights(density.scales):
        how["writing"] = Writing(density, surface, model, rng)
    return phi, start, surface, how
