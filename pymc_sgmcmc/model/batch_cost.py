"""How many numbers the log density of a batch computes."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from pymc.model import Model

from pymc_sgmcmc.model.data_checks import with_lengths
from pymc_sgmcmc.model.graphs import numbers_computed, rebuilt
from pymc_sgmcmc.model.initial_point import initial_point
from pymc_sgmcmc.model.minibatch import evaluate, full_arrays


def numbers_of_batch(model: Model, graphs: Sequence[Any], size: int) -> int:
    """Count the numbers that log densities of a batch compute, as :func:`numbers_computed`.

    Of ``pm.Data``, of sparse rows and of variables with dims only the values tell the lengths.
    """
    start = initial_point(model)
    known: dict[Any, Any] = {
        x: x.type.clone(shape=(size, *evaluate(source).shape[1:]))()
        for x, source in full_arrays(graphs).items()
    }
    rows = [*known, *known.values()]
    known |= {v: v.type.clone(shape=np.shape(start[str(v.name)]))() for v in model.value_vars}
    with suppress(NotImplementedError, TypeError, ValueError):
        graphs = with_lengths(model, rebuilt(graphs, known))
    return numbers_computed(graphs, [*known, *known.values()], rows)
