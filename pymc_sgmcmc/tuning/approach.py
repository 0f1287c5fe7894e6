"""The first draw beside other step methods, which start as far from the posterior as this one.

Before the others have moved, the conditional distribution of this step's variables is not the
posterior's, and with many rows it is as narrow: weights of a mixture go to 0 while its centres are
wrong, and the scale of effects that are all at their start falls to 0. Neither recovers. So the
first of the package's steps searches for the bulk of the joint density of all continuous variables,
in the coordinates in which it would sample them alone, and all steps begin there.

Beside discrete variables the step stays at its start while the others move: a mixture whose
indicators all start at 0 would otherwise be fitted as a single component first.

The common start of a chain is noted in the model, which all its steps share.
"""

from __future__ import annotations

import logging
import time

from collections.abc import Sequence

import numpy as np

from pymc.exceptions import SamplingError
from pymc.initial_point import PointType
from pymc.model import Model
from pymc.vartypes import continuous_types, discrete_types
from pytensor.gradient import NullTypeGradError
from pytensor.tensor.variable import TensorVariable
from threadpoolctl import threadpool_limits

from pymc_sgmcmc.chain.memory import Place
from pymc_sgmcmc.chain.state import ChainState
from pymc_sgmcmc.kernel.engine import Engine
from pymc_sgmcmc.model.initial_point import initial_point
from pymc_sgmcmc.tuning.again import Companion
from pymc_sgmcmc.tuning.bulk import find_bulk
from pymc_sgmcmc.tuning.density import Density
from pymc_sgmcmc.tuning.parametrisation import beginning
from pymc_sgmcmc.tuning.surface import TuningError

__all__ = ["common_start", "stands_still"]

_log = logging.getLogger("pymc.sgmcmc")

# Errors if no joint bulk is found, or if variables of other steps have no gradient: each step is
# then tuned from its own start
_NO_BULK = (TuningError, SamplingError, ValueError, NotImplementedError, NullTypeGradError)

# Packages whose step methods keep their variables' values to themselves, as sums of trees: these
# would not follow, and with their flat priors would explain the data
_KEPT = ("pymc_bart",)


def common_start(engine: Engine, point: PointType, state: ChainState, model: Model) -> PointType:
    """Return PyMC's point with all continuous variables in the bulk of their joint density.

    The point is unchanged if the step samples them all, an earlier step has moved it, or no bulk is
    found. With a common start ``state.jitter`` becomes 0.
    """
    moving = [value for value in engine.posterior.others if value.dtype in continuous_types]
    if not moving or not engine.posterior.has_value:
        return point
    if any(_is_kept(engine.model.values_to_rvs[value]) for value in moving):
        return point
    noted = model.value_vars[0].tag
    if not noted.begin_together:
        began = time.perf_counter()
        try:
            with threadpool_limits(limits=1, user_api="blas"):
                found = _bulk_of_all(engine.joint(point), point, state)
        except _NO_BULK as error:
            _log.debug("Each step begins where it stands: no joint bulk was found (%s).", error)
            return point
        _log.debug("Found where all steps begin in %.1f s.", time.perf_counter() - began)
        noted.begin_together = True
        point = {**point, **found}
    # Steps with a common start are not jittered again
    state.jitter = 0.0
    return point


def _is_kept(rv: TensorVariable) -> bool:
    return type(rv.owner.op).__module__.partition(".")[0] in _KEPT


def _bulk_of_all(joint: Engine, point: PointType, state: ChainState) -> PointType:
    """Return PyMC's values in the bulk, by name."""
    place = Place([np.array(point[x.name]) for x in joint.posterior.others], *joint.express(point))
    density = Density(joint, state, [place])
    joint.attempt(density.compile)
    _, start, surface, how = beginning(density, joint, state.tuning_rng)
    centre, _, _ = find_bulk(
        surface, start, density, "auto", state.tuning_rng, lambda _: None, **how
    )
    values = joint.values_at(density.views[0].split(centre), density.scales, place.others)
    return dict(zip((str(x.name) for x in joint.values), values, strict=True))


def stands_still(
    model: Model, others: Sequence[TensorVariable], point: PointType, state: ChainState
) -> bool:
    """Return whether the next draw is left to the other steps.

    It is, until the first tuning, with discrete variables to which the user gave no start.
    """
    times = Companion.times(state.tuning_draws)
    discrete = [value for value in others if value.dtype in discrete_types]
    if not discrete or not times or state.draw >= times[0]:
        return False
    if state.draw:
        return True
    usual = initial_point(model)

    def given(value: TensorVariable) -> bool:
        initval = model.rvs_to_initial_values[model.values_to_rvs[value]]
        return initval is not None or not np.array_equal(point[value.name], usual[str(value.name)])

    return not any(map(given, discrete))
