"""Tuning beside other step methods, whose variables move from draw to draw.

Such a step samples a conditional law, another one at every draw. So it is tuned again while PyMC's
tuning draws run, at values of the other variables that the chain has met.
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
