"""What PyMC's log likelihood of a model with ``pm.Minibatch`` is, told where it is asked for."""

from __future__ import annotations

import logging

from pymc.model import Model

from pymc_sgmcmc.model.minibatch import find_minibatches

__all__ = ["tell_log_likelihood"]

_log = logging.getLogger("pymc.sgmcmc")


def tell_log_likelihood(model: Model) -> None:
    """Say in the log that it is of one batch, if the model draws batches by ``pm.Minibatch``."""
    values = [model.rvs_to_values[rv] for rv in model.observed_RVs]
    if find_minibatches([*model.observed_RVs, *values]):
        _log.warning(
            "PyMC's log_likelihood of a model with pm.Minibatch is that of one batch. For all "
            "rows, pass model=sg.full_data(model) to pm.compute_log_likelihood."
        )
