"""What the draws of a chain record of each variable."""

from __future__ import annotations

import numpy as np

from pymc_sgmcmc.chain.monitor import watched
from pymc_sgmcmc.chain.state import ChainState
from pymc_sgmcmc.kernel.engine import Engine
from pymc_sgmcmc.kernel.ravel import Ravel
from pymc_sgmcmc.kernel.whitening import parts_of_variances

NOISE, CENTRING, TEMPERATURE = "noise", "centring", "config_temperature"


def statistic_of(kind: str, name: str) -> str:
    """Return the name of a variable's statistic."""
    return f"{kind}[{name}]"


class ByVariable:
    """Numbers of each variable, by the name of the statistic; tuning sets the ``constant`` ones."""

    def __init__(self, engine: Engine, state: ChainState) -> None:
        settings, names = state.settings, [c.name for c in engine.posterior.coordinates]
        assert settings is not None and state.psi is not None
        self.constant = {
            statistic_of(NOISE, name): x for name, x in zip(names, settings.noise, strict=False)
        }
        for name, weight in engine.weights(state.scales).items():
            self.constant[statistic_of(CENTRING, name)] = float(np.mean(weight))
        sizes, each = [x.size for x in settings.centre or state.psi], np.arange(len(names))
        owners = np.repeat(each, sizes)
        blocks = Ravel([(x.size,) for x in state.psi]).split(np.arange(len(owners)))
        kept = watched(engine.posterior.on_line(blocks)).astype(int)
        # Of each variable the shares of what is watched, shape (variables, watched)
        shares = np.equal.outer(each, owners[kept]).astype(float)
        if isinstance(settings.root, np.ndarray):
            shares = shares @ parts_of_variances(settings.root)[np.ix_(kept, kept)]
        total = shares.sum(axis=1, keepdims=True)
        self._shares = shares / np.where(total > 0, total, np.nan)
        self._names = [statistic_of(TEMPERATURE, name) for name in names]

    def temperatures(self, away: np.ndarray, gradient: np.ndarray) -> dict[str, float]:
        """Return those of a finite draw, from what is watched of its ψ and the gradient there."""
        temperatures = (self._shares @ (away * gradient)).tolist()
        return dict(zip(self._names, temperatures, strict=True))
