"""The first draws beside other step methods that are as far from the posterior as this one.

Where the others have not moved yet, the law of this step's variables given theirs is not the
posterior's, and with many rows it is as narrow as that: weights of a mixture go to 0 while its
centres are wrong, and do not come back. So the first draws take one Newton step each, which all
steps together make a descent of U along all variables.
"""

from __future__ import annotations

import numpy as np

from pymc_sgmcmc.chain.memory import Place
from pymc_sgmcmc.chain.state import ChainState
from pymc_sgmcmc.kernel.engine import Engine
from pymc_sgmcmc.tuning.density import Density
from pymc_sgmcmc.tuning.newton import newton, rows_of_a_search

__all__ = ["approached"]


def approached(engine: Engine, state: ChainState, place: Place) -> list[np.ndarray]:
    """Return PyMC's values after one step of descent, the first from a jittered start.

    Parameters
    ----------
    engine : Engine
        The compiled model.
    state : ChainState
        The chain's.
    place : Place
        Where the chain is, and what the others sample.
    """
    density = Density(engine, state, [place])
    engine.attempt(density.compile)
    start = density.jittered_start(place.phi)
    # What others move to from here is not to be left again
    state.jitter = 0.0
    surface = density.surface()
    found, _, _ = newton(surface, start, rows_of_a_search(surface, state.tuning_rng), most_steps=1)
    phi = density.views[0].split(found)
    return engine.values_at(phi, density.scales, place.others)
