"""PyMC's checks after sampling, made fast where there are many parameters."""

from __future__ import annotations

from collections.abc import Sequence

from pymc.model import Model
from pytensor.tensor.variable import TensorVariable

from pymc_sgmcmc.step.memory import parameters

__all__ = ["prepare_checks"]

# From here on ArviZ takes longer, one parameter after the other, than it takes to import it
_MANY = 1000


def prepare_checks(model: Model, values: Sequence[TensorVariable]) -> None:
    """Let ArviZ compute effective draws and R-hat of many parameters at once.

    PyMC looks at both after sampling, and no argument of its says how they are computed. ArviZ's
    ``rcParams["stats.module"]`` does: what it gives stays the same to rounding. A module that the
    user has chosen stays.
    """
    if parameters(model, values) < _MANY:
        return
    # ArviZ takes a second to import, and imports JAX where it is installed
    from arviz_base import rcParams

    from pymc_sgmcmc.convergence import arviz_stats

    if rcParams["stats.module"] == "base":
        rcParams["stats.module"] = arviz_stats
