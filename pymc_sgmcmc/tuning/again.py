"""Tuning beside other step methods, whose variables change from draw to draw.

Such a step samples another conditional distribution at every draw. So it is tuned again during
PyMC's tuning draws, at values of the other variables that the chain has visited.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pymc_sgmcmc.chain.memory import Place
from pymc_sgmcmc.chain.runner import Draw, Runner
from pymc_sgmcmc.kernel.engine import Engine
from pymc_sgmcmc.kernel.options import Options
from pymc_sgmcmc.schedules import Schedule
from pymc_sgmcmc.tuning.run import Tuning

__all__ = ["Companion"]

_TIMES = 5, 15, 40, 100, 250
# Share of the tuning draws after which the chain is tuned for the last time
_LAST = 2 / 3

# Most places averaged over by the last tuning, and by earlier ones
_MOST_PLACES, _FEW_PLACES = 7, 3

# Largest whitened coordinate of a plausible draw
_FARTHEST = 1e3


class Companion:
    """Keeps a chain tuned while other step methods move their variables."""

    def __init__(self, engine: Engine, options: Options) -> None:
        self._engine = engine
        self._options = options

    @staticmethod
    def times(tuning_draws: int) -> list[int]:
        """Return the draws after which a chain is tuned again; the last of them decides."""
        last = int(_LAST * tuning_draws)
        return [*(t for t in _TIMES if t < 0.8 * last), last] if last >= _TIMES[0] else []

    def before_draw(self, runner: Runner, others: Sequence[np.ndarray]) -> Runner:
        """Remember the present place, and tune again if it is time."""
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
        """Make a tuning draw; return it with the runner and the step size that made it.

        A draw that diverges is undone, and the chain is tuned where it stands.
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
