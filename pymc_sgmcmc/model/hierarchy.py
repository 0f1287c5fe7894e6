"""Which variables have a location or a scale that is itself sampled."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from pymc.logprob.transforms import Transform
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random.basic import (
    CauchyRV,
    GumbelRV,
    LaplaceRV,
    LogisticRV,
    NormalRV,
    StudentTRV,
)
from pytensor.tensor.variable import TensorVariable

__all__ = ["LOCATION_SCALE", "depends_on", "is_hierarchical"]

LOCATION_SCALE = (NormalRV, StudentTRV, LaplaceRV, CauchyRV, LogisticRV, GumbelRV)


def is_hierarchical(
    rv: TensorVariable, transform: Transform | None, sampled: Collection[Variable]
) -> bool:
    """Return whether a location-scale variable has sampled variables among its parents.

    Parameters
    ----------
    rv : TensorVariable
        The variable.
    transform : Transform or None
        Its transform in the model; with one it is left as it is.
    sampled : collection of Variable
        The variables that the step samples.
    """
    if transform is not None or not isinstance(rv.owner.op, LOCATION_SCALE):
        return False
    return depends_on(rv.owner.inputs[-2:], sampled)


def depends_on(graphs: Sequence[Variable], variables: Collection[Variable]) -> bool:
    """Return whether one of the variables is in the graphs."""
    return any(found in variables for found in ancestors(list(graphs)))
