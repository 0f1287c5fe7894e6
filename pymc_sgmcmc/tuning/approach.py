"""The first draws beside other step methods that are as far from the posterior as this one.

Where the others have not moved yet, the law of this step's variables given theirs is not the
posterior's, and with many rows it is as narrow as that: weights of a mixture go to 0 while its
centres are wrong, and do not come back. So beside continuous variables the first draws take one
Newton step each, which all steps together make a descent of U along all variables.

Beside discrete variables the step stands still where the user has put its own, and the others find
their way from there: of indicators that all start at 0, a mixture would be one component before it
is any other.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import numpy as np

from pymc.initial_point import PointType
from pymc.model import Model
from pymc.vartypes import continuous_types, discrete_types
from pytensor.tensor.variable import TensorVariable

from pymc_sgmcmc.chain.memory import Place
from pymc_sgmcmc.chain.state import ChainState
from pymc_sgmcmc.kernel.engine import Engine
from pymc_sgmcmc.kernel.options import Options
from pymc_sgmcmc.kernel.potential import Potential
from pymc_sgmcmc.tuning.again import Companion
from pymc_sgmcmc.tuning.bulk import LARGEST_NEWTON
from pymc_sgmcmc.tuning.density import Density
from pymc_sgmcmc.tuning.newton import newton, rows_of_a_search
from pymc_sgmcmc.tuning.surface import TuningError

__all__ = ["before_tuning", "descends"]

# Draws that are steps of descent. After five a mixture of three is still on its way; twenty lead it
# to its centres from as many starts as steps along all variables at once do
_MOST_STEPS = 20


def before_tuning(
    model: Model, engine: Engine, options: Options, point: PointType, state: ChainState
) -> PointType | None:
    """Return the point after a draw that comes before all tuning, None where it is time to tune.

    Parameters
    ----------
    model : pymc.Model
        The model.
    engine : Engine
        The compiled model.
    options : Options
        What the user set.
    point : dict
        PyMC's point.
    state : ChainState
        The chain's.
    """
    others = engine.posterior.others
    if not others or state.psi is not None or options.is_complete():
        return None
    if _stands_still(model, others, point, state):
        return dict(point)
    if not descends(others, state, engine.dimension):
        return None
    place = Place([np.array(point[x.name]) for x in others], *engine.express(point))
    values = _descended(engine, state, place)
    return {**point, **dict(zip((str(x.name) for x in engine.values), values, strict=True))}


def descends(others: Sequence[TensorVariable], state: ChainState, dimension: int) -> bool:
    """Return whether the next draw is a step of descent."""
    times = Companion.times(state.tuning_draws)
    moving = any(value.dtype in continuous_types for value in others)
    most = min(_MOST_STEPS, times[-1] // 2) if times and moving else 0
    return dimension <= LARGEST_NEWTON and state.draw < most


def _descended(engine: Engine, state: ChainState, place: Place) -> list[np.ndarray]:
    """Return PyMC's values after one Newton step, the first from a jittered start."""
    density = Density(engine, state, [place])
    engine.attempt(density.compile)
    start = Potential.join(place.phi)
    if state.jitter:
        # Half as far as alone: the others' starts are moved, too, and a mixture's components would
        # sooner come to share a cluster
        state.jitter /= 2
        start = density.jittered_start(place.phi)
        # What the others move to from here is not to be left again
        state.jitter = 0.0
    surface = density.surface()
    with suppress(TuningError):  # tuning has other ways
        rows = rows_of_a_search(surface, state.tuning_rng)
        start, _, _ = newton(surface, start, rows, most_steps=1)
    return engine.values_at(density.views[0].split(start), density.scales, place.others)


def _stands_still(
    model: Model, others: Sequence[TensorVariable], point: PointType, state: ChainState
) -> bool:
    """Return whether the next draw is left to the other steps.

    It is where there are discrete variables, unless the user gave them a start: it is then
    the better known one. Continuous ones are not waited for: given effects that are all 0 at
    the start, their scale would fall to nothing.
    """
    times = Companion.times(state.tuning_draws)
    if not times or state.draw >= times[0]:
        return False
    if state.draw:
        return True
    usual = model.initial_point()

    def given(value: TensorVariable) -> bool:
        initval = model.rvs_to_initial_values[model.values_to_rvs[value]]
        return initval is not None or not np.array_equal(point[value.name], usual[value.name])

    discrete = [value for value in others if value.dtype in discrete_types]
    return len(discrete) > 0 and not any(map(given, discrete))
