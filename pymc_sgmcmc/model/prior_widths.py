"""How wide the priors are."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pymc as pm

from pymc_sgmcmc.backends.compiling import INTERPRETER
from pymc_sgmcmc.model.coordinates import Coordinate

__all__ = ["prior_widths"]

_DRAWS = 16

# Of the distance of two draws of a normal law
_SD_OF_MEDIAN = 1.4826 / np.sqrt(2)


def prior_widths(coordinates: Sequence[Coordinate], seed: int) -> list[float]:
    """Return an sd of each variable's prior, in its coordinates.

    It comes from the median distance of two prior draws over all elements; it is 1 where θ is not
    the coordinate, as for bounded variables and standardised hierarchies.
    """
    plain = [c.rv for c in coordinates if c.transform is None]
    drawn = iter(pm.draw(plain, draws=_DRAWS, random_seed=seed, mode=INTERPRETER) if plain else ())
    widths = []
    for c in coordinates:
        if c.transform is not None:
            widths.append(1.0)
            continue
        x = np.asarray(next(drawn), dtype=float)
        width = _SD_OF_MEDIAN * float(np.median(np.abs(x[::2] - x[1::2])))
        widths.append(width if np.isfinite(width) and width > 0 else 1.0)
    return widths
