"""A step beside other step methods, whose variables change from draw to draw.

Such a step samples another conditional distribution at every draw. So it is tuned again during
PyMC's tuning draws, at values of the other variables that the chain has visited.

Its first draw would be in a conditional distribution that is not the posterior's and, with many
rows, as narrow: weights of a mixture go to 0 while its centres are wrong, and the scale of effects
that are all at their start falls to 0. Neither recovers. So the first of the package's steps
searches for the bulk of the joint density of all continuous variables, in the coordinates in which
it would sample them alone, and all steps begin there; this is noted in the model, which they share.
Beside discrete variables the step stays at its start while the others move: a mixture whose
indicators all start at 0 would otherwise be fitted as a single component first.
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
from pymc_sgmcmc.chain.runner import Draw, Runner
from pymc_sgmcmc.chain.state import ChainState
from pymc_sgmcmc.kernel.engine import Engine
from pymc_sgmcmc.kernel.options import Options
from pymc_sgmcmc.model.initial_point import is_given
from pymc_sgmcmc.model.properties import is_sum_of_trees
from pymc_sgmcmc.schedules import Schedule
from pymc_sgmcmc.tuning.bulk import find_bulk
from pymc_sgmcmc.tuning.density import Density
from pymc_sgmcmc.tuning.report import LoggedLines
from pymc_sgmcmc.tuning.run import Tuning
from pymc_sgmcmc.tuning.start import beginning
from pymc_sgmcmc.tuning.surface import NoGaussianError, TuningError
from pymc_sgmcmc.tuning.trial_chain import DIVERGED

_log = logging.getLogger("pymc.sgmcmc")

# Draws after which a chain is tuned again, and the share of the tuning draws after which for the
# last time; none of the first within the last fifth before that
_TIMES, _LAST, _BEFORE_LAST = (5, 15, 40, 100, 250), 2 / 3, 0.8

# Most places averaged over by the last tuning, and by earlier ones
_MOST_PLACES, _FEW_PLACES = 7, 3

# Errors if no joint bulk is found, or if variables of other steps have no gradient: each step is
# then tuned from its own start
_NO_BULK = (
    TuningError, NoGaussianError, SamplingError, ValueError, NotImplementedError,
    NullTypeGradError,
)  # fmt: skip


def times_of_tuning(tuning_draws: int) -> list[int]:
    """Return the draws after which a chain is tuned again; the last of them decides."""
    last = int(_LAST * tuning_draws)
    return [*(t for t in _TIMES if t < _BEFORE_LAST * last), last] if last >= _TIMES[0] else []


class Companion:
    """Keeps a chain tuned while other step methods move their variables."""

    def __init__(self, engine: Engine, options: Options, logged: LoggedLines) -> None:
        self._engine, self._options, self._logged = engine, options, logged

    def before_draw(self, runner: Runner, others: Sequence[np.ndarray]) -> Runner:
        """Remember the present place, and tune again if it is time."""
        state = runner.state
        place = Place(list(others), runner.phi(), state.scales)
        state.memory.add(place)
        if runner.settings.adapts:
            return runner  # it has no Gaussian to fit again, and large gradients lower its step
        times = times_of_tuning(state.tuning_draws)
        last = state.draw in times[-1:]
        if state.draw not in times or (state.updates == 0 and not last):
            return runner
        runner.settle()
        places = [*state.memory.recent(_MOST_PLACES if last else _FEW_PLACES), place]
        return self._tuned(state, places, trials=last)

    def draw(
        self, runner: Runner, step_size: float | Schedule, others: Sequence[np.ndarray]
    ) -> tuple[Runner, float | Schedule, Draw]:
        """Make a tuning draw; return it with the runner and the step size that made it.

        A draw that diverges is undone, and the chain is tuned where it stands.
        """
        state = runner.state
        assert state.psi is not None
        psi, extra = state.psi, state.extra
        draw = runner.advance(step_size, runner.settings.thin, others)
        origin = runner.settings.origin(state.psi)
        away = [np.abs(x - o).max(initial=0.0) for x, o in zip(state.psi, origin, strict=True)]
        # In coordinates that the user chose, distances have no known unit
        in_sds = isinstance(self._options.scale, str)
        if not draw.rejected and (not in_sds or max(away) < DIVERGED):
            return runner, step_size, draw
        found = runner.settings.warnings
        runner.restart(psi, extra)
        place = Place(list(others), runner.phi(), state.scales)
        runner = self._tuned(state, [place], trials=False)
        settings = runner.settings
        # What trials have found still holds
        settings.warnings = found or settings.warnings
        if settings.step_size is not None and not callable(step_size):
            step_size = settings.step_size = min(settings.step_size, step_size)
        return runner, step_size, runner.advance(step_size, runner.settings.thin, others)

    def _tuned(self, state: ChainState, places: Sequence[Place], *, trials: bool) -> Runner:
        tuning = Tuning(self._engine, self._options, state, places, self._logged, again=True)
        return tuning.run(trials=trials)


def joint_start(engine: Engine, point: PointType, state: ChainState, model: Model) -> PointType:
    """Return PyMC's point with all continuous variables in the bulk of their joint density.

    The point is unchanged if the step samples them all, an earlier step has moved it, or no bulk is
    found. With a joint start ``state.jitter`` becomes 0: steps that share it are not jittered.
    """
    moving = [value for value in engine.posterior.others if value.dtype in continuous_types]
    if not moving or not engine.posterior.has_value:
        return point
    if any(is_sum_of_trees(engine.model.values_to_rvs[value]) for value in moving):
        return point
    noted, own = model.value_vars[0].tag, [str(x.name) for x in engine.values]
    begun = noted.begin_together
    # Chains that are sampled in turn have a start each
    if not all(name in begun and np.array_equal(point[name], begun[name]) for name in own):
        began = time.perf_counter()
        try:
            with threadpool_limits(limits=1, user_api="blas"):
                start = _bulk_of_all(engine.joint(point), point, state)
        except _NO_BULK as error:
            _log.debug(
                "No common start of all steps was found (%s): each begins where it is.", error
            )
            return point
        _log.debug("A common start of all steps was found in %.1f s.", time.perf_counter() - began)
        noted.begin_together = start
        point = {**point, **start}
    state.jitter = 0.0
    return point


def _bulk_of_all(joint: Engine, point: PointType, state: ChainState) -> PointType:
    """Return PyMC's values in the bulk, by name."""
    place = Place([np.array(point[x.name]) for x in joint.posterior.others], *joint.express(point))
    density = Density(joint, state, [place])
    joint.attempt(density.compile)
    centre, _, _ = find_bulk(beginning(density), state.tuning_rng, lambda _: None)
    values = joint.values_at(density.views[0].split(centre), density.scales, place.others)
    return dict(zip((str(x.name) for x in joint.values), values, strict=True))


def skips_draw(
    model: Model, others: Sequence[TensorVariable], point: PointType, state: ChainState
) -> bool:
    """Return whether the next draw is left to the other steps.

    It is, until the first tuning, with discrete variables to which the user gave no start.
    """
    times = times_of_tuning(state.tuning_draws)
    discrete = [value for value in others if value.dtype in discrete_types]
    if not discrete or not times or state.draw >= times[0]:
        return False
    if state.draw:
        return True
    initvals = [model.rvs_to_initial_values[model.values_to_rvs[value]] for value in discrete]
    return all(initval is None for initval in initvals) and not is_given(model, point, discrete)
