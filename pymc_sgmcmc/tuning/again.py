"""Tuning beside other step methods, whose variables move from draw to draw.

Such a step samples a conditional law, another one at every draw. So it is tuned again while PyMC's
tuning draws run, at values of the other variables that the chain has met. Beside discrete
variables it stands still in its first draws where the user has put its own, and the others find
their way from there: of indicators that all start at 0, a mixture would be one component before it
is any other.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pymc.initial_point import PointType
from pymc.model import Model
from pymc.vartypes import continuous_types, discrete_types
from pytensor.tensor.variable import TensorVariable

from pymc_sgmcmc.chain.memory import Place
from pymc_sgmcmc.chain.runner import Draw, Runner
from pymc_sgmcmc.chain.state import ChainState
from pymc_sgmcmc.kernel.engine import Engine
from pymc_sgmcmc.kernel.options import Options
from pymc_sgmcmc.schedules import Schedule
from pymc_sgmcmc.tuning.bulk import LARGEST_NEWTON
from pymc_sgmcmc.tuning.run import Tuning

__all__ = ["Companion"]

_TIMES = 5, 15, 40, 100, 250
# Draws that are steps of descent. Twenty of them lead a mixture from nine in ten starts to where steps
# along all variables at once do, five from one in ten
_MOST_STEPS = 20
# Share of the tuning draws after which the chain is tuned for the last time
_LAST = 2 / 3

# Most places that the last tuning averages over, and that those before do
_MOST_PLACES, _FEW_PLACES = 7, 3

# A whitened coordinate that no sane draw exceeds
_FARTHEST = 1e3


class Companion:
    """Keeps a chain tuned to what the other step methods do.

    Parameters
    ----------
    engine : Engine
        The compiled model.
    options : Options
        What the user set.
    """

    def __init__(self, engine: Engine, options: Options) -> None:
        self._engine = engine
        self._options = options

    @staticmethod
    def times(tuning_draws: int) -> list[int]:
        """Return after how many draws a chain is tuned again; the last of them decides."""
        last = int(_LAST * tuning_draws)
        return [*(t for t in _TIMES if t < 0.8 * last), last] if last >= _TIMES[0] else []

    @staticmethod
    def stands_still(
        model: Model, others: Sequence[TensorVariable], point: PointType, state: ChainState
    ) -> bool:
        """Return whether the next draw is left to the other steps.

        It is where there are discrete variables, unless the user gave them a start: it is then
        the better known one. Continuous ones are not waited for: given effects that are all 0 at
        the start, their scale would fall to nothing.
        """
        times = Companion.times(state.tuning_draws)
        if state.psi is not None or not times or state.draw >= times[0]:
            return False
        if state.draw:
            return True
        usual = model.initial_point()

        def given(value: TensorVariable) -> bool:
            initval = model.rvs_to_initial_values[model.values_to_rvs[value]]
            return initval is not None or not np.array_equal(point[value.name], usual[value.name])

        discrete = [value for value in others if value.dtype in discrete_types]
        return len(discrete) > 0 and not any(map(given, discrete))

    @staticmethod
    def approaches(others: Sequence[TensorVariable], state: ChainState, dimension: int) -> bool:
        """Return whether the next draw is a step towards where all steps together are going."""
        times = Companion.times(state.tuning_draws)
        most = min(_MOST_STEPS, times[-1] // 2) if times else 0
        first = state.psi is None and state.draw < most
        moving = any(value.dtype in continuous_types for value in others)
        return first and moving and dimension <= LARGEST_NEWTON

    def before_draw(self, runner: Runner, others: Sequence[np.ndarray]) -> Runner:
        """Remember the present place; tune again where it is time to."""
        state = runner.state
        place = Place(list(others), runner.phi(), state.scales)
        state.memory.add(place)
        times = self.times(state.tuning_draws)
        last = state.draw in times[-1:]
        if state.draw not in times or (state.updates == 0 and not last):
            return runner
        runner.settle()
        places = [*state.memory.recent(_MOST_PLACES if last else _FEW_PLACES), place]
        return Tuning(self._engine, self._options, state, places, again=True).run(thorough=last)

    def draw(
        self,
        runner: Runner,
        step_size: float | Schedule,
        others: Sequence[np.ndarray],
    ) -> tuple[Runner, float | Schedule, Draw]:
        """Make a tuning draw; one that runs away is undone, and the chain tuned where it stands.

        Returns
        -------
        runner : Runner
        step_size : float or callable
            The step size with which the draw was made.
        draw : Draw
        """
        state = runner.state
        assert state.psi is not None
        psi, extra = state.psi, state.extra
        draw = runner.advance(step_size, runner.settings.thin, others)
        if not draw.rejected and max(np.abs(x).max(initial=0.0) for x in state.psi) < _FARTHEST:
            return runner, step_size, draw
        runner.restart(psi, extra)
        place = Place(list(others), runner.phi(), state.scales)
        runner = Tuning(self._engine, self._options, state, [place], again=True).run(thorough=False)
        if runner.settings.step_size is not None and not callable(step_size):
            step_size = runner.settings.step_size
        return runner, step_size, runner.advance(step_size, runner.settings.thin, others)
