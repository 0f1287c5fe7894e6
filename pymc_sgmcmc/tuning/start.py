"""Where the search for a posterior's bulk begins, and in which coordinates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pymc_sgmcmc.kernel.potential import Potential
from pymc_sgmcmc.model.recognise import LARGEST_DENSE
from pymc_sgmcmc.tuning.density import Density
from pymc_sgmcmc.tuning.exchangeable import has_modes_by_permutation
from pymc_sgmcmc.tuning.modes import further_starts
from pymc_sgmcmc.tuning.parametrisation import Parametrisation, uniform
from pymc_sgmcmc.tuning.surface import Surface


@dataclass(frozen=True)
class Beginning:
    """Where a search for the bulk begins, and what it may use."""

    surface: Surface
    density: Density  # whose coordinates the search changes
    start: np.ndarray  # of shape (d,): jittered, or where a chain is that goes on
    phi: Sequence[np.ndarray] = ()  # the start without a jitter, if it may be needed again
    parametrisation: Parametrisation | None = None  # of a hierarchy
    exchangeable: bool = False  # modes by permutation; in many dimensions L is then diagonal
    further_starts: Sequence[np.ndarray] = ()  # for modes of more mass


def beginning(density: Density, *, permutes: bool = True) -> Beginning:
    """Return where a chain's search begins, and put the density into the coordinates of it.

    The density is compiled at a single place.
    """
    engine, rng = density.engine, density.rng
    # A scale that multiplies thousands of random effects falls to 0; in centred coordinates the
    # data determine the effects first
    share = float(engine.dimension > LARGEST_DENSE)
    phi = density.rewritten(density.places[-1].phi, uniform(density, share))
    start, surface = density.jittered_start(phi), density.surface()
    exchangeable = permutes and has_modes_by_permutation(surface, density.views[0].split, rng)
    further = further_starts(surface, Potential.join(phi), density.jitter, rng)
    parametrisation = None
    # The data determine one factor of a product only as well as the other
    if not exchangeable and engine.weights(density.scales):
        parametrisation = Parametrisation(density, surface)
    return Beginning(surface, density, start, phi, parametrisation, exchangeable, further)
