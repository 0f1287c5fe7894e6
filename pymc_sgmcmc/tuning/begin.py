"""Where a first search for the bulk begins, and in which way it goes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pymc_sgmcmc.kernel.compiled_model import CompiledModel
from pymc_sgmcmc.kernel.options import LARGEST_DENSE
from pymc_sgmcmc.tuning.centre import with_weight
from pymc_sgmcmc.tuning.density import Density
from pymc_sgmcmc.tuning.nearness import has_modes_by_permutation
from pymc_sgmcmc.tuning.surface import Surface
from pymc_sgmcmc.tuning.writing import Writing

__all__ = ["beginning"]


def beginning(
    density: Density, model: CompiledModel, rng: np.random.Generator, *, permutes: bool = True
) -> tuple[Sequence[np.ndarray], np.ndarray, Surface, dict[str, Any]]:
    """Return where a search begins and what :func:`find_bulk` is told.

    Parameters
    ----------
    density : Density
        Compiled, at a single place; it is put into the coordinates of the beginning.
    model : CompiledModel
        Whose density it is.
    rng : numpy.random.Generator
        The chain's.
    permutes : bool
        Whether to look for modes by permutation.

    Returns
    -------
    phi : sequence of ndarray
        The place in these coordinates.
    start : ndarray
        The place, moved, shape (d,).
    surface : Surface
        The potential.
    how : dict
        ``permutable``, and where no units can be exchanged ``others`` and ``writing``.
    """
    # Of products of thousands of effects the scale falls to nothing where it multiplies random
    # ones; centred, the data lead the effects first
    many = float(model.dimension > LARGEST_DENSE)
    phi = density.rewritten(density.places[-1].phi, with_weight(model, density.scales, many))
    start, surface = density.jittered_start(phi), density.surface()
    if permutes and has_modes_by_permutation(surface, density.views[0].split, rng):
        return phi, start, surface, {"permutable": True}
    how: dict[str, Any] = {"permutable": False, "others": density.more_starts(phi)}
    # Of products, data tell one factor only as much as they tell of the other
    if model.weights(density.scales):
        how["writing"] = Writing(density, surface, model, rng)
    return phi, start, surface, how
